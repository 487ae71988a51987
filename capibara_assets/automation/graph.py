"""The asset graph as names: what a run materializes together, in which order, what is current, what must not be read.

Dagster skips the dependents of a result that failed a blocking check within a run; `Graph.held` does so in later runs.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import dagster as dg
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import (
    COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES,
    AssetCheckExecutionRecordStatus,
)

from capibara_assets.assets.inputs import INPUTS, latest_digest, latest_metadata, source_name
from capibara_assets.automation.outcome import Task
from capibara_assets.domains import DOMAINS, WHOLE, Domain
from capibara_assets.partitions import DOES_WITHOUT, READS_EVERY


@dataclass(frozen=True)
class Wave:
    """Assets, all partitioned or all unpartitioned, that can be materialized together; upstream first."""

    assets: tuple[str, ...]
    partitioned: bool


@dataclass(frozen=True)
class Graph:
    """The asset graph as names, in topological order; external assets (imports) are not included.

    Attributes:
        parents: asset → the assets it depends on.
        partitioned: asset → whether it has a partition per domain.
        code_versions: asset → code version.
        checks: asset → its blocking checks.
        every: partitioned asset → the parents of which it reads all partitions.
        needed: asset → the parents without which it cannot be made.
    """

    parents: Mapping[str, frozenset[str]]
    partitioned: Mapping[str, bool]
    code_versions: Mapping[str, str]
    checks: Mapping[str, Sequence[dg.AssetCheckKey]] = field(default_factory=dict)
    every: Mapping[str, frozenset[str]] = field(default_factory=dict)
    needed: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, definitions: dg.Definitions) -> "Graph":
        """The graph of a code location."""
        graph = definitions.resolve_asset_graph()
        order = [key for level in graph.toposorted_asset_keys_by_level for key in sorted(level)]
        nodes = {key.to_user_string(): graph.get(key) for key in order if graph.get(key).is_materializable}
        parents = {name: {k.to_user_string() for k in node.parent_keys} for name, node in nodes.items()}
        every = {
            name: {
                key.to_user_string()
                for key, mapping in node.partition_mappings.items()
                if isinstance(mapping, dg.AllPartitionMapping)
            }
            | {node.tags.get(READS_EVERY, "")}
            for name, node in nodes.items()
            if node.partitions_def is not None
        }
        return cls(
            {name: frozenset(above & nodes.keys()) for name, above in parents.items()},
            {name: node.partitions_def is not None for name, node in nodes.items()},
            {name: node.code_version or "" for name, node in nodes.items()},
            _blocking_checks(graph),
            {name: frozenset(above & nodes.keys()) for name, above in every.items()},
            {
                name: frozenset(parents[name] & nodes.keys() - {node.tags.get(DOES_WITHOUT)})
                for name, node in nodes.items()
            },
        )

    def waves(self, selection: Sequence[str]) -> Iterator[Wave]:
        """Split the selection into alternating unpartitioned and partitioned waves, upstream first.

        An asset that reads all partitions of another is in a later wave than that one.
        """
        remaining = [name for name in self.parents if name in set(selection)]
        while remaining:
            for partitioned in (False, True):
                ready: list[str] = []
                for name in remaining:
                    waiting = self.parents[name] & set(remaining) - (set(ready) - self.every.get(name, frozenset()))
                    if self.partitioned[name] == partitioned and not waiting:
                        ready.append(name)
                remaining = [name for name in remaining if name not in ready]
                if ready:
                    yield Wave(tuple(ready), partitioned)

    def tasks(self, selection: Sequence[str], domains: Sequence[Domain], apart: Collection[str] = ()) -> list[Task]:
        """The selected assets of some domains as tasks, upstream first; independent tasks may run at the same time.

        A task holds a wave's assets for one domain, or one unpartitioned asset.

        Args:
            apart: assets that with today's settings read only their own partition of each parent.
        """
        tasks: list[Task] = []
        made: dict[str, dict[Domain | None, int]] = {}  # asset -> partition -> its task
        for wave in self.waves(selection):
            for assets in [wave.assets] if wave.partitioned else [(name,) for name in wave.assets]:
                parents = {parent for name in assets for parent in self.parents[name] if parent in made}
                whole = {parent for name in assets if name not in apart for parent in self.every.get(name, ())}
                whole = parents & whole if wave.partitioned else parents
                # one set for all partitions: of ten thousand each would otherwise name ten thousand
                shared = frozenset(at for parent in whole for at in made[parent].values())
                for partition in domains if wave.partitioned else (None,):
                    keys = (partition, None)
                    own = {made[parent][key] for parent in parents - whole for key in keys if key in made[parent]}
                    tasks.append(Task(assets, partition, shared if own <= shared else shared | own))
                    for name in assets:
                        made.setdefault(name, {})[partition] = len(tasks) - 1
        return tasks

    def held(self, instance: dg.DagsterInstance, assets: Collection[str]) -> set[str]:
        """Results (`name|partition`) of assets and their parents that failed a blocking check and must not be read."""
        names = set(assets).union(*(self.parents[name] for name in assets))
        return {
            source_name(name, partition)
            for name in names
            for partition in _failed_partitions(
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


def _blocking_checks(graph: BaseAssetGraph) -> dict[str, list[dg.AssetCheckKey]]:
    """Asset → its blocking checks."""
    checks: dict[str, list[dg.AssetCheckKey]] = {}
    for key in sorted(graph.asset_check_keys):
        if graph.get(key).blocking:
            checks.setdefault(key.asset_key.to_user_string(), []).append(key)
    return checks


def _failed_partitions(
    instance: dg.DagsterInstance, checks: Sequence[dg.AssetCheckKey], partitions: Sequence[str | None]
) -> set[str | None]:
    """The partitions (None: an unpartitioned asset) whose latest result failed a blocking check.

    A check that has never failed, as most have not, costs one query instead of one per partition.
    """
    once_failed = [key for key in checks if _latest(instance, key, {AssetCheckExecutionRecordStatus.FAILED})]
    return {partition for partition in partitions if _failed(instance, once_failed, partition)}


def _failed(instance: dg.DagsterInstance, checks: Sequence[dg.AssetCheckKey], partition: str | None) -> bool:
    """Whether the latest result of one of the checks on an asset (partition) is a failure.

    A check that was planned but did not complete leaves its previous result valid.
    """
    of_it = PartitionKeyFilter(key=str(partition) if partition else None)
    return any(
        _latest(instance, key, COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES, of_it)
        == AssetCheckExecutionRecordStatus.FAILED
        for key in checks
    )


def _latest(
    instance: dg.DagsterInstance,
    key: dg.AssetCheckKey,
    among: AbstractSet[AssetCheckExecutionRecordStatus],
    partition: PartitionKeyFilter | None = None,
) -> AssetCheckExecutionRecordStatus | None:
    """Status of a check's latest record with one of these statuses, of one partition or of all."""
    records = instance.event_log_storage.get_asset_check_execution_history(
        key, limit=1, status=among, partition_filter=partition
    )
    return records[0].status if records else None
