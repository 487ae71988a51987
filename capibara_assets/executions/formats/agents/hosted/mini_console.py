r"""mini-swe-agent's console (`mini`, 1.x), kept as a text file or as a recording of the terminal.

`mini-swe-agent (step 3, $0.02):` heads what the model said, `User:` what it was told: the same messages as in its
trajectories, whose reader takes them. Before the first step stands the prompt. Traps: a spinner writes and erases lines
of its own, also below a heading, and libraries log there; the terminal breaks lines that are longer than it is wide,
and nothing tells where.
"""

import json
import re
from collections.abc import Iterator

from capibara_assets.executions.formats.agents.hosted.console_dialogues import (
    console_reader,
    console_text,
    plain,
    sections,
)
from capibara_assets.executions.formats.agents.runs import Entry, LogDocument
from capibara_assets.executions.formats.agents.trajectories import mini_swe_agent

_STEP = re.compile(r"^mini-swe-agent \(step \d{1,9}, \$\d{1,9}\.\d{1,9}\):$", re.MULTILINE)
_USER = re.compile(r"^User:$", re.MULTILINE)
_SAVED = re.compile(r"^Saved trajectory to '", re.MULTILINE)  # the program's own last words
_TOLD = re.compile(r"^(?:<returncode>|The last command <command>)", re.MULTILINE)

_FEWEST = 2  # outcomes of a dialogue without its beginning


def _found(document: LogDocument) -> Iterator[tuple[str, str]]:
    """The one dialogue of a console that shows its prompt and the outcome of a command.

    Without its beginning, which a terminal forgets, it shows the outcomes of several.
    """
    text = plain(console_text(document) or "")
    first = _STEP.search(text)
    if first is None:
        return
    outcomes = sum(told is not None and _TOLD.search(told) is not None for _, told in _steps(text))
    if outcomes >= (1 if _USER.search(text, 0, first.start()) else _FEWEST):
        yield document.digest, text


def _steps(text: str) -> Iterator[tuple[str, str | None]]:
    """What the model said in each step, and what it was told."""
    for _, said in sections(_STEP, text):
        told = _USER.search(said)
        if told is None:
            yield said, None
        else:
            answer = _SAVED.split(said[told.end() :])[0].strip("\n")
            begun = _TOLD.search(answer)
            yield said[: told.start()], answer[begun.start() if begun else 0 :]


def _entries(session: str, text: str) -> Iterator[Entry]:
    _, *asked = _USER.split(_STEP.split(text, maxsplit=1)[0])
    messages = [{"role": "user", "content": asked[-1] if asked else ""}]
    for said, told in _steps(text):
        messages.append({"role": "assistant", "content": said})
        if told is not None:
            messages.append({"role": "user", "content": told})
    value = {"instance_id": session, "messages": messages}
    yield from mini_swe_agent.READER.entries(LogDocument(json.dumps(value).encode("ascii")))


READER = console_reader("mini-console", (b"mini-swe-agent",), _found, _entries)
