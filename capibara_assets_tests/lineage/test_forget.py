"""What a forget finds and what it deletes: exactly what holds the record or was made from it, in an order to resume."""

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from capibara_assets.datasets.schema import Example, Group, LeftOut, Route
from capibara_assets.errors import InputError
from capibara_assets.executions.ingest.forgotten import execution_digest, tenant_digest, write_tombstones
from capibara_assets.executions.ingest.ingest import ingest
from capibara_assets.executions.ingest.ledger import Ledger
from capibara_assets.executions.schema import Execution, LogFile, Quarantined
from capibara_assets.lineage.forget import (
    LEDGERS,
    all_left,
    doomed,
    drop_lines,
    examples_of,
    find,
    note_lines,
    purge_ledgers,
    remove,
    work_folders,
)
from capibara_assets.storage.store import Table
from capibara_assets_tests.executions.conftest import envelope, line
from capibara_assets_tests.lineage.conftest import Made

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def remade(made: Made, gone: str) -> None:
    """The tables once more without an execution, as the graph would make them; routes are as before."""
    for (asset, partition), artifact in sorted(made.current.items(), key=str):
        if asset == "moe_dataset":
            examples = artifact.frame("examples")
            examples = examples.filter(~pl.col("execution_ids").list.contains(gone))
            left_out = artifact.frame("left_out")
            tables = {"examples": Table(Example, examples), "left_out": Table(LeftOut, left_out)}
            made.current[asset, partition] = made.store.publish(asset, partition, tables=tables)
        elif asset == "example_groups":
            groups = artifact.frame("groups").filter(pl.col("unit_id") != gone)
            made.current[asset, partition] = made.store.publish(asset, None, tables={"groups": Table(Group, groups)})
        elif asset == "e2b_logs":
            tables = {
                name: Table(model, artifact.frame(name))
                for name, model in (("quarantine", Quarantined), ("files", LogFile))
            }
            rows = artifact.frame("executions").filter(pl.col("execution_id") != gone)
            tables["executions"] = Table(Execution, rows)
            made.current[asset, partition] = made.store.publish(asset, None, tables=tables)


def named(artifacts: list) -> list[tuple[str, str | None]]:
    return [(artifact.name, artifact.partition) for artifact in artifacts]


@pytest.fixture
def routes(made: Made) -> Made:
    route = Route(
        route_id="r",
        prompt="q",
        domains=["python"],
        split="train",
        group_id="g",
        hard_negative=False,
        weights=[1.0],
        negative_of=[],
    )
    sets = [made.current["moe_dataset", domain] for domain in ("python", "sql")]
    made.put("routing_dataset", None, *sets, tables={"routes": (Route, [route])})
    return made


def test_everything_that_holds_it_is_found_and_whole_executions_go_last(routes: Made) -> None:
    found = find(routes.results, ["p07"])
    assert named(list(found.artifacts)) == [
        ("routing_dataset", None), ("moe_dataset", "python"), ("example_groups", None), ("e2b_logs", None),
    ]  # fmt: skip
    assert found.domains == ("python",) and examples_of(found) == {"python": {"e-07"}}
    assert [(one.file, one.line) for one in found.lines] == [("a.jsonl", 8)]
    [stone] = found.tombstones
    assert stone.execution == execution_digest("p07") and len(stone.bodies) == len(stone.contents) == 1


def test_what_quotes_it_under_no_id_goes_too_and_what_is_left_is_told_again(routes: Made, tmp_path: Path) -> None:
    """An evaluation's answers and grades name their item alone."""
    quoted, logs = "total = sum(range(7654321)) + of_its_own", routes.current["e2b_logs", None]
    code = pl.when(pl.col("execution_id") == "p07").then(pl.lit(quoted)).otherwise("code").alias("code")
    tables = {"executions": Table(Execution, logs.frame("executions").with_columns(code))}
    tables |= {n: Table(m, logs.frame(n)) for n, m in (("quarantine", Quarantined), ("files", LogFile))}
    routes.current["e2b_logs", None] = routes.store.publish("e2b_logs", None, tables=tables)
    remove(routes.store, [logs])
    dataset = routes.current["moe_dataset", "python"]
    quotes = routes.put("evaluation", "python", dataset, documents={"grades": {"detail": f"failed: {quoted}"}})
    other = routes.put("evaluation", "sql", dataset, documents={"grades": {"detail": "failed: something else"}})
    found = find(routes.results, ["p07"])
    assert quotes in found.quoting and quotes in found.artifacts and other not in found.artifacts
    assert quotes in doomed(routes.results, found)[0]
    assert next(a.name for a in found.artifacts if a.name in ("evaluation", "moe_dataset")) == "evaluation"  # text last
    (tmp_path / "left").write_text(quoted)
    places = [str(tmp_path / "left"), "Dagster's database of events"]
    assert all_left(routes.store, places) == places
    assert all_left(routes.store, []) == all_left(routes.store, []) == [str(tmp_path / "left")]
    (tmp_path / "left").write_text("mended")
    assert not all_left(routes.store, [])


def test_unknown_ids_are_named_unless_they_were_forgotten_before(routes: Made) -> None:
    with pytest.raises(InputError, match="no execution 'nix', 'nobody' in any table"):
        find(routes.results, ["p07", "nobody", "nix"])
    write_tombstones(routes.store, find(routes.results, ["p07"]).tombstones, "")
    found = find(routes.results, ["p07"])
    assert found.before == ("p07",) and found.tombstones == () and found.artifacts


def test_what_was_made_anew_without_it_stays_and_the_rest_goes(routes: Made) -> None:
    found = find(routes.results, ["p07"])
    remade(routes, "p07")
    gone, waiting = doomed(routes.results, found)
    # equal routes came out again: they hold nothing of it, though their manifest still names the former datasets
    assert named(gone) == [("moe_dataset", "python"), ("example_groups", None), ("e2b_logs", None)] and waiting == []
    remove(routes.store, gone)
    for artifact in routes.current.values():
        artifact.verify()


def test_where_the_tables_could_not_be_made_anew_text_goes_and_the_groups_wait(routes: Made) -> None:
    gone, waiting = doomed(routes.results, find(routes.results, ["p07"]))
    assert named(gone) == [("routing_dataset", None), ("moe_dataset", "python"), ("e2b_logs", None)]
    assert named(waiting) == [("example_groups", None)]


def test_work_made_from_it_goes_and_other_work_stays(made: Made) -> None:
    work, tainted = made.store.work, made.current["moe_dataset", "python"].digest
    files = {
        "trained_adapters/python/a/request.json": json.dumps({"dataset_digest": tainted}),
        "trained_adapters/python/a/v0/checkpoint-1/weights": "numbers",
        "trained_adapters/python/b/request.json": "{torn",
        "trained_adapters/sql/c/request.json": json.dumps({"dataset_digest": "other"}),
        "trained_adapters/sql/c/v0/events.jsonl": "fine",
        "trained_adapters/sql/d/request.json": json.dumps(
            {"dataset_digest": "other", "further": {"python": {"dataset": "examples.parquet", "digest": tainted}}}
        ),
        "trained_adapters/sql/c/tokens/x.arrow": "tokens",
        f"downloads/moe_dataset/python/{tainted}/files/examples.parquet": "copy",
        "downloads/moe_dataset/sql/other/files/examples.parquet": "copy",
        "verdicts/1.json": "a piece of the record's text",
        "verdicts/2.json": "another verdict",
        "e2b_logs/_/ledger/generations/1/x": "a piece of the record's text",
    }
    for name, text in files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    found = work_folders(made.store, {tainted}, ["a piece of the record"])
    assert [str(path.relative_to(work)) for path in found] == [
        f"downloads/moe_dataset/python/{tainted}", "trained_adapters/python/a", "trained_adapters/python/b",
        "trained_adapters/sql/c/tokens/x.arrow", "trained_adapters/sql/d", "verdicts/1.json",
    ]  # fmt: skip


def test_another_folders_ledger_is_emptied_only_where_it_holds_the_record(made: Made, tmp_path: Path) -> None:
    ledgers = made.store.work.joinpath(*LEDGERS)
    for name, ids in (("own", ["p01"]), ("former", ["p07", "p08"]), ("unrelated", ["x"])):
        logs = tmp_path / name
        logs.mkdir()
        (logs / "a.jsonl").write_bytes(b"".join(line(envelope(execution_id=one)) + b"\n" for one in ids))
        with ingest(logs, now=NOW, ledger=ledgers / name):
            pass
    deleted = purge_ledgers(made.store, find(made.results, ["p07"]), ledgers / "own")
    assert [Path(path).parent.parent.name for path in deleted] == ["former"]
    assert Ledger(ledgers / "former").last() is None
    assert Ledger(ledgers / "own").last() and Ledger(ledgers / "unrelated").last()


def test_an_execution_that_only_a_ledger_knows_is_found(made: Made, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.jsonl").write_bytes(line(envelope("print('only here')", execution_id="only-in-the-ledger")) + b"\n")
    with ingest(logs, now=NOW, ledger=made.store.work.joinpath(*LEDGERS, "own")):
        pass
    found = find(made.results, ["only-in-the-ledger"])
    assert found.rows["execution_id"].to_list() == ["only-in-the-ledger"] and found.artifacts == ()


def test_all_of_a_tenant_is_found_and_nothing_of_others(routes: Made) -> None:
    found, one = find(routes.results, [], "acme"), find(routes.results, ["p00"])
    assert found.execution_ids == ("p00",) and found.artifacts == one.artifacts and found.lines == one.lines
    named, execution = found.tombstones
    assert (named.tenant, named.execution) == (tenant_digest("acme"), None) and execution == one.tombstones[0]
    write_tombstones(routes.store, found.tombstones, "")
    assert find(routes.results, [], "acme").before == ("p00",)


def test_another_name_is_told_the_nearest_tenant(routes: Made) -> None:
    with pytest.raises(
        InputError, match=r"no tenant 'acne' in any table.*did you mean 'acme'\?: nothing was forgotten"
    ):
        find(routes.results, [], "acne")
    with pytest.raises(InputError, match=r"no tenant '' .* tombstone: nothing was forgotten; .*, where 1 are named"):
        find(routes.results, [], "")


def test_a_tenant_is_forgotten_to_the_end_where_its_tables_were_removed_before(routes: Made) -> None:
    """Interrupted just before its end: the notes alone name its lines, which are told once more and then dropped."""
    found = find(routes.results, [], "acme")
    write_tombstones(routes.store, found.tombstones, "")
    note_lines(routes.store, found)
    remade(routes, "p00")
    remove(routes.store, doomed(routes.results, found)[0])
    again = find(routes.results, [], "acme")
    assert (again.execution_ids, again.lines) == (("p00",), found.lines)
    assert named(list(again.artifacts)) == [("routing_dataset", None)]  # known by the dataset that it was made from
    drop_lines(routes.store, again)
    last = find(routes.results, [], "acme")
    assert (last.execution_ids, last.lines, last.tombstones) == ((), (), ())
