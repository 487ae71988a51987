"""The history of what served: one numbered file per move, never changed; creating a number is what moves the pointer.

`<store>/promotions/000001.json` and so on. A number can be created once, on a disk and on an object store alike: of two
promotions at the same time one gets it, and the other sees what won before it tries again.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import pydantic
from pydantic import Field

from capibara_assets.checkpoints.store.places import StorePlace, open_place
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.evaluation.serving.promotion import NOTHING, Document, moved, same_state, served
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.store import ArtifactStore

FOLDER = "promotions"
Action = Literal["imported", "gate", "promote", "rollback"]
_NAME = re.compile(r"(\d{6,})\.json")
_TRIES = 20


class Move(pydantic.BaseModel):
    """One move of the pointer: when, by whom, why, what, and the whole document that serves from then on."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    number: int = Field(ge=1)
    at: str = Field(description="RFC 3339, UTC.")
    by: str = Field(description="Who: a user's name, or `gate`.")
    action: Action = Field(description="imported: what served before there was a history.")
    reason: str
    moved: dict[str, tuple[str | None, str | None]] = Field(description="Domain, merged or router -> before, after.")
    promotion: Document = Field(description="The pointer document.")
    before: str | None = Field(description="SHA-256 of the previous move's file: the history is a chain.")


class PromotionLog:
    """The moves of one store."""

    def __init__(self, store: ArtifactStore) -> None:
        options = dict(getattr(store.root, "storage_options", {}) or {})
        self._place: StorePlace = open_place(store.root / FOLDER, work=store.work / FOLDER, storage_options=options)

    def moves(self) -> list[Move]:
        """All, the oldest first.

        Raises:
            IntegrityError: one is missing, damaged, or does not follow from the one before it.
        """
        numbers = self._numbers()
        if numbers != list(range(1, len(numbers) + 1)):
            raise IntegrityError(f"{self._place.root}: moves {numbers} are not a whole history: one was removed")
        found, digest = [], None
        for number in numbers:
            data = self._place.read(_name(number))
            move = _parse(data, f"{self._place.root}/{_name(number)}")
            if move.number != number or move.before != digest:
                raise IntegrityError(f"{self._place.root}/{_name(number)} does not follow from the move before it")
            digest = sha256_bytes(data)
            found.append(move)
        return found

    def head(self) -> Move | None:
        """The last one: what serves now. None before the first. Raises IntegrityError: it is damaged."""
        numbers = self._numbers()
        if not numbers:
            return None
        return _parse(self._place.read(_name(numbers[-1])), f"{self._place.root}/{_name(numbers[-1])}")

    def find(self, number: int) -> Move:
        """The move of that number. Raises InputError: there is none."""
        known = self._numbers()
        if number not in known:
            raise InputError(f"no promotion has number {number}: {_span(known)}; see `capibara promote --history`")
        return _parse(self._place.read(_name(number)), f"{self._place.root}/{_name(number)}")

    def move(
        self,
        action: Action,
        change: Callable[[Document | None, list[Move]], tuple[Document, str]],
        *,
        by: str,
        imported: Mapping[str, Any] | None = None,
    ) -> tuple[Document, Move | None]:
        """Move the pointer: `change` says from what serves now, and the history, what serves then and why.

        Where another move comes in between, `change` is asked again with that one, so none is lost.

        Args:
            imported: what served before there was a history; noted as its first move.

        Returns:
            The new document, and the move that was noted; None where nothing moved.

        Raises:
            InputError: what `change` raises, or others moved the pointer too often meanwhile.
        """
        for _ in range(_TRIES):
            known = self.moves()
            if not known and imported is not None:
                first = dict(imported)
                self._append(None, "imported", "capibara", "What served before there was a history.", first)
                continue
            now = known[-1].promotion if known else None
            document, reason = change(now, known)
            if now is not None and same_state(document, now):
                return document, None
            if now is None and not moved(document, None):
                return document, None  # the base serves, as before: nothing to note
            if (made := self._append(known[-1] if known else None, action, by, reason, document)) is not None:
                return document, made
        raise InputError(f"others moved the pointer {_TRIES} times meanwhile: try again")

    def _append(self, last: Move | None, action: Action, by: str, reason: str, document: Document) -> Move | None:
        """Note the move after `last`; None where somebody else noted one."""
        previous = None if last is None else self._place.read(_name(last.number))
        made = Move(
            number=1 if last is None else last.number + 1,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            by=by,
            action=action,
            reason=reason,
            moved=moved(document, None if last is None else last.promotion),
            promotion=document,
            before=None if previous is None else sha256_bytes(previous),
        )
        data = canonical_json(made.model_dump(mode="json"))
        return made if self._place.create(_name(made.number), data) else None

    def _numbers(self) -> list[int]:
        found = (_NAME.fullmatch(name) for name in self._place.list(""))
        return sorted(int(match[1]) for match in found if match)


def state_before(history: Sequence[Move], slots: Collection[str] | None = None) -> tuple[int, Document]:
    """Where one step back leads: the number of the move (0: the base alone) and its document.

    Going back twice goes back two steps: a state that was taken back is not what was before.

    Args:
        slots: only what serves in these counts; None: all.

    Raises:
        InputError: nothing was promoted, or all of it was taken back.
    """
    steps = [(0, NOTHING)]
    for move in history:
        state = _state(move.promotion, slots)
        known = [number for number, (_, document) in enumerate(steps) if _state(document, slots) == state]
        if known and (move.action == "rollback" or known[-1] == len(steps) - 1):
            del steps[known[-1] + 1 :]
        else:
            steps.append((move.number, move.promotion))
    if len(steps) < 2:
        what = "nothing" if slots is None else f"nothing of {', '.join(sorted(slots))}"
        raise InputError(f"{what} was promoted that could be taken back: see `capibara promote --history`")
    return steps[-2]


def _state(document: Mapping[str, Any], slots: Collection[str] | None) -> dict[str, str]:
    return {slot: it for slot, it in served(document).items() if it is not None and (slots is None or slot in slots)}


def _name(number: int) -> str:
    return f"{number:06d}.json"


def _span(known: list[int]) -> str:
    return f"there are 1 to {known[-1]}" if known else "nothing was promoted yet"


def _parse(data: bytes, where: str) -> Move:
    try:
        return Move.model_validate(json.loads(data))
    except (ValueError, pydantic.ValidationError) as error:
        raise IntegrityError(f"{where} is damaged: {str(error).splitlines()[0]}") from error
