"""Messages that LangChain shows with `pretty_print`: calls of tools, their arguments, and what answers them."""

import json
import time
from datetime import UTC, datetime

import pytest

from capibara_assets.executions.formats.agents.hosted.langchain_messages import READER, is_dialogue
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun
from capibara_assets.executions.formats.detection import CountedEntry, read_parts
from capibara_assets.executions.formats.envelope_reader import Recorded
from capibara_assets_tests.executions.formats.test_notebooks import code, notebook, stream


def message(kind: str, said: str, bold: bool = False) -> str:
    title = f"\x1b[1m {kind} Message \x1b[0m" if bold else f" {kind} Message "
    row = "=" * ((80 - len(kind) - 10) // 2)
    return f"{row}{title}{row}\n{said}\n"


def call(name: str, call_id: str, **given: str) -> str:
    lines = [
        f"  {name} ({call_id})",
        f" Call ID: {call_id}",
        "  Args:",
        *(f"    {key}: {of}" for key, of in given.items()),
    ]
    return "\n".join(lines)


def called(*calls: str, said: str = "") -> str:
    return message("Ai", f"{said}\nTool Calls:\n" + "\n".join(calls) if said else "Tool Calls:\n" + "\n".join(calls))


def answered(name: str, said: str) -> str:
    return message("Tool", f"Name: {name}\n\n{said}")


def printing(*printed: str) -> bytes:
    cells = [code(f"run({n})", stream(text.splitlines(keepends=True)), count=n) for n, text in enumerate(printed, 1)]
    return json.dumps(notebook(*cells)).encode()


def read(text: str) -> list[Entry]:
    document = LogDocument(text.encode())
    assert find_reader(document) is READER
    return list(READER.entries(document))


def told(found: list[Entry]) -> list[tuple[str, str, bool | None, str]]:
    return [(run.language, run.code, run.success, run.output) for run in found if isinstance(run, AgentRun)]


ASKED = message("Human", "\nAdd them.", bold=True)
ONE = called(call("python_repl", "call_1", code="print(1)"), said="\nI add.") + answered("python_repl", "1")


def test_a_call_and_its_answer() -> None:
    (run,) = read(ASKED + ONE)
    assert isinstance(run, AgentRun) and run.task == "Add them."
    assert told([run]) == [("python", "print(1)", True, "1")]


def test_calls_of_one_message_are_answered_by_their_tools() -> None:
    calls = called(
        call("sql_db_schema", "a", tables="T"), call("sql_db_query", "b", query="SELECT 1 FROM T"), call("ls", "c")
    )
    found = read(calls + answered("sql_db_schema", "T (x)") + answered("sql_db_query", "Error: no such table: T"))
    assert told(found) == [("sql", "SELECT 1 FROM T", False, "Error: no such table: T")]


@pytest.mark.parametrize(
    "code",
    [
        "x = {\n    'a': 1,\n    b: 2,\n}\nprint(x)",
        "class A:\n    x: int = 1\n    y: int = 2\n\nprint(A.x)",
        "try:\n    f()\nexcept E:\n    pass",
        "def f():\n    a = 1\n    b: int = a\n    return b\n\nf()",
        "for x in y:\n    else: 1\n    lambda: 3",
    ],
)
def test_lines_of_code_that_look_like_arguments(code: str) -> None:
    found = read(called(call("python", "a", code=code, timeout="60")) + answered("python", "1"))
    assert told(found) == [("python", code, True, "1")]


def test_arguments_that_are_one_text() -> None:
    text = call("bash", "a") + "\n    ls -l\nls -a"
    assert told(read(called(text) + answered("bash", "total 0"))) == [("bash", "ls -l\nls -a", None, "total 0")]


def test_rules_and_nodes_between_messages_are_no_output() -> None:
    rule = "=" * 50 + "\n"
    node = f"\n{rule}🔄 Node: \x1b[1;36magent\x1b[0m 🔄\n{'- ' * 25}\n"
    text = node + called(call("python_repl", "a", query="f()")) + rule + node + answered("python_repl", "a\n\nb") + rule
    assert told(read(text)) == [("python", "f()", True, "a\n\nb")]


def test_messages_that_are_shown_again_count_once() -> None:
    other = called(call("python_repl", "call_2", code="print(2)")) + answered("python_repl", "2")
    document = LogDocument(printing(ASKED + ONE + ONE, ASKED + ONE + other))
    runs = [(run.session, run.code) for run in READER.entries(document) if isinstance(run, AgentRun)]
    assert runs == [("cell-0", "print(1)"), ("cell-1", "print(2)")]
    assert read(ASKED + ONE + called(call("python_repl", "call_3", code="never()")))[-1] == NotRun("unanswered")


def test_the_cell_of_an_agent_is_no_execution_and_one_without_code_is() -> None:
    rain = called(call("search", "a", query="rain")) + answered("search", "it rains")
    found = [part.content for part in read_parts(printing(ASKED + ONE, rain), datetime.now(UTC))]
    assert [run.code for run in found if isinstance(run, Recorded)] == ["print(1)", "run(2)"]
    assert CountedEntry("notebook_cell:dialogue") in found
    assert not is_dialogue(rain) and not is_dialogue(called(call("python", "a", code="1")))


def test_a_page_that_quotes_messages_is_no_log() -> None:
    assert not READER.reads(LogDocument(f"# LangGraph\n\n```\n{ASKED}{ONE}```\n".encode()))


@pytest.mark.parametrize("at", range(0, 400, 13))
def test_a_log_that_was_cut_anywhere_is_read_without_an_error(at: int) -> None:
    for part in ((ASKED + ONE)[at:], (ASKED + ONE)[:at]):
        document = LogDocument(part.encode())
        found = list(READER.entries(document)) if READER.reads(document) else []
        assert all(run.success for run in found if isinstance(run, AgentRun))


@pytest.mark.parametrize(
    "piece",
    ["=", "=" * 50 + "\n", "Tool Calls:\n", "  a (b)\n Call ID: b\n", "  Args:\n", "    a: b\n", "  a (", "Name: x\n",
     "\n", "=" * 10 + " A", " ", call("python", "a", code="1") + "\n"],
)  # fmt: skip
def test_repeated_pieces_take_no_time(piece: str) -> None:
    began = time.process_time()
    put = piece * (100_000 // len(piece))
    for text in (put + ONE, ONE + put, called(call("python", "a", code=put)) + answered("python", put)):
        is_dialogue(text)
    assert time.process_time() - began < 5
