"""The weight of clusters and the balance of difficulties decide how often an example is drawn; exports have them."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capibara_assets.datasets.exports import export_dataset, messages_line
from capibara_assets.training.data.batches import Curriculum
from capibara_assets.training.data.voter_examples import VoterExamples
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.environment import pick_device, settings_on
from capibara_assets.training.loop.levels import voter_levels
from capibara_assets.training.loop.train import train_voter
from capibara_assets.training.request import TrainingRequest
from capibara_assets_tests.modeling.tiny import save_tiny
from capibara_assets_tests.training.conftest import request_maker, save_dataset

HEAVY, LIGHT = "e001", "e002"  # of the train split
Make = Callable[..., TrainingRequest]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"), tokenizer_of=nano)


@pytest.fixture
def make(base: Path, tmp_path: Path) -> Make:
    return request_maker(base, save_dataset(tmp_path), tmp_path)


def with_weights(dataset: Path, weight: float = 3.0, balance: float = 0.25) -> Path:
    """The dataset with the columns that `moe_dataset` writes: one example of a cluster, one of a rare difficulty."""
    table = pl.read_parquet(dataset).with_columns(
        weight=pl.when(pl.col("example_id") == HEAVY).then(weight).otherwise(1.0),
        balance=pl.when(pl.col("example_id") == LIGHT).then(balance).otherwise(1.0),
    )
    file = dataset.with_name(f"weighted-{weight}-{balance}.parquet")
    table.write_parquet(file)
    return file


def drawn(request: TrainingRequest, epochs: int = 40) -> Counter[str]:
    """How often each example is drawn in so many epochs, by the functions that training calls."""
    from transformers import AutoTokenizer

    settings = settings_on(request, pick_device())
    run = VoterRun(request, request.recipe.voters[0], request.work, lambda event: None, lambda: None)
    examples = VoterExamples.read(run, settings, AutoTokenizer.from_pretrained(request.base_model))
    [level] = voter_levels(examples)
    curriculum = Curriculum([level], request.recipe)
    assert curriculum.total == level.order.steps_per_epoch * epochs
    return Counter(name for number in range(curriculum.total) for name in curriculum.step(number).ids)


def test_examples_are_drawn_by_their_weights(make: Make, tmp_path: Path) -> None:
    whole: dict[str, Any] = {"voters": [{"name": "voter-0", "seed": 0, "shard": 0}], "epochs": 40, "max_steps": None}
    plain, whole = make(**whole, weights=True), whole | {"weights": True}
    assert set(drawn(plain).values()) == {40}  # a file without weights: every example once an epoch
    data = with_weights(plain.dataset)
    found = drawn(make(data=data, **whole))
    mean = (3.0 + 0.25 + 46) / 48
    assert found.total() == 48 * 40
    # An example comes the whole number below or above its share each epoch; over forty the deviation is two or three.
    assert found[HEAVY] == pytest.approx(40 * 3.0 / mean, abs=6)
    assert found[LIGHT] == pytest.approx(10 / mean, abs=8)
    others = [count for name, count in found.items() if name not in (HEAVY, LIGHT)]
    assert len(others) == 46 and min(others) >= 33 and max(others) <= 45
    assert set(drawn(make(data=data, **whole | {"weights": False})).values()) == {40}


def test_weights_that_are_all_equal_change_nothing(make: Make) -> None:
    one = {"voters": [{"name": "voter-0", "seed": 0, "shard": 0}], "max_steps": 3, "weights": True}
    plain = make(**one)
    alike = make(data=with_weights(plain.dataset, weight=2.0, balance=1.0), **one)
    same = with_weights(plain.dataset, weight=1.0, balance=1.0)
    assert drawn_steps(make(data=same, **one)) == drawn_steps(plain) != drawn_steps(alike)


def drawn_steps(request: TrainingRequest) -> list[list[str]]:
    from transformers import AutoTokenizer

    run = VoterRun(request, request.recipe.voters[0], request.work, lambda event: None, lambda: None)
    settings = settings_on(request, pick_device())
    examples = VoterExamples.read(run, settings, AutoTokenizer.from_pretrained(request.base_model))
    curriculum = Curriculum(voter_levels(examples), request.recipe)
    return [curriculum.step(number).ids for number in range(curriculum.total)]


@pytest.mark.extended
def test_a_training_by_weights_learns_something_else(make: Make) -> None:
    plain = make(work="plain")
    data = with_weights(plain.dataset, weight=20.0)
    requests = [make(work="drawn", data=data, weights=True), make(work="alike", data=data), plain]
    losses = []
    for request in requests:
        run = VoterRun(request, request.recipe.voters[0], request.work / "v", lambda event: None, lambda: None)
        curve = json.loads((train_voter(run) / "curve.json").read_text())
        losses.append(curve)
    assert losses[1] == losses[2] != losses[0]


def test_exported_lines_have_the_weight_where_it_is_asked_for(tmp_path: Path) -> None:
    table = pl.read_parquet(with_weights(save_dataset(tmp_path))).with_columns(
        licence=pl.lit("MIT"), source=pl.lit("test")
    )
    for name, weights in (("with", True), ("without", False)):
        export_dataset(table, tmp_path / name, messages_line, {}, weights=weights)
    lines = [json.loads(line) for line in (tmp_path / "with" / "train.jsonl").read_text().splitlines()]
    ids = sorted(table.filter(pl.col("split") == "train")["example_id"])
    assert {name: line["weight"] for name, line in zip(ids, lines, strict=True) if line["weight"] != 1.0} == {
        HEAVY: 3.0, LIGHT: 0.25,
    }  # fmt: skip
    assert "weight" not in (tmp_path / "without" / "train.jsonl").read_text()
