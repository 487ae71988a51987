"""The line of progress at a real terminal: drawn late, gone when something is printed, never anywhere else."""

import io
import os
import sys

import pytest

from capibara_assets.cli.terminal import progress
from capibara_assets.cli.terminal.progress import ProgressLine, showing, time_left
from capibara_assets.escaping.terminal import PlainStream
from capibara_assets.processes.progress import QUIET, tracked
from capibara_assets_tests.cli.terminal.conftest import Terminal
from capibara_assets_tests.waiting import until

ERASE = "\r\x1b[2K"


def test_the_line_counts_estimates_and_goes_away(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = PlainStream(terminal.stream)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "_EVERY_S", 0.01)
    with showing("verifying"):
        for number in tracked(range(4), "packs"):
            until(lambda number=number: f"verifying: packs {number} of 4" in terminal.so_far())
            if number == 2:
                until(lambda: "left" in terminal.so_far())
                print("a result \x1b[31m", flush=True)
    print("after", flush=True)
    seen = terminal.seen().replace("\r\n", "\n")
    before, _, rest = seen.partition("a result")
    assert before.endswith(ERASE), "the line is off the screen before something is printed"
    assert rest.startswith(" \\u001b[31m\n"), "what is foreign stays visible text"
    assert seen.endswith(f"{ERASE}after\n") and "verifying" not in rest.rpartition(ERASE)[2]


def test_a_quick_command_and_a_quiet_one_draw_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", PlainStream(terminal.stream))
    monkeypatch.setattr(progress, "_EVERY_S", 0.01)
    with showing("quick"):
        pass
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setenv(QUIET, "1")
    with showing("quiet"):
        assert not progress._line
    assert terminal.seen() == ""


def test_nothing_is_drawn_where_no_terminal_is(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = io.StringIO()
    monkeypatch.setattr(sys, "stderr", PlainStream(kept))
    with showing("piped"):
        assert not progress._line
        print("an error", file=sys.stderr)
    assert kept.getvalue() == "an error\n"


def test_the_line_fits_the_terminal_and_its_time_left_is_at_the_pace_so_far() -> None:
    clock = [0.0]
    line = ProgressLine("merging", PlainStream(io.StringIO()), lambda: clock[0])
    assert line.text(80) == "merging  0:00"
    line.report("tensors", 10, 100)
    clock[0] = 30.0
    line.report("tensors", 20, 100)
    said = line.text(80)
    assert said.startswith("merging: tensors 20 of 100  ") and said.endswith("  4:00 left")
    assert line.text(30) == "merging: tensors 20 of 100  4"
    line.report("files", 3, None)
    assert line.text(80) == "merging: files 3  0:30"
    assert time_left(0, 5, 10.0) is None and time_left(2, 4, 3.0) == 6.0


def test_a_forked_process_prints_and_does_not_draw(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = PlainStream(terminal.stream)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "_EVERY_S", 0.001)
    with showing("forking"):
        until(lambda: "forking" in terminal.so_far())
        for _ in range(20):
            child = os.fork()
            if not child:
                print("child", file=sys.stderr, flush=True)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    assert terminal.seen().count("child") == 20
