"""From artifacts on disk to what votes and merges work on: experts' adapters and tokenised validation examples."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.datasets.tokenising import Encoded, encode_examples
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, read_adapter
from capibara_assets.modeling.base import Base
from capibara_assets.training.data import validation_shard


def read_experts(folders: Mapping[Domain, Path]) -> dict[Domain, LoraAdapter]:
    """The consensus adapters there are, in the order of the domains.

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
    """The validation examples of each domain, tokenised; those that cannot be (too long) are left out."""
    return {
        domain: encode_examples(
            datasets[domain].filter(pl.col("split") == "validation").sort("example_id"),
            base.tokenizer,
            recipe.max_length,
        ).encoded
        for domain in Domain
        if domain in datasets
    }


def validation_shards(
    base: Base, voters: Mapping[str, Path], examples: pl.DataFrame, recipe: ConsensusRecipe
) -> tuple[list[Encoded], dict[str, list[int]]]:
    """The domain's validation examples, tokenised, and each voter's indices into them.

    A voter's shard is the one its manifest names; without a readable manifest, its place in the order of names.

    Raises:
        InputError: there is no validation example, or none that can be tokenised.
    """
    n = len(voters)
    frames = {
        name: validation_shard(examples, _shard(voters[name], position, n), n)
        for position, name in enumerate(sorted(voters))
    }
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
    """Attestation judges manifests; a damaged one only loses its say here."""
    file = folder / "manifest.json"
    try:
        stated = json.loads(file.read_text("utf-8")).get("shard") if file.is_file() else None
    except (ValueError, AttributeError):
        stated = None
    return stated if isinstance(stated, int) and 0 <= stated < n else position
