"""The journal: lines of many processes, each whole, and none lost behind one that a crash cut off."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.storage.journal import append, opened_alone, parsed, read_lines, summed, undamaged

HERE = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
WRITER = """
import json, sys
from pathlib import Path
from capibara_assets.storage.journal import append
for number in range(200):
    append(Path(sys.argv[1]), json.dumps({"by": sys.argv[2], "number": number, "text": "x" * 2000}).encode())
"""


def lines(path: Path) -> list[dict[str, object]]:
    return list(read_lines(path).entries.values())


def test_a_torn_line_is_not_read_and_swallows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "journal.jsonl"
    assert read_lines(path).entries == {}
    append(path, b'{"a": 1}')
    with path.open("ab") as file:
        file.write(b'{"a": 2, "b"')  # killed
    torn = read_lines(path)
    assert torn.entries == {1: {"a": 1}} and list(torn.damaged) == [2]
    append(path, b'{"a": 3}')
    append(path, b'{"a": 4}')
    assert lines(path) == [{"a": 1}, {"a": 3}, {"a": 4}]
    assert path.read_bytes() == b'{"a": 1}\n{"a": 2, "b"\n{"a": 3}\n{"a": 4}\n'


def test_damaged_lines_are_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"a": 1}\n\xff\x00\n\n[1]\n{"a": 2}\n')
    read = read_lines(path)
    assert read.entries == {1: {"a": 1}, 5: {"a": 2}}
    assert list(read.damaged) == [2, 4] and read.damaged[4] == "a list, not an object"


@given(st.lists(st.dictionaries(st.text(), st.integers() | st.text()), min_size=1, max_size=5), st.data())
def test_whatever_was_cut_off_the_lines_before_it_stay(entries: list[dict[str, object]], data: st.DataObject) -> None:
    written = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
    cut = data.draw(st.integers(0, len(written)))
    read = parsed(written[:cut])
    whole = [entry for end, entry in zip(_ends(entries), entries, strict=True) if end - 1 <= cut]
    assert list(read.entries.values()) == whole
    assert len(read.damaged) <= 1


def _ends(entries: list[dict[str, object]]) -> list[int]:
    ends = [0]
    for entry in entries:
        ends.append(ends[-1] + len(json.dumps(entry).encode()) + 1)
    return ends[1:]


def test_one_writer_cuts_a_torn_line_off(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": 2, "b"')
    with opened_alone(path) as (_, read):
        assert read.entries == {1: {"a": 1}} and not read.damaged
        assert path.read_bytes() == b'{"a": 1}\n'
        with pytest.raises(BlockingIOError), opened_alone(path):
            pass


def test_many_processes_write_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, name], env=HERE) for name in ("one", "two", "killed")]
    while not any(entry["by"] == "killed" for entry in lines(path)):
        assert writers[2].poll() is None
    writers[2].send_signal(signal.SIGKILL)
    for writer in writers:
        writer.wait()
    read = lines(path)
    for name in ("one", "two"):
        assert [entry["number"] for entry in read if entry["by"] == name] == list(range(200))
    # a kill can come between two pages of one write: that line is torn, and the next one did not run into it
    torn = [path.read_bytes().split(b"\n")[number - 1] for number in read_lines(path).damaged]
    assert len(torn) <= 1 and all(line.startswith(b'{"by": "killed"'[: len(line)]) for line in torn)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda line: line.replace(b"wrong", b"right"), "its checksum does not fit"),
        (lambda line: line.replace(b'"two"', b'"one"'), "its checksum does not fit"),
        (lambda line: line.replace(b":2}", b":NaN}"), "its checksum does not fit"),
        (lambda line: json.dumps({"key": "two", "said": "right"}).encode(), "it has no checksum"),
        (lambda line: summed({"said": "right"}), "its checksum does not fit"),
        (lambda line: line[:-9], ""),
    ],
    ids=["another value", "another key", "no number", "without", "no key", "torn"],
)
def test_a_line_that_was_changed_is_left_out_and_told_once_and_those_beside_it_stay(
    change: Callable[[bytes], bytes], why: str, tmp_path: Path, logged: io.StringIO
) -> None:
    path = tmp_path / "journal.jsonl"
    sound = [{"key": "one", "said": "a\ud800"}, {"key": "three", "said": None}]
    first, changed, last = map(summed, (sound[0], {"key": "two", "said": "wrong", "tokens": {"a": 2}}, sound[1]))
    assert change(changed) != changed
    path.write_bytes(b"\n".join([first, change(changed), last, b""]))
    for _ in range(2):
        found = undamaged(path, read_lines(path))
        assert list(found.entries.values()) == sound and why in found.damaged[2]
    (told,) = logged.getvalue().splitlines()
    assert told.startswith(f"{path}: 1 damaged line left out (first: line 2: {why}")
    path.write_bytes(b"\n".join([first, last, b""]))
    assert not undamaged(path, read_lines(path)).damaged and logged.getvalue().count("\n") == 1
