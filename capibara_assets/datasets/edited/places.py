"""Puts the edits between two runs of a command together: the places of files that differ before and after them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property

from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.edited.changes import Change, changes

UNTOLD = "an edit between the command's runs does not tell what it replaced"
AMBIGUOUS = "what an edit replaced does not stand once in the file as the session showed it"
LONG = "its edits are longer than the recipe allows"
OVERLAPS = "edits between the command's runs overlap, and the log does not tell how"
_AROUND = 12  # lines of a known file that are shown above and below what changes
_EQUAL = 3  # equal lines around a part of a file that was written anew
_MOST_CHARACTERS, _MOST_FOUND = 200_000, 50  # of edits and places: no single mistake takes so many
_TELLING = 8  # characters of a line that is not in a file by chance


@dataclass(frozen=True)
class EditPlace:
    """A text of a file before and after the edits, and what is shown of the file around it."""

    path: str
    old: str
    new: str
    shown: str

    @cached_property
    def added(self) -> list[str]:
        """The lines that only stand after the edits, however indented."""
        return _alone(self.new, self.old)

    @cached_property
    def removed(self) -> list[str]:
        """The lines that only stood before them."""
        return _alone(self.old, self.new)


def _alone(text: str, other: str) -> list[str]:
    known = {line.strip() for line in other.split("\n")}
    return [line for line in text.split("\n") if line.strip() and line.strip() not in known]


def places(edits: Sequence[Row], known: Mapping[str, str]) -> list[EditPlace] | str:
    """The places that the edits changed, each once, in order of time; or why they cannot be told.

    Args:
        edits: recorded edits in order of time.
        known: path -> whole content before them, where the session tells it.
    """
    if sum(len(edit["code"]) for edit in edits) > _MOST_CHARACTERS:
        return LONG
    found: list[EditPlace] = []
    for edit in edits:
        steps = changes(edit["code"])
        if not steps or len(found) > _MOST_FOUND:
            return UNTOLD
        for step in steps:
            if (why := _add(found, step, known)) is not None:
                return why
    made = [place for place in found if place.old.rstrip() != place.new.rstrip()]
    if any(place.path in known and known[place.path].count(place.old) != 1 for place in made):
        return AMBIGUOUS
    return [replace(place, shown=_around(place, known)) for place in made]


def _add(found: list[EditPlace], step: Change, known: Mapping[str, str]) -> str | None:
    """Adds a change to the places; why it cannot be: what it replaced is not told, or stands half in another one."""
    if step.old is None:
        if (
            len(known.get(step.path, "")) > _MOST_CHARACTERS
            or step.path not in known
            or any(place.path == step.path for place in found)
        ):
            return UNTOLD
        found += [EditPlace(step.path, old, new, "") for old, new in _hunks(known[step.path], step.new)]
        return None
    for n, place in enumerate(found):
        if place.path != step.path:
            continue
        if step.old and place.new.count(step.old) == 1:
            found[n] = replace(place, new=place.new.replace(step.old, step.new))
            return None
        if place.new.strip() and step.old.count(place.new) == 1:
            found[n] = EditPlace(step.path, step.old.replace(place.new, place.old), step.new, "")
            return None
        written = {line for line in _lines(place.new) if line not in _lines(place.old)}
        if written & _lines(step.old):
            return OVERLAPS
    if not step.old.strip():
        return UNTOLD  # inserted, and nothing tells where
    found.append(EditPlace(step.path, step.old, step.new, ""))
    return None


def _hunks(old: str, new: str) -> Iterator[tuple[str, str]]:
    """The parts in which two versions of a file differ, with the equal lines around them."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(_EQUAL):
        (_, start, _, begin, _), (_, _, stop, _, end) = group[0], group[-1]
        yield "".join(before[start:stop]), "".join(after[begin:end])


def _lines(text: str) -> set[str]:
    return {line.strip() for line in text.split("\n") if len(line.strip()) >= _TELLING}


def _around(place: EditPlace, known: Mapping[str, str]) -> str:
    """The text before the edit, with the lines around it where the whole file is known."""
    whole = known.get(place.path, "")
    if whole.count(place.old) != 1:
        return place.old
    before, after = whole.split(place.old)
    above, below = before.split("\n"), after.split("\n")
    head = "\n".join(above[-_AROUND - 1 :] if len(above) > _AROUND + 1 else above)
    tail = "\n".join(below[: _AROUND + 1])
    return f"{head}{place.old}{tail}"
