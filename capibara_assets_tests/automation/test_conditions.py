"""New data touches only its domains: conditions look at data versions, never at mere re-runs."""

import dagster as dg
import pytest

from capibara_assets.automation.conditions import on_new_data, over_available
from capibara_assets.partitions import domains

VERSIONS: dict[str, str] = {}


def versioned(name: str, partitioned: bool, deps: list, condition: dg.AutomationCondition | None):
    @dg.asset(name=name, partitions_def=domains if partitioned else None, deps=deps, automation_condition=condition)
    def asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        key = f"{name}:{context.partition_key}" if partitioned else name
        return dg.MaterializeResult(data_version=dg.DataVersion(VERSIONS.get(key, "0")))

    return asset


logs = versioned("logs", False, [], None)
executions = versioned("executions", True, [logs], on_new_data)
patterns = versioned("patterns", True, [executions], on_new_data)
merged = versioned("merged", False, [patterns], over_available("patterns"))
DEFS = dg.Definitions([logs, executions, patterns, merged])


class World:
    """Ticks of automation over an instance; each tick materializes what was requested."""

    def __init__(self, instance: dg.DagsterInstance):
        self.instance, self.cursor = instance, None

    def make(self, asset, partition: str | None = None) -> None:
        dg.materialize([asset], partition_key=partition, instance=self.instance, selection=[asset.key])

    def tick(self) -> set[tuple[str, str | None]]:
        result = dg.evaluate_automation_conditions(DEFS, instance=self.instance, cursor=self.cursor)
        self.cursor = result.cursor
        requested = {
            (key.to_user_string(), partition)
            for key in (a.key for a in (logs, executions, patterns, merged))
            for partition in (result.get_requested_partitions(key) or ())
        }
        for name, partition in requested:
            self.make({"executions": executions, "patterns": patterns, "merged": merged}[name], partition)
        return requested

    def settle(self) -> set[tuple[str, str | None]]:
        seen: set[tuple[str, str | None]] = set()
        for _ in range(6):
            seen |= self.tick()
        return seen


@pytest.fixture
def world():
    VERSIONS.clear()
    with dg.DagsterInstance.ephemeral() as instance:
        world = World(instance)
        world.settle()
        world.make(logs)
        world.settle()
        yield world


def test_nothing_is_requested_while_nothing_exists():
    with dg.DagsterInstance.ephemeral() as instance:
        assert World(instance).settle() == set()


def test_everything_follows_the_first_logs(world: World):
    for asset in (executions, patterns):
        assert world.instance.get_materialized_partitions(asset.key) == set(domains.get_partition_keys())


def test_a_rerun_with_the_same_version_wakes_nothing(world: World):
    world.make(logs)
    assert world.settle() == set()


def test_new_sql_data_stops_in_the_other_domains(world: World):
    VERSIONS.update({"logs": "1", "executions:sql": "1", "patterns:sql": "1"})
    world.make(logs)
    requested = world.settle()
    assert {p for name, p in requested if name == "executions"} == set(domains.get_partition_keys())
    assert {p for name, p in requested if name == "patterns"} == {"sql"}
    assert ("merged", None) in requested


def test_a_merge_takes_the_domains_there_are():
    VERSIONS.clear()
    with dg.DagsterInstance.ephemeral() as instance:
        world = World(instance)
        world.settle()
        world.make(patterns, "sql")
        assert ("merged", None) in world.settle()
