"""A chat with GitHub Copilot as VS Code copies it (`Copy All`): turns, and a line for each command that ran.

`User: ..` (or the user's name), `GitHub Copilot: ..`, and within the answer `Ran terminal command: ..`, up to a blank
line. Neither outputs nor exit codes are copied, so nothing is known of how a command ended.
"""

import re
from collections.abc import Iterator

from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, Reader

_USER = re.compile(r"(?!GitHub Copilot: |Ran terminal command: )([\w .-]{1,40}): ")  # `User`, or a name
_BLANK = re.compile(r"\n[ \t]*(?:\n|\Z)")
_FENCE = re.compile(r"^[ \t]*(?:`{3}|~{3})", re.MULTILINE)


def _runs(document: LogDocument) -> Iterator[AgentRun]:
    """The commands in Copilot's turns of a text that begins with the user's."""
    text = "" if document.value is not None or document.lines else document.text.replace("\r\n", "\n").lstrip()
    first = _USER.match(text)
    if first is None or "\nGitHub Copilot: " not in text:
        return
    user = first[1]
    part = re.compile(rf"^({re.escape(user)}|GitHub Copilot|Ran terminal command): ", re.MULTILINE)
    task, answers, fences = None, False, 0
    _, *parts = part.split(text)
    for kind, said in zip(parts[::2], parts[1::2], strict=True):
        if kind == user:
            task, answers, fences = said.strip() or task, False, 0
        elif kind == "GitHub Copilot":
            answers, fences = True, 0
        elif answers and fences % 2 == 0 and (code := _BLANK.split(said, maxsplit=1)[0].strip()):
            yield AgentRun(document.digest, _language(code), code, None, task=task)
        fences += len(_FENCE.findall(said))


def _language(command: str) -> str:
    """PowerShell, whose commands are verbs and nouns, or a shell as others have it."""
    return (
        "powershell"
        if re.match(r"(?:\$\w+ ?=|(?:Get|Set|New|Remove|Write|Test|Start|Stop)-[A-Z])", command)
        else "bash"
    )


def reads(document: LogDocument) -> bool:
    """Whether Copilot ran a command."""
    return next(_runs(document), None) is not None


def entries(document: LogDocument) -> Iterator[Entry]:
    """The commands, in order."""
    yield from _runs(document)


READER = Reader("copilot-copied", (b"Ran terminal command: ",), reads, entries)
