"""Which executions count: domain, window, languages, quality."""

from collections.abc import Callable
from datetime import UTC, datetime

import polars as pl
import pytest

from capibara_assets.domains import Domain
from capibara_assets.executions.ingest.ingest import Ingest
from capibara_assets.executions.patterns.repairs import find_repairs
from capibara_assets.executions.recipe import ExperienceRecipe
from capibara_assets.executions.selection import evidence, in_window, of_domain
from capibara_assets.resources import Recipes
from capibara_assets_tests.executions.conftest import envelope, executed


@pytest.fixture
def ingest(ingest_lines: Callable[..., Ingest]) -> Ingest:
    return ingest_lines(
        envelope("SELECT 1 FROM a", language="sql", execution_id="old", timestamp="2026-09-01T00:00:00Z"),
        envelope("SELECT 2 FROM a", language="sql", execution_id="edge", timestamp="2026-09-05T12:00:00Z"),
        envelope("ls", language="bash", execution_id="bash", timestamp="2026-10-01T00:00:00Z"),
        envelope("x = 1", execution_id="new", timestamp="2026-10-05T12:00:00Z"),
    )


def ids(frame: pl.DataFrame) -> list[str]:
    return sorted(frame["execution_id"].to_list())


def test_domain(ingest: Ingest) -> None:
    assert ids(of_domain(ingest.executions, Domain.SQL)) == ["edge", "old"]
    assert ids(of_domain(ingest.executions, "python")) == ["new"]


def test_what_has_no_date_is_in_every_window(ingest: Ingest) -> None:
    undated = ingest.executions.filter(pl.col("execution_id") == "old").with_columns(flags=pl.lit(["undated"]))
    rest = ingest.executions.filter(pl.col("execution_id") != "old")
    assert ids(in_window(pl.concat([undated, rest]), ExperienceRecipe())) == ["edge", "new", "old"]


def test_the_window_ends_at_the_newest_execution_and_holds_both_its_ends(ingest: Ingest) -> None:
    assert ids(in_window(ingest.executions, ExperienceRecipe())) == ["edge", "new"]
    assert in_window(ingest.executions.clear(), ExperienceRecipe()).is_empty()


def test_the_window_can_be_pinned(ingest: Ingest) -> None:
    recipe = ExperienceRecipe(as_of=datetime(2026, 9, 2, tzinfo=UTC), time_range_days=5)
    assert ids(in_window(ingest.executions, recipe)) == ["old"]


def test_in_the_demo_what_ships_counts_beside_a_log_of_years_later(ingest: Ingest) -> None:
    recipe = Recipes(profile="demo").load("experience", ExperienceRecipe)
    later = pl.when(pl.col("execution_id") == "new").then(pl.lit(datetime(2033, 1, 1, tzinfo=UTC)))
    rows = ingest.executions.with_columns(timestamp=later.otherwise(pl.col("timestamp")))
    assert ids(in_window(rows, recipe)) == ["edge", "new", "old"]
    assert ids(in_window(rows, ExperienceRecipe())) == ["new"]


def test_languages_are_those_of_the_recipe(ingest: Ingest) -> None:
    assert ids(in_window(ingest.executions, ExperienceRecipe(languages=("bash",)))) == ["bash"]


def test_evidence_is_good_or_part_of_a_repair(ingest_lines: Callable[..., Ingest]) -> None:
    good = "def area(r):\n    return 3.14 * r * r\nassert area(1) == 3.14"
    failed = executed(error=("SyntaxError", "", ""))
    ingest = ingest_lines(
        envelope(good.replace("r * r", "r *"), execution_id="failing", execution=failed),
        envelope(good, execution_id="fixed", timestamp="2026-10-06T00:00:00Z"),
        envelope("x =", execution_id="poor", execution=failed, sandbox_id="other"),
    )
    repairs = find_repairs(ingest.executions)
    recipe = ExperienceRecipe(min_quality_score=0.99)
    assert ids(evidence(ingest.executions, repairs, recipe)) == ["failing", "fixed"]
    assert ids(evidence(ingest.executions, repairs.clear(), recipe)) == ["fixed"]
