"""Records followed both ways over a store by hand: known answers, voters by their own parts, errors that name."""

import os
from pathlib import Path

import polars as pl
import pytest

from capibara_assets.datasets.schema import Example, LeftOut
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.lineage import columns as columns_module
from capibara_assets.lineage.records import bullet_trail, example_trail, execution_trail, tenant_trail
from capibara_assets.storage.store import Table
from capibara_assets_tests.lineage.conftest import VOTERS, Made, own_shard


def test_an_example_names_its_records_and_who_trained_on_it(made: Made) -> None:
    found = example_trail(made.results, "e-01")
    assert (found.domain, found.kind, found.split, found.licence) == ("python", "repair", "train", "MIT")
    assert [(one.execution_id, one.file, one.line, one.role) for one in found.executions] == [
        ("p01", "a.jsonl", 2, "answer"),
        ("p02", "a.jsonl", 3, "context"),
    ]
    assert [(one.bullet_id, one.file, one.line) for one in found.bullets] == [("book/b-2", "book.txt", 7)]
    trained = {one.voter for one in found.seen_by if one.part == "train"}
    assert trained == {f"v{i}" for i in range(VOTERS)} - {f"v{own_shard('g-p01')}"}
    assert all(one.current and one.digest.startswith("python-v") for one in found.seen_by)
    assert [(one.asset, one.partition) for one in found.models] == [
        ("consensus_checkpoint", "python"),
        ("merged_checkpoint", None),
    ]


def test_an_execution_names_everything_it_is_in(made: Made) -> None:
    found = execution_trail(made.results, "p02")
    assert found.place is not None and (found.place.file, found.place.line, found.place.licence) == (
        "a.jsonl",
        3,
        "MIT",
    )
    assert (found.group_id, found.split, found.domains) == ("g-p02", "train", ("python",))
    assert [(one.example_id, one.role) for one in found.examples] == [("e-01", "context"), ("e-02", "answer")]
    assert [(one.asset, one.partition) for one in found.tables] == [
        ("e2b_logs", None), ("example_groups", None), ("moe_dataset", "python"),
    ]  # fmt: skip
    assert found.datasets == {"python": made.current["moe_dataset", "python"].digest}
    both = {f"v{i}" for i in range(VOTERS)} - ({f"v{own_shard('g-p01')}"} & {f"v{own_shard('g-p02')}"})
    assert {one.voter for one in found.seen_by} == both


@pytest.mark.parametrize("damage", ["cut", "a pipe", "a device", "gone"])
def test_a_damaged_table_is_named_with_what_to_do(made: Made, damage: str) -> None:
    assert execution_trail(made.results, "p02").domains == ("python",)
    file = Path(made.current["e2b_logs", None].path.path) / "executions.parquet"
    if damage == "cut":
        os.truncate(file, 200)
    else:
        file.unlink()
    if damage == "a pipe":
        os.mkfifo(file)
    elif damage == "a device":
        file.symlink_to("/dev/zero")
    with pytest.raises(IntegrityError, match=r"executions\.parquet is (no |missing)"):
        execution_trail(made.results, "p02")


def test_of_another_domain_nothing_was_trained_on_it(made: Made) -> None:
    found = execution_trail(made.results, "q2")
    assert {(one.domain, one.part) for one in found.seen_by} == {("sql", "validation")}
    assert [one.voter for one in found.seen_by] == ["v0", "v1", "v2"]  # too few groups for shards: all judge by it


def test_a_voter_that_trains_on_all_domains_saw_the_others(made: Made) -> None:
    python, sql = made.current["moe_dataset", "python"], made.current["moe_dataset", "sql"]
    made.train("python", python, ["w0", "w1"], further=[sql])
    found = execution_trail(made.results, "q0").seen_by
    assert {(one.voter, one.part) for one in found if one.domain == "python"} == {("w0", "train")}
    assert {one.dataset for one in found} == {sql.digest}
    judged = execution_trail(made.results, "q2").seen_by  # of another domain it validates nothing
    assert {(one.domain, one.part) for one in judged} == {("sql", "validation")}
    assert {one.voter for one in execution_trail(made.results, "p39").seen_by if one.current} >= {"w0", "w1"}


def test_what_was_left_out_says_why(made: Made) -> None:
    assert execution_trail(made.results, "p03").left_out == {"python": "for no reason"}


def test_a_former_training_is_told_from_the_one_that_counts(made: Made) -> None:
    former = made.current["trained_adapters", "python"]
    dataset = made.current["moe_dataset", "python"]
    rows = dataset.frame("examples").filter(pl.col("example_id") != "e-05")
    tables = {"examples": Table(Example, rows), "left_out": Table(LeftOut, dataset.frame("left_out"))}
    newer = made.store.publish("moe_dataset", "python", tables=tables)
    made.current["moe_dataset", "python"] = newer
    made.train("python", newer, ["v0", "v1", "v2", "v3"])
    assert {one.current for one in execution_trail(made.results, "p06").seen_by} == {True, False}
    gone = execution_trail(made.results, "p05")
    assert not gone.examples and gone.seen_by == ()  # it is in no dataset that counts
    assert {one.artifact for one in execution_trail(made.results, "p06").seen_by if not one.current} == {former.digest}


def test_a_bullet_names_playbooks_and_examples(made: Made) -> None:
    found = bullet_trail(made.results, "book/b-2")
    assert (found.bullet.line, found.consolidated, [one.example_id for one in found.examples]) == (
        7,
        ("python",),
        ["e-01"],
    )


def test_a_tenant_names_its_rows_and_the_adapters_that_saw_them(made: Made) -> None:
    found = tenant_trail(made.results, "acme")
    assert (found.executions, found.by_domain, found.examples) == (1, {"python": 1}, {"python": 1, "sql": 0})
    saw = {name for name, rows in found.seen_by.items() if rows}
    assert saw == {f"python/v{i}" for i in range(VOTERS) if i != own_shard("g-p00")}
    with pytest.raises(InputError, match=r"no tenant 'acne': the nearest of 1: acme"):
        tenant_trail(made.results, "acne")


def test_ids_may_be_shortened_and_unknown_ones_name_the_nearest(made: Made) -> None:
    assert execution_trail(made.results, "q1").execution_id == "q1"
    with pytest.raises(InputError, match=r"execution 'p0' begins 10 ids: p00, p01, .* …; give more of it"):
        execution_trail(made.results, "p0")
    with pytest.raises(InputError, match=r"no execution 'p40x': the nearest of 43: .*p"):
        execution_trail(made.results, "p40x")
    assert bullet_trail(made.results, "b-2").bullet.bullet_id == "book/b-2", "its last part"
    with pytest.raises(InputError, match=r"bullet 'b-' begins . ids: book/b-1, book/b-2"):
        bullet_trail(made.results, "b-")
    with pytest.raises(InputError, match="no bullet"):
        bullet_trail(made.results, "zzz")


def test_only_the_columns_that_are_needed_are_read(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = columns_module.pl.scan_parquet

    class Watched:
        def __init__(self, source: Path) -> None:
            self.scan = real(source)

        def collect_schema(self) -> pl.Schema:
            return self.scan.collect_schema()

        def select(self, names: list[str]) -> pl.LazyFrame:
            read.extend(names)
            return self.scan.select(names)

    monkeypatch.setattr(columns_module.pl, "scan_parquet", Watched)
    execution_trail(made.results, "p02")
    assert read and {"messages", "code", "stdout", "traceback", "text"}.isdisjoint(read)
