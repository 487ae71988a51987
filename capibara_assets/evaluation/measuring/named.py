"""Measure contenders that are named one by one: models of any kind, prompts, endpoints, earlier runs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from capibara_assets.datasets.tokens.tokenising import IGNORED, Encoded, encode_examples
from capibara_assets.errors import InputError
from capibara_assets.evaluation.answering.answer import Answer, answer_items, too_long
from capibara_assets.evaluation.contenders.contenders import Contender, ModelContender, StoredContender, loaded
from capibara_assets.evaluation.items.dataset_files import examples_of_items
from capibara_assets.evaluation.items.items import Item
from capibara_assets.evaluation.measuring.domain import ANSWERS, usage_of
from capibara_assets.evaluation.measuring.measured import Measurements, items_to_answer
from capibara_assets.evaluation.recipe import EvaluationRecipe
from capibara_assets.evaluation.report import AnsweringCost
from capibara_assets.evaluation.schema import ExampleLoss
from capibara_assets.modeling.adapters import applied
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.losses import assistant_losses
from capibara_assets.modeling.precision import fast_precision
from capibara_assets.storage.records import table


def measure_named(
    contenders: Sequence[Contender],
    items: Sequence[Item],
    recipe: EvaluationRecipe,
    metric: str,
    work: Path | None = None,
) -> Measurements:
    """Compute losses of the models, and answers of all contenders; the first one is the reference of the others.

    A contender that fails (a model that does not load, an endpoint that does not answer) is recorded as crashed with
    the reason, and the others go on. Losses that count other tokens than the first's (another tokenizer) are left out.

    Args:
        metric: the metric of stored scores.
        work: folder for the journal of answers, from which an interrupted evaluation resumes; None: no journal.
    """
    crashed: dict[str, str] = {}
    left_out: dict[str, str] = {}
    models = [one for one in contenders if isinstance(one, ModelContender)]
    rows: dict[str, dict[str, ExampleLoss]] = {}
    for model in models:
        try:
            rows[model.name] = model_losses(model, items, recipe.max_length)
        except (InputError, ValueError) as error:
            crashed[model.name] = str(error)
    losses, other_tokens = _comparable(rows)
    roomy = list(items)
    for model in models:
        if model.name not in crashed:
            over = set(too_long(model, roomy, recipe.decoding))
            left_out |= dict.fromkeys(over, f"its prompt leaves no room for {recipe.decoding.max_new_tokens} tokens")
            roomy = [item for item in roomy if item.item_id not in over]
    chosen = items_to_answer(_held_by_all(contenders, roomy), recipe.generation.max_items)
    answers: list[Answer] = []
    usage: dict[str, AnsweringCost] = {}
    for contender in contenders if chosen else ():
        if contender.name in crashed or (isinstance(contender, StoredContender) and not contender.answers):
            continue
        try:
            done = answer_items(contender, chosen, recipe.decoding, work / ANSWERS if work is not None else None)
        except (InputError, ValueError) as error:
            crashed[contender.name] = str(error)
            continue
        answers += done.answers
        usage |= {contender.name: usage_of(done.speed)} if done.speed.answers else {}
    return Measurements(
        [one.name for one in contenders],
        losses.filter(~pl.col("contender").is_in(list(crashed))),
        [answer for answer in answers if answer.contender not in crashed],
        crashed,
        usage,
        left_out,
        tuple(other_tokens),
        {
            one.name: (metric, dict(one.scores))
            for one in contenders
            if isinstance(one, StoredContender) and one.scores and not one.answers
        },
    )


def model_losses(contender: ModelContender, items: Sequence[Item], max_length: int) -> dict[str, ExampleLoss]:
    """Losses of the recorded answers under a contender with its framing, by item; items over `max_length` are missing.

    Demonstrations of the framing are context and have no loss.
    """
    with loaded(contender.model) as base:
        plain = _encoded(base, items, max_length)
        framed = [
            replace(item, prompt=tuple(contender.framing.around(item.prompt)))
            for item in items
            if item.item_id in plain
        ]
        encoded = {
            name: _last_tokens(one, plain[name].supervised) for name, one in _encoded(base, framed, max_length).items()
        }
        names = list(encoded)
        precision = fast_precision(base.model.device)
        if contender.adapter is None:
            losses = assistant_losses(base.model, list(encoded.values()), precision=precision)
        else:
            with applied(base.model, contender.adapter):
                losses = assistant_losses(base.model, list(encoded.values()), precision=precision)
    groups = {item.item_id: item.group_id for item in items}
    return {
        name: ExampleLoss(
            contender=contender.name, example_id=name, group_id=groups[name], nll=float(nll), tokens=int(tokens)
        )
        for name, nll, tokens in zip(names, losses.nll, losses.tokens, strict=True)
    }


def _encoded(base: Base, items: Sequence[Item], max_length: int) -> dict[str, Encoded]:
    if not items:
        return {}
    done = encode_examples(examples_of_items(items), base.tokenizer, max_length)
    return dict(zip(done.example_ids, done.encoded, strict=True))


def _last_tokens(encoded: Encoded, count: int) -> Encoded:
    """The example with a loss on its last `count` supervised tokens only."""
    places = [place for place, label in enumerate(encoded.labels) if label != IGNORED]
    kept = set(places[len(places) - count :])
    labels = [label if place in kept else IGNORED for place, label in enumerate(encoded.labels)]
    return Encoded(encoded.input_ids, labels, len(kept))


def _comparable(rows: dict[str, dict[str, ExampleLoss]]) -> tuple[pl.DataFrame, list[str]]:
    """(losses on the items that fit all contenders, contenders whose tokens differ from the first one's)."""
    if not rows:
        return table(ExampleLoss, []), []
    first, *others = rows
    counts = {name: {item: row.tokens for item, row in own.items()} for name, own in rows.items()}
    other = [
        name
        for name in others
        if any(tokens != counts[first].get(item, tokens) for item, tokens in counts[name].items())
    ]
    kept = [name for name in rows if name not in other]
    shared = set.intersection(*(set(counts[name]) for name in kept))
    return table(ExampleLoss, [row for name in kept for item, row in rows[name].items() if item in shared]), other


def _held_by_all(contenders: Sequence[Contender], items: Sequence[Item]) -> list[Item]:
    """The items to which every stored contender holds an answer."""
    stored = [
        {item for item, _ in one.answers} for one in contenders if isinstance(one, StoredContender) and one.answers
    ]
    return [item for item in items if all(item.item_id in held for held in stored)]
