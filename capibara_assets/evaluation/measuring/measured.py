"""The measurements of an evaluation: losses and answers of every contender, before grading."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from capibara_assets.evaluation.answering.answer import Answer
from capibara_assets.evaluation.items.items import Item
from capibara_assets.evaluation.report import AnsweringCost
from capibara_assets.storage.digests import sha256_bytes


@dataclass(frozen=True)
class Measurements:
    """Losses and answers of every contender on the items, before grading.

    Attributes:
        contenders: all of them, in the order in which they are shown.
        losses: rows of `ExampleLoss`.
        answers: of the items that were answered.
        crashed: contender -> why it has neither losses nor answers.
        usage: contender -> tokens, time and memory of answering.
        left_out: item -> why it was left out for all contenders.
        other_tokens: contenders without losses here, since their tokenizer splits answers into other tokens.
        stored: contender -> (metric, item -> score), of an earlier run that stored scores only.
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
    """Sample the items to answer: those with the smallest id digests (stable as data grows), in the order of ids."""
    ranked = sorted(items, key=lambda item: sha256_bytes(f"asked:{item.item_id}".encode()))
    return sorted(ranked[:most], key=lambda item: item.item_id)
