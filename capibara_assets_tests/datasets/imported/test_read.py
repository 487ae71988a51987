"""Files of examples: each format, each fault with its line, and nothing of a file that has one."""

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard

from capibara_assets.datasets.imported.formats import parse_record
from capibara_assets.datasets.imported.read import FAULTS_KEPT, ExampleFile, read_examples
from capibara_assets.errors import InputError
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets_tests.datasets.tokens.test_chat_forms import chat

AB = chat("a", "b")
TURNS = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


@pytest.mark.parametrize(
    ("record", "form", "messages"),
    [
        ({"text": "<s>[INST] a [/INST] b </s>"}, "text", AB),
        ({"messages": TURNS}, "messages", AB),
        ({"messages": [{"role": "developer", "content": "s"}, *TURNS]}, "messages", chat("a", "b", system="s")),
        ({"messages": [{"role": "system", "content": ""}, *TURNS]}, "messages", AB),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}, TURNS[1]], "id": 7},
            "messages",
            AB,
        ),
        ({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}, "conversations", AB),
        (
            {"system": "s", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
            "conversations",
            chat("a", "b", system="s"),
        ),
        ({"conversations": TURNS}, "conversations", AB),
        ({"prompt": "a", "completion": "b"}, "prompt-completion", AB),
        ({"prompt": TURNS[:1], "completion": TURNS[1:]}, "prompt-completion", AB),
        ({"prompt": "a", "response": "b"}, "prompt-response", AB),
        ({"instruction": "a", "output": "b"}, "alpaca", AB),
        ({"instruction": "a", "input": "", "output": "b"}, "alpaca", AB),
        ({"instruction": "a", "input": "x", "output": "b"}, "alpaca", chat("a\n\nx", "b")),
        ({"question": "a", "answer": "b"}, "question-answer", AB),
        ({"input": "a", "output": "b"}, "input-output", AB),
    ],
)
def test_formats(record: dict[str, Any], form: str, messages: list[dict[str, str]]):
    found = parse_record(record)
    assert (found.format, found.messages) == (form, messages)


@pytest.mark.parametrize(
    ("record", "reason", "detail"),
    [
        ({"texts": "a"}, "no_format", "fields are texts"),
        ({"chosen": "a", "rejected": "b"}, "no_format", "chosen"),
        ({"text": "x", "prompt": "a", "completion": "b"}, "ambiguous_format", "text and prompt-completion at once"),
        ({"text": 3}, "type:text", "found a number"),
        ({"prompt": "a \ud800", "completion": "b"}, "invalid_unicode", r"prompt has '\\ud800', half of a character"),
        ({"messages": [{**TURNS[0], "content": "\udfff"}]}, "invalid_unicode", r"messages\[0\].content has"),
        ({"prompt": "a", "completion": "b", "licence": "\ud800"}, "invalid_unicode", "licence has"),
        ({"prompt": "a", "completion": ""}, "empty:assistant", "message 2"),
        ({"prompt": " ", "completion": "b"}, "empty:user", "message 1"),
        ({"messages": []}, "turns", "no assistant turn"),
        ({"messages": TURNS[:1]}, "turns", "no assistant turn"),
        ({"messages": [*TURNS, TURNS[0]]}, "turns", "without an answer"),
        ({"messages": [TURNS[1], *TURNS]}, "turns", "speaks first"),
        ({"messages": [TURNS[0], *TURNS]}, "turns", "turns 1 and 2 are both of the user"),
        ({"messages": [*TURNS, {"role": "system", "content": "s"}, *TURNS]}, "turns", "behind the first turn"),
        ({"messages": [{"role": "tool", "content": "x"}, *TURNS]}, "role", r"messages\[0\].role is 'tool'"),
        ({"messages": [{"role": "assistant", "content": None, "tool_calls": [1]}]}, "unsupported", "calls a tool"),
        ({"messages": [TURNS[0], {**TURNS[1], "weight": 0}]}, "unsupported", "weight 0"),
        ({"messages": [TURNS[0], {**TURNS[1], "weight": -(10**400)}]}, "unsupported", "weight -1000"),
        ({"messages": [TURNS[0], {**TURNS[1], "weight": float("nan")}]}, "unsupported", "weight nan"),
        ({"messages": [TURNS[0], {**TURNS[1], "weight": "0"}]}, "type:messages[1].weight", "found text"),
        ({"messages": [TURNS[0], {**TURNS[1], "weight": True}]}, "type:messages[1].weight", "expected a number"),
        ({"messages": [TURNS[0], {**TURNS[1], "weight": float("inf")}]}, "unsupported", "weight inf"),
        ({"messages": [TURNS[0], {**TURNS[1], "weight": []}]}, "type:messages[1].weight", "found a list"),
        ({"prompt": "a", "completion": "b", "licence": {"a": 1}}, "type:licence", "found an object"),
        ({"prompt": "a", "completion": "b", "license": float("nan")}, "type:license", "found a number"),
        ({"prompt": "a", "completion": "b", "source": ["s"]}, "type:source", "found a list"),
        ({"prompt": "a", "completion": "b", "language": {}}, "type:language", "found an object"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "unsupported", "no text"),
        ({"messages": "a"}, "type:messages", "found text"),
    ],
)
def test_faults_of_a_record(record: dict[str, Any], reason: str, detail: str):
    with pytest.raises(Fault, match=detail) as caught:
        parse_record(record)
    assert caught.value.reason == reason


def test_a_named_format_settles_an_ambiguous_record():
    record = {"text": "whatever", "instruction": "a", "output": "b"}
    assert parse_record(record, "alpaca").messages == AB
    with pytest.raises(Fault, match="needs the field prompt"):
        parse_record(record, "prompt-completion")


def test_what_a_record_states_about_itself():
    found = parse_record({"messages": TURNS, "license": "MIT", "source": "s", "language": "sql"})
    assert (found.licence, found.source, found.language) == ("MIT", "s", "sql")
    found = parse_record({"messages": TURNS, "language": "en", "licence": None, "license": " ", "source": ""})
    assert (found.licence, found.source, found.language) == (None, None, None)


@pytest.mark.parametrize("weight", [1, 0.5, 10**400, None])
def test_a_weight_above_0_is_no_fault(weight: float | None):
    assert parse_record({"messages": [TURNS[0], {**TURNS[1], "weight": weight}]}).messages == AB


# --- files -----------------------------------------------------------------------------------------------------------

LINE = json.dumps({"prompt": "a", "completion": "b"}).encode()


def read(folder: Path, data: bytes, name: str = "a.jsonl") -> ExampleFile:
    path = folder / name
    path.write_bytes(data)
    return read_examples(path)


def faults(file: ExampleFile) -> list[tuple[int, str]]:
    return [(fault.line, fault.reason) for fault in file.faults]


@pytest.mark.parametrize(
    "data",
    [
        LINE + b"\n" + LINE,
        b"\xef\xbb\xbf" + LINE + b"\r\n\r\n" + LINE + b"\r\n",
        gzip.compress(LINE + b"\n\n" + LINE, mtime=0),
        zstandard.compress(LINE + b"\n" + LINE),
        b"[" + LINE + b",\n " + LINE + b"]\n",
        gzip.compress(b"\n [\n" + LINE + b" , " + LINE + b"\n]", mtime=0),
        json.dumps([json.loads(LINE)] * 2, indent=2).encode(),
    ],
)
def test_containers(tmp_path: Path, data: bytes):
    file = read(tmp_path, data)
    assert not file.faults and [row.parsed.messages for row in file.rows] == [AB, AB] and file.lines == 2
    assert file.format == "prompt-completion"


def test_parquet_rows_are_lines(tmp_path: Path):
    pl.DataFrame({"messages": [TURNS, TURNS[:1]], "id": [1, 2]}).write_parquet(tmp_path / "a.parquet")
    file = read_examples(tmp_path / "a.parquet")
    assert [row.parsed.messages for row in file.rows] == [AB] and faults(file) == [(2, "turns")]
    broken = read(tmp_path, b"PAR1 and no more", "b.parquet")
    assert faults(broken) == [(0, "invalid_parquet")]


def test_every_fault_has_its_line(tmp_path: Path):
    data = [
        LINE,
        b'{"prompt": "a"}',
        b"",
        b'{"prompt": "a", "prompt": "a", "completion": "b"}',
        b'{"prompt": NaN, "completion": "b"}',
        b"[1]",
        b'{"prompt": "a", "completion": "b"',
        b'{"prompt": "\xff", "completion": "b"}',
        b'{"question": "a", "answer": "b"}',
        b"[" * 300 + b"]" * 300,
        LINE,
    ]
    file = read(tmp_path, b"\n".join(data))
    assert faults(file) == [
        (2, "no_format"),
        (4, "duplicate_key:prompt"),
        (5, "type:prompt"),
        (6, "not_an_object"),
        (7, "invalid_json"),
        (8, "invalid_utf8"),
        (9, "mixed_formats"),
        (10, "invalid_record"),
    ]
    assert [row.line for row in file.rows] == [1, 11] and file.lines == 10
    assert "this is question-answer, the lines before it are prompt-completion" in file.faults[6].detail


def test_items_on_one_line_are_counted(tmp_path: Path):
    assert [row.line for row in read(tmp_path, b"[" + LINE + b", " + LINE + b",\n" + LINE + b"]").rows] == [1, 2, 3]


def test_faults_of_an_array_name_the_line_of_the_item(tmp_path: Path):
    file = read(tmp_path, b"[\n" + LINE + b",\n{},\n" + LINE + b" x]")
    assert faults(file) == [(3, "no_format"), (4, "invalid_json")]
    assert faults(read(tmp_path, b"[\n" + LINE + b",\n{oops}]")) == [(3, "invalid_json")]
    assert faults(read(tmp_path, b"[" + LINE + b"]\n\n1")) == [(3, "invalid_json")]
    assert faults(read(tmp_path, b"[\n" + LINE)) == [(2, "invalid_json")]
    assert faults(read(tmp_path, b'[\n"\xff"]')) == [(2, "invalid_utf8")]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", [(0, "empty_file")]),
        (b"\n\n[]", [(0, "empty_file")]),
        (LINE.decode().encode("utf-16"), [(0, "invalid_utf8")]),
        (gzip.compress(LINE * 50, mtime=0)[:-12], [(0, "truncated_gzip")]),
        (b"{\n", [(1, "invalid_json")]),
    ],
)
def test_faults_of_a_file(tmp_path: Path, data: bytes, expected: list[tuple[int, str]]):
    found = read(tmp_path, data)
    assert [(line * bool(reason != "truncated_gzip"), reason) for line, reason in faults(found)][-1:] == expected


def test_a_huge_line_is_a_fault_and_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("capibara_assets.executions.formats.lines.MAX_LINE", 1 << 20)
    huge = b'{"prompt": "' + b"x" * (3 << 20) + b'", "completion": "b"}'
    assert faults(read(tmp_path, LINE + b"\n" + huge + b"\n{\n" + LINE)) == [(2, "line_too_long")]


def test_the_list_of_faults_is_bounded_and_all_are_counted(tmp_path: Path):
    file = read(tmp_path, b"{}\n" * 1000)
    assert len(file.faults) == FAULTS_KEPT and file.fault_counts == {"no_format": 1000}


def test_no_such_file(tmp_path: Path):
    with pytest.raises(InputError, match="is no file: give a file of examples"):
        read_examples(tmp_path / "absent.jsonl")


def test_a_terabyte_of_nothing_is_refused_at_once(tmp_path: Path):
    with (tmp_path / "hole.jsonl").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InputError, match="of which 0 are stored, the others are a hole in it"):
        read_examples(tmp_path / "hole.jsonl")
