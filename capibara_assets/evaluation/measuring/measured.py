"""What contenders did on the items, before anything is judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from capibara_assets.evaluation.answering.answer import Answer
from capibara_assets.evaluation.items.items import Item
from capibara_assets.evaluation.report import AnsweringCost
from capibara_assets.storage.digests import sha256_bytes


@dataclass(frozen=True)
class Measurements:
    """What contenders did on the items, before anything is judged.

    Attributes:
        contenders: all of them, in the order in which they are shown.
        losses: rows of `ExampleLoss`.
        answers: of the items that were asked.
        crashed: contender -> why it has neither.
        usage: what answering cost.
        left_out: items that were taken out for all, and why.
        other_tokens: contenders whose losses count other tokens, and so are not here.
        stored: contender -> (metric, item -> score), of a former run that left scores alone.
    """

    contenders: Sequence[str]
    losses: pl.DataFrame
    answers: Sequence[Answer]
    crashed: Mapping[str, str] = field(default_factory=dict)
    usage: Mapping[str, AnsweringCost] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    other_tokens: Sequence[str] = ()
    stored: Mapping[str, tuple[str, Mapping[str, float]]] = field(default_factory=dict)


def items_to_answer(items: Sequence[Item], most: int) -> list[Item]:
    """The items that are answered: those whose id digests are smallest (stable as data grows), in the order of ids."""
    ranked = sorted(items, key=lambda item: sha256_bytes(f"asked:{item.item_id}".encode()))
    return sorted(ranked[:most], key=lambda item: item.item_id)
