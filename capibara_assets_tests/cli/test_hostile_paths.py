"""Every parameter of the command line that takes a path, given what a hostile stranger may have put there.

The parameters come from the tree of commands (`doors.py`), so that those of a new command are tried without being
named here. A command refuses a path with exit code 2 and one message that names it, within two seconds, repeats nothing
of what a link leads to, and leaves nothing behind. What it takes all the same stands in `TAKEN`, with the reason.
"""

import ctypes
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from capibara_assets_tests.cli.calling import SUFFIXES, furnish, words_of
from capibara_assets_tests.cli.doors import DOORS, EXCLUDED, TRIED, Door
from capibara_assets_tests.cli.hostile import CANARY, SHAPES, make

SECONDS = 2.0  # of processor time, which neither other programs nor a full machine lengthen
PATIENCE_S = 120.0  # of wall clock: a command that waits for a pipe waits for ever
DENIED = (1, 2)  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, with which root reads what nobody may
_STORED = "weights are read, and files beside them kept as they are"
_BYTES = "files are compared by their bytes"
_CONFIG = "of a model its config alone is read"
_QUARANTINED = "a damaged log costs itself: it is quarantined, or listed as no log"
_EVERY_FOLDER = [shape for shape in SHAPES if "folder" in shape]
_FOLDERS = ("a folder of deep documents", "a folder of broken text", "a folder of names twice")
TAKEN = {
    "checkpoint convert source": dict.fromkeys(_FOLDERS, _STORED),
    "checkpoint diff a": dict.fromkeys(_FOLDERS, _BYTES),
    "checkpoint diff b": dict.fromkeys(_FOLDERS, _BYTES),
    "checkpoint save path": dict.fromkeys(_FOLDERS, _STORED),
    "run --experience": dict.fromkeys(_EVERY_FOLDER, _QUARANTINED),
    "backfill --experience": dict.fromkeys(_EVERY_FOLDER, _QUARANTINED),
    "test-model --prompts": dict.fromkeys(
        ("a file of plain text", "a deep file", "a file of names twice", "a name of several lines"),
        "text is prompts, a line each",
    ),
    "plan --model": dict.fromkeys(("a folder of links out", "a folder of weights with holes"), _CONFIG),
}
"""What is no refusal, by parameter and shape, and why."""
AT_LENGTH = ("run --experience", "backfill --experience", "backfill --base-model", "backfill --audit")
"""Calls that take ten seconds and more together; `run --base-model` and `run --audit` are the same paths."""
Knock = Callable[[list[str]], dict[str, Any]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of what stands in a command beside the hostile path."""
    furnish(folder := tmp_path_factory.mktemp("doors"))
    (folder / "tmp").mkdir()
    return folder


@pytest.fixture(scope="module")
def hostiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the hostile paths."""
    return tmp_path_factory.mktemp("hostile")


def mind_permissions() -> None:
    """Files that nobody may read are closed to the program that is started next, also if it is root."""
    libc, drop_from_bounding_set = ctypes.CDLL(None), 24
    for capability in DENIED:
        libc.prctl(drop_from_bounding_set, capability, 0, 0, 0)


@pytest.fixture(scope="module")
def knock(place: Path) -> Iterator[Knock]:
    """Calls commands in a process that is started again when one of them hangs."""
    home, temporary = str(place / "home"), str(place / "tmp")
    changed = {"CAPIBARA_HOME": home, "DAGSTER_HOME": "", "HF_HUB_OFFLINE": "1", "TMPDIR": temporary}
    started: list[subprocess.Popen[str]] = []

    def call(words: list[str]) -> dict[str, Any]:
        if not started:
            command = [sys.executable, "-m", "capibara_assets_tests.cli.knocking"]
            pipe = subprocess.PIPE
            started.append(
                subprocess.Popen(
                    command,
                    cwd=place,
                    stdin=pipe,
                    stdout=pipe,
                    env={**os.environ, **changed},
                    text=True,
                    preexec_fn=mind_permissions,
                )
            )
        process = started[0]
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(words) + "\n")
        process.stdin.flush()
        line = process.stdout.readline() if select.select([process.stdout], [], [], PATIENCE_S)[0] else ""
        if not line:
            process.kill()
            process.wait()
            started.clear()
            return {"code": -9, "seconds": PATIENCE_S, "out": "", "err": "it hung, or ended"}
        return dict(json.loads(line))

    yield call
    for process in started:
        process.kill()
        process.communicate()


def faults(door: Door, shape: str, code: int, seconds: float, out: str, err: str) -> list[str]:
    """What is wrong with what a command did."""
    said = out + err
    message = err.rpartition("\n\nError: ")[2].strip()  # behind the usage, of which click writes some lines
    listed = door.command.startswith("dataset ")  # whose faults are its result, and one line more on stderr
    found = [f"exit code {code}"] if code != 2 else []
    if "hostile" not in (said if listed else err):
        found.append("the path is not named")
    if message.count("\n") or not (message or listed):
        found.append("not one sentence")
    if shape in TAKEN.get(door.name, {}):
        found = []
    return [
        *found,
        *(["a traceback"] if "Traceback" in said else []),
        *(["what a link leads to"] if CANARY in said else []),
        *(["signs that control a terminal"] if not said.replace("\n", "").isprintable() else []),
        *([f"{seconds:.1f} s"] if seconds > SECONDS and shape not in TAKEN.get(door.name, {}) else []),
    ]


def shapes_of(name: str) -> list[str]:
    """A third of the shapes: with the next two parameters of the tree all of them."""
    return list(SHAPES)[list(TRIED).index(name) % 3 :: 3]


CASES = [
    *(pytest.param(name, shapes_of(name), id=name) for name in TRIED if name not in AT_LENGTH),
    *(pytest.param(name, list(SHAPES), id=f"{name}: all", marks=pytest.mark.extended) for name in TRIED),
]


@pytest.mark.parametrize(("name", "shapes"), CASES)
def test_a_hostile_path_is_refused(name: str, shapes: list[str], knock: Knock, place: Path, hostiles: Path) -> None:
    """Each parameter with a third of the shapes, and in `make test-all` with all.

    The first calls import what the command needs, and are not measured; what takes too long is called once more.
    """
    door, wrong, suffix = TRIED[name], {}, SUFFIXES.get(str(TRIED[name].parameter.name), ".json")
    for first in (place / "nothing-here", make("a file of plain text", hostiles, suffix)):
        knock(words_of(door, first, place))
    for shape in shapes:
        before = written_in(place)
        path = make(shape, hostiles, suffix)
        beside = written_in(path.parent)
        done = knock(words_of(door, path, place))
        if done["seconds"] > SECONDS and shape not in TAKEN.get(name, {}):
            done = knock(words_of(door, path, place))  # this shape may be the first to need something
        found = faults(door, shape, **done)
        left = (written_in(place) - before) | (written_in(path.parent) - beside)
        if left and shape not in TAKEN.get(name, {}):
            found.append(f"left behind: {', '.join(sorted(left))}")
        if found:
            wrong[shape] = (found, done["err"][-500:])
        shutil.rmtree(place / "new", ignore_errors=True)
    assert not wrong, wrong


def written_in(folder: Path) -> set[str]:
    """Everything below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_what_is_not_tried_says_why() -> None:
    assert set(TAKEN) <= set(TRIED) and all(EXCLUDED.values())
    assert len(TRIED) + len(EXCLUDED) == len(DOORS) and len(TRIED) >= 83
