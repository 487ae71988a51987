"""The lineage page of an adapter and of an execution: every contributor's share, the way to what is served, escaped."""

from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from capibara_assets.cli.dataset.lineage import lineage
from capibara_assets.cli.dataset.lineage_page import SHOWN, LineagePage, ShareTable, adapter_page, execution_page
from capibara_assets.errors import InputError
from capibara_assets.evaluation.serving.promotion import NOTHING
from capibara_assets.evaluation.serving.promotion_log import PromotionLog
from capibara_assets.executions.schema import Execution, LogFile, Quarantined
from capibara_assets.lineage import adapters
from capibara_assets.lineage.adapters import traced_adapter
from capibara_assets.lineage.records import execution_trail
from capibara_assets.lineage.shares import Share, contributions, execution_shares
from capibara_assets.storage.removal import remove_artifact
from capibara_assets_tests.lineage.conftest import Made, executions, own_shard

HOSTILE = "<img src=x onerror=alert(1)>"


def serve(by_hand: Made, domain: str) -> None:
    """Make a domain's consensus what is served."""
    digest = by_hand.current["consensus_checkpoint", domain].digest
    serving = {**NOTHING["serving"], "experts": {domain: digest}}
    PromotionLog(by_hand.store).move("promote", lambda *_: ({**NOTHING, "serving": serving}, "good"), by="anna")


def words(page) -> dict[str, list[str]]:
    return {stage.title: [line.words for line in stage.lines] for stage in page.way}


def adapter_of(made: Made, wanted: str) -> LineagePage:
    return adapter_page(made.results, traced_adapter(made.results, wanted))


def page_of(made: Made, execution_id: str) -> LineagePage:
    return execution_page(made.results, execution_trail(made.results, execution_id))


def test_each_contributor_has_its_share_of_the_train_examples(by_hand: Made) -> None:
    found = contributions(by_hand.results, traced_adapter(by_hand.results, "python"))
    assert found.examples == 39
    assert sum(one.examples for one in found.sandboxes) == 40, "one example is made in two"
    assert [one.share for one in found.agents] == [1.0]
    assert found.executions[0] == Share("p02", 2, 2 / 39), "its own example, and the repair beside it"
    assert found.bullets == (Share("book/b-2", 1, 1 / 39),)
    assert [one.asset for one in found.models] == ["consensus_checkpoint", "merged_checkpoint"]
    voter = contributions(by_hand.results, traced_adapter(by_hand.results, "python/v0"))
    assert voter.examples == 39 - sum(own_shard(f"g-p{i:02d}") == 0 for i in range(39))


def test_a_page_reads_each_dataset_once(by_hand: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trail and the shares count the same examples."""
    read, real = [], adapters.columns

    def counted(artifact, table, names):
        read.append((artifact.name, artifact.partition, table))
        return real(artifact, table, names)

    monkeypatch.setattr(adapters, "columns", counted)
    page = adapter_of(by_hand, "merged_checkpoint")
    assert page.tables and len(read) == len(set(read)) > 1, "a merged model has several datasets"


def test_an_execution_has_a_share_of_the_voters_that_trained_on_it(by_hand: Made) -> None:
    found = {one.name: one for one in execution_shares(by_hand.results, "p05")}
    assert {*found} == {f"python/v{i}" for i in range(4) if i != own_shard("g-p05")}
    assert all(one.examples == 1 and 0 < one.share < 0.1 for one in found.values())


def test_the_way_ends_at_what_is_served(by_hand: Made) -> None:
    page = adapter_of(by_hand, "python")
    assert words(page)["Served"] == ["nothing made from it is served now"]
    serve(by_hand, "python")
    for page in (
        adapter_of(by_hand, "python"),
        adapter_of(by_hand, "python/consensus"),
        adapter_of(by_hand, "python/v2"),
        page_of(by_hand, "p05"),
    ):
        assert words(page)["Served"] == ["serves as python"], page.name
    assert words(adapter_of(by_hand, "sql"))["Served"] == ["nothing made from it is served now"]


def test_a_dataset_that_was_forgotten_is_said(by_hand: Made) -> None:
    gone = by_hand.current["moe_dataset", "sql"].digest
    remove_artifact(by_hand.store, "moe_dataset", "sql", gone)
    page = adapter_of(by_hand, "merged_checkpoint")
    assert any(line.endswith("forgotten") for line in words(page)["Datasets"])
    (line,) = page.forgotten
    assert line.startswith(f"moe_dataset[sql] {gone[:12]}, removed 20")
    assert "Nothing that it was made of" not in page.html()


def test_what_is_foreign_is_text_and_nothing_is_loaded_or_run(by_hand: Made) -> None:
    logs = by_hand.current["e2b_logs", None]
    rows = [one.model_copy(update={"agent_id": HOSTILE}) for one in executions()]
    by_hand.put(
        "e2b_logs",
        None,
        tables={"executions": (Execution, rows), "quarantine": (Quarantined, []), "files": (LogFile, [])},
    )
    assert logs.digest != by_hand.current["e2b_logs", None].digest
    for page in (
        adapter_of(by_hand, "python").html(),
        page_of(by_hand, "p05").html(),
    ):
        assert HOSTILE not in page and "&lt;img src=x" in page
        assert "http" not in page.split("<body>")[1] and "<script" not in page and "src=" not in page.split("<body>")[0]
        assert "prefers-color-scheme: dark" in page and "@media print" in page


def test_a_long_table_says_how_many_it_does_not_show() -> None:
    shares = [Share(str(n), 40 - n, 0.1) for n in range(30)]
    table = ShareTable.of("Agents", "agent", shares)
    assert len(table.rows) == SHOWN and table.more == "and 5 more, each with 15 examples or fewer"
    assert ShareTable.of("Agents", "agent", shares[:3]).more == ""


def test_the_command_writes_the_page_and_prints_the_trail_as_before(by_hand: Made, tmp_path: Path) -> None:
    @contextmanager
    def opened(_: object):
        yield by_hand.results

    with patch("capibara_assets.cli.graph.results.open_results", opened):
        for command in (["adapter", "python"], ["execution", "p05"]):
            file = tmp_path / f"{command[0]}.html"
            plain = CliRunner().invoke(lineage, command)
            done = CliRunner().invoke(lineage, [*command, "--html", str(file)])
            assert done.exit_code == 0 and done.stdout == plain.stdout and f"page: {file}" in done.stderr
            assert file.read_text().startswith("<!doctype html>")
        with pytest.raises(InputError, match="no execution 'nowhere'"):
            CliRunner().invoke(lineage, ["execution", "nowhere", "--html", str(tmp_path / "x")], catch_exceptions=False)
    assert not (tmp_path / "x").exists()
