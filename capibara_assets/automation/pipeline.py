"""Materialization of the whole graph in one process, without a daemon (`capibara run`); resumes an interrupted run."""

import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from capibara_assets.assets.inputs import HELD, INPUTS, WHOLE, latest_digest, latest_metadata, source_name
from capibara_assets.automation.held import blocking_checks, failed_partitions
from capibara_assets.domains import DOMAINS, Domain

PROGRESS: dict[str, Any] = {"loggers": {"progress": {}}}
Report = Callable[[str], None]


@dataclass(frozen=True)
class Wave:
    """Assets, all partitioned or all unpartitioned, that can be materialized together; upstream first."""

    assets: tuple[str, ...]
    partitioned: bool


@dataclass
class RunOutcome:
    """Result of a run: seconds by (asset, partition), what was already current, and failures with their message."""

    seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    current: list[tuple[str, str]] = field(default_factory=list)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)

    def domain_seconds(self, domain: Domain) -> float:
        """Seconds spent on the partitions of a domain."""
        return sum(seconds for (_, partition), seconds in self.seconds.items() if partition == domain)


@dataclass(frozen=True)
class Graph:
    """The asset graph as names: parents, partitioning, code versions and blocking checks, in topological order.

    External assets (imports, which a command publishes) are not included.
    """

    parents: Mapping[str, frozenset[str]]
    partitioned: Mapping[str, bool]
    code_versions: Mapping[str, str]
    checks: Mapping[str, Sequence[dg.AssetCheckKey]] = field(default_factory=dict)  # the blocking ones

    @classmethod
    def of(cls, definitions: dg.Definitions) -> "Graph":
        """The graph of a code location."""
        graph = definitions.resolve_asset_graph()
        order = [key for level in graph.toposorted_asset_keys_by_level for key in sorted(level)]
        nodes = {key.to_user_string(): graph.get(key) for key in order if graph.get(key).is_materializable}
        parents = {name: {k.to_user_string() for k in node.parent_keys} for name, node in nodes.items()}
        return cls(
            {name: frozenset(above & nodes.keys()) for name, above in parents.items()},
            {name: node.partitions_def is not None for name, node in nodes.items()},
            {name: node.code_version or "" for name, node in nodes.items()},
            blocking_checks(graph),
        )

    def waves(self, selection: Sequence[str]) -> Iterator[Wave]:
        """Split the selection into alternating unpartitioned and partitioned waves, upstream first."""
        remaining = [name for name in self.parents if name in set(selection)]
        while remaining:
            for partitioned in (False, True):
                ready: list[str] = []
                for name in remaining:
                    waiting = self.parents[name] & set(remaining) - set(ready)
                    if self.partitioned[name] == partitioned and not waiting:
                        ready.append(name)
                remaining = [name for name in remaining if name not in ready]
                if ready:
                    yield Wave(tuple(ready), partitioned)

    def held(self, instance: dg.DagsterInstance, wave: Wave) -> set[str]:
        """Results (`name|partition`) of the wave and its parents that failed a blocking check and must not be read."""
        names = set(wave.assets).union(*(self.parents[name] for name in wave.assets))
        return {
            source_name(name, partition)
            for name in names
            for partition in failed_partitions(
                instance, self.checks.get(name, ()), DOMAINS if self.partitioned[name] else (None,)
            )
        }

    def joined(self, batch: set[str], pending: Sequence[str], sure: set[str]) -> set[str]:
        """The batch, extended by the assets in `sure` whose pending parents are all in it, directly or indirectly."""
        extended = set(batch)
        for name in pending:  # topological order
            waiting = self.parents[name] & set(pending)
            if name in sure and waiting and waiting <= extended:
                extended.add(name)
        return extended


@dataclass(frozen=True)
class _GraphRun:
    """What all waves of one run share; `outcome` is filled while they run."""

    graph: Graph
    job: dg.JobDefinition
    instance: dg.DagsterInstance
    settings: Mapping[str, str]
    report: Report
    force: bool
    outcome: RunOutcome = field(default_factory=RunOutcome)


def run_graph(
    definitions: dg.Definitions,
    instance: dg.DagsterInstance,
    selection: Sequence[str],
    domains: Sequence[Domain],
    settings: Mapping[str, str],
    report: Report,
    force: bool = False,
) -> RunOutcome:
    """Materialize the selected assets for the domains; those that are current are skipped.

    A domain that fails does not stop the others; assets over all domains use the available ones. A result that fails a
    blocking check is not read, in this run and later ones, until it is materialized again and passes.

    Args:
        definitions: the code location.
        instance: the Dagster instance.
        selection: names of assets.
        domains: partitions to materialize.
        settings: name → digest of every setting that an asset may record (recipes, base model, hardware), `name|domain`
            for a domain that has its own. An asset is current if its recorded settings, code version and upstream
            digests equal today's.
        report: called with one line per failure; progress is printed by the `progress` logger.
        force: materialize assets that are current, too.

    Raises:
        KeyboardInterrupt: a step was interrupted (Ctrl-C, SIGTERM); finished steps are kept.
    """
    graph, job = Graph.of(definitions), definitions.resolve_implicit_global_asset_job_def()
    run = _GraphRun(graph, job, instance, settings, report, force)
    for wave in graph.waves(selection):
        held = graph.held(instance, wave)
        for partition in domains if wave.partitioned else (None,):
            _run_wave(run, wave, partition, held)
    return run.outcome


def _run_wave(run: _GraphRun, wave: Wave, partition: Domain | None, held: set[str]) -> None:
    """Materialize a wave for one partition: stale assets, and those that depend on them, in as few runs as possible.

    `held` results are not read; a result that is materialized again is removed from it.
    """
    graph, instance, outcome = run.graph, run.instance, run.outcome
    label = str(partition or WHOLE)
    pending = list(wave.assets)
    while pending:
        blocked = {name for name in pending if graph.parents[name] & set(pending)}
        frontier = [name for name in pending if name not in blocked]
        stale = [
            name
            for name in frontier
            if run.force or not is_current(graph, instance, name, partition, run.settings, held)
        ]
        for name in set(frontier) - set(stale):
            outcome.current.append((name, label))
        # An asset that was never materialized is not current in any case: it joins the same Dagster run.
        never = [name for name in pending if latest_digest(instance, name, partition) is None]
        pending = [name for name in pending if name not in frontier or name in stale]
        batch = graph.joined(set(stale), pending, set(pending if run.force else never))
        pending = [name for name in pending if name not in batch]
        if not batch:
            continue
        held -= {source_name(name, partition) for name in batch}  # they are checked again
        started = time.monotonic()
        result = run.job.execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey(name) for name in sorted(batch)],
            partition_key=partition.value if partition else None,
            run_config=PROGRESS,
            raise_on_error=False,
            tags={"capibara/run": "cli", HELD: json.dumps(sorted(held))},
        )
        for event in result.get_step_success_events():
            name = event.step_key
            duration = (event.step_success_data.duration_ms or 0.0) / 1000
            if name in graph.parents:
                outcome.seconds[name, label] = duration
        if not result.success:
            _record_failures(run, result, batch, label, time.monotonic() - started)
            return


def is_current(
    graph: Graph,
    instance: dg.DagsterInstance,
    name: str,
    partition: Domain | None,
    settings: Mapping[str, str],
    held: Collection[str] = (),
) -> bool:
    """Whether the latest materialization has today's inputs, settings and code version, and passed its blocking checks.

    Root assets read files and are never current. Results in `held` count as absent.
    """
    if not graph.parents[name] or source_name(name, partition) in held:
        return False
    recorded = latest_metadata(instance, name, partition).get(INPUTS)
    if recorded is None or recorded["code_version"] != graph.code_versions[name]:
        return False
    own = {key: settings.get(f"{key}|{partition}", settings.get(key)) for key in recorded["settings"]}
    if own != recorded["settings"]:
        return False
    for source, digest in recorded["upstream"].items():
        upstream, _, where = source.partition("|")
        now = None if source in held else latest_digest(instance, upstream, None if where == WHOLE else where)
        if (now or "") != digest:
            return False
    return True


def _record_failures(
    run: _GraphRun, result: dg.ExecuteInProcessResult, batch: set[str], label: str, seconds: float
) -> None:
    """Record and report the failed steps of a Dagster run.

    Raises:
        KeyboardInterrupt: a step was interrupted.
    """
    steps = [event for event in result.all_events if event.is_step_failure]
    for event in steps:
        error = event.step_failure_data.error
        while error is not None and error.cause is not None:
            error = error.cause
        if error is not None and error.cls_name == dg.DagsterExecutionInterruptedError.__name__:
            raise KeyboardInterrupt
        message = _sentence(error.message) if error is not None else "no reason given"
        run.outcome.failures[event.step_key or "run", label] = message
        run.report(f"{label:<11} {event.step_key:<22} FAILED after {seconds:.1f} s: {message}")
    if not steps:
        run.outcome.failures[",".join(sorted(batch)), label] = "the run did not succeed: see `capibara ui`"


def _sentence(message: str) -> str:
    """An error's message on one line, without the class path that Dagster prepends."""
    return " ".join(re.sub(r"^[\w.]+: ", "", message.strip()).split())
