"""Verdicts of LeetCode's judge: `{"code", "status", "reward", "info": {..}}`, one submission on a line.

Written by Reflexion's `LeetExecutor` (and LATS', which took it over) over leetcode-hard-gym; `info` is what LeetCode's
site answers. Its later version logs the problem's `name` and leaves the code out. "Submission
Timed-Out" is no verdict: the client gave up waiting while the judge was at it. A session is a problem.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun, Reader, moment
from capibara_assets.executions.formats.strict_json import Fault

_LANGUAGES = {
    "python3": "python",
    "golang": "go",
    "mysql": "sql",
    "mssql": "sql",
    "postgresql": "sql",
    "oraclesql": "sql",
}
_NO_VERDICT = {"Submission Timed-Out", "Internal Error", "Unknown Error"}
_OF_AN_ANSWER = {"state", "status_msg", "status_code", "submission_id", "question_id"}


def _is_record(record: dict[str, Any]) -> bool:
    info = record.get("info")
    return (
        isinstance(info, dict)
        and not _OF_AN_ANSWER.isdisjoint(info)
        and isinstance(record.get("status"), str)
        and isinstance(record.get("reward"), bool)
        and (isinstance(record.get("code"), str) or isinstance(record.get("name"), str))
    )


def _reads(document: LogDocument) -> bool:
    return any(_is_record(record) for record in document.lines)


def _success(record: dict[str, Any], info: dict[str, Any]) -> bool | None:
    status = record.get("status")
    if record.get("reward") is True or status == "Accepted":
        return True
    if status in _NO_VERDICT or info.get("state", "SUCCESS") != "SUCCESS":
        return None
    return False if record.get("reward") is False else None


def _text(info: dict[str, Any], name: str) -> str:
    found = info.get(name)
    return found if isinstance(found, str) else ""


def _errors(status: Any, info: dict[str, Any]) -> str:
    """The error, or what the judge shows instead of one: the test that failed."""
    for name in ("full_runtime_error", "runtime_error", "full_compile_error", "compile_error"):
        if error := _text(info, name):
            return error
    shown = (("Input", "last_testcase"), ("Output", "code_output"), ("Expected", "expected_output"))
    return "\n".join([str(status), *(f"{title}: {found}" for title, name in shown if (found := _text(info, name)))])


def _times(info: dict[str, Any]) -> tuple[datetime | None, float | None]:
    elapsed = info.get("elapsed_time")
    if not isinstance(elapsed, int | float) or isinstance(elapsed, bool) or not 0 <= elapsed < 1e9:
        return None, None
    finished = moment(info.get("task_finish_time"))
    try:
        return finished - timedelta(milliseconds=elapsed) if finished else None, float(elapsed)
    except OverflowError:  # before the year 1
        return None, float(elapsed)


def _run(record: dict[str, Any], number: int) -> Entry:
    info, code = record.get("info"), record.get("code")
    if not isinstance(info, dict) or not isinstance(record.get("status"), str):
        return Fault("invalid_record", f"submission {number}: expected code, status, reward and info", record)
    if info.get("state") == "PENDING":
        return NotRun("pending")
    session = str(info.get("question_id") or record.get("name") or f"submission-{number}")
    success = _success(record, info)
    if not isinstance(code, str):
        if success is None:
            return NotRun("code_not_logged", session, "")
        code = ""  # it was judged, and the log leaves it out
    started, duration = _times(info)
    language = _text(info, "lang") or "python3"  # Reflexion submits Python but where the answer says otherwise
    submission = info.get("submission_id")
    return AgentRun(
        session=session,
        language=_LANGUAGES.get(language, language),
        code=code,
        success=success,
        solved=success,
        output=_text(info, "std_output"),
        stderr=_errors(record["status"], info) if success is False else "",
        call_id=submission if isinstance(submission, str) else None,
        started=started,
        duration_ms=duration,
        timed_out=record["status"] == "Time Limit Exceeded",
    )


def _entries(document: LogDocument) -> Iterator[Entry]:
    yield from document.faults
    for number, record in enumerate(document.lines):
        yield _run(record, number)


READER = Reader("leetcode-judge", (b'"reward"',), _reads, _entries)
