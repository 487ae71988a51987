"""Materialization of the whole graph without a daemon (`capibara run`); resumes an interrupted run."""

import json
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

import dagster as dg

from capibara_assets.assets.inputs import (
    HELD,
    SECONDS,
    latest_by_partition,
    latest_digest,
    latest_digests,
    latest_time,
    source_name,
)
from capibara_assets.automation.estimate import Progress
from capibara_assets.automation.graph import Graph, is_current
from capibara_assets.automation.lanes import LaneSettings, run_in_lanes
from capibara_assets.automation.outcome import Failures, Report, RunOutcome, Task
from capibara_assets.checks.results import found
from capibara_assets.domains import WHOLE, Domain
from capibara_assets.errors import remedy_of, without_source
from capibara_assets.processes.interruptions import interruptions
from capibara_assets.storage.store import ArtifactStore

PROGRESS: dict[str, Any] = {"loggers": {"progress": {}}}


@dataclass(frozen=True)
class GraphRun:
    """State shared by the tasks of a run.

    Attributes:
        definitions: the code location.
        instance: the Dagster instance.
        settings: name → digest of every setting that an asset may record (recipes, base model, hardware), `name|domain`
            for a domain that has its own. An asset is current if its recorded settings, code version and upstream
            digests equal today's.
        store: where the results lie; one that is no longer there is not current.
        force: materialize assets that are current, too.
        since: materialize results of a domain that were made before this time (Unix), too.
        apart: as of `Graph.tasks`.
    """

    definitions: dg.Definitions
    instance: dg.DagsterInstance
    settings: Mapping[str, str]
    store: ArtifactStore
    force: bool = False
    since: float | None = None
    apart: Collection[str] = ()

    @cached_property
    def graph(self) -> Graph:
        """The code location's assets."""
        return Graph.of(self.definitions)

    @cached_property
    def job(self) -> dg.JobDefinition:
        """The job that materializes any of them."""
        return self.definitions.resolve_implicit_global_asset_job_def()

    def is_current(self, name: str, partition: Domain | None, held: Collection[str] = ()) -> bool:
        """Whether an asset (partition) need not be materialized; results in `held` count as absent.

        Only its own files have to be there: an input that the store has lost is not current itself, and comes first.
        """
        if self.is_older(name, partition):
            return False
        if not is_current(self.graph, self.instance, name, partition, self.settings, held):
            return False
        digest = latest_digest(self.instance, name, partition)
        return digest is not None and self.store.holds(name, partition, digest)

    def is_older(self, name: str, partition: Domain | None) -> bool:
        """Whether a domain's result is older than `since`; results over all domains follow them."""
        if self.since is None or partition is None:
            return False
        made = latest_time(self.instance, name, partition)
        return made is not None and made < self.since

    def lacking(self, selection: Sequence[str], domains: Sequence[Domain]) -> dict[str, list[str]]:
        """Selected assets of which nothing can be made → the inputs that are neither selected nor in the store.

        One that can be made for some of the domains is not among them.
        """
        graph, lacking = self.graph, dict[str, list[str]]()
        others = {parent for name in selection for parent in graph.needed[name]} - set(selection)
        there = {parent: self._partitions_of(parent) for parent in sorted(others)}
        for name in selection:
            inputs = sorted(graph.needed[name] & others)
            missing = [
                [one for one in inputs if not (there[one] & {domain, None} if domain else there[one])]
                for domain in (domains if graph.partitioned[name] else (None,))
            ]
            if all(missing):
                lacking[name] = missing[0]
        return lacking

    def _partitions_of(self, name: str) -> set[str | None]:
        """The partitions of which an asset's latest result lies in the store."""
        latest = latest_digests(self.instance, name)
        return {partition for partition, digest in latest.items() if self.store.holds(name, partition, digest)}

    def materialize(self, task: Task, report: Report) -> RunOutcome:
        """Materialize the stale assets of a task and their dependents, in as few Dagster runs as possible.

        Results that failed a blocking check are not read; one that is materialized again is checked again.

        Args:
            report: called with one line per failure; progress is printed by the `progress` logger.

        Raises:
            KeyboardInterrupt: Ctrl-C or SIGTERM, in a step or between two; finished steps are kept.
        """
        graph, outcome, label = self.graph, RunOutcome(), str(task.partition or WHOLE)
        held, pending = graph.held(self.instance, task.assets), list(task.assets)
        while pending:
            stale = self._stale(task, pending, held)
            frontier = [name for name in pending if not graph.parents[name] & set(pending)]
            outcome.current.extend((name, label) for name in frontier if name not in stale)
            # An asset that was never materialized, or is too old, is not current in any case: it joins the same run.
            never = [
                name
                for name in pending
                if latest_digest(self.instance, name, task.partition) is None or self.is_older(name, task.partition)
            ]
            pending = [name for name in pending if name not in frontier or name in stale]
            batch = graph.joined(set(stale), pending, set(pending if self.force else never))
            pending = [name for name in pending if name not in batch]
            if batch:
                held -= {source_name(name, task.partition) for name in batch}  # they are checked again
                if not self._materialize_batch(batch, task.partition, held, outcome, report):
                    break
        return outcome

    def _stale(self, task: Task, pending: Sequence[str], held: set[str]) -> list[str]:
        """The pending assets that wait for no other pending one and are to be materialized."""
        return [
            name
            for name in pending
            if not self.graph.parents[name] & set(pending)
            and (self.force or not self.is_current(name, task.partition, held))
        ]

    def _materialize_batch(
        self, batch: set[str], partition: Domain | None, held: set[str], outcome: RunOutcome, report: Report
    ) -> bool:
        """Materialize assets of one partition in one Dagster run; returns whether all succeeded."""
        label, started = str(partition or WHOLE), time.monotonic()
        with interruptions() as interrupted:
            result = self.job.execute_in_process(
                instance=self.instance,
                asset_selection=[dg.AssetKey(name) for name in sorted(batch)],
                partition_key=partition.value if partition else None,
                run_config=PROGRESS,
                raise_on_error=False,
                tags={"capibara/run": "cli"} | ({HELD: json.dumps(sorted(held))} if held else {}),
            )
            if interrupted():
                raise KeyboardInterrupt
        for event in result.get_step_success_events():
            name = event.step_key
            duration = (event.step_success_data.duration_ms or 0.0) / 1000
            if name in self.graph.parents:
                outcome.seconds[name, label] = duration
        for step in self.instance.get_run_step_stats(result.run_id):
            if step.step_key in self.graph.parents and step.start_time and step.end_time:
                outcome.spans[step.step_key, label] = (step.start_time, step.end_time)
        if not result.success:
            seconds = time.monotonic() - started
            outcome.fail(_failures(result, batch, label), report, f" after {seconds:.1f} s")
        return result.success


def run_graph(
    run: GraphRun,
    selection: Sequence[str],
    domains: Sequence[Domain],
    report: Report,
    lanes: LaneSettings | None = None,
) -> RunOutcome:
    """Materialize the selected assets for the domains; those that are current are skipped.

    A domain that fails does not stop the others; assets over all domains use the available ones. A result that fails a
    blocking check is not read, in this run and later ones, until it is materialized again and passes.

    Args:
        run: the code location and its settings.
        selection: names of assets.
        domains: partitions to materialize.
        report: called with one line per failure; progress is printed by the `progress` logger.
        lanes: processes that work at a time, on the same run; None, or one: this process works.

    Raises:
        KeyboardInterrupt: a step was interrupted (Ctrl-C, SIGTERM); finished steps are kept.
    """
    tasks = run.graph.tasks(selection, domains, run.apart)
    progress = Progress(tasks, past_seconds(run.instance, tasks), report)
    if lanes is not None and lanes.count > 1 and len(tasks) > 1:
        return run_in_lanes(lanes, tasks, report, progress.ended)
    outcome = RunOutcome()
    for number, task in enumerate(tasks):
        made = run.materialize(task, report)
        outcome.add(made)
        progress.ended(number, made)
    return outcome


def past_seconds(instance: dg.DagsterInstance, tasks: Sequence[Task]) -> dict[tuple[str, str], float]:
    """Last duration of each result in seconds; for new ones, that of other domains."""
    took, unknown = dict[tuple[str, str], float](), list[tuple[str, str]]()
    latest = {name: latest_by_partition(instance, name) for name in sorted({n for task in tasks for n in task.assets})}
    for task in tasks:
        for name in task.assets:
            step = (name, str(task.partition or WHOLE))
            seconds = latest[name].get(task.partition, {}).get(SECONDS)
            if isinstance(seconds, int | float):
                took[step] = float(seconds)
            else:
                unknown.append(step)
    known = dict[str, list[float]]()
    for (name, _), seconds in took.items():
        known.setdefault(name, []).append(seconds)
    means = {name: fmean(others) for name, others in known.items()}
    return took | {step: means[step[0]] for step in unknown if step[0] in means}


def _failures(result: dg.ExecuteInProcessResult, batch: set[str], label: str) -> Failures:
    """The failed steps of a Dagster run; a blocking check says what it found and what to do."""
    failures, checks = {}, {}
    for one in result.get_asset_check_evaluations():
        if not one.passed:
            checks[f"{one.asset_key.to_user_string()}_{one.check_name}"] = (
                f"check {one.check_name} failed: {found(one)}"
            )
    for event in result.all_events:
        if not event.is_step_failure:
            continue
        error = event.step_failure_data.error
        while error is not None and error.cause is not None:
            error = error.cause
        reason = _sentence(error.message) if error is not None else "no reason given"
        failures[event.step_key or "run", label] = checks.get(event.step_key or "", reason)
    return failures or {(",".join(sorted(batch)), label): "the run did not succeed: see `capibara ui`"}


def _sentence(message: str) -> str:
    """An error's message on one line, without the class path that Dagster prepends; of the system, with what to do."""
    said = " ".join(re.sub(r"^[\w.]+: ", "", message.strip()).split())
    return f"{without_source(said)}; {remedy}" if (remedy := remedy_of(said)) else said
