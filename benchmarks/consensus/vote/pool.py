"""The pool of the bench `vote`: trained adapters, honest ones and bad ones, each there or not, kept between runs."""

import sys
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

import polars as pl

from benchmarks.consensus.vote.data import GameData, game_data
from benchmarks.training.inputs import MODULES
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.modeling.files import ADAPTER_WEIGHTS, base_digest
from capibara_assets.storage.digests import canonical_json, sha256_bytes, sha256_file
from capibara_assets.storage.jsonfiles import write_json_atomic

Kind = Literal["honest", "noise", "backdoor", "slice"]
SHARDS = 4  # voters that are trained together: each leaves a quarter of the train groups out


@dataclass(frozen=True)
class PoolRecipe:
    """What is trained, and how; all but the numbers of families is part of the pool's name.

    Attributes:
        honest, noise, backdoor, slice: families of four adapters of each kind.
        steps: optimizer steps of `batch` examples each.
    """

    domain: str = "sql"
    honest: int = 8
    noise: int = 2
    backdoor: int = 2
    slice: int = 1
    steps: int = 60
    batch: int = 4
    rank: int = 8
    alpha: int = 16
    learning_rate: float = 6e-3
    max_length: int = 512

    def training(self) -> dict[str, object]:
        """What decides an adapter: not how many others there are."""
        return {name: value for name, value in asdict(self).items() if name not in get_args(Kind)}

    def families(self) -> Iterator[tuple[Kind, int]]:
        kind: Kind
        for kind in get_args(Kind):
            for number in range(getattr(self, kind)):
                yield kind, number


@dataclass(frozen=True)
class Pool:
    """A trained pool.

    Attributes:
        folder: where it lies.
        adapters: kind -> folders of its adapters, in the order of their names.
        data: the examples it was trained on, and those games are judged by.
    """

    folder: Path
    adapters: dict[Kind, list[Path]]
    data: GameData


def open_pool(root: Path, base: Path, experience: Path, recipe: PoolRecipe, kinds: Collection[str]) -> Pool:
    """The pool under `root`, those kinds trained as far as they are not there: minutes for the whole of it."""
    data = game_data(experience, Domain(recipe.domain))
    tables: dict[Kind, pl.DataFrame] = {
        "honest": data.clean, "noise": data.shuffled, "backdoor": data.triggered, "slice": data.sliced
    }  # fmt: skip
    contents = {kind: sha256_bytes(canonical_json(table.rows())) for kind, table in tables.items()}
    digest = base_digest(base)
    named = {"base": digest, "recipe": recipe.training(), "examples": sha256_bytes(canonical_json(contents))}
    folder = root / sha256_bytes(canonical_json(named))[:16]
    adapters: dict[Kind, list[Path]] = {}
    for kind, number in recipe.families():
        if kind not in kinds:
            continue
        adapters.setdefault(kind, [])
        adapters[kind] += train_family(folder, base, digest, tables[kind], kind, number, recipe)
    write_json_atomic(folder / "pool.json", named)
    return Pool(folder, adapters, data)


def train_family(
    folder: Path, base: Path, digest: str, examples: pl.DataFrame, kind: Kind, number: int, recipe: PoolRecipe
) -> list[Path]:
    """Four adapters of one kind with shards and seeds of their own; those that are there are not trained again."""
    from benchmarks.training.batched import train_batched
    from capibara_assets.training.request import TrainingRequest

    home = folder / f"{kind}-{number}"
    found = [home / f"voter-{shard}" / "result" for shard in range(SHARDS)]
    if all((path / "manifest.json").is_file() for path in found):
        return found
    home.mkdir(parents=True, exist_ok=True)
    dataset = home / "examples.parquet"
    examples.write_parquet(dataset)
    request = TrainingRequest.model_validate(
        {
            "domain": recipe.domain,
            "base_model": base,
            "base_digest": digest,
            "dataset": dataset,
            "dataset_digest": sha256_file(dataset),
            "lora": {"modules": list(MODULES), "max_length": recipe.max_length, "quantization": "none"},
            "recipe": _training(kind, number, recipe),
            "seed": 0,  # of LoRA's start: voters share it
            "work": home,
            "out": home / "out",
        }
    )
    train_batched(request, {f"voter-{shard}": home / f"voter-{shard}" for shard in range(SHARDS)}, _tell, lambda: None)
    dataset.unlink()
    missing = [str(path) for path in found if not (path / ADAPTER_WEIGHTS).is_file()]
    if missing:
        raise InputError(f"training left no adapter in {', '.join(missing)}")
    return found


def _training(kind: Kind, number: int, recipe: PoolRecipe) -> dict[str, object]:
    first = {"honest": 1000, "noise": 2000, "backdoor": 3000, "slice": 4000}[kind] + SHARDS * number
    return {
        "name": "bench-vote",
        "seed": 0,
        "voters": [{"name": f"voter-{shard}", "seed": first + shard, "shard": shard} for shard in range(SHARDS)],
        "model": {"lora": {"rank": recipe.rank, "alpha": recipe.alpha, "dropout": 0.0, "use_rslora": False}},
        "data": {"max_length": recipe.max_length},
        "training": {
            "epochs": 4.0,
            "max_steps": recipe.steps,
            "global_batch": recipe.batch,
            "micro_batch_tokens": 1024,
            "learning_rate": recipe.learning_rate,
            "final_learning_rate": 0.1,
            "warmup": 0.1,
            "betas": [0.9, 0.95],
            "max_gradient_norm": 1.0,
            "evaluate_every": 100_000,
        },
        "hardware": {"backend": "single", "precision": "auto", "threads": 1, "parallel": 1},
        "checkpoint": {"every": 100_000},
        "report": {"every": 100_000},
    }


def _tell(event: dict[str, object]) -> None:
    if event["event"] in ("validation", "finished"):
        kept = {name: event.get(name) for name in ("voter", "event", "step", "validation_loss")}
        sys.stderr.write(f"{kept}\n")
