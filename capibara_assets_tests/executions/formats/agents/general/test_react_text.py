"""Text of ReAct loops: actions and the observations that answer them."""

import time

import pytest

from capibara_assets.executions.formats.agents.general.react_text import READER
from capibara_assets.executions.formats.agents.runs import AgentRun, NotRun
from capibara_assets_tests.executions.formats.agents.tools.damage import entries, reads, runs

PROMPT = """Use this form:
Question: the question
Action: the action to take, one of [python_repl, terminal]
Action Input: the input to the action
Observation: the result of the action

"""
CHAIN = """> Entering new AgentExecutor chain...
Question: How many?
\x1b[32mThought: I count.
Action: python_repl
Action Input: ```python
x = 1
print(x)
```\x1b[0m
Observation: \x1b[36m1
\x1b[0m
Thought: And now
Action: Python REPL
Action Input: print(y)
Observation: NameError("name 'y' is not defined")
Action: search
Action Input: ls
Observation: found
Action: terminal
Action Input: ls
Observation: a.py
b.py
Thought: I know.
Final Answer: 2

> Finished chain.
"""
IN_ONE_LINE = """NEW QUERY: How many customers?
THOUGHT: ask
ACTION: list_tables{}
OBSERVATION: customers
ACTION: query_database{"query": "SELECT count(*) FROM customers"}
OBSERVATION: [(3,)]
ACTION: query_database{"query": "SELECT 1 FROM never"}
"""


def told(found: list[AgentRun]) -> list[tuple[str, str, bool | None, str]]:
    return [(run.language, run.code, run.success, run.output) for run in found]


def test_an_observation_answers_the_action_above_it() -> None:
    found = runs(READER, PROMPT + CHAIN)
    assert told(found) == [
        ("python", "x = 1\nprint(x)", True, "1"),
        ("python", "print(y)", False, "NameError(\"name 'y' is not defined\")"),
        ("bash", "ls", None, "a.py\nb.py"),
    ]
    assert {run.task for run in found} == {"How many?"}


def test_an_action_in_one_line_with_its_arguments() -> None:
    run, left = entries(READER, IN_ONE_LINE)
    assert isinstance(run, AgentRun)
    assert (
        told([run]) == [("sql", "SELECT count(*) FROM customers", True, "[(3,)]")] and run.task == "How many customers?"
    )
    assert left == NotRun("unanswered")


def test_signs_before_the_labels() -> None:
    found = runs(
        READER,
        "🧠 Planning: I count.\n⚡ Action: Using python_exec\n🔨 Tool Called: python_exec\nCode: x = 1\n"
        "print(x)\n👀 Observation: 1\nCode: 200\n🤖 Agent: It is one.\n👀 Observation: of nothing\n",
    )
    assert told(found) == [("python", "x = 1\nprint(x)", True, "1\nCode: 200")]


def test_a_chain_without_colours_has_no_label_before_what_was_returned() -> None:
    begin = ">Entering new AgentExecutor chain...\nAction: python_repl\nAction Input: "
    fenced = (
        f"{begin}```python\nx = 1\nprint(x)\n```\n1\nThought: More\nAction: terminal\nAction Input: ls\nFinal Answer: 1"
    )
    assert told(runs(READER, fenced)) == [("python", "x = 1\nprint(x)", True, "1")]  # where `ls` ends is not told
    quoted = f"{begin}`n`SyntaxError('invalid syntax')Python REPL can run it.\n\nThought: No\n"
    assert [(run.code, run.success) for run in runs(READER, quoted)] == [("`n`", False)]
    assert not reads(READER, fenced.replace(">Entering", "Entering a"))
    assert told(runs(READER, fenced + "\nObservation: a")) == [("bash", "ls", None, "a")]


@pytest.mark.parametrize(
    "text",
    [
        "🔨 Tool Called: python_exec\nCode: x = 1\nObservation: 1\n",
        "👀 Observation: we saw it\n🔨 Tool Called: python_exec\nCode: x = 1\n🤖 Agent: No answer.\n",
        "👀 Observation: it rains\n✨ Action: take a coat\nCode: 1\n👀 Observation: dry\n",
    ],
)
def test_signs_in_prose_are_no_log(text: str) -> None:
    assert not reads(READER, text)


@pytest.mark.parametrize(
    "text", [PROMPT, "Observation: it rains\n", "No label: Observation: x", "Action: terminal\nAction Input: ls\n"]
)
def test_what_answers_no_action_is_no_log(text: str) -> None:
    assert not reads(READER, text)


@pytest.mark.parametrize(
    "piece",
    [
        "Action: terminal\n",
        "Observation:\n",
        "Action: a{",
        "> Entering new ",
        "Action Input: ",
        "👀 Observation: ",
        "👀 Observation:\n🔨 Tool Called: a\n",
        "👀👀👀👀 ",
    ],
)
def test_repeated_pieces_take_no_time(piece: str) -> None:
    began = time.process_time()
    reads(READER, "Observation: 1\n" + piece * 20_000)
    assert time.process_time() - began < 5
