"""The levels of a voter's training, made from its strategy and examples; a plain voter has one."""

import math
from dataclasses import replace
from itertools import chain
from typing import Any

import polars as pl

from capibara_assets.datasets.tokens.tokenising import Encoded
from capibara_assets.errors import InputError
from capibara_assets.training.data.batches import CurriculumLevel, plain_level
from capibara_assets.training.data.examples import read_examples, tokens_of
from capibara_assets.training.data.order import training_part
from capibara_assets.training.data.voter_examples import VoterExamples
from capibara_assets.training.step.settings import shared_steps, steps_per_epoch, total_steps
from capibara_assets.training.strategy import HierarchicalStrategy

Chosen = tuple[list[str], list[Encoded], dict[str, Any]]
"""Ids, their tokens, and how they were chosen."""


def voter_levels(examples: VoterExamples) -> list[CurriculumLevel]:
    """The levels of a voter's strategy, with their examples and steps.

    Raises:
        InputError: a level has no examples, other domains' examples cannot be read, or the bounds leave a level none.
    """
    request, voter, settings = examples.run.request, examples.run.voter, examples.settings
    ids, train, seed = examples.ids, examples.train, examples.run.order
    if not isinstance(voter.strategy, HierarchicalStrategy):
        steps = total_steps([len(example.input_ids) for example in train], settings, request.recipe)
        return [plain_level(ids, train, steps, seed, settings, request.recipe)]
    chosen = []
    for choice in voter.strategy.levels:
        match choice.data:
            case "general":
                part = _general(examples)
            case "hard":
                part = _hard(examples, voter.strategy)
            case "domain":
                part = ids, train, {"data": "domain"}
        if not part[0] and voter.strategy.without_hard == "raise":
            raise InputError(
                f"level {choice.name}: none of the {len(ids)} train examples of {request.domain} is a repair or of "
                f"difficulty {voter.strategy.hard_from:.2f} and more: lower hard_from, or say without_hard: leave_out"
            )
        chosen.append((choice, *part))
    used = [(choice, encoded) for choice, own, encoded, _ in chosen if own]
    if not used:
        raise InputError(f"no level of voter {voter.name} has any example: give it one with data: domain")
    planned = [math.ceil(steps_per_epoch(len(part), settings.global_batch) * one.epochs) for one, part in used]
    tokens = [_mean(part) * min(settings.global_batch, len(part)) for _, part in used]
    counts = iter(shared_steps(planned, tokens, request.recipe))
    levels = []
    for (
        choice,
        own,
        encoded,
        about,
    ) in chosen:  # one without examples stays in the list with no steps, so that the log names it
        plain = plain_level(own, encoded, next(counts) if own else 0, f"{seed}/{choice.name}", settings, request.recipe)
        peak = settings.learning_rate * choice.learning_rate_factor
        levels.append(replace(plain, name=choice.name, peak=peak, about=about))
    return levels


def _mean(examples: list[Encoded]) -> float:
    """Mean tokens of an example."""
    return sum(len(one.input_ids) for one in examples) / len(examples)


def _general(examples: VoterExamples) -> Chosen:
    """The voter's own examples and its part of every other domain's train split; shared examples count once.

    Splits are computed over all domains, so nothing that any domain validates or tests on is among them.
    """
    request, shard = examples.run.request, examples.run.voter.shard
    all_ids, all_encoded = [examples.ids], [examples.train]
    seen = set(examples.table.filter(pl.col("example_id").is_in(examples.ids))["messages"])
    counts = {request.domain: len(examples.ids)}
    for domain, other in sorted(request.further.items()):
        theirs = read_examples(other.dataset)
        encoded_others = tokens_of(request, theirs, examples.tokenizer, examples.settings, digest=other.digest)
        part = training_part(theirs, shard, len(request.recipe.voters))
        part = part.unique("messages", keep="first", maintain_order=True).filter(~pl.col("messages").is_in(list(seen)))
        usable = [name for name in part["example_id"] if name not in encoded_others.left_out]
        seen |= set(part["messages"])
        counts[domain.value] = len(usable)
        all_ids.append([f"{domain}/{name}" for name in usable])
        all_encoded.append(encoded_others.select(usable))
    return list(chain(*all_ids)), list(chain(*all_encoded)), {"data": "general", "domains": counts}


def _hard(examples: VoterExamples, strategy: HierarchicalStrategy) -> Chosen:
    """Repairs, and examples of difficulty `hard_from` and more; none if the table may and does lack the columns."""
    ids, dataset = examples.ids, examples.run.request.dataset
    lenient = strategy.without_hard == "leave_out"
    if lenient and not {"kind", "difficulty"} <= pl.read_parquet_schema(dataset).keys():
        return [], [], {"data": "hard", "repaired": 0, "difficult": 0}
    traits = read_examples(dataset, "kind", "difficulty").filter(pl.col("example_id").is_in(ids))
    repaired = set(traits.filter(pl.col("kind") == "repair")["example_id"])
    difficult = set(traits.filter(pl.col("difficulty") >= strategy.hard_from)["example_id"])
    at = [index for index, name in enumerate(ids) if name in repaired | difficult]
    about = {"data": "hard", "repaired": len(repaired), "difficult": len(difficult)}
    return [ids[index] for index in at], [examples.train[index] for index in at], about
