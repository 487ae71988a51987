"""Trainings that differ in their examples alone: the same base, steps, batch and held-out examples for every arm."""

import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from benchmarks.datasets.stages import ASSETS, Place, materialize_all
from benchmarks.training.inputs import MAX_LENGTH, NANO, make_request
from capibara_assets.datasets.examples import Evidence
from capibara_assets.datasets.tokens.packing import length_buckets
from capibara_assets.datasets.tokens.tokenising import encode_examples
from capibara_assets.domains import Domain
from capibara_assets.modeling.adapters import applied, read_adapter
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.modeling.losses import collate, token_nll
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.loop.train import train_voter

_BATCH_TOKENS = 4096
_BEFORE_DATASETS = ASSETS[: ASSETS.index("moe_dataset")]

MeasuredT = TypeVar("MeasuredT")
Losses = dict[str, list[float]]  # name of a held-out set -> loss of each of its examples, nats per supervised token


@dataclass(frozen=True)
class Sources:
    """What the datasets of a folder of experience are made from."""

    store: Any

    @classmethod
    def of(cls, experience: Path, work: Path) -> "Sources":
        """The stages before the datasets, made in `work` as far as they do not stand there."""
        place = Place(experience, work / "store", readers=1)
        materialize_all(place, processes=1, stages=_BEFORE_DATASETS)
        return cls(place.open())

    def evidence(self, domain: Domain) -> Evidence:
        patterns, playbook = (self.store.latest(name, domain) for name in ("e2b_patterns", "consolidated_playbook"))
        return Evidence.of(patterns, playbook)

    def groups(self) -> pl.DataFrame:
        found: pl.DataFrame = self.store.latest("example_groups", None).frame("groups")
        return found


def losses_of_arms(
    arms: Mapping[str, pl.DataFrame],
    held_out: Mapping[str, pl.DataFrame],
    work: Path,
    steps: int,
    seeds: int,
) -> dict[str, list[Losses]]:
    """Arm -> the losses on every held-out set, once for each seed; `base` is the base model without training.

    Args:
        arms: tables of examples, whose train split is drawn by their weights.
        held_out: name -> tables with `example_id` and `messages`; the same examples for all arms.
    """
    base = load_base(NANO)
    sets = {name: _encoded(table, base) for name, table in held_out.items()}

    def measure() -> Losses:
        return {name: list(_losses(base, examples)) for name, examples in sets.items()}

    return measured_arms(base, arms, work, (steps, seeds), measure)


def measured_arms(
    base: Base,
    arms: Mapping[str, pl.DataFrame],
    work: Path,
    amount: tuple[int, int],
    measure: Callable[[], MeasuredT],
) -> dict[str, list[MeasuredT]]:
    """Arm -> what is measured with its adapter applied to the base, once for each seed; `base` is the base alone.

    Args:
        work: folder of the trainings, whose name is printed with each.
        amount: steps of each training, and seeds.
    """
    steps, seeds = amount
    found = {"base": [measure()]}
    for name, table in arms.items():
        found[name] = []
        for seed in range(seeds):
            print(f"{work.name}: {name}, seed {seed}", file=sys.stderr)
            adapter = read_adapter(trained(table, work / f"{name}-{seed}", steps, seed))
            with applied(base.model, adapter):
                found[name].append(measure())
    return found


def figures_of(found: Mapping[str, Sequence[Losses]]) -> dict[str, dict[str, Any]]:
    """Arm -> held-out set -> mean loss over its examples, for each seed."""
    return {
        arm: {name: [round(statistics.fmean(run[name]), 4) for run in runs if run[name]] for name in runs[0]}
        for arm, runs in found.items()
    }


def difference(found: Mapping[str, Sequence[Losses]], arm: str, other: str, name: str) -> dict[str, float]:
    """Mean over examples of (arm - other) on a held-out set, with its standard error over examples; seeds averaged."""
    pairs = zip(
        *(
            [statistics.fmean(each) for each in zip(*(run[name] for run in found[key]), strict=True)]
            for key in (arm, other)
        ),
        strict=True,
    )
    gaps = [one - two for one, two in pairs]
    error = statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else 0.0
    return {"difference": round(statistics.fmean(gaps), 4), "standard_error": round(error, 4), "examples": len(gaps)}


def trained(table: pl.DataFrame, work: Path, steps: int, seed: int) -> Path:
    """Folder of the adapter that a table's train split makes of the shipped base, drawn by its weights."""
    work.mkdir(parents=True, exist_ok=True)
    dataset = work / "examples.parquet"
    # Validated before the first and after the last step only: validation chooses between the base and the last weights.
    table.write_parquet(dataset)
    changes = {
        "training": {"max_steps": steps, "epochs": 100.0},
        "hardware": {"threads": 1},
        "data": {"length_window": 4, "weights": True},
    }
    request = make_request(NANO, dataset, work, changes, seed=seed)
    run = VoterRun(request, request.recipe.voters[0], work / "voter", lambda event: None, lambda: None)
    return train_voter(run)


def _encoded(table: pl.DataFrame, base: Base) -> list[Any]:
    return encode_examples(table, base.tokenizer, MAX_LENGTH, workers=1).encoded


def _losses(base: Base, examples: Sequence[Any]) -> Iterator[float]:
    """Loss of each example, in their order."""
    import torch

    result = [0.0] * len(examples)
    base.model.eval()
    with torch.no_grad():
        for indices in length_buckets([len(one.input_ids) for one in examples], _BATCH_TOKENS):
            batch = collate([examples[index] for index in indices], torch.device("cpu"))
            nll = token_nll(base.model, batch).double()
            for place, index in enumerate(indices):
                result[index] = float(nll[batch.owners == place].mean())
    return iter(result)
