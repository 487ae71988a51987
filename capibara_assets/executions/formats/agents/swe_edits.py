"""Edits of SWE-agent's tools: what `edit 317:319` replaced, told by the lines that its windows showed before.

`[File: /x/y.py (634 lines total)]`, then the lines, each behind its number and a colon; the answer to an edit shows the
new ones. The editor of versions 1.x names the old and the new text: `str_replace_editor str_replace FILE --old_str ..`.
"""

import re
import shlex
from itertools import pairwise

from capibara_assets.executions.formats.agents.edit_texts import replacement

_WINDOW = re.compile(
    r"^\[File: (?P<path>\S+) \((?P<total>\d+) lines total\)\]\n(?P<lines>(?:.*(?:\n|\Z))*)", re.MULTILINE
)
_LINE = re.compile(r"^(\d+):(.*)$", re.MULTILINE)
_EDIT = re.compile(r"\s*edit (?P<first>\d+):(?P<last>\d+)[ \t]*\n(?P<new>.*?)\n?end_of_edit\s*\Z", re.DOTALL)
_EDITOR = re.compile(r"\s*str_replace_editor\s")


class Windows:
    """The lines of files as they were shown last."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[int, str]] = {}
        self._total: dict[str, int] = {}

    def take(self, observation: str) -> None:
        """Takes what an answer shows of a file; the numbers of an earlier window may no longer hold."""
        if "[File: " not in observation or (window := _WINDOW.search(observation)) is None:
            return
        self._lines[window["path"]] = {int(line[1]): line[2] for line in _LINE.finditer(window["lines"])}
        self._total[window["path"]] = int(window["total"])

    def told(self, path: str, action: str) -> str:
        """The text of an edit: removed and added lines, or all of a file; the action where neither can be told."""
        if _EDITOR.match(action):
            return _of_editor(action) or action
        edit, lines = _EDIT.match(action), self._lines.get(path, {})
        if edit is None:
            return action
        numbers = range(int(edit["first"]), int(edit["last"]) + 1)
        if len(numbers) > len(lines) or any(number not in lines for number in numbers):
            return action
        if len(numbers) == self._total[path]:
            return edit["new"]
        old = "\n".join(lines[number] for number in numbers)
        return replacement({"old_str": old, "new_str": edit["new"]}) or action


def _of_editor(action: str) -> str | None:
    try:
        words = shlex.split(action)
    except ValueError:
        return None
    given = {name.removeprefix("--"): text for name, text in pairwise(words) if name.startswith("--")}
    return given.get("file_text") or replacement(given)
