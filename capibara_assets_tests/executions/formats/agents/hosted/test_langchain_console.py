"""What LangChain's chains print: labelled and invoked tools, chains within tools, SQL, programs, lost colours."""

import json
import time
from datetime import UTC, datetime

import pytest

from capibara_assets.executions.formats.agents.general import react_text
from capibara_assets.executions.formats.agents.hosted.langchain_console import READER, is_dialogue
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun
from capibara_assets.executions.formats.detection import CountedEntry, read_parts
from capibara_assets.executions.formats.envelope_reader import Recorded
from capibara_assets_tests.executions.formats.test_notebooks import code, notebook, stream


def coloured(text: str, colour: str = "32;1") -> str:
    return f"\x1b[{colour}m\x1b[1;3m{text}\x1b[0m"


def chain(*pieces: str, name: str = "AgentExecutor") -> str:
    end = "\n\x1b[1m> Finished chain.\x1b[0m\n"
    return f"\n\n\x1b[1m> Entering new {name} chain...\x1b[0m\n" + "".join(pieces) + end


def labelled(tool: str, given: str, answer: str) -> str:
    action = coloured(f"I look.\nAction: {tool}\nAction Input: {given}")
    return f"{action}\nObservation: {coloured(answer, '36;1')}\nThought:"


def invoked(tool: str, given: object, answer: str, said: str = "\n") -> str:
    return coloured(f"\nInvoking: `{tool}` with `{given}`\n{said}\n") + coloured(answer, "38;5;200")


def printing(*printed: str) -> bytes:
    cells = [
        code(f"agent.run({n})", stream(text.splitlines(keepends=True)), count=n) for n, text in enumerate(printed, 1)
    ]
    return json.dumps(notebook(*cells)).encode()


def read(*printed: str) -> list[Entry]:
    document = LogDocument(printing(*printed))
    assert find_reader(document) is READER
    return list(READER.entries(document))


def told(found: list[Entry]) -> list[tuple[str, str, bool | None, str]]:
    return [(run.language, run.code, run.success, run.output) for run in found if isinstance(run, AgentRun)]


FINAL = coloured(" I know.\nFinal Answer: 3") + "\n"
COUNT = labelled("python_repl_ast", "len(df)", "3")


def test_an_agent_with_labels() -> None:
    failed = labelled("Python REPL", "print(y)", "NameError(\"name 'y' is not defined\")")
    searched = labelled("search", "how many", "Action: python_repl_ast\nAction Input: 1\nObservation: 2")
    found = read(chain(COUNT, failed, searched, labelled("terminal", "ls", "a.py"), FINAL), chain(COUNT, FINAL))
    assert told(found) == [
        ("python", "len(df)", True, "3"),
        ("python", "print(y)", False, "NameError(\"name 'y' is not defined\")"),
        ("bash", "ls", None, "a.py"),
        ("python", "len(df)", True, "3"),
    ]
    assert [run.session for run in found if isinstance(run, AgentRun)] == ["cell-0"] * 3 + ["cell-1"]


def test_an_agent_that_invokes_tools_which_only_colours_tell_from_their_answers() -> None:
    code = "x = 'a`b'\nprint(x)"
    first = invoked("python_repl_ast", {"query": code}, "a`b\n\nInvoking: `x` with `y`")
    second = invoked("Python_REPL", "1 + 1", "\x1b[31mred\x1b[0m 2", said="responded: I add `1`.\n")
    assert told(read(chain(first, second, coloured("It is 2.") + "\n"))) == [
        ("python", code, True, "a`b\n\nInvoking: `x` with `y`"),
        ("python", "1 + 1", True, "red 2"),
    ]


def test_an_agent_that_writes_json() -> None:
    action = json.dumps({"action": "python repl", "action_input": "print(1)"}, indent=4)
    piece = coloured(f"Action:\n```json\n{action}\n```") + f"\nObservation: {coloured('1', '33;1')}\nThought:"
    assert told(read(chain(piece))) == [("python", "print(1)", True, "1")]


def test_queries_of_an_agent_and_of_a_chain() -> None:
    agent = chain(
        labelled("sql_db_list_tables", "", "T"),
        labelled("sql_db_query_checker", "SELECT 1 FROM T", "SELECT 1 FROM T"),
        labelled("sql_db_query", "SELECT 1 FROM T", "[(1,)]"),
    )
    asked = f"How many?\nSQLQuery:{coloured('SELECT 2 FROM T')}\nSQLResult: {coloured('[(2,)]', '33;1')}\nAnswer:"
    found = read(agent, chain(asked + coloured("Two."), name="SQLDatabaseChain"))
    assert told(found) == [("sql", "SELECT 1 FROM T", True, "[(1,)]"), ("sql", "SELECT 2 FROM T", True, "[(2,)]")]
    assert isinstance(found[1], AgentRun) and found[1].task == "How many?"


def test_a_tool_that_is_a_chain_and_the_prompt_of_a_chain() -> None:
    shown = coloured("Action: python_repl\nAction Input: never")
    prompt = f"Prompt after formatting:\n{shown}\n"
    action = coloured("Action: python_repl\nAction Input: outer()")
    inner = chain(chain(prompt, name="LLMChain"), labelled("python_repl", "inner()", "1"), FINAL)
    assert told(read(chain(action, inner, f"\nObservation: {coloured('2', '36;1')}\nThought:", FINAL))) == [
        ("python", "inner()", True, "1"), ("python", "outer()", True, "2"),
    ]  # fmt: skip


def test_a_program_whose_value_is_only_returned() -> None:
    found = read(chain(coloured("def solution():\n    return 3") + "\n", name="PALChain"))
    assert told(found) == [("python", "def solution():\n    return 3", None, "")]


def test_a_call_without_an_answer() -> None:
    unknown = coloured("Action: python_repl\nAction Input: a()") + "\nObservation: it is no valid tool\nThought:"
    assert [entry for entry in read(chain(unknown, COUNT)) if isinstance(entry, NotRun)] == [NotRun("unanswered")]


def test_colours_that_lost_their_escape_character_or_are_missing() -> None:
    text = chain(COUNT, FINAL)
    bare = text.replace("\x1b[36;1m\x1b[1;3m", "").replace("\x1b[32;1m\x1b[1;3m", "").replace("\x1b[0m", "")
    for printed in (text.replace("\x1b", ""), bare, text.replace("\n", "\r\n")):
        assert told(read(printed)) == [("python", "len(df)", True, "3")]


def test_text_files_are_read_in_colours_and_else_by_their_labels() -> None:
    text = chain(invoked("python_repl_ast", {"query": "len(df)"}, "3"), FINAL)
    document = LogDocument(text.encode())
    assert find_reader(document) is READER and told(list(READER.entries(document))) == [
        ("python", "len(df)", True, "3")
    ]
    bare = LogDocument(b"> Entering new AgentExecutor chain...\nAction: python_repl\nAction Input: 1\nObservation: 1\n")
    assert find_reader(bare) is react_text.READER


def test_the_cell_of_an_agent_is_no_execution_and_one_without_code_is() -> None:
    search = chain(labelled("search", "rain", "it rains"), FINAL)
    found = [part.content for part in read_parts(printing(chain(COUNT, FINAL), search), datetime.now(UTC))]
    assert [run.code for run in found if isinstance(run, Recorded)] == ["len(df)", "agent.run(2)"]
    assert CountedEntry("notebook_cell:dialogue") in found
    assert not is_dialogue(search) and not is_dialogue("Action: python_repl\nAction Input: 1\nObservation: 1")


@pytest.mark.parametrize("at", range(0, 700, 23))
def test_a_log_that_was_cut_anywhere_is_read_without_an_error(at: int) -> None:
    text = chain(COUNT, invoked("python_repl", {"query": "len(df)"}, "3"), FINAL)
    for part in (text[at:], text[:at]):
        found = list(READER.entries(LogDocument(part.encode())))
        assert {run.code for run in found if isinstance(run, AgentRun)} <= {"len(df)"}


@pytest.mark.parametrize(
    "piece",
    [
        "> Entering new ", "\n> Entering new A chain", "\n> Finished ", "\x1b[32;1m\x1b[1;3m", "\x1b[36;1m\x1b[1;3m",
        "\x1b[0m", "\x1b[32;1m\x1b[1;3mInvoking: `a` with `{", "Invoking: `", "\x1b[32;1m\x1b[1;3m{\"action\": ",
        "Prompt after formatting:", "SQLQuery:", "{", "WITH a AS ", "\n \t", "\x1b[32;1m\x1b[1;3mAction: python\n",
    ],
)  # fmt: skip
def test_repeated_pieces_take_no_time(piece: str) -> None:
    began = time.process_time()
    put = piece * (100_000 // len(piece))
    for text in (
        chain(COUNT, put),
        put + chain(COUNT),
        chain(labelled("sql_query", "WITH a " + put, "1")),
        chain(invoked("python", put, put), coloured('{"action": ' + put)),
    ):
        is_dialogue(text)
    assert time.process_time() - began < 5
