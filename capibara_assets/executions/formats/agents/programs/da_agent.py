"""Results of DA-Agent and Spider-Agent (`dabench/result.json`, `spider/result.json`): one JSON object.

`{"Task", "trajectory": [{"observation", "thought", "action", "code", "response"}], "finished", "steps", "result"}`. An
action is text (`Bash(code="ls")`, `Python(file_path="a.py"):` with a block, `BIGQUERY_EXEC_SQL(..)`), `code` what was
parsed of it. Trap: a step holds what the agent saw *before* it acted, so the output of its action is the observation of
the next step, and that of the last action is not in the log. There is no exit code: only a failure shows, as text, and
that a program printed nothing.
"""

import itertools
import re
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.failures import shows_failure
from capibara_assets.executions.formats.agents.fields import objects, record, text_at, word
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, Entry, LogDocument, NotRun, Reader

_NAMED = re.compile(r"\s*([A-Za-z_]\w*)\(")
_PATH = re.compile(r"""\(\s*file_?path\s*=\s*["']?([^"')]*)""")
_QUIET = re.compile(r"(?:Command|\S+) executed successfully\. No output\.\s*\Z")
_LATE = "Action execution time exceeded"
_STEP = {"observation", "action", "code"}


def _language(name: str) -> str | None:
    """The language that an action of this name runs; None: it runs nothing."""
    lower = name.lower()
    return "sql" if "sql" in lower else lower if lower in ("bash", "python") else None


def _steps(document: LogDocument) -> list[dict[str, Any]]:
    value = document.value
    return objects(value.get("trajectory")) if isinstance(value, dict) and "Task" in value else []


def _name(step: dict[str, Any]) -> str:
    found = _NAMED.match(text_at(step, "action"))
    return found[1] if found else ""


def _reads(document: LogDocument) -> bool:
    return any(step.keys() >= _STEP and _language(_name(step)) for step in _steps(document))


def _entries(document: LogDocument) -> Iterator[Entry]:
    steps = _steps(document)
    task = word(record(document.value).get("Task"))
    for step, then in itertools.zip_longest(steps, steps[1:]):
        name, code = _name(step), text_at(step, "code")
        if (language := _language(name)) is not None:
            yield _run(document.digest, language, code, None if then is None else text_at(then, "observation"), task)
        elif name in ("CreateFile", "EditFile") and (path := _PATH.search(text_at(step, "action"))):
            yield Edit(document.digest, path[1].strip(), code)


def _run(session: str, language: str, code: str, output: str | None, task: str | None) -> Entry:
    if output is None or not code.strip():
        return NotRun("no_code" if output is not None else "unanswered", session, code or None)
    late = output.startswith(_LATE)
    failed = late or shows_failure(output, code)
    success = False if failed else True if _QUIET.match(output) else None
    return AgentRun(session, language, code, success, output, timed_out=late, task=task)


READER = Reader("da-agent", (b'"trajectory"',), _reads, _entries)
