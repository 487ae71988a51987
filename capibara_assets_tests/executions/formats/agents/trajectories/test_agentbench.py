"""AgentBench's samples with a shell and a database: what ran, the example before it, and other kinds of tasks."""

import json
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun
from capibara_assets.executions.formats.agents.trajectories.agentbench import READER

EXAMPLE = (
    "You act. Act: bash\n\n```bash\n# code\n```\nNow, my problem is:\n\nHow many users?",
    "Think: count.\n\nAct: bash\n\n```bash\nwc -l /etc/passwd\n```",
    "The output of the OS:\n\n19 /etc/passwd",
    "Think: 19.\n\nAct: answer(19)",
)
ASKED = "Now, I will start a new problem in a new OS. My problem is:\n\nWhich port is open?"


def bash(*scripts: str) -> str:
    return "Think: look.\n\nAct: bash\n\n" + "\n\nand\n\n".join(f"```bash\n{each}\n```" for each in scripts)


def sample(*turns: str, index: Any = 7, agent: str = "agent", result: Any = None) -> dict[str, Any]:
    history = [{"role": ("user", agent)[number % 2], "content": text} for number, text in enumerate(turns)]
    output = {"index": index, "status": "completed", "result": {"result": result}, "history": history}
    return {"index": index, "error": None, "info": None, "output": output, "time": {"timestamp": 1, "str": ".."}}


def read(*samples: Any) -> list[Entry]:
    document = LogDocument("\n".join(json.dumps(each) for each in samples).encode())
    assert find_reader(document) is READER
    return list(READER.entries(document))


def test_the_example_in_each_sample_is_no_run() -> None:
    turns = (
        bash("ss -lt"),
        "The output of the OS:\n\n:80\n",
        bash("true"),
        "The output of the OS is empty.",
        "Act: finish",
    )
    assert read(sample(*EXAMPLE, ASKED, *turns), sample(*EXAMPLE, ASKED, *turns[:2], index="os-8", result=False)) == [
        AgentRun("7#0", "bash", "ss -lt", None, ":80\n", task="Which port is open?"),
        AgentRun("7#0", "bash", "true", None, "", task="Which port is open?"),
        AgentRun("os-8#1", "bash", "ss -lt", None, ":80\n", task="Which port is open?", solved=False),
    ]


def test_fences_are_joined_and_the_last_act_decides() -> None:
    answer = "The output of the OS:\n\n2"
    (run,) = read(sample(ASKED, bash("cd /", "ls | wc -l"), answer, f"{bash('ls')}\n\nAct: answer(2)", "."))
    assert isinstance(run, AgentRun) and (run.code, run.output) == ("cd /\n\nls | wc -l", "2")


def test_what_has_no_answer_did_not_run() -> None:
    assert read(sample(ASKED, bash("ls"))) == [NotRun("unanswered", code="ls")]
    assert read(sample(ASKED, bash("ls"), "You have used all rounds.")) == [NotRun("unanswered")]


@pytest.mark.parametrize(
    ("answer", "success"),
    [
        ("[(1, 'a')]", True),
        ("[]", True),
        ("", True),
        ("1054 (42S22): Unknown column 'b' in 'field list'", False),
        ("1064 (42000): You have an error in your SQL syntax", False),
        ("the connection is gone", None),
    ],
)
def test_a_query_ended_as_the_database_says(answer: str, success: bool | None) -> None:
    asked = "Action: Operation\n```sql\nSELECT b\nFROM t;\n```"
    turns = ("I will ask. Action: Operation\n```sql\nSELECT * FROM t;\n```", "Ok.", "Who won?", asked, answer)
    (run,) = read(sample(*turns, 'Action: Answer\nFinal Answer: ["a"]', agent="assistant"))
    assert isinstance(run, AgentRun) and (run.language, run.code) == ("sql", "SELECT b\nFROM t;")
    assert (run.success, run.output, run.task) == (success, answer, "Who won?")


@pytest.mark.parametrize(
    "other",
    [
        sample("Go to the kitchen.", "ACTION: go to kitchen"),
        {"index": 1, "error": "network", "output": None},
        {"index": 1, "output": {"history": [{"role": "agent"}, None, 3]}},
        sample(*EXAMPLE, ASKED, "Act: finish"),
    ],
)
def test_samples_without_code_are_none_and_cost_the_others_nothing(other: dict[str, Any]) -> None:
    assert not READER.reads(LogDocument(json.dumps(other).encode()))
    assert len(read(other, sample(ASKED, bash("ls"), "The output of the OS is empty."))) == 1
