"""Edits of program text: where, what stands there instead, and which kind of change it is."""

from collections.abc import Iterable
from dataclasses import dataclass

from capibara_assets.storage.digests import sha256_bytes


@dataclass(frozen=True)
class RepairEdit:
    """One replacement in a text; `kind` names the kind of change, such as `comparison`."""

    kind: str
    start: int
    end: int
    text: str

    def applied(self, code: str) -> str:
        """The text with the replacement."""
        return code[: self.start] + self.text + code[self.end :]


def drawn(edits: Iterable[RepairEdit], weights: dict[str, float], seed: str, most: int) -> list[RepairEdit]:
    """Draw at most `most` edits without replacement, weighted by kind and determined by the seed.

    A kind's weight is shared by its edits in a text, so that many comparisons do not crowd out one missing return.
    """
    listed = sorted(set(edits), key=lambda edit: (edit.kind, edit.start, edit.end, edit.text))
    count: dict[str, int] = {}
    for edit in listed:
        count[edit.kind] = count.get(edit.kind, 0) + 1

    def turn(edit: RepairEdit) -> float:
        digest = sha256_bytes(f"{seed}\n{edit.kind} {edit.start} {edit.end} {edit.text}".encode("utf-8", "replace"))
        point = (int(digest[:13], 16) + 1) / 16**13
        weight = weights.get(edit.kind, 0.0) / count[edit.kind]
        return float(point ** (1 / weight)) if weight > 0 else -1.0

    chosen = sorted(((turn(edit), edit) for edit in listed), key=lambda pair: (-pair[0], pair[1].start, pair[1].text))
    return [edit for drawn_at, edit in chosen[:most] if drawn_at >= 0]
