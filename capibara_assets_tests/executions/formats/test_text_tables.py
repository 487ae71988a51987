"""Tables and documents in text: their rows are the values that JSON would hold, and no prose is a table."""

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.executions.formats.table_files import is_table_file, table_lines
from capibara_assets.executions.formats.text_tables import may_be_yaml, value_lines
from capibara_assets.executions.ingest.ingest import read_experience

MOST = 1 << 20
NOW = datetime(2030, 1, 1, tzinfo=UTC)
CODE = 'print("a, b")\nprint("c")'


def rows(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in table_lines(data, MOST).splitlines() if line.startswith(b"{")]


def written(*records: list[str], delimiter: str = ",") -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(records)
    return text.getvalue().encode()


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_is_a_row_an_object_in_the_order_of_time(delimiter: str) -> None:
    given = json.dumps({"code": CODE})
    data = written(
        ["id", "start_time", "input", "output"],
        ["2", "2026-01-02T10:00:02Z", "", "x"],
        ["1", "2026-01-02T10:00:01Z", given, ""],
        delimiter=delimiter,
    )
    assert is_table_file(data) and is_table_file(b"\xef\xbb\xbf" + data)
    assert rows(data) == [
        {"id": "1", "start_time": "2026-01-02T10:00:01Z", "input": {"code": CODE}},
        {"id": "2", "start_time": "2026-01-02T10:00:02Z", "output": "x"},
    ]


def test_a_row_of_another_length_is_told() -> None:
    assert b"not read: line 3: 3 cells where there are 2 names" in table_lines(b"a,b\n1,2\n1,2,3\n", MOST)


@pytest.mark.parametrize(
    "text",
    [
        "First, we look.\nThen, we mend.\n",
        "Thought, then action\nAction: bash\n",
        "one,one\n1,2\n",
        "a,b\n",
        "a,b\n1\n2,3\n",
        "name\nx\n",
        '{"a": 1, "b": 2}\n{"a": 1, "b": 2}\n',
        "import os, sys\nprint(os, sys)\n",
    ],
)
def test_prose_code_and_json_are_no_table(text: str) -> None:
    assert not is_table_file(text.encode())


DUMP = r"""--
-- PostgreSQL database dump
--
COPY public.messages (id, role, "tool_calls", content) FROM stdin;
1	user	\N	a\tb\\n
2	assistant	[{"id": "c", "function": {"name": "bash", "arguments": "{\\"command\\": \\"make\\"}"}}]	\N
3	too few
\.

COPY public.other (id) FROM stdin;
7
\.
"""


def test_rows_of_a_dump_are_unescaped() -> None:
    found = rows(DUMP.encode())
    call = {"id": "c", "function": {"name": "bash", "arguments": '{"command": "make"}'}}
    assert found == [
        {"table": "messages", "id": "1", "role": "user", "content": "a\tb\\n"},
        {"table": "messages", "id": "2", "role": "assistant", "tool_calls": [call]},
        {"table": "other", "id": "7"},
    ]
    assert b"not read: table messages: a row with 2 cells" in table_lines(DUMP.encode(), MOST)


SESSION = """session_id: s1
runs:
- messages:
  - role: user
    content: Build it.
  - role: assistant
    tool_calls: &calls
    - id: c1
      function: {name: run_shell_command, arguments: '{"args": ["make", "all"]}'}
  - {role: tool, tool_call_id: c1, tool_call_error: true, content: 'make: *** No rule'}
  again: *calls
"""
BOMB = "a: &a [x, x, x]\nb: &b [*a, *a, *a]\nc: &c [*b, *b, *b]\ncommand: [*c, *c, *c, *c, *c, *c]\n"


def test_a_session_in_yaml_is_read(tmp_path: Path) -> None:
    (tmp_path / "session.yaml").write_text(SESSION)
    (tmp_path / "settings.yaml").write_text("command: make\nname: x\n")
    read = read_experience(tmp_path, now=NOW)
    (run,) = read.executions.to_dicts()
    assert (run["language"], run["code"], run["outcome"]) == ("bash", "make all", "error")
    assert dict(read.files.select("path", "kind").rows()) == {"session.yaml": "executions", "settings.yaml": "other"}


@pytest.mark.parametrize("text", [BOMB, "command: [a\n", "? [a]\n: b\ncommand: x\n"])
def test_yaml_that_multiplies_or_is_none_gives_nothing(text: str) -> None:
    assert value_lines(text.encode()) == b""


def test_each_document_of_yaml_is_a_line() -> None:
    assert value_lines(b"---\na: 1\n---\ncommand: x\n") == b'{"a": 1}\n{"command": "x"}\n'
    assert may_be_yaml(b"# made\n---\ncommand: x\n") and not may_be_yaml(b"Command: x, then\nwe go on\n")


OWN = [{"session_id": "s", "command": f"make {n}", "output": "[1, 2]", "exit_code": n % 2} for n in range(9)]
DAMAGED = "".join(f"- command: make {n}\n  output: done\n  exit_code: 0\n" for n in range(3))


@pytest.mark.parametrize(("head", "damage"), [("", ""), ("--- # a log\n", ""), ("%YAML 1.1\n---\n", "- command: [x\n")])
def test_yaml_is_read_up_to_its_damage(head: str, damage: str, tmp_path: Path) -> None:
    (tmp_path / "log.yaml").write_text(head + DAMAGED + damage)
    read = read_experience(tmp_path, now=NOW)
    assert read.executions.height == 3
    told = read.quarantine.select("reason", "detail").rows()
    assert [reason for reason, _ in told] == ["damaged_part"] * bool(damage)
    assert all("not read: document 1: " in detail for _, detail in told)


@pytest.mark.parametrize("kind", [str, float])
def test_codes_are_numbers_and_printed_lists_text_in_csv(kind: type, tmp_path: Path) -> None:
    cells = [[*list(map(str, run.values()))[:3], str(kind(run["exit_code"]))] for run in OWN]
    (tmp_path / "log.csv").write_bytes(written(list(OWN[0]), *cells))
    found = read_experience(tmp_path, now=NOW).executions.sort("code").to_dicts()
    assert [run["outcome"] for run in found] == ["error" if n % 2 else "ok" for n in range(9)]
    assert {run["stdout"] for run in found} == {"[1, 2]"}


def test_a_short_row_near_the_head_costs_that_row(tmp_path: Path) -> None:
    cells = [list(map(str, run.values())) for run in OWN]
    (tmp_path / "log.csv").write_bytes(written(list(OWN[0]), cells[0], ["cut"], *cells[1:]))
    read = read_experience(tmp_path, now=NOW)
    assert read.executions.height == 9
    [(reason, detail)] = read.quarantine.select("reason", "detail").rows()
    assert reason == "damaged_part" and "line 3: 1 cells where there are 4 names" in detail


LANGFUSE = ["id", "trace_id", "session_id", "type", "name", "input", "output", "level", "status_message", "start_time"]


def test_an_export_of_traces_is_read(tmp_path: Path) -> None:
    def row(key: str, given: Any, output: str, level: str = "DEFAULT", said: str = "") -> list[str]:
        return [key, "t", "s", "TOOL", "python", json.dumps(given), output, level, said, f"2026-01-02 10:00:0{key}"]

    data = written(
        LANGFUSE, row("2", {"code": "b"}, "", "ERROR", "NameError: b"), row("1", {"code": CODE}, '"a, b\\nc"')
    )
    (tmp_path / "observations.csv").write_bytes(data)
    (tmp_path / "scores.csv").write_bytes(b"id,score\n1,2\n")
    read = read_experience(tmp_path, now=NOW)
    found = read.executions.sort("timestamp").to_dicts()
    assert [(run["code"], run["outcome"]) for run in found] == [(CODE, "ok"), ("b", "error")]
    assert dict(read.files.select("path", "kind").rows())["scores.csv"] == "other"
    assert not read.quarantine.height
