"""docs/evidence: every promise is told apart as ok, stale, red or not run; what shows it exists."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from benchmarks import evidence
from benchmarks.promises import Line, bench
from benchmarks.registry import BENCHES, STAGES

LINES = [line for lines in evidence.STAGES.values() for line in lines]
TESTS = Path(__file__).parents[1]
OLD = {"a" * 40: 101, "b" * 40: 100, "c" * 40: None}


def line(promise: str) -> Line:
    return Line(promise, ("pytest",), str, bool)


@pytest.fixture
def one_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stage "graph" with promises of every state, in a folder of its own."""
    entries: list[dict[str, Any]] = [
        {"line": "recent", "commit": "b" * 40, "figure": 1.5, "holds": True},
        {"line": "old", "commit": "a" * 40, "figure": 2, "holds": True},
        {"line": "elsewhere", "commit": "c" * 40, "figure": 3, "holds": True},
        {"line": "wrong", "commit": "b" * 40, "figure": 4, "holds": False},
        {"line": "failed", "commit": "b" * 40, "figure": None, "holds": False, "missing": "it ended with 1"},
        {"line": "left out", "commit": "b" * 40, "figure": None, "holds": None, "missing": "no ../shared"},
    ]
    (tmp_path / "graph.json").write_text(json.dumps({"lines": entries}))
    promises = tuple(line(entry["line"]) for entry in entries)
    monkeypatch.setattr(evidence, "FOLDER", tmp_path)
    monkeypatch.setitem(evidence.STAGES, "graph", (*promises, line("new")))
    monkeypatch.setattr(evidence, "commits_since", OLD.__getitem__)
    return tmp_path


@pytest.mark.usefixtures("one_stage")
def test_check_tells_what_became_of_each_promise() -> None:
    found = {state.promise: (state.word, state.why) for state in evidence.states(["graph"])}
    assert found == {
        "recent": ("ok", "1.5 at bbbbbbbb, 100 commits ago"),
        "old": ("stale", "2 at aaaaaaaa, 101 commits ago"),
        "elsewhere": ("stale", "3 at cccccccc, which is not in this history"),
        "wrong": ("RED", "4 at bbbbbbbb"),
        "failed": ("RED", "it ended with 1"),
        "left out": ("not run", "no ../shared"),
        "new": ("not run", "no figure in docs/evidence"),
    }
    done = CliRunner().invoke(evidence.evidence, ["graph", "--check"])
    assert done.exit_code == 1
    assert done.stdout.splitlines()[-1] == "1 ok, 2 stale, 2 RED, 2 not run; of 7 lines"


def test_writing_keeps_what_held_at_this_commit_and_says_what_did_not_run(
    one_stage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: tuple[str, ...]) -> str:
        raise evidence.CommandFailed("no peers")

    monkeypatch.setattr(evidence, "run", run)
    assert evidence.write_stage("graph", "b" * 40) == 6
    written = {entry["line"]: entry for entry in json.loads((one_stage / "graph.json").read_text())["lines"]}
    assert written["recent"]["figure"] == 1.5
    assert {name for name, entry in written.items() if entry.get("missing") == "no peers"} == set(written) - {"recent"}


def test_a_bench_can_be_left_out_and_the_file_says_so(one_stage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long, short = Line("long", bench("vote", "--seeds", "9"), str, bool), Line("short", bench("votes"), str, bool)
    monkeypatch.setitem(evidence.STAGES, "graph", (long, short))
    monkeypatch.setattr(evidence, "run", lambda command: "one figure")
    done = CliRunner().invoke(evidence.evidence, ["graph", "--without", "vote"])
    assert done.exit_code == 1
    written = {entry["line"]: entry for entry in json.loads((one_stage / "graph.json").read_text())["lines"]}
    assert written["long"]["missing"] == "left out by --without vote" and written["long"]["holds"] is None
    assert written["short"]["figure"] == "one figure"


def test_one_promise_can_be_measured_alone(one_stage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "run", lambda command: 7)
    before = {entry["line"]: entry for entry in json.loads((one_stage / "graph.json").read_text())["lines"]}
    CliRunner().invoke(evidence.evidence, ["graph", "--only", "elsewh"])
    written = {entry["line"]: entry for entry in json.loads((one_stage / "graph.json").read_text())["lines"]}
    assert written.pop("elsewhere")["figure"] == "7"
    assert written.pop("new")["missing"] == "left out by --only 'elsewh'"
    assert written == {name: entry for name, entry in before.items() if name != "elsewhere"}


def test_what_is_left_out_or_not_reached_keeps_its_figure(one_stage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vote = bench("vote")
    monkeypatch.setitem(evidence.STAGES, "graph", (Line("old", vote, str, bool), line("recent"), line("elsewhere")))

    def run(command: tuple[str, ...]) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(evidence, "run", run)
    leave_out = partial(evidence.reason_to_leave_out, without=("vote",))
    with pytest.raises(KeyboardInterrupt):
        evidence.write_stage("graph", "d" * 40, leave_out)
    written = json.loads((one_stage / "graph.json").read_text())["lines"]
    assert [(one["line"], one["figure"], one["commit"][0]) for one in written] == [
        ("old", 2, "a"), ("recent", 1.5, "b"), ("elsewhere", 3, "c"),
    ]  # fmt: skip


def test_the_age_of_a_commit_is_counted_in_commits() -> None:
    assert evidence.commits_since("HEAD") == 0
    assert evidence.commits_since("0" * 40) is None


def test_all_eight_stages_have_promises() -> None:
    assert tuple(evidence.STAGES) == STAGES and len(STAGES) == 8
    assert all(evidence.STAGES.values())
    assert {bench.stage for bench in BENCHES.values()} == set(STAGES)


@pytest.mark.parametrize("command", sorted({line.command for line in LINES}), ids=" ".join)
def test_what_shows_a_promise_exists(command: tuple[str, ...]) -> None:
    """A bench that takes these options, or test modules that are there."""
    if command[:3] == ("python", "-m", "benchmarks"):
        bench = BENCHES[command[3]].load()
        assert isinstance(bench.make_context(command[3], list(command[4:])), click.Context)
        return
    if command[0] == "capibara":
        assert command[1] == "plan"
        return
    files = [part.split("::")[0] for part in command if part.endswith(".py") or "::" in part]
    assert command[0] == "pytest" and files
    assert [file for file in files if not (TESTS.parent / file).is_file()] == []


def test_red_lines_end_the_process_with_1() -> None:
    command = [sys.executable, "-m", "benchmarks", "evidence", "graph", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=TESTS.parent, check=False)
    states = {state.word for state in evidence.states(["graph"])}
    assert done.returncode == int(states != {"ok"}), done.stdout[-300:]
