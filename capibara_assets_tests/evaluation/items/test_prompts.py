"""Prompts by hand: those that ship cover the domains, and files of every kind are read or refused by line."""

import json
from pathlib import Path

import pytest

from capibara_assets.domains import DOMAINS
from capibara_assets.errors import InputError
from capibara_assets.evaluation.items.prompts import read_prompts, shipped_prompts


def test_every_domain_has_prompts_that_ship() -> None:
    found = shipped_prompts()
    assert {prompt.domain for prompt in found} == {domain.value for domain in DOMAINS}
    assert all(prompt.conversation[-1]["role"] == "user" for prompt in found)


def test_files_of_every_kind(tmp_path: Path) -> None:
    plain = tmp_path / "questions.txt"
    plain.write_text("What is two and two?\n\nAnd three?\n")
    assert [(one.id, one.text) for one in read_prompts(plain)] == [
        ("line-1", "What is two and two?"),
        ("line-3", "And three?"),
    ]
    chats = [
        {"id": "a", "prompt": "One?"},
        {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Two?"}]},
        {"messages": [{"role": "user", "content": "Three?"}, {"role": "assistant", "content": "trained answer"}]},
        "Four?",
    ]
    lines = tmp_path / "questions.jsonl"
    lines.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    found = read_prompts(lines)
    assert [one.conversation[-1]["content"] for one in found] == ["One?", "Two?", "Three?", "Four?"]
    assert found[0].id == "a" and len(found[1].conversation) == 2
    declared = tmp_path / "questions.yaml"
    declared.write_text("prompts:\n  - {id: x, domain: sql, text: Count.}\n")
    assert read_prompts(declared)[0].domain == "sql"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"prompt": "x"}\n{', "a.jsonl:2 is not JSON"),
        ("a.jsonl", '{"prompt": "x"}\n{"prompt": "\\ud800"}', r"a.jsonl:2 is not Unicode text: it has '\\ud800'"),
        ("a.jsonl", '{"prompt": "x", "prompt": "y"}', "a.jsonl:1 is ambiguous: 'prompt' is there twice"),
        ("a.jsonl", '{"question": "x"}', "expected an object with prompt, text or messages"),
        ("a.jsonl", '{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}', "ids are given twice: a"),
        ("a.jsonl", '{"messages": [{"role": "user"}]}', "content"),
        ("a.yaml", "prompts: []", "at least 1"),
        ("a.yaml", "prompts: [{id: a}]", "either text or messages"),
        ("a.txt", "\n", "at least 1"),
    ],
)
def test_what_is_no_prompt_is_refused_by_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        read_prompts(tmp_path / name)
    with pytest.raises(InputError, match="cannot read"):
        read_prompts(tmp_path / "absent.txt")
