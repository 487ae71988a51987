"""SpecStory's Markdown before it put calls in tags (2024 to August 2025): sessions of Cursor and of Claude Code.

Messages are as in `specstory.py`. A call is a line `Tool use: **Bash** ..` with the command in back quotes or a fence
below it, and its block `Result:` or `Error:`; of Cursor a section that begins with a fence of `bash`, right above a
fence without a language, which is its output. Traps: other fences of `bash` are only suggested; a call that printed
nothing has no block, since refused ones have one; some versions write `Result:` above everything, refusals too, so that
it is no success; fences are not lengthened, so that an output ends at the fence that ends the call. What the user ran
(`<bash-input>`) is answered in the user's next message.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from capibara_assets.executions.formats.agents.runs import Entry, LogDocument, NotRun, Reader
from capibara_assets.executions.formats.agents.tools import specstory
from capibara_assets.executions.formats.agents.tools.shell_reports import refused

_TOP = re.compile(r"## SpecStory\s*")
_TITLED = re.compile(r"##? .* \(\d{1,4}[-/]\d{1,2}[-/]\d{1,4}\b.*\)\s*")
_CALL = re.compile(r"Tool use: \*\*([^*]+)\*\*.*")
_HEADS = ("Result:", "Error:")
_SECTION = ("---", "_****_")
_TYPED = re.compile(r"<bash-input>(.*?)</bash-input>", re.DOTALL)
_ANSWERED = re.compile(r"<bash-stdout>(.*?)</bash-stdout>(?:\s*<bash-stderr>(.*?)</bash-stderr>)?", re.DOTALL)
_PROMPT = re.compile(r"[\w.-]+@[\w.-]+ .*[%$#] *")


@dataclass
class _Session:
    """A session, read line by line."""

    lines: list[str]
    place: specstory.Place
    at: int = 0
    said: list[str] = field(default_factory=list)
    typed: str | None = None

    def entries(self) -> Iterator[Entry]:
        """What was run and edited, in order."""
        begins = True  # a section of the agent's
        while self.at < len(self.lines):
            line = self.lines[self.at]
            self.at += 1
            if role := specstory.ROLE.fullmatch(line):
                yield from self._of_user()
                specstory.move(self.place, role)
                begins = True
            elif self.place.role == "User":
                self.said.append(line)
            elif call := _CALL.fullmatch(line):
                yield from self._call(call[1].strip())
                begins = False
            elif begins and (fence := specstory.FENCE.fullmatch(line)) and fence[2] in specstory.SHELLS:
                yield from self._shown(fence[1])
                begins = False
            elif line.strip():
                begins = line.strip() in _SECTION
        yield from self._of_user()

    def _of_user(self) -> Iterator[Entry]:
        """Takes the user's words as the task, and the commands among them as runs."""
        if self.place.role != "User":
            return
        text = "\n".join(self.said)
        if self.typed is not None and (answered := _ANSWERED.search(text)):
            printed, errors = answered[1].strip("\n"), (answered[2] or "").strip("\n")
            yield specstory.run_of(self.place, self.typed, printed, stderr=errors)
            self.typed = None
        if typed := _TYPED.search(text):
            self.typed = typed[1].strip()
        if not (typed or _ANSWERED.search(text)):
            specstory.hear(self.place, self.said)
        self.said = []

    def _call(self, name: str) -> Iterator[Entry]:
        """A call below its line, with its block."""
        begin = self.at
        fence = specstory.FENCE.fullmatch(self.lines[self._next()]) if self._next() < len(self.lines) else None
        if fence:
            self.at = self._next() + 1
            shown = self._until_closed(fence[1])
        else:
            shown = self._quoted()
        head = self.lines[self._next()].strip() if self._next() < len(self.lines) else None
        printed = ""
        if head in _HEADS:
            self.at = self._next() + 1
            printed = self._block()
        elif fence and self._is_bare_fence():
            printed = self._block()
        body = "\n".join(self.lines[begin : self.at])
        if not specstory.runs_commands(name):
            yield from specstory.edits(self.place.session, body) if head != "Error:" and fence else ()
        elif refused(printed):
            yield NotRun("refused", self.place.session, shown)
        elif shown and head is None:
            yield NotRun("unanswered", self.place.session, shown)
        elif shown:
            yield specstory.run_of(self.place, shown, printed, failed=head == "Error:")

    def _shown(self, ticks: str) -> Iterator[Entry]:
        """A command of Cursor's that a section begins with, if its output stands right below."""
        command = self._until_closed(ticks)
        if command.strip() and self._is_bare_fence():
            yield specstory.run_of(self.place, command, _without_echo(self._block(), command))

    def _quoted(self) -> str:
        """A command in back quotes, to a quote at a line's end behind which its block, or something else, begins."""
        start = self._next()
        if start >= len(self.lines) or not self.lines[start].startswith("`"):
            return ""
        for end in range(start, len(self.lines)):
            if self.lines[end].endswith("`") and (end > start or len(self.lines[end]) > 1):
                self.at = end + 1
                if self._ends_call(self._next()):
                    return "\n".join(self.lines[start : end + 1])[1:-1]
        self.at = start
        return ""

    def _block(self) -> str:
        """What a call printed: its fence, or the lines up to what comes next."""
        start = self._next()
        fence = specstory.FENCE.fullmatch(self.lines[start]) if start < len(self.lines) else None
        if fence:
            self.at = start + 1
            return self._until_closed(fence[1])
        end = next((at for at in range(start, len(self.lines)) if self._ends_call(at)), len(self.lines))
        self.at = end
        return "\n".join(self.lines[start:end]).strip()

    def _until_closed(self, ticks: str) -> str:
        """The content of a fence: to the first that closes it and ends the call, else to the first that closes it."""
        closing = None
        for end in range(self.at, len(self.lines)):
            line = self.lines[end]
            if line.rstrip() == ticks:
                closing = end if closing is None else closing
                after = self._next(end + 1)
                if self._ends_call(after) or specstory.FENCE.fullmatch(self.lines[after]):
                    closing = end
                    break
            elif specstory.ROLE.fullmatch(line) and closing is not None:
                break
        start, end = self.at, len(self.lines) if closing is None else closing
        self.at = end + 1
        return "\n".join(self.lines[start:end])

    def _ends_call(self, at: int) -> bool:
        """Whether a line is no part of what a call shows or printed."""
        if at >= len(self.lines):
            return True
        line = self.lines[at].strip()
        return line in (*_HEADS, *_SECTION) or bool(specstory.ROLE.fullmatch(line) or _CALL.fullmatch(line))

    def _is_bare_fence(self) -> bool:
        at = self._next()
        fence = specstory.FENCE.fullmatch(self.lines[at]) if at < len(self.lines) else None
        return fence is not None and not fence[2]

    def _next(self, start: int | None = None) -> int:
        """The next line that is not blank."""
        at = self.at if start is None else start
        while at < len(self.lines) and not self.lines[at].strip():
            at += 1
        return at


def _without_echo(printed: str, command: str) -> str:
    """What a terminal showed, without the prompt and the command at its head and the prompt at its end."""
    lines = printed.split("\n")
    if lines[-1:] and _PROMPT.fullmatch(lines[-1]):
        del lines[-1]
    if lines and lines[0].rstrip().endswith(command.split("\n", 1)[0][-30:]):
        del lines[0]
    return "\n".join(lines)


def _is_plain(document: LogDocument) -> bool:
    text = document.text
    top = [line for line in text[:4000].split("\n") if line.strip()][:6]
    known = any(
        pattern.fullmatch(line) for line in top for pattern in (specstory.GENERATED, specstory.SESSION, _TOP, _TITLED)
    )
    return known and "<tool-use " not in text and "_**" in text


def _reads(document: LogDocument) -> bool:
    return _is_plain(document) and any(True for _ in _entries(document))


def _entries(document: LogDocument) -> Iterator[Entry]:
    lines = document.text.replace("\r\n", "\n").split("\n")
    session = next((found[1] for line in lines[:40] if (found := specstory.SESSION.fullmatch(line))), document.digest)
    yield from _Session(lines, specstory.Place(session)).entries()


READER = Reader("specstory-plain", (b"SpecStory", b" Session "), _reads, _entries)
