"""The planning recipe: the shipped one loads, a wrong one is refused by name."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.deployment.declarations import read_declared, shipped_recipe
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import Remat
from capibara_assets.planning.recipe import LEVELS, PlanningRecipe, ThresholdRow, lookup


def written(folder: Path, change: Any) -> Path:
    document = yaml.safe_load((resources_root() / "recipes" / "planning.yaml").read_text())
    change(document)
    file = folder / "planning.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda document: document.update(levl="balanced"), "levl"),
        (lambda document: document.update(headroom=0.5), "headroom: belongs to a level"),
        (lambda document: document["levels"]["balanced"].update(headroom=1.5), "headroom"),
        (lambda document: document["levels"]["aggressive"].update(headroom=0.5), "headroom must not fall"),
        (lambda document: document["levels"].pop("conservative"), "conservative missing"),
        (lambda document: document["levels"]["balanced"]["remat"].reverse(), "least recomputation to most"),
        (lambda document: document["lora"].pop("dropout"), "dropout"),
        (lambda document: document["lora"]["epochs"].reverse(), "epochs: bounds must rise"),
        (lambda document: document["lora"]["ranks"].pop(), "ranks: bounds must rise"),
    ],
)
def test_a_wrong_recipe_is_refused_by_name(tmp_path: Path, change: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_declared(written(tmp_path, change), PlanningRecipe)


@given(st.integers(0, 10**9))
def test_a_threshold_table_answers_every_count(count: int) -> None:
    table = (ThresholdRow(below=10, value=1), ThresholdRow(below=100, value=2), ThresholdRow(value=3))
    assert lookup(table, count) == (1 if count < 10 else 2 if count < 100 else 3)


def test_levels_go_from_much_room_to_little() -> None:
    recipe = shipped_recipe("planning", PlanningRecipe)
    assert recipe.limits == recipe.levels["balanced"] and recipe.headroom == recipe.limits.headroom
    levels = [recipe.at_level(name).limits for name in LEVELS]
    for limit in ("headroom", "micro_batch", "cpu_micro_batch", "batch_growth"):
        values = [getattr(level, limit) for level in levels]
        assert values == sorted(set(values)), limit
    assert levels[0].remat == (Remat.FULL,)
    assert recipe.at_level(None) == recipe
    with pytest.raises(
        InputError, match="no planning level 'reckless': choose one of conservative, balanced, aggressive"
    ):
        recipe.at_level("reckless")
