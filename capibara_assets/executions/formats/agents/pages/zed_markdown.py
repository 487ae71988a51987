"""Threads of Zed's agent, opened as Markdown and saved: `**Tool Use**: NAME (ID: ..)`, `**Tool Result**` below it."""

import re
from collections.abc import Iterator

from capibara_assets.executions.formats.agents.general.answers import read_answer, write_answer
from capibara_assets.executions.formats.agents.general.tool_names import Asked, asked_of, entry_of
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, Reader
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.agents.trajectories.tool_calls import parsed

_PART = re.compile(r"^(?:## (User|Assistant)|\*\*Tool (Use|Result)\*\*: (\S+) \(ID: (\S+)\))[ \t]*$", re.MULTILINE)
_FENCED = re.compile(r"\s*(`{3,})json\n(.*?)\n\1", re.DOTALL)


def _reads(document: LogDocument) -> bool:
    return any(part[2] == "Use" for part in _PART.finditer(document.text))


def _entries(document: LogDocument) -> Iterator[Entry]:
    text = document.text
    made: list[tuple[Call, Asked]] = []
    by_id: dict[str, tuple[Call, Asked]] = {}
    task: str | None = None
    parts = list(_PART.finditer(text))
    for part, end in zip(parts, [*(each.start() for each in parts[1:]), len(text)], strict=True):
        said = text[part.end() : end]
        if part[1] == "User":
            task = said.strip() or task
        elif part[2] == "Use":
            given = fenced[2] if (fenced := _FENCED.match(said)) else None
            asked = asked_of(part[3], parsed(given))
            if asked is not None:
                made.append((Call(document.digest, part[3], parsed(given), part[4], task=task), asked))
                by_id[part[4]] = made[-1]
        elif part[2] == "Result" and part[4] in by_id:
            call, asked = by_id[part[4]]
            write_answer(call, read_answer(said.strip("\n")), asked.path is None, language=asked.language)
    yield from (entry_of(call, asked) for call, asked in made)


READER = Reader("zed-markdown", (b"**Tool Use**: ",), _reads, _entries)
