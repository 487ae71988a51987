"""Reads the dialogues that AutoGen 0.2 (and AG2) prints: in the stdout of a notebook's cell, or saved as a text file.

A reader of notebooks takes the cell for one execution; what ran are the blocks that the dialogue says it executes. Two
ages: up to 0.2.7 each block is announced as it is run, so that the last announced is the one that failed; later all of
a message are announced at once, with one exit code, so that a failure is of one of them, and which is not said. Code
stands in the last message before it that the executing agent got; a group chat's are all addressed to its manager.
Agents of one's own print headings between rows of asterisks: code then stands below one of them, behind the message,
and its result right below the announcement.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from capibara_assets.executions.formats.agents.hosted.console_dialogues import (
    code_blocks,
    console_reader,
    dialogues,
    plain,
    sections,
)
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, NotRun
from capibara_assets.executions.formats.strict_json import Fault

_NAME = r"[^\s():>][^():\n>]{0,99}?"
_COLOUR = r"(?:\[\d+m)?"  # colours that lost their escape character
_EVENT = re.compile(
    rf"^{_COLOUR}(?P<sender>{_NAME}){_COLOUR} \(to (?P<to>{_NAME})\):[ \t]*\n(?=\n|\Z)"
    rf"|^{_COLOUR}>{{8}} EXECUTING CODE BLOCK (?:(?P<index>\d{{1,6}}) )?"
    r"\(inferred language is (?P<language>[^)\n]*)\)\.\.\."
    rf"|^{_COLOUR}>{{8}} EXECUTING \d+ CODE BLOCKS \(inferred languages are \[(?P<languages>[^\]\n]*)\]\)\.\.\."
    rf"|^(?:{_COLOUR}>{{8}} |{_COLOUR}Next speaker: |Starting a new chat\.\.\.\.).*$",
    re.MULTILINE,
)
_RESULT = re.compile(r"exitcode: (-?\d{1,9}) \(execution [^)\n]*\)\nCode output:[ \t]*(?:\n|(?=\S)|\Z)")
_STARRED = re.compile(r"^\*{6,}[^*\n]{1,80}\*{6,}[ \t]*$", re.MULTILINE)
_BELOW = re.compile(rf"\s*+(?:\*{{6,}}[^*\n]{{1,80}}\*{{6,}}[ \t]*\n)?{_RESULT.pattern}")
_RULE = re.compile(r"\n?\n-{80}[ \t]*$", re.MULTILINE)
_NOT_RUN = re.compile(r"unknown language [^\n]*\s*\Z")
_MARK = "(inferred language"


class _Message(NamedTuple):
    sender: str
    to: str
    text: str
    blocks: list[tuple[str, str]]


class _Announced(NamedTuple):
    """Blocks that were announced together: their languages, and whether each as it was run."""

    languages: list[str]
    singly: bool


def is_dialogue(cell_output_text: str) -> bool:
    """Whether console text holds an agent's dialogue in which code was executed."""
    if _MARK not in cell_output_text or " (to " not in cell_output_text:
        return False
    found = {event.lastgroup for event in _EVENT.finditer(plain(cell_output_text))}
    return "to" in found and not found.isdisjoint({"language", "languages"})


def _at_rule(text: str) -> tuple[str, str]:
    """A message's text, which ends at the last rule, and what other programs printed behind that."""
    *_, rule = [None, *_RULE.finditer(text)]
    return (text[: rule.start()], text[rule.end() :]) if rule else (text, "")


def _are_in(blocks: list[tuple[str, str]], languages: list[str]) -> bool:
    """Whether blocks are in the announced languages; a block may leave its own to be inferred."""
    return len(blocks) == len(languages) and all(
        said in ("", language) for (said, _), language in zip(blocks, languages, strict=True)
    )


def _no_code(answer: str) -> Fault:
    return Fault("missing_code", "an execution whose code stands in no message of the dialogue", answer)


class _Dialogue:
    """One dialogue while it is read: the messages so far, and the announced blocks without a result."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.messages: list[_Message] = []
        self.announced: list[_Announced] = []
        self.asker: str | None = None  # who began the chat
        self.task: str | None = None
        self.behind = ""  # what stands behind the last message or result, and is none

    def entries(self, text: str) -> Iterator[Entry]:
        for event, said in sections(_EVENT, text):
            if event["to"] is not None:
                body, behind = _at_rule(said.removeprefix("\n"))
                yield from self._message(_Message(event["sender"], event["to"], body, code_blocks(body)))
                self.behind = behind
            elif event["languages"] is not None:
                languages = [language.strip(" '\"") for language in event["languages"].split(",")]
                self.announced.append(_Announced(languages, singly=False))
                yield from self._below(said)
            elif event["language"] is not None:
                self._single(event["language"], int(event["index"] or 0))
                yield from self._below(said)
            elif event[0].startswith("Starting"):
                self.asker = None
        yield from (NotRun("unanswered") for announced in self.announced for _ in announced.languages)

    def _single(self, language: str, index: int) -> None:
        if index and self.announced and len(self.announced[-1].languages) == index:
            self.announced[-1].languages.append(language)
        else:
            self.announced.append(_Announced([language], singly=True))

    def _message(self, message: _Message) -> Iterator[Entry]:
        result = _RESULT.match(message.text)
        if result is not None and self.announced:
            announced = self.announced.pop()
            blocks = self._code(message, announced.languages) or self._code_behind(announced.languages)
            if blocks is None:
                yield _no_code(message.text)
            else:
                yield from self._runs(blocks, int(result[1]), message.text[result.end() :], announced)
        elif result is None:
            self.asker = self.asker or message.sender
            if message.sender == self.asker and message.text.strip():
                self.task = message.text.strip()
        self.messages.append(message)

    def _below(self, said: str) -> Iterator[Entry]:
        """A result that stands right below what announced its code, in no message."""
        if (result := _BELOW.match(said)) is None:
            return
        announced = self.announced.pop()
        blocks = self._code_behind(announced.languages)
        text = said[result.end() :]
        heading = _STARRED.search(text)
        if heading is not None:
            output, self.behind = text[: heading.start()].removesuffix("\n"), text[heading.start() :]
        else:
            output, self.behind = _at_rule(text)
        if blocks is None:
            yield _no_code(output)
        else:
            yield from self._runs(blocks, int(result[1]), output, announced)

    def _runs(
        self, blocks: list[tuple[str, str]], exit_code: int, output: str, announced: _Announced
    ) -> Iterator[Entry]:
        last = len(blocks) - 1
        for at, ((_, code), language) in enumerate(zip(blocks, announced.languages, strict=True)):
            success: bool | None = exit_code == 0 or at < last
            if exit_code and last and not announced.singly:
                success = None
            failed = success is False
            if failed and _NOT_RUN.search(output):
                yield NotRun("refused", code=code)
                continue
            stated = at == last and success is not None
            yield AgentRun(
                self.session, language.lower() or "python", code, success,
                output if at == last else "",  # one text for all blocks
                exit_code=exit_code if stated else None,
                timed_out=failed and output.rstrip().endswith("Timeout"),
                task=self.task,
            )  # fmt: skip

    def _code(self, answer: _Message, languages: list[str]) -> list[tuple[str, str]] | None:
        """The blocks that were run: those of the last message to the executing agent that has such ones."""
        for message in reversed(self.messages):
            to_executor = message.sender == answer.to and message.to == answer.sender
            to_group = message.to == answer.to and message.sender != answer.sender
            blocks = message.blocks[: len(languages)]
            if (to_executor or to_group) and _are_in(blocks, languages):
                return blocks
        return None

    def _code_behind(self, languages: list[str]) -> list[tuple[str, str]] | None:
        """The blocks that were run, where they stand behind the last message: below the last heading with such ones."""
        for part in reversed(_STARRED.split(self.behind)):
            blocks = code_blocks(part)[: len(languages)]
            if blocks and _are_in(blocks, languages):
                return blocks
        return None


_FOUND = partial(dialogues, is_dialogue=is_dialogue, heading=_EVENT)
READER = console_reader(
    "autogen-console", (_MARK.encode(),), _FOUND, lambda session, text: _Dialogue(session).entries(text)
)
