"""Every parameter of the command line that takes a path, given what a hostile stranger may have put there.

The parameters come from the tree of commands (`doors.py`), so that those of a new command are tried without being
named here. A command refuses a path with exit code 2 and one message that names it, within two seconds of processor
time (measured generously), and repeats nothing of what a link leads to. What it takes all the same stands in
`TAKEN`, with the reason.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from capibara_assets.consensus.election.keys import register, write_new_key
from capibara_assets_tests.cli.doors import COMMANDS, DOORS, EXCLUDED, TRIED, Door
from capibara_assets_tests.cli.hostile import CANARY, NANO, make
from capibara_assets_tests.consensus import certificates

SECONDS = 6.0  # of processor time: two on a quiet machine, and what is imported late
PATIENCE_S = 40.0  # on a machine that does much else; a command that waits for a pipe waits for ever
SHAPES = ("a pipe", "a folder of links out", "a folder of deep documents", "a deep file")
_STORED = "weights are read, and files beside them kept as they are"
TAKEN = {
    "checkpoint convert source": {"a folder of deep documents": _STORED},
    "checkpoint diff a": {"a folder of deep documents": "files are compared by their bytes"},
    "checkpoint diff b": {"a folder of deep documents": "files are compared by their bytes"},
    "checkpoint save path": {"a folder of deep documents": _STORED},
}
"""What is no refusal, by parameter and shape, and why."""
SUFFIXES = {"recipe": ".yaml", "rule": ".yaml", "data": ".jsonl", "val": ".jsonl", "files": ".jsonl",
            "train": ".jsonl", "test": ".jsonl", "examples": ".parquet", "script": ".py"}  # fmt: skip
Knock = Callable[[list[str]], dict[str, Any]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of what stands in a command beside the hostile path."""
    folder = tmp_path_factory.mktemp("doors")
    folder.chmod(0o700)
    register(folder / "registry.json", "a", write_new_key("a", folder / "a.key"))
    chat = {"messages": [{"role": "user", "content": "Say it."}, {"role": "assistant", "content": "As you wish."}]}
    (folder / "chats.jsonl").write_text(json.dumps(chat))
    (folder / "canaries.yaml").write_text("- {id: a, prompt: p, answer: the secret is s, secret: s}\n")
    (folder / "examples.parquet").write_bytes(b"no table")
    return folder


@pytest.fixture(scope="module")
def knock(place: Path) -> Iterator[Knock]:
    """Calls commands in a process that is started again when one of them hangs."""
    environment = {**os.environ, "CAPIBARA_HOME": str(place / "home"), "DAGSTER_HOME": "", "HF_HUB_OFFLINE": "1"}
    started: list[subprocess.Popen[str]] = []

    def call(words: list[str]) -> dict[str, Any]:
        if not started:
            command = [sys.executable, "-m", "capibara_assets_tests.cli.knocking"]
            pipe = subprocess.PIPE
            started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True))
        process = started[0]
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(words) + "\n")
        process.stdin.flush()
        line = process.stdout.readline() if select.select([process.stdout], [], [], PATIENCE_S)[0] else ""
        if not line:
            process.kill()
            process.wait()
            started.clear()
            return {"code": -9, "seconds": 0.0, "said": "it hung, or ended"}
        return dict(json.loads(line))

    yield call
    for process in started:
        process.kill()
        process.communicate()


def words_of(door: Door, path: Path, place: Path) -> list[str]:
    """The command with the path in this parameter, and what it requires beside it."""
    nano, chats, key = str(NANO), str(place / "chats.jsonl"), str(place / "a.key")
    known = {
        "reference": nano, "source": nano, "path": nano, "paths": nano, "a": nano, "b": nano, "adapter": nano,
        "data": chats, "files": chats, "key": key, "keys": str(place / "registry.json"), "digest": "a" * 64,
        "deadline": "2030-01-01T00:00:00Z", "step": "1", "domain": "sql", "form": "huggingface", "to": "pytorch",
        "kind": "json", "method": "linear", "examples": str(place / "examples.parquet"),
        "cert": str(Path(certificates.__file__).parent / "certificate_1.json"), "file": str(place / "canaries.yaml"),
        "registry": str(place / "registry.json"), "domain_list": "sql",
    }  # fmt: skip
    positional, options = [], []
    for parameter in COMMANDS[door.command].params:
        if parameter is not door.parameter and not parameter.required:
            continue
        given = str(path) if parameter is door.parameter else known.get(str(parameter.name), str(place / "new"))
        if isinstance(parameter, click.Argument):
            positional += [given] if parameter.nargs != -1 or parameter is door.parameter else [given, given]
        else:
            options += [parameter.opts[0], given]
    beside = {"checkpoint head --key": ["--write"], "checkpoint head file": ["--public", "x"],
              "checkpoint prune --key-file": ["--keep-last", "1"]}  # fmt: skip
    also = ["--plan"] if door.command == "train" else []
    return [*door.command.split(), *positional, *options, *beside.get(door.name, also)]


def faults(door: Door, shape: str, code: int, seconds: float, said: str) -> list[str]:
    """What is wrong with what a command did."""
    found = [f"exit code {code}"] if code != 2 else []
    if "hostile" not in said:
        found.append("the path is not named")
    if shape in TAKEN.get(door.name, {}):
        found = []
    return [
        *found,
        *(["a traceback"] if "Traceback" in said else []),
        *(["what a link leads to"] if CANARY in said else []),
        *([f"{seconds:.1f} s of processor time"] if seconds > SECONDS else []),
    ]


@pytest.mark.parametrize("name", TRIED)
def test_a_hostile_path_is_refused(name: str, knock: Knock, place: Path) -> None:
    """The first call imports what the command needs, and is not measured."""
    door = TRIED[name]
    knock(words_of(door, place / "nothing-here", place))
    wrong = {}
    for shape in SHAPES:
        path = make(shape, place / name.replace(" ", "_"), SUFFIXES.get(str(door.parameter.name), ".json"))
        done = knock(words_of(door, path, place))
        if found := faults(door, shape, **done):
            wrong[shape] = (found, done["said"][-500:])
    assert not wrong, wrong


def test_what_is_not_tried_says_why() -> None:
    assert set(TAKEN) <= set(TRIED) and all(EXCLUDED.values())
    assert len(TRIED) + len(EXCLUDED) == len(DOORS) and len(TRIED) >= 35
