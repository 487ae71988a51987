"""The whole graph in one process, without a daemon: what `capibara run` does. Goes on where an earlier run stopped."""

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
    """Assets of one kind of partitioning that can be materialized together, upstream first."""

    assets: tuple[str, ...]
    partitioned: bool


@dataclass
class RunOutcome:
    """What happened: seconds by (asset, partition), what was current already, and failures with their message."""

    seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    current: list[tuple[str, str]] = field(default_factory=list)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)

    def domain_seconds(self, domain: Domain) -> float:
        """Time spent on the partitions of a domain."""
        return sum(seconds for (_, partition), seconds in self.seconds.items() if partition == domain)


@dataclass(frozen=True)
class Graph:
    """The asset graph reduced to names: parents and whether an asset is partitioned, in topological order.

    Assets that no run can make (imports, which a command brings) are not in it.
    """

    parents: Mapping[str, frozenset[str]]
    partitioned: Mapping[str, bool]
    code_versions: Mapping[str, str]
    checks: Mapping[str, Sequence[dg.AssetCheckKey]] = field(default_factory=dict)  # the blocking ones

    @classmethod
    def of(cls, definitions: dg.Definitions) -> "Graph":
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
        """Alternating unpartitioned and partitioned closures of the selection, upstream first."""
        remaining = [name for name in self.parents if name in set(selection)]
        while remaining:
            for partitioned in (False, True):
                taken: list[str] = []
                for name in remaining:
                    waiting = self.parents[name] & set(remaining) - set(taken)
                    if self.partitioned[name] == partitioned and not waiting:
                        taken.append(name)
                remaining = [name for name in remaining if name not in taken]
                if taken:
                    yield Wave(tuple(taken), partitioned)

    def held(self, instance: dg.DagsterInstance, wave: Wave) -> set[str]:
        """Results (`name|partition`) of the wave and its parents that failed a blocking check: nothing reads them."""
        names = set(wave.assets).union(*(self.parents[name] for name in wave.assets))
        return {
            source_name(name, partition)
            for name in names
            for partition in failed_partitions(
                instance, self.checks.get(name, ()), DOMAINS if self.partitioned[name] else (None,)
            )
        }

    def joined(self, batch: set[str], pending: Sequence[str], sure: set[str]) -> set[str]:
        """The batch, and those `sure` to be needed whose pending parents are all in it, directly or not."""
        found = set(batch)
        for name in pending:  # topological order
            waiting = self.parents[name] & set(pending)
            if name in sure and waiting and waiting <= found:
                found.add(name)
        return found


def run_graph(
    definitions: dg.Definitions,
    instance: dg.DagsterInstance,
    selection: Sequence[str],
    domains: Sequence[Domain],
    settings: Mapping[str, str],
    report: Report,
    force: bool = False,
) -> RunOutcome:
    """Materialize the selection for the domains; what is current already is left alone.

    Args:
        settings: name → digest of every setting an asset may record (recipes, base model, hardware): an asset whose
            recorded settings, code version and upstream digests are those of now is current.
        report: called with one line per failure; progress is the `progress` logger's.

    A domain that fails does not hold the others back; what depends on it over all domains uses those there are. What
    fails a blocking check is read by nothing, in this run and later ones, until it was made again and passed.

    Raises:
        KeyboardInterrupt: a step was interrupted (Ctrl-C, SIGTERM); what it had finished is kept.
    """
    graph, outcome = Graph.of(definitions), RunOutcome()
    job = definitions.resolve_implicit_global_asset_job_def()
    for wave in graph.waves(selection):
        held = graph.held(instance, wave)
        for partition in domains if wave.partitioned else (None,):
            _run_wave(graph, job, instance, wave, partition, settings, held, report, force, outcome)
    return outcome


def _run_wave(
    graph: Graph,
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    wave: Wave,
    partition: Domain | None,
    settings: Mapping[str, str],
    held: set[str],
    report: Report,
    force: bool,
    outcome: RunOutcome,
) -> None:
    label = str(partition or WHOLE)
    pending = list(wave.assets)
    while pending:
        blocked = {name for name in pending if graph.parents[name] & set(pending)}
        frontier = [name for name in pending if name not in blocked]
        stale = [name for name in frontier if force or not is_current(graph, instance, name, partition, settings, held)]
        for name in set(frontier) - set(stale):
            outcome.current.append((name, label))
        # What was never made cannot turn out to be current: it joins the same Dagster run.
        never = [name for name in pending if latest_digest(instance, name, partition) is None]
        pending = [name for name in pending if name not in frontier or name in stale]
        batch = graph.joined(set(stale), pending, set(pending if force else never))
        pending = [name for name in pending if name not in batch]
        if not batch:
            continue
        held -= {source_name(name, partition) for name in batch}  # they are checked anew
        started = time.monotonic()
        result = job.execute_in_process(
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
            _failures(result, batch, label, outcome, report, time.monotonic() - started)
            return


def is_current(
    graph: Graph,
    instance: dg.DagsterInstance,
    name: str,
    partition: Domain | None,
    settings: Mapping[str, str],
    held: Collection[str] = (),
) -> bool:
    """Whether the latest materialization was made from exactly what is there now, and passed its blocking checks.

    Roots read files: never current. What is `held` counts as absent.
    """
    if not graph.parents[name] or source_name(name, partition) in held:
        return False
    recorded = latest_metadata(instance, name, partition).get(INPUTS)
    if recorded is None or recorded["code_version"] != graph.code_versions[name]:
        return False
    if any(settings.get(key) != digest for key, digest in recorded["settings"].items()):
        return False
    for source, digest in recorded["upstream"].items():
        upstream, _, where = source.partition("|")
        now = None if source in held else latest_digest(instance, upstream, None if where == WHOLE else where)
        if (now or "") != digest:
            return False
    return True


def _failures(
    result: dg.ExecuteInProcessResult, batch: set[str], label: str, outcome: RunOutcome, report: Report, seconds: float
) -> None:
    steps = [event for event in result.all_events if event.is_step_failure]
    for event in steps:
        error = event.step_failure_data.error
        while error is not None and error.cause is not None:
            error = error.cause
        if error is not None and error.cls_name == dg.DagsterExecutionInterruptedError.__name__:
            raise KeyboardInterrupt
        message = _sentence(error.message) if error is not None else "no reason given"
        outcome.failures[event.step_key or "run", label] = message
        report(f"{label:<11} {event.step_key:<22} FAILED after {seconds:.1f} s: {message}")
    if not steps:
        outcome.failures[",".join(sorted(batch)), label] = "the run did not succeed: see `capibara ui`"


def _sentence(message: str) -> str:
    """An error's message on one line, without the class path that Dagster puts in front."""
    return " ".join(re.sub(r"^[\w.]+: ", "", message.strip()).split())
