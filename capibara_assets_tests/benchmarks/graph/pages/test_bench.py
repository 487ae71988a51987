"""A history of copied runs is read by Dagster as if they had happened, on SQLite and PostgreSQL; pages are timed."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner

from benchmarks.graph.pages.bench import PAGES, long_history, pages
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.deployment.environment import Deployment
from capibara_assets_tests.home import MadeHome

DAY = 86_400
PROMOTED = dg.AssetKey("promoted_model")


def _promotions(instance: dg.DagsterInstance) -> int:
    return len(instance.fetch_materializations(PROMOTED, limit=1000).records)


@pytest.mark.slow
@pytest.mark.parametrize("history", ["sqlite", pytest.param("postgres", marks=pytest.mark.extended)])
def test_copies_are_runs_of_their_own_at_times_of_their_own(
    history: str, own_home: MadeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_instance(own_home.deployment) as instance:
        originals = {run.run_id for run in instance.get_runs()}
        made = Counter(tuple(sorted(run.tags)) for run in instance.get_runs())
        promotions = _promotions(instance)
    runs = 2 * len(originals)
    with long_history(own_home, history, runs, days=30) as variables:
        monkeypatch.setattr("os.environ", {**variables, "PATH": ""})
        deployment = replace(Deployment.from_environment(variables), history=history if history != "sqlite" else None)
        with open_instance(deployment) as instance:
            found = instance.get_run_records()
            assert len(found) == runs and originals < {record.dagster_run.run_id for record in found}
            assert Counter(tuple(sorted(one.dagster_run.tags)) for one in found) == Counter(
                {tags: 2 * number for tags, number in made.items()}
            )
            last = max(record.create_timestamp for record in found).timestamp()
            for record in found:
                run_id, created = record.dagster_run.run_id, record.create_timestamp.timestamp()
                logs = instance.all_logs(run_id)
                assert logs and {entry.run_id for entry in logs} == {run_id}
                assert all(-1 < entry.timestamp - created < DAY / 2 for entry in logs)
                assert last - created < 30 * DAY + 3600
                assert record.start_time is not None and abs(record.start_time - created) < 60
            assert _promotions(instance) == 2 * promotions
            tags = instance.get_event_tags_for_asset(PROMOTED)
            assert len(tags) == 2 * promotions
            # What happens next is stored as ever
            instance.report_runless_asset_event(dg.AssetMaterialization(PROMOTED))
            assert _promotions(instance) == 2 * promotions + 1


@pytest.mark.extended
@pytest.mark.ui
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH: install your system's package")
def test_every_page_is_seen_and_timed(tmp_path: Path) -> None:
    arguments = ["--runs", "40", "--visits", "1", "--history", "sqlite", "--screenshots", str(tmp_path), "--json"]
    done = CliRunner().invoke(pages, arguments, catch_exceptions=False)
    figures = json.loads(done.stdout.splitlines()[-1])
    assert set(figures["sqlite"]["pages_s"]) == set(PAGES)
    assert figures["sqlite"]["slowest_s"] == max(figures["sqlite"]["pages_s"].values()) > 0
    assert {path.stem for path in (tmp_path / "sqlite").iterdir()} == set(PAGES)
