"""Measure contenders that are named one by one: models of any kind, prompts, endpoints, earlier runs."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from capibara_assets.errors import InputError
from capibara_assets.evaluation.contenders.contenders import Contender, ModelContender, StoredContender, loaded
from capibara_assets.evaluation.contenders.losses import encoded_with, losses_under
from capibara_assets.evaluation.items.dataset_files import examples_of_items
from capibara_assets.evaluation.items.items import Item
from capibara_assets.evaluation.measuring.measured import Measurements, answers_of, with_room
from capibara_assets.evaluation.recipe import EvaluationRecipe
from capibara_assets.evaluation.schema import ExampleLoss
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
    models = [one for one in contenders if isinstance(one, ModelContender)]
    rows: dict[str, dict[str, ExampleLoss]] = {}
    for model in models:
        try:
            rows[model.name] = model_losses(model, items, recipe.max_length)
        except (InputError, ValueError) as error:
            crashed[model.name] = str(error)
    losses, other_tokens = _comparable(rows)
    fit = [model for model in models if model.name not in crashed]
    roomy, left_out = with_room(fit, items, recipe.decoding)
    answering = [
        one
        for one in contenders
        if one.name not in crashed and not (isinstance(one, StoredContender) and not one.answers)
    ]
    unanswered = _unanswered(contenders, roomy)
    if roomy and len(unanswered) == len(roomy):
        raise InputError(f"no item is left to compare on: {next(iter(unanswered.values()))}")
    held = [item for item in roomy if item.item_id not in unanswered]
    answers, usage = answers_of(answering, held, recipe, work, crashed)
    return Measurements(
        [one.name for one in contenders],
        losses.filter(~pl.col("contender").is_in(list(crashed))),
        [answer for answer in answers if answer.contender not in crashed],
        crashed,
        usage,
        left_out | unanswered,
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
    examples = examples_of_items(items)
    groups = {item.item_id: item.group_id for item in items}
    with loaded(contender.model) as base:
        encoded = encoded_with(contender.framing, base, examples, max_length)
        return {row.example_id: row for row in losses_under(contender, base, encoded, groups)}


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


def _unanswered(contenders: Sequence[Contender], items: Sequence[Item]) -> dict[str, str]:
    """Item -> which stored contender holds no answer to it, so that no contender is compared on it."""
    found: dict[str, str] = {}
    for one in contenders:
        if isinstance(one, StoredContender) and one.answers:
            held = {item for item, _ in one.answers}
            found |= {item.item_id: f"{one.source} holds no answer" for item in items if item.item_id not in held}
    return found
