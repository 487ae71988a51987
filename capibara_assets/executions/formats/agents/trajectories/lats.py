"""Programs that an agent wrote for a benchmark's problems, one problem on a line: LATS', Reflexion's and LDB's runs.

They write the problem of HumanEval, MBPP or LeetCode back with `solution` and `is_solved`; the strategies that log
their tries add `implementations`, `test_feedback` (of tests that the agent wrote) and `reflections`. What misleads:

- `is_solved` is the verdict of the benchmark's own tests on the last implementation, whatever its feedback says;
- LATS logs the first and the best of a tree of programs, and as second feedback that of the program it tried last:
  its list of reflections is then no shorter than that of implementations, as Reflexion's always is;
- without `implementations`, `solution` is the last try but for Reflexion's uniform-cost search, which writes the first
  try beside the verdict on the best: a solved problem with reflections then states nothing on it;
- where LATS' first try passed, `acc` is all that it writes; `test-acc` writes tests as the solution.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun, Reader, texts
from capibara_assets.executions.formats.strict_json import Fault

_LANGUAGES = {"py": "python", "rs": "rust", "js": "javascript", "ts": "typescript", "rb": "ruby", "jl": "julia"}
_DEFINES = re.compile(r"^[ \t]*(?:pub )?(fn|func) \w+[(<]", re.MULTILINE)
_PASSED, _FAILED = "Tested passed:", "\n\nTests failed:"


def _strings(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_problem(record: dict[str, Any]) -> bool:
    named = any(isinstance(record.get(name), str) for name in ("name", "task_id", "entry_point"))
    return named and isinstance(record.get("prompt"), str)


def _is_tried(record: dict[str, Any]) -> bool:
    """Whether the verdict and a program stand in a record."""
    tries = record.get("implementations")
    tried = isinstance(tries, list) and any(isinstance(code, str) for code in tries)
    answered = isinstance(record.get("entry_point"), str) and isinstance(record.get("solution"), str | list)
    return isinstance(record.get("is_solved"), bool) and (tried or answered)


def _reads(document: LogDocument) -> bool:
    return any(_is_problem(record) and _is_tried(record) for record in document.lines)


def _language(record: dict[str, Any]) -> str:
    short = record.get("language")
    if isinstance(short, str) and short:
        return _LANGUAGES.get(short, short)
    found = _DEFINES.search(record["prompt"])
    return {"fn": "rust", "func": "go"}[found[1]] if found else "python"


def _passed(feedback: Any) -> bool | None:
    """Whether the agent's tests passed; None where it wrote none. A list (LDB's) has those that failed."""
    if isinstance(feedback, list):
        return not feedback
    if not isinstance(feedback, str) or not feedback.strip():
        return None
    if not feedback.startswith(_PASSED):
        return False  # the compiler's errors
    passed, found, failed = feedback.removeprefix(_PASSED).partition(_FAILED)
    if failed.strip():
        return False
    return True if found and passed.strip() else None


def _tries(record: dict[str, Any]) -> Iterator[tuple[Any, bool | None, str]]:
    """Code, success and output of each try."""
    verdict = solved if isinstance(solved := record.get("is_solved"), bool) else None
    reflections = _strings(record.get("reflections"))
    tries = _strings(record.get("implementations"))
    if not tries and "solution" in record:
        yield record["solution"], None if verdict and reflections else verdict, ""
    feedback = _strings(record.get("test_feedback"))
    of_a_tree = len(reflections) >= len(tries)
    for number, code in enumerate(tries):
        heard = feedback[number] if number < len(feedback) and not (of_a_tree and number) else None
        last = number == len(tries) - 1 and verdict is not None
        yield code, verdict if last else _passed(heard), texts(heard)


def _session(record: dict[str, Any], number: int, seen: Counter[str]) -> str:
    names = (record.get(name) for name in ("name", "task_id", "entry_point"))
    session = next((name for name in names if isinstance(name, str) and name), f"problem-{number}")
    seen[session] += 1
    return session if seen[session] == 1 else f"{session}#{number}"


def _entries(document: LogDocument) -> Iterator[Entry]:
    yield from document.faults
    seen: Counter[str] = Counter()
    for number, record in enumerate(document.lines):
        if not _is_problem(record):
            yield Fault("invalid_record", f"problem {number}: expected its name and prompt", record)
            continue
        session = _session(record, number, seen)
        tries = list(_tries(record))
        if not any(isinstance(code, str) for code, _, _ in tries):
            yield NotRun("code_not_logged")
            continue
        for code, success, output in tries:
            if isinstance(code, str):
                yield AgentRun(session, _language(record), code, success, output, task=record["prompt"])
            else:
                yield Fault("missing:code", f"problem {number}: an implementation that is no text", record)


READER = Reader("lats", (b'"is_solved"',), _reads, _entries)
