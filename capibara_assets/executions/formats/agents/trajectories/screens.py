"""A terminal's screen as Terminus reports it: one text for all commands of a step, with prompts and what was typed."""

import re
from collections.abc import Sequence

_KEY = (
    r"(?:[CMS]-\S|\^\S|Enter|Escape|Tab|BTab|Space|BSpace|DC|Up|Down|Left|Right|Home|End"
    r"|PPage|NPage|PageUp|PageDown|F\d+)"
)
_KEYS = re.compile(rf"\s*(?:{_KEY}\s*)*")
_PROMPT = re.compile(
    r"(?:\([\w.\- ]+\) ?)?(?:(?:\[[^\]\n]*\]|[\w.-]+@[\w.-]+:[^\n#$]*|(?:ba|z|da|k)?sh-[\d.]+)[#$%]|\$)(?: |$)"
)
_WARNINGS = re.compile(
    r"\APrevious response had warnings:\n.*?\n\n(?=New Terminal Output:|Current Terminal Screen:)", re.DOTALL
)
_CONFIRM = re.compile(
    r"\ACurrent terminal state:\n(.*?)\n+Are you sure you want to mark the task as complete\?.*", re.DOTALL
)
_HEADER = re.compile(r"\A(?:New Terminal Output|Current Terminal Screen):\n+")


def is_command(keystrokes: str, enters: bool) -> bool:
    """Whether keystrokes give a shell a line: no keys by name or as control characters, not nothing.

    `enters`: this agent ends lines itself.
    """
    if _KEYS.fullmatch(keystrokes) or all(sign < " " for sign in keystrokes):
        return False
    return not enters or keystrokes.endswith(("\n", "\r"))


def screen_of(content: str) -> str:
    """The screen within what was told to the model: no header, no warnings, no question whether the task is done."""
    text = _WARNINGS.sub("", content, count=1)
    asked = _CONFIRM.match(text)
    return _HEADER.sub("", asked[1] if asked else text, count=1)


def outputs(screen: str, commands: Sequence[str]) -> list[str]:
    """The output of each command: what follows it at a prompt. All belongs to the last where one is not found."""
    lines = screen.split("\n")
    places: list[tuple[int, int]] = []  # the prompt's line, and the first behind the command
    for command in commands:
        place = _find(lines, places[-1][1] if places else 0, command.strip().split("\n"))
        if place is None:
            return [""] * (len(commands) - 1) + [_without_prompt(lines)]
        places.append(place)
    ends = [start for start, _ in places[1:]] + [len(lines)]
    return [_without_prompt(lines[begin:end]) for (_, begin), end in zip(places, ends, strict=True)]


def _find(lines: list[str], start: int, command: list[str]) -> tuple[int, int] | None:
    first = command[0].strip()
    for at in range(start, len(lines)):
        prompt = _PROMPT.match(lines[at])
        shown = lines[at][prompt.end() :].strip() if prompt else ""
        if not shown or not first.startswith(shown) or (shown != first and len(shown) < 20):
            continue
        behind = at + 1
        while (
            len(shown) < len(first)
            and behind < len(lines)
            and lines[behind]
            and first[len(shown) :].lstrip().startswith(lines[behind].strip())
        ):
            shown = first[: first.index(lines[behind].strip(), len(shown)) + len(lines[behind].strip())]  # wrapped
            behind += 1
        for _ in command[1:]:
            if behind < len(lines) and lines[behind].startswith(">"):
                behind += 1
        return at, behind
    return None


def _without_prompt(lines: list[str]) -> str:
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    prompt = _PROMPT.match(lines[end - 1]) if end else None
    if prompt and not lines[end - 1][prompt.end() :].strip():
        end -= 1
    return "\n".join(lines[:end])
