"""The promotion log: one immutable numbered file per change of what is served; creating a file moves the pointer.

`<store>/promotions/000001.json` and so on. A number can be created only once, on a disk and on an object store: of two
concurrent promotions one creates it, and the other reads the winner before it tries again.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import pydantic
from pydantic import Field

from capibara_assets.checkpoints.store.places import StorePlace, open_place
from capibara_assets.errors import InputError, IntegrityError, in_words
from capibara_assets.evaluation.serving.promotion import NOTHING, Document, moved, same_state, served
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.jsonfiles import parse_json
from capibara_assets.storage.store import ArtifactStore

FOLDER = "promotions"
Action = Literal["imported", "gate", "promote", "rollback"]
_NAME = re.compile(r"(\d{6,})\.json")
_DIGEST = re.compile(r"\w{1,64}")
_TRIES = 20


class Move(pydantic.BaseModel):
    """One change of the pointer: time, author, reason, changed slots, and the whole pointer document afterwards."""

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

    @pydantic.field_validator("promotion")
    @classmethod
    def _names_digests(cls, document: Document) -> Document:
        try:
            slots = served(document)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it does not say what serves: {error}") from error
        if odd := [
            it for it in slots.values() if it is not None and not (isinstance(it, str) and _DIGEST.fullmatch(it))
        ]:
            raise ValueError(f"{odd[0]!r} is no digest")
        return document


class PromotionLog:
    """The promotion log of one store."""

    def __init__(self, store: ArtifactStore) -> None:
        self._place: StorePlace = open_place(store.root / FOLDER, work=store.work / FOLDER)

    def moves(self) -> list[Move]:
        """All moves, the oldest first.

        Raises:
            IntegrityError: a move is missing, damaged, or does not follow from the one before it.
        """
        numbers = self._numbers()
        if numbers != list(range(1, len(numbers) + 1)):
            raise IntegrityError(f"{self._place.root}: moves {numbers} are not a whole history: one was removed")
        moves, digest = [], None
        for number in numbers:
            data, move = self._read(number)
            if move.number != number or move.before != digest:
                raise IntegrityError(f"{self._place.root}/{_name(number)} does not follow from the move before it")
            digest = sha256_bytes(data)
            moves.append(move)
        return moves

    def head(self) -> Move | None:
        """The last move, which holds what is served; None before the first. Raises IntegrityError as `moves`."""
        moves = self.moves()  # of a chain that is broken nobody knows what serves
        return moves[-1] if moves else None

    def find(self, number: int) -> Move:
        """The move of a number. Raises InputError: there is none."""
        known = self._numbers()
        if number not in known:
            raise InputError(f"no promotion has number {number}: {_span(known)}; see `capibara promote --history`")
        return self._read(number)[1]

    def move(
        self,
        action: Action,
        change: Callable[[Document | None, list[Move]], tuple[Document, str]],
        *,
        by: str,
        imported: Mapping[str, Any] | None = None,
    ) -> tuple[Document, Move | None]:
        """Move the pointer: `change` maps the current document and the history to the next document and its reason.

        Where a concurrent move comes first, `change` is called again with it, so that none is lost.

        Args:
            imported: what was served before there was a log; recorded as its first move.

        Returns:
            The new document, and the recorded move; None where nothing changed.

        Raises:
            InputError: as `change`, or concurrent moves came first too often.
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
                return document, None  # only the base is served, as before: nothing to record
            if (made := self._append(known[-1] if known else None, action, by, reason, document)) is not None:
                return document, made
        raise InputError(f"others moved the pointer {_TRIES} times meanwhile: try again")

    def _append(self, last: Move | None, action: Action, by: str, reason: str, document: Document) -> Move | None:
        """Record the move after `last`; None where a concurrent move was recorded first."""
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

    def _read(self, number: int) -> tuple[bytes, Move]:
        data, where = self._place.read(_name(number)), f"{self._place.root}/{_name(number)}"
        try:
            return data, Move.model_validate(parse_json(data))
        except pydantic.ValidationError as error:
            raise IntegrityError(f"{where} is damaged: {in_words(error)}") from error
        except ValueError as error:
            raise IntegrityError(f"{where} is damaged: {error}") from error

    def _numbers(self) -> list[int]:
        matches = (_NAME.fullmatch(name) for name in self._place.list(""))
        return sorted(int(match[1]) for match in matches if match)


def state_before(history: Sequence[Move], slots: Collection[str] | None = None) -> tuple[int, Document]:
    """The state one step back: the number of its move (0: the base alone) and its document.

    Rolling back twice goes back two steps, since a state that was rolled back does not count as a step.

    Args:
        slots: only these slots count; None: all.

    Raises:
        InputError: nothing was promoted, or all of it was rolled back.
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
        raise InputError(f"{what} was promoted that could be rolled back: see `capibara promote --history`")
    return steps[-2]


def _state(document: Mapping[str, Any], slots: Collection[str] | None) -> dict[str, str]:
    return {slot: it for slot, it in served(document).items() if it is not None and (slots is None or slot in slots)}


def _name(number: int) -> str:
    return f"{number:06d}.json"


def _span(known: list[int]) -> str:
    return f"there are 1 to {known[-1]}" if known else "nothing was promoted yet"
