"""Readers of the inputs of votes and merges: experts' adapters, and tokenised examples of the datasets."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.datasets.routing import asked
from capibara_assets.datasets.schema import Split
from capibara_assets.datasets.tokens.tokenising import Encoded, encode_examples
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, read_adapter
from capibara_assets.modeling.base import Base
from capibara_assets.training.data.order import validation_shard
from capibara_assets.training.voter_manifest import VoterManifest


def read_experts(folders: Mapping[Domain, Path]) -> dict[Domain, LoraAdapter]:
    """The consensus adapters of the given folders, in the order of the domains.

    Raises:
        InputError: a folder holds no readable adapter.
    """
    return {domain: read_adapter(folders[domain]) for domain in Domain if domain in folders}


def read_accepted(folder: Path, certificate: Mapping[str, Any]) -> dict[str, LoraAdapter]:
    """The adapters of the voters that a certificate (as a JSON document) accepts, by name."""
    accepted = sorted(voter["name"] for voter in certificate["voters"] if voter["accepted"])
    return {name: read_adapter(folder / name) for name in accepted}


def validation_sets(
    base: Base, datasets: Mapping[Domain, pl.DataFrame], recipe: ConsensusRecipe
) -> dict[Domain, list[Encoded]]:
    """The validation examples of each domain, tokenised; examples that are too long are left out."""
    return {domain: [one.encoded for one in own] for domain, own in prompted_examples(base, datasets, recipe).items()}


@dataclass(frozen=True)
class PromptedExample:
    """A tokenised example with its user's last message, which is the prompt that a router sees."""

    encoded: Encoded
    prompt: str


def prompted_examples(
    base: Base, datasets: Mapping[Domain, pl.DataFrame], recipe: ConsensusRecipe, split: Split = "validation"
) -> dict[Domain, list[PromptedExample]]:
    """The examples of each domain's split, by id; examples that are too long are left out."""
    by_domain = {}
    for domain in Domain:
        if domain in datasets:
            rows = datasets[domain].filter(pl.col("split") == split).sort("example_id")
            encoded = encode_examples(rows, base.tokenizer, recipe.max_length)
            prompts = dict(zip(rows["example_id"], map(asked, rows["messages"]), strict=True))
            by_domain[domain] = [
                PromptedExample(one, prompts[name])
                for name, one in zip(encoded.example_ids, encoded.encoded, strict=True)
            ]
    return by_domain


def validation_shards(
    base: Base, voters: Mapping[str, Path], examples: pl.DataFrame, recipe: ConsensusRecipe
) -> tuple[list[Encoded], dict[str, list[int]]]:
    """The domain's validation examples, tokenised, and each voter's indices into them.

    A voter's shard is the one its manifest names; without a readable manifest, its place in the order of names.

    Raises:
        InputError: there is no validation example, none that can be tokenised, or fewer groups of them than voters.
    """
    numbers = {name: _shard(voters[name], position, len(voters)) for position, name in enumerate(sorted(voters))}
    return numbered_shards(base, numbers, examples, recipe)


def numbered_shards(
    base: Base, numbers: Mapping[str, int], examples: pl.DataFrame, recipe: ConsensusRecipe
) -> tuple[list[Encoded], dict[str, list[int]]]:
    """Same as `validation_shards`, for voters whose shards are given by number."""
    groups = examples.filter(pl.col("split") == "validation")["group_id"].n_unique()
    if 0 < groups < len(numbers):
        raise InputError(
            f"{groups} groups of validation examples for {len(numbers)} voters, each of whom judges on groups of its "
            "own: give the domain more experience (a longer time_range_days in the recipe `experience`, more logs)"
        )
    frames = {name: validation_shard(examples, number, len(numbers)) for name, number in numbers.items()}
    union = pl.concat(list(frames.values())).unique("example_id").sort("example_id")
    encoded = encode_examples(union, base.tokenizer, recipe.max_length)
    if not encoded.encoded:
        reasons = ", ".join(sorted(set(encoded.left_out.values())))
        raise InputError(f"none of {len(union)} validation examples can be read: {reasons}")
    place = {example_id: index for index, example_id in enumerate(encoded.example_ids)}
    return encoded.encoded, {
        name: [place[example_id] for example_id in frame["example_id"] if example_id in place]
        for name, frame in frames.items()
    }


def _shard(folder: Path, position: int, n: int) -> int:
    """The shard that the voter's manifest names; `position` where it names none (attestation judges manifests)."""
    stated = VoterManifest.readable(folder).shard
    return stated if stated is not None and 0 <= stated < n else position
