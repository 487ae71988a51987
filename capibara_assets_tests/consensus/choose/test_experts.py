"""From published artifacts to votes: shards as the voters' manifests name them, examples of the shipped base model."""

import json
from pathlib import Path

import polars as pl
import pytest

from capibara_assets.consensus.agree_on_artifacts import agree_on_voters
from capibara_assets.consensus.choose.experts import read_accepted, read_experts, validation_sets, validation_shards
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.datasets.schema import Example
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.storage.records import table

RECIPE = ConsensusRecipe()


@pytest.fixture(scope="module")
def shipped(nano: Path) -> Base:
    return load_base(nano)


@pytest.fixture(scope="module")
def examples() -> pl.DataFrame:
    return table(Example, [example(number) for number in range(24)])


def example(number: int, **changes: object) -> Example:
    conversation = [
        {"role": "user", "content": f"Add {number} to x."},
        {"role": "assistant", "content": f"x = x + {number}"},
    ]
    values = {
        "example_id": f"e{number:02}", "domain": "python", "kind": "solve", "language": "python",
        "messages": json.dumps(conversation), "group_id": f"g{number // 2}",
        "split": "validation" if number < 20 else "train", "difficulty": 0.1, "quality": 1.0, "weight": 1.0,
        "cluster_id": "c", "balance": 1.0, "not_replayed": None, "provenance": "experience", "tenants": [],
        "verified": "recorded", "execution_ids": [], "bullet_ids": [], "sandbox_ids": [], "licence": None,
        "source": None, "source_places": [],
    }  # fmt: skip
    return Example.model_validate(values | changes)


def test_shards_follow_the_manifests(shipped: Base, examples: pl.DataFrame, tmp_path: Path) -> None:
    voters = {f"v{i}": tmp_path / f"v{i}" for i in range(4)}
    for i, folder in enumerate(voters.values()):
        folder.mkdir()
        (folder / "manifest.json").write_text(json.dumps({"shard": 3 - i}))
    validation, shards = validation_shards(shipped, voters, examples, RECIPE)
    assert len(validation) == 20 and sorted(i for own in shards.values() for i in own) == list(range(20))
    for folder in voters.values():
        (folder / "manifest.json").unlink()
    _, by_place = validation_shards(shipped, voters, examples, RECIPE)
    assert by_place == {f"v{i}": shards[f"v{3 - i}"] for i in range(4)}
    (voters["v0"] / "manifest.json").write_text("[")
    assert validation_shards(shipped, voters, examples, RECIPE)[1] == by_place


def test_a_domain_with_fewer_groups_than_voters(shipped: Base, examples: pl.DataFrame, tmp_path: Path) -> None:
    few = examples.with_columns(pl.lit("one group").alias("group_id"))
    with pytest.raises(InputError, match=r"1 groups of validation examples for 2 voters.*more experience"):
        validation_shards(shipped, {"v0": tmp_path, "v1": tmp_path}, few, RECIPE)


def test_too_long_examples_are_left_out(shipped: Base, examples: pl.DataFrame, tmp_path: Path) -> None:
    long = example(
        50, messages=json.dumps([{"role": "user", "content": "x " * 4000}, {"role": "assistant", "content": "y"}])
    )
    frame = pl.concat([examples, table(Example, [long.model_copy(update={"split": "validation"})])])
    assert len(validation_sets(shipped, {Domain.PYTHON: frame}, RECIPE)[Domain.PYTHON]) == 20
    only = frame.filter(pl.col("example_id") == "e50")
    with pytest.raises(InputError, match="none of 1 validation examples can be read"):
        validation_shards(shipped, {"v0": tmp_path}, only, RECIPE)


def test_adapters_by_certificate_and_domain(honest: dict[str, LoraAdapter], tmp_path: Path) -> None:
    for name, adapter in honest.items():
        write_adapter(adapter, tmp_path / name)
    certificate = {"voters": [{"name": name, "accepted": name != "voter-1"} for name in honest]}
    assert list(read_accepted(tmp_path, certificate)) == ["voter-0", "voter-2", "voter-3"]
    found = read_experts({Domain.SQL: tmp_path / "voter-1", Domain.PYTHON: tmp_path / "voter-0"})
    assert list(found) == [Domain.PYTHON, Domain.SQL]


def test_a_folder_without_voters(shipped: Base, examples: pl.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no voters in"):
        agree_on_voters(shipped, tmp_path / "none", examples, RECIPE, {})
