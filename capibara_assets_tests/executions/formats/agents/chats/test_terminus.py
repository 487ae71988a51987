"""Terminus' conversations in data sets for training: keystrokes in the model's messages, screens in the next ones."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capibara_assets.executions.formats.agents.chats.terminus import READER
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, LogDocument, NotRun
from capibara_assets.executions.ingest.ingest import read_experience
from capibara_assets_tests.executions.conftest import NOW
from capibara_assets_tests.executions.formats.agents.tools.damage import damaged, entries, jsonl, reads, survives

Message = dict[str, str]
ASKED = "Answer with JSON.\n\nTask Description:\nCount the rows.\n\nCurrent terminal state:\nCurrent Terminal Screen:\n"


def keys(*typed: str) -> str:
    commands = [{"keystrokes": one, "duration": 0.1} for one in typed]
    return "<think>\nhm\n</think>\n" + json.dumps({"analysis": "a", "plan": "b", "commands": commands})


def conversation(
    who: str = "role", what: str = "content", model: str = "assistant", user: str = "user"
) -> list[Message]:
    said = [
        (user, ASKED + "root@x:/app# "),
        (model, keys("ls\n", "wc -l a.csv\n")),
        (user, "New Terminal Output:\nroot@x:/app# ls\na.csv\nroot@x:/app# wc -l a.csv\n7 a.csv\nroot@x:/app# "),
        (model, keys("C-c", "make; echo rc=$?\n")),
        (user, "New Terminal Output:\nroot@x:/app# make; echo rc=$?\nmake: no rule\nrc=2\nroot@x:/app# "),
        (model, keys("make all\n")),
    ]
    return [{who: name, what: text} for name, text in said]


TOLD = [
    ("ls\n", None, "a.csv"),
    ("wc -l a.csv\n", None, "7 a.csv"),
    ("make; echo rc=$?\n", None, "make: no rule\nrc=2"),
]


def told(data: bytes) -> list[tuple[str, list[tuple[str, bool | None, str]]]]:
    assert find_reader(LogDocument(data)) is READER
    found: dict[str, list[tuple[str, bool | None, str]]] = {}
    for run in entries(READER, data):
        if isinstance(run, AgentRun):
            assert run.language == "bash" and run.task == "Count the rows."
            found.setdefault(run.session, []).append((run.code, run.success, run.output))
    return list(found.items())


@pytest.mark.parametrize("key", ["conversations", "messages"])
@pytest.mark.parametrize("names", [(), ("from", "value", "gpt", "human")], ids=["roles", "ShareGPT"])
def test_what_was_typed_and_what_the_screen_shows_are_runs(key: str, names: tuple[str, ...]) -> None:
    rows: list[dict[str, Any]] = [{key: conversation(*names), "trial_name": "t1", "model": "m"} for _ in range(2)]
    assert told(jsonl(*rows)) == [("t1", TOLD), ("t1#2", TOLD)]
    assert told(json.dumps(rows).encode()) == [("t1", TOLD), ("t1#2", TOLD)]
    left = [one for one in entries(READER, jsonl(*rows)) if isinstance(one, NotRun)]
    assert [(one.kind, one.code) for one in left] == [("keystrokes", None)] * 2


def test_a_list_of_messages_is_one_conversation() -> None:
    ((_, runs),) = told(json.dumps(conversation()).encode())
    assert runs == TOLD


def test_a_data_set_of_conversations_is_read_from_its_parquet(tmp_path: Path) -> None:
    rows = [{"conversations": conversation(), "trial_name": f"t{number}"} for number in range(2)]
    pl.DataFrame(rows).write_parquet(tmp_path / "train.parquet")
    read = read_experience(tmp_path, now=NOW).executions
    assert sorted(read["outcome"].to_list()) == ["error", "error", "unknown", "unknown", "unknown", "unknown"]
    assert read["sandbox_id"].n_unique() == 2


def test_conversations_without_a_terminal_are_none() -> None:
    chat = [{"role": "user", "content": "What are keystrokes?"}, {"role": "assistant", "content": '{"keystrokes": 1}'}]
    assert not reads(READER, jsonl({"messages": chat})) and not reads(READER, json.dumps(chat).encode())


def test_no_damage_raises() -> None:
    for data in damaged(jsonl({"conversations": conversation(), "trial_name": "t"})):
        survives(READER, data)
