"""Losses and answers of every contender before grading, and how answers are measured."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from capibara_assets.errors import InputError
from capibara_assets.evaluation.answering.answer import Answer, answer_items, too_long
from capibara_assets.evaluation.contenders.contenders import Contender
from capibara_assets.evaluation.decoding import Decoding
from capibara_assets.evaluation.grading.grade import plain_text
from capibara_assets.evaluation.items.items import Item
from capibara_assets.evaluation.recipe import EvaluationRecipe
from capibara_assets.evaluation.report import AnsweringCost
from capibara_assets.storage.digests import sha256_bytes

ANSWERS = "answers.jsonl"
"""Journal of answers in the work folder."""


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
    """Sample the items to answer: those that are graded first, each kind and seen or unseen families in turn, and in
    each of these each group in turn; by the digests of their ids (stable as data grows). In the order of ids.

    Of outputs that are expected to be equal one is asked for, so that a model that always says the same solves one.
    """
    ranked = sorted(items, key=lambda item: sha256_bytes(f"asked:{item.item_id}".encode()))
    expected: set[tuple[str, str]] = set()
    drawn = []
    for item in ranked:
        said = (item.language, plain_text(item.check.expected))
        if item.check.kind != "exact" or said not in expected:
            drawn.append(item)
        if item.check.kind == "exact":
            expected.add(said)
    by_group = _turns([(item.kind, item.seen, item.group_id) for item in drawn])
    drawn = [drawn[at] for at in sorted(range(len(drawn)), key=lambda at: by_group[at])]
    by_kind = _turns([(item.kind, item.seen) for item in drawn])
    order = sorted(range(len(drawn)), key=lambda at: (not drawn[at].is_graded, by_kind[at]))
    return sorted((drawn[at] for at in order[:most]), key=lambda item: item.item_id)


def items_to_score(items: Sequence[Item], most: int) -> list[Item]:
    """Sample the items to compute losses on: those with the smallest digests of their ids, in the order of ids."""
    ranked = sorted(items, key=lambda item: sha256_bytes(item.item_id.encode()))
    return sorted(ranked[:most], key=lambda item: item.item_id)


def _turns(keys: Sequence[Hashable]) -> list[int]:
    """How many equal keys stand before each one."""
    counts: Counter[Hashable] = Counter()
    turns = []
    for key in keys:
        turns.append(counts[key])
        counts[key] += 1
    return turns


def with_room(
    contenders: Sequence[Contender], items: Sequence[Item], decoding: Decoding
) -> tuple[list[Item], dict[str, str]]:
    """(items whose prompt leaves room for an answer of every contender, each other item -> why it was left out)."""
    roomy, left_out = list(items), dict[str, str]()
    for contender in contenders:
        over = set(too_long(contender, roomy, decoding))
        left_out |= dict.fromkeys(over, f"its prompt leaves no room for {decoding.max_new_tokens} tokens")
        roomy = [item for item in roomy if item.item_id not in over]
    return roomy, left_out


def answers_of(
    contenders: Sequence[Contender],
    items: Sequence[Item],
    recipe: EvaluationRecipe,
    work: Path | None,
    crashed: dict[str, str] | None = None,
) -> tuple[list[Answer], dict[str, AnsweringCost]]:
    """The contenders' answers to the items, or to a sample of them, and the cost of those that were generated now.

    Args:
        work: folder for the journal of answers, from which an interrupted evaluation resumes; None: no journal.
        crashed: gets the contenders that fail, each with the reason; None: a failure is raised.
    """
    chosen = items_to_answer(items, recipe.generation.max_items)
    answers: list[Answer] = []
    usage: dict[str, AnsweringCost] = {}
    for contender in contenders if chosen else ():
        try:
            done = answer_items(contender, chosen, recipe.decoding, work / ANSWERS if work is not None else None)
        except (InputError, ValueError) as error:
            if crashed is None:
                raise
            crashed[contender.name] = str(error)
            continue
        answers += done.answers
        usage |= {contender.name: done.speed} if done.speed.answers else {}
    return answers, usage
