"""Groups and splits: nothing straddles, nothing moves, nothing depends on order."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capibara_assets.datasets.groups import BRIDGE, COMMON, assign_groups, group_statistics
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import SPLITS, Group
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.executions.schema import Execution, RepairPair
from capibara_assets.storage.records import problems, table
from capibara_assets_tests.datasets.conftest import fleet, frame, no_repairs, pair, problem, run

RECIPE = shipped_recipe("dataset", DatasetRecipe)


def assign(executions: list[Execution], previous: pl.DataFrame | None = None) -> pl.DataFrame:
    return assign_groups(frame(executions), no_repairs(), previous, RECIPE)


def row(groups: pl.DataFrame, unit: str) -> dict[str, str | None]:
    return groups.row(by_predicate=pl.col("unit_id") == unit, named=True)


def grouped(groups: pl.DataFrame, *units: str) -> bool:
    return len({row(groups, unit)["group_id"] for unit in units}) == 1


def in_split(groups: pl.DataFrame, split: str) -> str:
    """A sandbox of a split."""
    return str(groups.filter(pl.col("split") == split).sort("unit_id")["sandbox_id"].to_list()[0])


def test_the_table_fits_its_schema() -> None:
    assert problems(Group, assign(fleet(30))) == []


@pytest.mark.parametrize("problems", [150, pytest.param(400, marks=pytest.mark.extended)])
def test_unrelated_problems_are_apart_and_shares_are_kept(problems: int) -> None:
    groups = assign(fleet(problems))
    assert groups["group_id"].n_unique() == problems
    shares = {split: (groups["split"] == split).mean() for split in SPLITS}
    assert 0.74 < shares["train"] < 0.86
    assert min(shares["validation"], shares["test"]) > 0.06


def test_links() -> None:
    renamed = problem(1).replace("solve_", "answer_")
    near = problem(2).replace("return 2 +", "return 3 +")
    task = "Return the number of vowels in a given text."
    groups = assign(
        [
            run("session-1", problem(3), sandbox="a"),
            run("session-2", problem(4), sandbox="a"),
            run("equal-1", problem(1), sandbox="b"),
            run("equal-2", renamed, sandbox="c"),
            run("near-1", problem(2), sandbox="d"),
            run("near-2", near, sandbox="e"),
            run("task-1", problem(5), sandbox="f", task=task),
            run("task-2", problem(6), sandbox="g", task=f"  {task.upper()} "),
            run("words-1", problem(7), sandbox="h", task="Write code that returns the number of vowels in texts."),
            run("alike-1", problem(8), sandbox="i", task="Return the number of vowels and of consonants in a text."),
        ]
    )
    assert grouped(groups, "session-1", "session-2")
    assert grouped(groups, "equal-1", "equal-2")
    assert grouped(groups, "near-1", "near-2")
    assert grouped(groups, "task-1", "task-2")
    assert grouped(groups, "task-1", "words-1")
    assert not grouped(groups, "task-1", "alike-1")  # similar text alone links nothing
    assert groups["group_id"].n_unique() == 5


PYTHON = '''def widest_gap(numbers):
    """Find the widest gap between two neighbours of a sorted list of integers.

    >>> widest_gap([1, 4, 11])
    7
    """
    return max(b - a for a, b in zip(numbers, numbers[1:]))

assert widest_gap([2, 3]) == 1
assert widest_gap([-5, 0, 30]) == 30
'''
JAVASCRIPT = """/**
 * Finds the widest gap between two neighbours of a sorted array of numbers.
 */
function widestGap(values) {
  return Math.max(...values.slice(1).map((value, i) => value - values[i]))
}
"""
CHECKS = "const first = [2, 3];\nassert.deepStrictEqual(gap(first), 1)\nexpect(gap([-5, 0, 30])).toBe(30)\n"


@pytest.mark.parametrize("text", [JAVASCRIPT, f"const gap = (v) => v.reduce(widest, 0)\n{CHECKS}"])
def test_a_problem_in_two_languages_is_one_group(text: str) -> None:
    other = run("javascript", text, sandbox="j", language="javascript", domains=["javascript"])
    groups = assign([*fleet(5), run("python", PYTHON, sandbox="p"), other])
    assert grouped(groups, "python", "javascript")
    assert groups["group_id"].n_unique() == 6


@pytest.mark.parametrize(
    ("name", "task", "one"),
    [
        (
            "widestGap",
            "Give the widest gap between neighbours in a sorted list of integers, 0 where it has none.",
            True,
        ),
        ("widest", "Give the widest gap between neighbours in a sorted list of integers, 0 where it has none.", False),
        ("widestGap", "Sum up the free minutes of all calendars that are open on a given day.", False),
    ],
)
def test_what_defines_the_same_name_and_says_alike_is_one_group(name: str, task: str, one: bool) -> None:
    code = f"function {name}(sorted) {{ let most = 0; for (const s of sorted) most = wider(most, s); return most }}"
    other = run("other", code, sandbox="j", language="javascript", domains=["javascript"], task=task)
    groups = assign([*fleet(5), run("python", PYTHON.partition("assert")[0], sandbox="p"), other])
    assert grouped(groups, "python", "other") is one


def test_sessions_that_share_their_first_cells_stay_apart() -> None:
    executions = [
        run(f"{box}-{cell}", problem(cell if cell < 2 else 100 * box + cell), sandbox=f"notebook-{box}")
        for box in range(7)
        for cell in range(12)
    ]
    groups = assign(executions)
    assert groups["group_id"].n_unique() == 7
    assert no_straddling(groups)
    shared = groups.filter(pl.col("unit_id").str.contains("-[01]$") & pl.col("reason_left_out").is_null())
    assert shared["split"].n_unique() == 1  # what they share is in one split alone


def test_a_large_group_is_cut_at_its_weakest_links_and_said_when_it_cannot_be() -> None:
    def session(name: int, codes: range) -> list[Execution]:
        return [run(f"{name}-{code}", problem(code), sandbox=f"box-{name}", domains=["ml"]) for code in codes]

    chain = [cell for name in range(10) for cell in session(name, range(4 * name, 4 * name + 6))]  # a third of each
    statistics = group_statistics(assign(chain), frame(chain), RECIPE)
    assert statistics["domains"]["ml"]["groups"] == 10
    assert statistics["too_large"] == []
    whole = [*chain, *session(99, range(900, 920))]
    (said,) = group_statistics(assign(whole), frame(whole), RECIPE)["too_large"]
    assert "ml: group" in said and "25.0% of 80 executions" in said


def test_imports_and_boilerplate_do_not_link_but_stay_in_one_split() -> None:
    executions = fleet(60)
    boxes = [execution.sandbox_id for execution in executions]
    executions += [run(f"import{i:02d}", "import pandas as pd", sandbox=box) for i, box in enumerate(boxes)]
    executions += [run(f"schema{i:02d}", problem(999), sandbox=box) for i, box in enumerate(boxes)]
    groups = assign(executions)
    assert groups["group_id"].n_unique() == 60
    assert group_statistics(groups, frame(executions), RECIPE)["largest_share"] == pytest.approx(3 / 180)
    for name in ("import", "schema"):
        usable = groups.filter(pl.col("unit_id").str.starts_with(name), pl.col("reason_left_out").is_null())
        assert usable["split"].unique().to_list() == ["train"]
        others = groups.filter(pl.col("unit_id").str.starts_with(name), pl.col("reason_left_out").is_not_null())
        assert set(others["reason_left_out"]) == {COMMON}


@given(st.randoms(use_true_random=False))
@settings(max_examples=settings.default.max_examples // 10)
def test_the_order_of_rows_does_not_matter(random: object) -> None:
    executions = [*fleet(20), *fleet(20, "ml", "m"), run("again", problem(3), sandbox="elsewhere")]
    expected = assign(executions)
    shuffled = list(executions)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    unsorted = pl.concat([frame([execution]) for execution in shuffled])
    assert assign_groups(unsorted, no_repairs(), None, RECIPE).equals(expected)


def test_assigning_again_changes_nothing() -> None:
    executions = [*fleet(50), *(run(f"i{n}", "import os", sandbox=f"p-box-{n:04d}") for n in range(50))]
    once = assign(executions)
    assert assign(executions, once).equals(once)


@given(st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=settings.default.max_examples // 4)
def test_an_execution_keeps_its_split_for_ever(before: int, more: int) -> None:
    executions = [*fleet(before), *fleet(more, "sql", "q")]
    former = assign(executions[:before])
    grown = assign(executions, former)
    kept = grown.join(former, on="unit_id", suffix="_before")
    assert kept["split"].equals(kept["split_before"].alias("split"))
    assert kept["group_id"].equals(kept["group_id_before"].alias("group_id"))


def test_a_newcomer_that_joins_two_splits_is_left_out() -> None:
    executions = fleet(80)
    former = assign(executions)
    train, test = (in_split(former, split) for split in ("train", "test"))
    code = {execution.sandbox_id: execution.code for execution in executions}
    newcomers = [
        run("same-code", code[test], sandbox=train),  # a cell in a train session with the code of a test problem
        run("bridge-1", code[train], sandbox="new"),
        run("bridge-2", code[test], sandbox="new"),
        run("innocent", problem(5000), sandbox="other"),
    ]
    grown = assign([*executions, *newcomers], former)
    assert row(grown, "same-code")["reason_left_out"] == BRIDGE
    assert row(grown, "innocent")["reason_left_out"] is None
    assert {row(grown, f"bridge-{i}")["reason_left_out"] for i in (1, 2)} <= {BRIDGE, COMMON}
    old = grown.filter(pl.col("unit_id").is_in([execution.execution_id for execution in executions]))
    assert old["reason_left_out"].null_count() == old.height
    assert no_straddling(grown)


def no_straddling(groups: pl.DataFrame) -> bool:
    usable = groups.filter(pl.col("reason_left_out").is_null())
    return all(
        usable.group_by(column).agg(pl.col("split").n_unique())["split"].max() == 1
        for column in ("group_id", "sandbox_id")
    )


@pytest.mark.parametrize("count", [100, pytest.param(300, marks=pytest.mark.extended)])
def test_planted_near_duplicates_never_straddle(count: int) -> None:
    executions = fleet(count)
    planted = [
        run(f"copy{i:03d}", execution.code.replace("return", f"return {i % 7} +"), sandbox=f"copy-box-{i:03d}")
        for i, execution in enumerate(executions)
    ]
    groups = assign([*executions, *planted])
    split = dict(groups.select("unit_id", "split").iter_rows())
    assert all(split[f"p{i:04d}"] == split[f"copy{i:03d}"] for i in range(count))


@pytest.mark.parametrize("count", [3, 10, 16, 40, 60])
def test_a_small_domain_has_every_split(count: int) -> None:
    groups = assign(fleet(count))
    wanted = min(RECIPE.minimum_groups, max(1, count // 4))
    for split in SPLITS[1:]:
        assert (groups["split"] == split).sum() >= wanted
    assert (groups["split"] == "train").sum() >= count / 3


def test_a_giant_group_trains() -> None:
    giant = [run(f"g{i:03d}", problem(2000 + i), sandbox="giant") for i in range(40)]
    groups = assign([*fleet(20), *giant])
    assert set(groups.filter(pl.col("sandbox_id") == "giant")["split"]) == {"train"}


def test_a_new_execution_elsewhere_changes_nothing_here() -> None:
    python = fleet(30)
    before = assign([*python, *fleet(30, "sql", "q")])
    after = assign([*python, *fleet(31, "sql", "q")], before)
    mine = pl.col("unit_id").str.starts_with("p")
    assert after.filter(mine).equals(before.filter(mine))


def test_both_sides_of_a_repair_get_a_row_even_when_they_are_no_evidence(recipe: DatasetRecipe) -> None:
    failing = run("bad", "print(x)", outcome="error", error_name="NameError")
    fixed = run("good", "x = 1\nprint(x)", minute=1)
    groups = assign_groups(frame([fixed]), table(RepairPair, [pair(failing, fixed)]), None, recipe)
    assert groups["unit_id"].to_list() == ["bad", "good"]
    assert grouped(groups, "bad", "good")


def test_no_executions_give_an_empty_table() -> None:
    assert assign([]).is_empty()
