"""AgentBench's results (`outputs/<agent>/<task>/runs.jsonl`) of its tasks with a shell and with a database.

`{"index", "error", "output": {"status", "result": {"result": false, ..}, "history": [{"role": "user" | "agent",
"content"}]}, "time"}`, one sample on a line. The shell's agent writes "Act: bash" and fences, all of which are joined
and run; the database's writes "Action: Operation" and one fence of SQL, and is answered by Python's list of rows or by
the error. Traps: the shell's history begins with a solved example of its own, which is the same in every sample, up to
"Now, I will start a new problem in a new OS"; its output stands behind words of the task's and is cut; there are no
exit codes; the time is that of the sample's end. Tasks of other kinds (games, web pages) run no code.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from capibara_assets.executions.formats.agents.fields import at, name_at, objects, text_at
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun, Reader
from capibara_assets.executions.formats.agents.trajectories.tool_calls import Code
from capibara_assets.executions.formats.strict_json import Fault

_SAYS = ("agent", "assistant")
_NEW_PROBLEM = "I will start a new problem in a new OS"
_ACT = re.compile(r"^Act: *(bash|finish|answer)", re.MULTILINE | re.IGNORECASE)
_BASH = re.compile(r"```bash\n(.*?)\n```", re.DOTALL)
_OPERATION = re.compile(r"^Action: *Operation\b", re.MULTILINE)
_SQL = re.compile(r"```sql\n(.*?)\n```", re.DOTALL)
_OS_SAYS = re.compile(r"The output of the OS(?: is empty\.?|:\s*?\n\n?(?P<output>.*))\s*\Z", re.DOTALL)
_SQL_FAILED = re.compile(r"-?\d+ \(\w{5}\): |\d{4}: ")  # as MySQL's connector writes an error
_SQL_RAN = re.compile(r"\[|No result set to fetch from|\Z")


def _history(sample: Any) -> list[dict[str, Any]]:
    """The messages of a sample behind the solved example."""
    history = objects(at(sample, "output", "history"))
    opened = (n for n, said in enumerate(history) if said.get("role") == "user" and _NEW_PROBLEM in _text(said))
    return history[max(opened, default=0) :]


def _text(message: Any) -> str:
    return text_at(message, "content")


def _code(message: dict[str, Any]) -> Code | None:
    """What a message of the agent has run; None: nothing."""
    said = _text(message)
    if message.get("role") not in _SAYS:
        return None
    if [act.lower() for act in _ACT.findall(said)][-1:] == ["bash"]:
        script = "\n\n".join(_BASH.findall(said))
        return Code("bash", script) if script.strip() else None
    query = _SQL.search(said) if _OPERATION.search(said) else None
    return Code("sql", query[1].strip()) if query else None


def _reads(document: LogDocument) -> bool:
    return any("index" in sample and any(map(_code, _history(sample))) for sample in objects(document.rows))


def _entries(document: LogDocument) -> Iterator[Entry]:
    for number, sample in enumerate(document.rows):
        if not isinstance(sample, dict):
            yield Fault("invalid_record", f"sample {number}: expected an object", sample)
        elif history := _history(sample):
            session = f"{name_at(sample, 'index') or 'sample'}#{number}"
            solved = False if at(sample, "output", "result", "result") is False else None
            yield from _sample(history, session, solved)
    yield from document.faults if document.value is None else ()


def _sample(history: list[dict[str, Any]], session: str, solved: bool | None) -> Iterator[Entry]:
    task: str | None = None
    ran = False  # the message before
    for said, answer in pairwise([*history, {}]):
        code = _code(said)
        if code is None:
            asked = "" if ran or said.get("role") != "user" else _text(said).rpartition("problem is:")[2].strip()
            task, ran = asked or task, False
            continue
        ran = True
        output = _output(code, answer)
        if output is None:
            yield NotRun("unanswered", session, code.text)
            continue
        success = _success(output) if code.language == "sql" else None
        yield AgentRun(session, code.language, code.text, success, output, task=task, solved=solved)


def _output(code: Code, answer: dict[str, Any]) -> str | None:
    """The code's output; None where no answer to it is logged."""
    if answer.get("role") != "user" or not isinstance(answer.get("content"), str):
        return None
    if code.language == "sql":
        return _text(answer)
    told = _OS_SAYS.match(_text(answer))
    return (told["output"] or "") if told else None


def _success(answer: str) -> bool | None:
    if _SQL_FAILED.match(answer):
        return False
    return True if _SQL_RAN.match(answer.strip()) else None


READER = Reader("agentbench", (b'"history"',), _reads, _entries)
