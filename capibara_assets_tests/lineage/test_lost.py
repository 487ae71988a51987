"""What results were made from and that cannot be read is named: nothing of it counts as empty, or as checked."""

import shutil
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import polars as pl
import pytest
from click.testing import CliRunner

from capibara_assets.cli.dataset.forget_report import ForgetReport, as_text
from capibara_assets.cli.dataset.lineage import lineage
from capibara_assets.cli.dataset.lineage_page import adapter_page, execution_page
from capibara_assets.errors import InputError
from capibara_assets.executions.ingest.forgotten import NOTHING
from capibara_assets.executions.schema import Execution, LogFile, Quarantined
from capibara_assets.lineage.adapters import absence, adapter_trail, traced_adapter
from capibara_assets.lineage.forget import doomed, examples_of, find
from capibara_assets.lineage.lost import lost
from capibara_assets.lineage.records import Results, example_trail, execution_trail, exposures
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.removal import remove_artifact
from capibara_assets.storage.store import Table
from capibara_assets_tests.lineage.conftest import Made


def lose(made: Made, asset: str, partition: str | None) -> Artifact:
    """An artifact's folder goes without a note, as of a disk that failed."""
    artifact = made.current[asset, partition]
    shutil.rmtree(Path(artifact.path))
    return artifact


def seen(made: Made) -> Results:
    """The results as a deployment opens them: what is not in the store does not count, and is lost."""
    gone = [one for one in made.current.values() if made.store.find(one.name, one.partition, one.digest) is None]
    return made.results.without(gone)


def test_a_lost_dataset_is_named_with_what_was_made_from_it(made: Made) -> None:
    assert lost(made.results) == ()
    dataset = lose(made, "moe_dataset", "sql")
    (one,) = lost(seen(made))
    assert (one.asset, one.partition, one.digest, one.why) == ("moe_dataset", "sql", dataset.digest, "missing")
    assert [name.split()[0] for name in one.of] == [
        "consensus_checkpoint[sql]",
        "merged_checkpoint",
        "trained_adapters[sql]",
    ]


def test_what_a_forget_removed_is_noted_and_not_lost(made: Made) -> None:
    remove_artifact(made.store, "moe_dataset", "sql", made.current["moe_dataset", "sql"].digest)
    assert lost(made.results) == ()


def test_of_an_adapter_without_its_dataset_no_count_is_stated(made: Made) -> None:
    dataset = lose(made, "moe_dataset", "sql")
    assert adapter_trail(made.results, "sql/consensus").unread == (f"moe_dataset[sql] {dataset.digest} (missing)",)
    merged = adapter_trail(made.results, "merged_checkpoint")
    assert merged.examples == 39 and len(merged.unread) == 1
    assert adapter_trail(made.results, "python").unread == ()


@pytest.mark.parametrize("asset", ["trained_adapters", "consensus_checkpoint"])
def test_nothing_is_absent_from_a_model_whose_voters_are_not_known(made: Made, asset: str) -> None:
    """The merge names its datasets itself here; of a lost training, which further ones its voters read is unknown."""
    assert absence(made.results, "merged_checkpoint", ["nobody"], NOTHING).absent
    gone = lose(made, asset, "sql")
    proof = absence(seen(made), "merged_checkpoint", ["nobody"], NOTHING)
    assert not proof.absent and f"{asset}[sql] {gone.digest} (missing)" in proof.unknown
    assert f"{asset}[sql] {gone.digest} (missing)" in adapter_trail(seen(made), "merged_checkpoint").unread
    assert absence(seen(made), "python/consensus", ["nobody"], NOTHING).absent


def test_nothing_is_absent_from_a_model_that_names_no_dataset(made: Made) -> None:
    bare = made.put("merged_checkpoint", None, documents={"report": {"of": "nothing"}})
    proof = absence(made.results, bare.digest, ["p00"], NOTHING)
    assert not proof.absent and "nothing names the dataset" in proof.unknown[0]


COMMANDS = (
    ["execution", "p05"], ["adapter", "python"], ["adapter", "merged_checkpoint"], ["bullet", "book/b-1"],
    ["tenant", "acme"],
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_the_commands_end_as_not_proven_and_say_what_is_missing(
    made: Made, command: list[str], form: list[str]
) -> None:
    @contextmanager
    def opened(_: object):
        yield seen(made)

    with patch("capibara_assets.cli.graph.results.open_results", opened):
        assert CliRunner().invoke(lineage, [*command, *form]).exit_code == 0
        digest = lose(made, "moe_dataset", "python").digest
        done = CliRunner().invoke(lineage, [*command, *form])
    assert done.exit_code == 3 and f"moe_dataset[python] {digest} (missing)" in done.output
    assert "0 train" not in done.output


def test_the_pages_say_it_too(made: Made) -> None:
    digest = lose(made, "moe_dataset", "sql").digest
    results = seen(made)
    for page in (adapter_page(results, traced_adapter(results, "merged_checkpoint")),
                 execution_page(results, execution_trail(results, "q0"))):  # fmt: skip
        assert f"moe_dataset[sql] {digest} (missing)" in page.about
    assert "Not known" not in adapter_page(results, traced_adapter(results, "python")).about


def test_an_unknown_id_is_told_where_it_was_not_looked_for(made: Made) -> None:
    with pytest.raises(InputError, match=r"makes them$"):
        example_trail(made.results, "nobody's")
    digest = lose(made, "moe_dataset", "sql").digest
    with pytest.raises(InputError, match=rf"not in the store, and so not asked: moe_dataset\[sql\] {digest}$"):
        example_trail(seen(made), "q-0")


# --- a forget ---------------------------------------------------------------------------------------------------------


def break_table(artifact: Artifact, table: str = "examples") -> None:
    (Path(artifact.path) / f"{table}.parquet").unlink()


def test_what_can_be_found_goes_though_a_dataset_is_damaged(made: Made) -> None:
    break_table(python := made.current["moe_dataset", "python"])
    found = find(made.results, ["p07"])
    assert [(a.name, a.partition) for a in found.artifacts] == [("example_groups", None), ("e2b_logs", None)]
    (one,) = found.damaged
    assert one.digest == python.digest and "examples.parquet is missing" in one.why
    assert examples_of(found) == {} and exposures(made.results, {"python": {"e-07"}}, {python.digest}) == ()
    assert [a.name for a in doomed(made.results, found)[0]] == ["e2b_logs"]
    (told,) = lost(made.results, damaged=found.damaged)
    assert "trained_adapters[python]" in " ".join(told.of)
    assert find(made.results, ["q0"]).damaged == found.damaged


def test_a_damaged_dataset_goes_by_its_tables_that_can_be_read(made: Made) -> None:
    break_table(python := made.current["moe_dataset", "python"])
    found = find(made.results, ["p03"])  # left out, as another table of it says
    assert python in found.artifacts and python in doomed(made.results, found)[0]
    assert examples_of(found) == {}


def test_what_others_say_is_no_trace_of_a_record_though_the_logs_are_lost(made: Made) -> None:
    """With the logs went the texts that stay; a table that has them still tells what only the record said."""
    common, own = "total = of_what_everyone_computes(values)", "answer = of_its_own_and_of_nobody_else(7654321)"
    logs = made.current["e2b_logs", None]
    code = pl.when(pl.col("execution_id") == "p07").then(pl.lit(f"{common}\n{own}")).otherwise(pl.lit(common))
    rows = Table(Execution, logs.frame("executions").with_columns(code.alias("code")))
    empty = {name: Table(model, logs.frame(name)) for name, model in (("quarantine", Quarantined), ("files", LogFile))}
    made.current["e2b_logs", None] = made.store.publish("e2b_logs", None, tables={"executions": rows, **empty})
    remove_artifact(made.store, "e2b_logs", None, logs.digest)
    made.current["e2b_executions", "python"] = made.store.publish(
        "e2b_executions", "python", tables={"executions": rows}
    )
    whole = find(made.results, ["p07"]).needles
    lose(made, "e2b_logs", None)
    assert own[:40] in " ".join(whole) and find(seen(made), ["p07"]).needles == whole


def test_the_routes_of_a_lost_dataset_go_by_their_text(made: Made) -> None:
    own, logs = "answer = of_its_own_and_of_nobody_else(7654321)", made.current["e2b_logs", None]
    code = pl.when(pl.col("execution_id") == "q0").then(pl.lit(own)).otherwise("code").alias("code")
    tables = {"executions": Table(Execution, logs.frame("executions").with_columns(code))}
    tables |= {
        name: Table(model, logs.frame(name)) for name, model in (("quarantine", Quarantined), ("files", LogFile))
    }
    made.current["e2b_logs", None] = made.store.publish("e2b_logs", None, tables=tables)
    remove_artifact(made.store, "e2b_logs", None, logs.digest)
    sql, python = made.current["moe_dataset", "sql"], made.current["moe_dataset", "python"]
    of_sql = made.put("routing_dataset", None, sql, documents={"prompts": [own]})
    of_python = made.put("routing_dataset", None, python, documents={"prompts": ["another"]})
    lose(made, "moe_dataset", "sql")
    found = find(seen(made), ["q0"]).artifacts
    assert of_sql in found and of_python not in found


REPORT = ForgetReport(
    dry_run=False, tenant=None, forgotten=("p07",), forgotten_before=(), sources=(), quarantined=0, domains=(),
    removed=(), checkpoints=(), ledgers=(), work=(), history={}, logs=(), saw_it=(), stale=(), left=(), failures={},
)  # fmt: skip
UNREAD = {
    "asset": "moe_dataset",
    "partition": "sql",
    "digest": "d" * 64,
    "why": "missing",
    "of": ("trained_adapters[sql] t",),
}


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        (lambda one: one, 0),
        (lambda one: {**one, "unread": (UNREAD,)}, 3),
        (lambda one: {**one, "unread": (UNREAD,), "dry_run": True}, 3),
        (lambda one: {**one, "unread": (UNREAD,), "left": ("a file",)}, 1),
    ],
)
def test_the_report_claims_no_more_than_was_checked(changed: Callable[[dict], dict], code: int) -> None:
    from capibara_assets.cli.dataset import forget as module

    report = ForgetReport(**changed(vars(REPORT)))
    with patch.object(module, "forget_in", lambda *_: report):
        assert CliRunner().invoke(module.forget, ["p07"]).exit_code == code
    text = as_text(report)
    if report.unread:
        assert "adapters that saw it: none found, see NOT CHECKED" in text and "run this once more" in text
        assert f"NOT CHECKED: moe_dataset[sql] {'d' * 64} (missing)" in text and "  trained_adapters[sql] t" in text
    else:
        assert "adapters that saw it: none\n" in text and "NOT CHECKED" not in text
