"""The words of a command with a path in one of its parameters, and the files that stand beside it."""

import json
from pathlib import Path

import click

from capibara_assets.consensus.election.keys import register, write_new_key
from capibara_assets.datasets.schema import Example
from capibara_assets.storage.records import table
from capibara_assets_tests.cli.doors import COMMANDS, Door
from capibara_assets_tests.cli.hostile import NANO
from capibara_assets_tests.consensus import certificates

SUFFIXES = {"recipe": ".yaml", "rule": ".yaml", "data": ".jsonl", "val": ".jsonl", "files": ".jsonl",
            "train": ".jsonl", "test": ".jsonl", "examples": ".parquet", "script": ".py", "dataset": ".jsonl",
            "executions": ".parquet", "training": ".parquet"}  # fmt: skip
"""Endings by which a reader is chosen, by parameter."""

_GRAPH = {"--domains": "sql", "--select": "e2b_logs", "--experience": "@/experience"}
_ANSWERS = {"--model": str(NANO), "--dataset": "@/chats.jsonl", "--output": "@/new"}
_BESIDE: dict[str, dict[str, str]] = {
    "checkpoint head --key": {"--write": ""},
    "checkpoint head file": {"--public": "x"},
    "checkpoint prune --key-file": {"--keep-last": "1"},
    "train": {"--plan": ""},
    "doctor": {"--data": "@/chats.jsonl", "--quick": ""},
    "doctor --request": {"--quick": ""},
    "evaluate": _ANSWERS,
    "evaluate --executions": {**_ANSWERS, "--dataset": "@/table.parquet"},
    "compare --executions": {"--dataset": "@/table.parquet"},
    "plan": {"--hardware": "h100-8", "--model": "llama2-7b"},
    "run": _GRAPH,
    "backfill": _GRAPH,
}  # of a parameter, else of its command
_METHODS = {"merge --data": "soup", "merge --base": "ties"}


def furnish(folder: Path) -> None:
    """Make what the words below name in a folder."""
    folder.chmod(0o700)
    register(folder / "registry.json", "a", write_new_key("a", folder / "a.key"))
    asked = {"Name a city.": "Lima lies at the sea.", "What is four plus three?": "7", "Who wrote it?": "Nobody knows."}
    chats = [[{"role": "user", "content": it}, {"role": "assistant", "content": said}] for it, said in asked.items()]
    (folder / "chats.jsonl").write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    (folder / "canaries.yaml").write_text("canaries: [{id: a, prompt: p, answer: it is q7x9, secret: q7x9}]\n")
    (folder / "examples.parquet").write_bytes(b"no table")
    table(Example, []).write_parquet(folder / "table.parquet")
    for name in ("e2b_logs", "playbooks"):
        (folder / "experience" / name).mkdir(parents=True)


def words_of(door: Door, path: Path, place: Path) -> list[str]:
    """The command with the path in this parameter, and what it requires beside it."""
    nano, chats, new = str(NANO), str(place / "chats.jsonl"), str(place / "new")
    known = {
        "reference": nano, "source": nano, "path": nano, "paths": nano, "a": nano, "b": nano, "adapter": nano,
        "baseline": nano, "finetuned": nano, "data": chats, "files": chats, "dataset": chats, "domain": "sql",
        "key": str(place / "a.key"), "keys": str(place / "registry.json"), "registry": str(place / "registry.json"),
        "deadline": "2030-01-01T00:00:00Z", "step": "1", "digest": "a" * 64, "form": "huggingface", "to": "pytorch",
        "kind": "json", "method": _METHODS.get(door.name, "linear"), "examples": str(place / "examples.parquet"),
        "cert": str(Path(certificates.__file__).parent / "certificate_1.json"), "file": str(place / "canaries.yaml"),
    }  # fmt: skip
    beside = _BESIDE.get(door.name, _BESIDE.get(door.command, {}))
    several = [nano] if door.name == "merge paths" else []
    positional, options = [], []
    for parameter in COMMANDS[door.command].params:
        it = parameter is door.parameter
        option = parameter.opts[0]
        if not it and option in beside:
            word = beside[option].replace("@", str(place))
            options += [option, word] if word else [option]
        elif it or parameter.required:
            given = str(path) if it else known.get(str(parameter.name), new)
            if isinstance(parameter, click.Option):
                options += [option, given]
            else:
                positional += [given, *several] if it or parameter.nargs != -1 else [given, given]
    return [*door.command.split(), *positional, *options]
