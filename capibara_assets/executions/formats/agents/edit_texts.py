"""The text of an edit that names what it replaces: the removed lines behind `-`, then the added ones behind `+`."""

from collections.abc import Iterator
from typing import Any

EVERYWHERE = "replace all:"  # above a text that is replaced wherever it stands
_OLD = (
    "old_string", "oldString", "old_str", "oldStr", "old_text", "oldText", "target_content", "TargetContent", "search",
)  # fmt: skip
_NEW = (
    "new_string", "newString", "new_str", "newStr", "new_text", "newText", "replacement_content", "ReplacementContent",
    "replace",
)  # fmt: skip


def replacement(arguments: Any, insists: bool = True) -> str | None:
    """What a tool's arguments replace by what, whatever the tool calls the two; None where it does not name them.

    Args:
        insists: both have to be named; else one is enough, and the other is nothing.
    """
    if not isinstance(arguments, dict):
        return None
    old, new = (
        next((arguments[key] for key in keys if isinstance(arguments.get(key), str)), None) for keys in (_OLD, _NEW)
    )
    if (old is None and new is None) or (insists and (old is None or new is None)):
        return None
    removed, added = (text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else [] for text in (old, new))
    everywhere = [EVERYWHERE] if arguments.get("replace_all") is True or arguments.get("replaceAll") is True else []
    return "\n".join([*everywhere, *(f"-{line}" for line in removed), *(f"+{line}" for line in added)])


def replacements(steps: Any, insists: bool = True) -> Iterator[str]:
    """The same of each step of a list."""
    for step in steps if isinstance(steps, list) else ():
        if (text := replacement(step, insists)) is not None:
            yield text
