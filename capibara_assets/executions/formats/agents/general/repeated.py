"""Calls that one document stores twice: in messages, by ids, and once more whole; or all, one after the other."""

from collections.abc import Hashable, Sequence
from itertools import islice
from typing import Protocol, TypeVar

from capibara_assets.executions.formats.agents.general.tool_names import Asked
from capibara_assets.executions.formats.agents.tools.calls import Call

_DIFFERENT = 3  # items of a sequence that stands twice
_TRIES = 20


class _Found(Protocol):
    @property
    def call(self) -> Call: ...
    @property
    def asked(self) -> Asked | None: ...
    @property
    def whole(self) -> bool: ...


_One = TypeVar("_One", bound=_Found)


def once(calls: Sequence[_One]) -> list[_One]:
    """The calls of a document, those of each session once, in the order in which they were made.

    Calls without ids that hold their answers are a second copy where all of a session's repeat, in their order, calls
    that have ids, and none ended otherwise. Of two copies the one counts that knows more: one list may be cut where the
    other is not.
    """
    sessions: dict[str, list[int]] = {}
    for place, found in enumerate(calls):
        sessions.setdefault(found.call.session, []).append(place)
    kept = dict(enumerate(calls))
    for places in sessions.values():
        for place, copy in _copies(calls, places).items():
            kept[place] = max(calls[place], kept.pop(copy), key=_knows)
    return list(kept.values())


def length_once(keys: Sequence[Hashable]) -> int:
    """How many items a sequence has before all of them follow once more, as far as the second time goes.

    A loop repeats few: what stands twice has several that differ.
    """
    begins = (at for at in range(_DIFFERENT, len(keys)) if keys[at] == keys[0])
    for at in islice(begins, _TRIES):
        again = keys[at:]
        if again == keys[: len(again)] and len(set(again)) >= _DIFFERENT:
            return at
    return len(keys)


def _copies(calls: Sequence[_Found], places: list[int]) -> dict[int, int]:
    """Where the second copy of each call stands; empty where the session's calls without ids are no copies."""
    named = iter([place for place in places if calls[place].call.id is not None])
    whole = [place for place in places if calls[place].whole]
    found = {}
    for copy in whole:
        first = next((place for place in named if calls[place].asked == calls[copy].asked), None)
        if first is None or {calls[first].call.success, calls[copy].call.success} == {True, False}:
            return {}
        found[first] = copy
    return found


def _knows(found: _Found) -> tuple[bool, bool]:
    return found.call.not_run is None, found.call.success is not None
