"""AppWorld's `environment_io.md`: numbered interactions, each a fence of Python and one of its result.

The environment says "Execution failed. Traceback: .." of code that raised and "Execution successful." of code that
printed nothing; all other words are what was printed. Traps: code and output may hold fences and headings of their own,
so an interaction begins at the next number only, and one in which the code may end in several places is not read.
"""

import re
from collections.abc import Iterator

from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun, Reader
from capibara_assets.executions.formats.strict_json import Fault

_HEADING = re.compile(r"^### Environment Interaction (\d{1,9})\n-{3,}\n", re.MULTILINE)
_OPENS, _BETWEEN = "```python\n", "\n```\n\n```\n"
_CODE_ENDS, _ENDS = re.compile(r"\n```\s*\Z"), re.compile(r"\n?```\s*\Z")
_FAILED, _NOTHING_SAID, _NO_CODE = "Execution failed.", "Execution successful.", "No code available to execute."


def _interactions(document: LogDocument) -> list[str]:
    """What stands below each heading, in the order of their numbers."""
    text = document.text.replace("\r\n", "\n")
    heads: list[re.Match[str]] = []
    for head in _HEADING.finditer(text):
        if int(head[1]) == len(heads) + 1:
            heads.append(head)
    if not heads or text[: heads[0].start()].strip():
        return []  # a page that quotes one
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return [text[head.end() : end] for head, end in zip(heads, ends, strict=True)]


def _reads(document: LogDocument) -> bool:
    return any(body.startswith(_OPENS) and _BETWEEN in body for body in _interactions(document))


def _entries(document: LogDocument) -> Iterator[Entry]:
    for body in _interactions(document):
        yield _entry(document.digest, body)


def _entry(session: str, body: str) -> Entry:
    parts = body.removeprefix(_OPENS).split(_BETWEEN)
    if not body.startswith(_OPENS) or len(parts) > 2:
        return Fault("unpaired", "where the code ends and its output begins is not told", body)
    code = parts[0]
    if len(parts) == 1 or not _ENDS.search(parts[1]):  # the log ends in it, or was cut
        return NotRun("unanswered", session, _CODE_ENDS.sub("", code))
    said = _ENDS.sub("", parts[1])
    if not code.strip() or said.startswith(_NO_CODE):
        return NotRun("no_code", session)
    failed = said.startswith(_FAILED)
    output = "" if failed or said == _NOTHING_SAID else said
    return AgentRun(session, "python", code, not failed, output, said if failed else "")


READER = Reader("appworld", (b"### Environment Interaction ",), _reads, _entries)
