"""Examples as the detectors see them: a prompt cut into sections by its form alone, and an answer."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any

CODE_KINDS = ("solve", "repair", "apply")  # the answer is code
_FENCE = re.compile(r"^```[\w+-]*[ \t]*\n(.*?)^```[ \t]*$", re.M | re.S)
_HEADING = re.compile(r"^(?:#{2,4} .{1,80}|\*\*[^*\n]{1,80}\*\*:?|[A-Z][\w ,.'`()/+-]{0,70}:)[ \t]*$")


@dataclass(frozen=True)
class Section:
    """Lines of a prompt below a heading, or between fences; the part before the first heading has none."""

    title: str
    text: str


@dataclass(frozen=True)
class Case:
    """One example.

    Attributes:
        prompt: all turns before the answer.
        answer: the last turn of the assistant.
        test: hidden code that judges the answer, where the dataset has it.
        diff: of a repair, from the failing code to the answer, where the dataset has it.
    """

    example_id: str
    language: str
    kind: str
    prompt: str
    answer: str
    test: str | None = None
    diff: str | None = None
    derived: str | None = None
    execution_ids: tuple[str, ...] = ()

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        return tuple(cut(self.prompt))

    @cached_property
    def code(self) -> str:
        """The code of the answer: what stands between fences, else all of it."""
        fenced = _FENCE.findall(self.answer)
        return "\n".join(fenced) if fenced else self.answer

    @cached_property
    def failing(self) -> Section | None:
        """The code that the prompt asks about: the section that is most like the answer, else one called code."""
        named = [s for s in self.sections if re.search(r"\bcode\b|\bprogram\b|\bquery\b|\bscript\b", s.title, re.I)]
        if self.kind == "repair":
            rest = [s for s in self.sections if s.text.strip() and not is_error(s)]
            return max(
                named or rest, key=lambda s: SequenceMatcher(None, s.text, self.code).quick_ratio(), default=None
            )
        fenced = [s for s in self.sections if s.title == "```"]
        return next(iter(named or fenced), None)


def case_of(row: Mapping[str, Any]) -> Case:
    """The case of a row of a dataset's table of examples."""
    turns = json.loads(row["messages"])
    last = max(at for at, turn in enumerate(turns) if turn["role"] == "assistant")
    return Case(
        example_id=row["example_id"],
        language=row["language"],
        kind=row["kind"],
        prompt="\n\n".join(str(turn["content"]) for turn in turns[:last]),
        answer=str(turns[last]["content"]),
        test=row["test"],
        diff=row["diff"],
        derived=row["derived"],
        execution_ids=tuple(row["execution_ids"]),
    )


def cut(prompt: str) -> list[Section]:
    """The sections of a prompt: a line that ends with a colon or is marked as a heading begins one, so does a fence."""
    sections: list[Section] = []
    title, lines, fenced = "", list[str](), False

    def close() -> None:
        text = "\n".join(lines).strip("\n")
        if text or title:
            sections.append(Section(title, text))
        lines.clear()

    for line in prompt.split("\n"):
        if line.startswith("```"):
            if fenced or lines or not title:
                close()
                title = "" if fenced else "```"
            fenced = not fenced
        elif not fenced and _HEADING.match(line) and not _is_code(line):
            close()
            title = line.strip().strip("#* :")
        else:
            lines.append(line)
    close()
    return sections


def _is_code(line: str) -> bool:
    """Whether a line that looks like a heading is the head of a block."""
    return line.lstrip("# ").split(" ")[0] in ("def", "class", "if", "for", "while", "try", "with", "else", "return")


_ERROR_TITLE = re.compile(
    r"\berror\b|\btraceback\b|\boutput\b|\bfail|\bexception\b|\bresult\b|\bstderr\b|\bstdout\b", re.I
)


def is_error(section: Section) -> bool:
    return bool(_ERROR_TITLE.search(section.title))


_SIGNATURE = re.compile(r"^\s*(?:export )?(?:async )?(?:def|class|function\*?|const) \w+[^\n]*$", re.M)


def told_names(prompt: str) -> set[str]:
    """Words that a prompt asks with: those of a list of signatures do not count, as it may list a harness as well."""
    listed = _SIGNATURE.findall(prompt)
    return set(re.findall(r"[\w$]+", _SIGNATURE.sub("", prompt) if len(listed) > 1 else prompt))
