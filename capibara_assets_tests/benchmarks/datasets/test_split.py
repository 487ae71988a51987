"""The bench `split`: what straddles is counted, edits keep code alike, and grouping leaves nothing straddling."""

import random
from pathlib import Path

import pytest

from benchmarks.datasets.split import EDITS, commented, measure, other_literals, renamed, reordered, straddling
from benchmarks.experience_input import bench_input
from capibara_assets.datasets.code.structure import structural_key
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.deployment.declarations import shipped_recipe

RECIPE = shipped_recipe("dataset", DatasetRecipe)
CODE = '''total = 3
def area(width, height):
    """The area."""
    margin = width * height
    return margin + 12
'''


def test_edits_change_what_they_say() -> None:
    key = structural_key(CODE, "python")
    chance = random.Random(4)
    for edit in (renamed, commented):
        changed = edit(CODE, "python", chance)
        assert changed != CODE
        assert structural_key(changed, "python") == key
    assert structural_key(other_literals(CODE, "python", chance), "python") != key
    assert reordered(CODE, "python", chance).startswith("def area")
    assert set(EDITS) >= {"renamed", "literals", "reordered", "comments", "docstring"}


def test_each_comparison_counts_what_trains_and_is_tested() -> None:
    long = "\n".join(f"value_{n} = compute({n}, other={n})" for n in range(40))
    near = long.replace("compute(39,", "compute(40,")
    apart = "\n".join(f"x{n} = {n}" for n in range(9))
    nothing = straddling([("a", "train", long, "python"), ("b", "train", near, "python")], RECIPE)
    assert nothing == {"exact": 0, "structural": 0, "near": 0}
    found = straddling(
        [
            ("a", "train", long, "python"),
            ("b", "test", near, "python"),
            ("c", "train", apart, "python"),
            ("d", "validation", apart.upper().replace("X", "y"), "python"),
            ("e", "train", "import os  ", "python"),
            ("f", "test", "IMPORT OS", "sql"),
        ],
        RECIPE,
    )
    assert found == {"exact": 1, "structural": 1, "near": 1}


@pytest.mark.extended
def test_nothing_planted_in_a_small_experience_straddles(small_experience: Path) -> None:
    result = measure(bench_input(str(small_experience), None), 800)
    assert result["straddling"] == 0
    assert result["planted"] == 800
    assert result["compared"]["executions"] > result["planted"]  # the real ones, too
    assert result["planted_grouped_with_another"] > 100
    assert result["planted_left_out"]
