"""A tiny base, a small dataset whose answers can be learnt, and requests that train on them in a second or two."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pydantic import BaseModel

from capibara_assets.modeling.files import base_digest
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.request import TrainingRequest
from capibara_assets_tests.modeling.tiny import MODULES, save_tiny

MakeRequest = Callable[..., TrainingRequest]

OWN_NAMES = {
    "checkpoint_every": ("checkpoint", "every"),
    "keep_checkpoints": ("checkpoint", "keep"),
    "epoch_checkpoints": ("checkpoint", "epochs"),
    "report_every": ("report", "every"),
    "ema": ("ema",),
}


def in_sections(values: dict[str, Any]) -> dict[str, Any]:
    """Keys of a recipe, each in the section that has it; those that several have go by the names above."""
    sections = {
        name: choice
        for name, field in TrainingRecipe.model_fields.items()
        if isinstance(choice := field.annotation, type) and issubclass(choice, BaseModel)
    }
    recipe: dict[str, Any] = {"training": {}, "checkpoint": {}}
    for key, value in values.items():
        path = OWN_NAMES.get(key) or next(
            (name, key) for name, choice in sections.items() if key in choice.model_fields
        )
        if len(path) == 1:
            recipe[path[0]] = value
        else:
            recipe.setdefault(path[0], {})[path[1]] = value
    return recipe


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Path:
    """Of one layer: half the work of each step. That a second one trains as the first is seen in whole graphs."""
    return save_tiny(tmp_path_factory.mktemp("tiny"), tokenizer_of=nano, layers=1)


@pytest.fixture(scope="session")
def two_layers(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Path:
    """As `tiny_folder`, for what is done to some layers only."""
    return save_tiny(tmp_path_factory.mktemp("two-layers"), tokenizer_of=nano)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_dataset(tmp_path_factory.mktemp("dataset"))


def save_dataset(folder: Path) -> Path:
    """60 examples of 30 groups, 12 of them to validate on."""
    rows = []
    for number in range(60):
        split = "validation" if number % 5 == 0 else "train"
        answer = f"def add_{number}(x):\n    return x + {number}\n" + "    # done\n" * (number % 4)
        messages = [
            {"role": "user", "content": f"Write a function that adds {number}."},
            {"role": "assistant", "content": answer},
        ]
        rows.append({"example_id": f"e{number:03}", "group_id": f"g{number // 2:03}", "split": split,
                     "messages": json.dumps(messages)})  # fmt: skip
    pl.DataFrame(rows).write_parquet(folder / "examples.parquet")
    return folder / "examples.parquet"


@pytest.fixture
def make_request(tiny_folder: Path, dataset: Path, tmp_path: Path) -> MakeRequest:
    return request_maker(tiny_folder, dataset, tmp_path)


def request_maker(tiny_folder: Path, dataset: Path, tmp_path: Path) -> MakeRequest:
    """Makes requests; keyword arguments change the recipe, except those that are named here."""

    def make(
        work: str = "work", base: Path = tiny_folder, data: Path = dataset, seed: int = 1,
        fault: dict[str, Any] | None = None, checkpoints: Path | str | None = None, run: str | None = None,
        **changes: Any,
    ) -> TrainingRequest:  # fmt: skip
        values: dict[str, Any] = {
            "lora": {"rank": 2, "alpha": 4, "dropout": 0.1, "use_rslora": False},
            "epochs": 2,
            "max_steps": 8,
            "global_batch": 6,
            "micro_batch_tokens": 150,
            "max_length": 128,
            "learning_rate": 0.01,
            "precision": "fp32",
            "evaluate_every": 3,
            "checkpoint_every": 2,
            "restart_delay_s": 0.0,
        } | changes
        voters = values.pop("voters", [{"name": f"voter-{i}", "seed": i, "shard": i} for i in range(4)])
        recipe = {"name": "test", "seed": seed, "voters": voters} | in_sections(values)
        return TrainingRequest(
            domain="python", base_model=base, base_digest=base_digest(base), dataset=data, dataset_digest="of the rows",
            lora={"modules": list(MODULES)}, recipe=recipe, seed=seed, work=tmp_path / work,
            out=tmp_path / work / "out", fault=fault or {}, checkpoints=checkpoints and str(checkpoints), run=run,
        )  # fmt: skip

    return make
