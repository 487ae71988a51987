"""Ten thousand partitions on a PostgreSQL of the bench's own: loading the definitions, planning backfills, ticks."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import click

from benchmarks.graph.load import MORE
from benchmarks.output import print_result
from benchmarks.peers import ROOT

_MEASURE = """
from benchmarks.graph.partitions import measured
measured(int(sys.argv[2]))
"""


@click.command("partitions")
@click.option("--domains", default=100, show_default=True, type=click.IntRange(min=10))
@click.option("--days", default=100, show_default=True, type=click.IntRange(min=1))
@click.option("--made", default=1000, show_default=True, help="Most partitions of e2b_executions that have a result.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def partitions(domains: int, days: int, made: int, as_json: bool) -> None:
    """Definitions, backfill plans and ticks of 100 domains times 100 days, a partition each, on PostgreSQL.

    Every figure is of one fresh process. A tick is Dagster's evaluation of the automation conditions of all assets; the
    one after it has its cursor, the third one more result; `_cpu_s` is processor time without PostgreSQL's. A plan of
    Dagster's is the first iteration of an asset backfill of everything that is partitioned, with the runs that it
    requests; `capibara backfill`'s is its list of parts with what each took before.
    """
    from capibara_assets_tests.cluster.postgres import postgres, program

    if program("initdb") is None:
        raise click.ClickException("PostgreSQL is not installed: apt install postgresql")
    with postgres() as variables, tempfile.TemporaryDirectory() as home:
        environment = os.environ | variables | {"CAPIBARA_HOME": home, "DAGSTER_HOME": "", "PYTHONPATH": str(ROOT)}
        sizes = str(domains * days), str(min(made, domains * days))
        command = [sys.executable, "-c", f"import sys\n{MORE}{_MEASURE}", *sizes]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        print_result({"domains": domains, "days": days, **json.loads(done.stdout.splitlines()[-1])}, as_json)


@contextmanager
def _timed(figures: dict[str, float], name: str) -> Iterator[None]:
    """Put seconds, and processor seconds of this process, under `name`_s and `name`_cpu_s."""
    began, own = time.perf_counter(), time.process_time()
    yield
    figures[f"{name}_s"] = round(time.perf_counter() - began, 2)
    figures[f"{name}_cpu_s"] = round(time.process_time() - own, 2)


def measured(made: int) -> None:
    """Print the figures as JSON; in a fresh process, in which nothing but the number of domains was set before.

    Args:
        made: partitions of `e2b_executions` that get a result.
    """
    figures: dict[str, float] = {}
    with _timed(figures, "definitions"):
        from capibara_assets.definitions import defs
    import dagster as dg

    from capibara_assets.automation.graph import Graph
    from capibara_assets.automation.pipeline import past_seconds
    from capibara_assets.cli.graph.instance import open_instance
    from capibara_assets.deployment.environment import Deployment
    from capibara_assets.domains import DOMAINS

    with open_instance(replace(Deployment.from_environment(), history="postgres")) as instance:
        for number in range(made):
            _materialized(instance, DOMAINS[number].value)
        defs.resolve_asset_graph()  # a daemon has it before its first tick
        cursor = None
        for tick in ("first_tick", "next_tick", "changed_tick"):
            if tick == "changed_tick":
                _materialized(instance, DOMAINS[made % len(DOMAINS)].value)
            with _timed(figures, tick):
                cursor = dg.evaluate_automation_conditions(defs, instance, cursor=cursor).cursor
        requested = _backfill(instance, figures)
        with _timed(figures, "backfill_plan"):
            graph = Graph.of(defs)
            tasks = graph.tasks(sorted(graph.parents), DOMAINS)
            past_seconds(instance, tasks)
    sizes = {"partitions": len(DOMAINS), "made": made, "runs_requested": requested, "parts": len(tasks)}
    print(json.dumps({**sizes, **figures}))


def _materialized(instance: Any, domain: str) -> None:
    import dagster as dg

    metadata = {"digest": domain, "seconds": 1.0}
    instance.report_runless_asset_event(dg.AssetMaterialization("e2b_executions", partition=domain, metadata=metadata))


def _backfill(instance: Any, figures: dict[str, float]) -> int:
    """Runs of the first iteration of a backfill of all that is partitioned, as the daemon plans it."""
    import logging

    from dagster._core.asset_graph_view.asset_graph_view import AssetGraphView, TemporalContext
    from dagster._core.execution.asset_backfill import AssetBackfillData, execute_asset_backfill_iteration_inner
    from dagster._core.remote_origin import InProcessCodeLocationOrigin
    from dagster._core.test_utils import create_test_daemon_workspace_context
    from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
    from dagster._core.workspace.load_target import WorkspaceLoadTarget
    from dagster._time import get_current_datetime

    class Here(WorkspaceLoadTarget):  # type: ignore[misc]
        def create_origins(self) -> list[InProcessCodeLocationOrigin]:
            return [InProcessCodeLocationOrigin(LoadableTargetOrigin(module_name="capibara_assets.definitions"))]

    with create_test_daemon_workspace_context(Here(), instance) as workspace:
        assets = workspace.create_request_context().asset_graph
        last = instance.event_log_storage.get_maximum_record_id()
        now, log = get_current_datetime(), logging.getLogger("benchmarks.partitions")
        with _timed(figures, "dagster_plan"):
            data = AssetBackfillData.from_asset_partitions(
                asset_graph=assets, partition_names=None, dynamic_partitions_store=instance, all_partitions=True,
                asset_selection=[key for key in assets.materializable_asset_keys if assets.get(key).partitions_def],
                backfill_start_timestamp=now.timestamp(),
            )  # fmt: skip
            view = AssetGraphView(
                temporal_context=TemporalContext(effective_dt=now, last_event_id=last), instance=instance,
                asset_graph=assets,
            )  # fmt: skip
            found = execute_asset_backfill_iteration_inner("bench", data, view, now.timestamp(), log, None)
        return len(found.run_requests)
