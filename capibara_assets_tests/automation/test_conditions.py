"""New data touches only its domains: conditions look at data versions, never at mere re-runs."""

from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
import pytest

from capibara_assets.automation.chosen import choose_domains
from capibara_assets.automation.conditions import on_new_data, on_new_data_without, over_available
from capibara_assets.domains import Domain
from capibara_assets_tests.histories import copy_history

pytestmark = pytest.mark.slow

# Three show what six do: one with new data, one that fails or starts later, and another one
domains = dg.StaticPartitionsDefinition([Domain.PYTHON.value, Domain.SQL.value, Domain.ML.value])
VERSIONS: dict[str, str] = {}
FAILING: set[str] = set()
UNSOUND: set[str] = set()
"""What fails its blocking check."""
DURING: dict[str, Callable[[], object]] = {}
"""What happens while a partition is made, once."""


def versioned(name: str, partitioned: bool, deps: list, condition: dg.AutomationCondition | None):
    @dg.asset(name=name, partitions_def=domains if partitioned else None, deps=deps, automation_condition=condition)
    def asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        key = f"{name}:{context.partition_key}" if partitioned else name
        if key in FAILING:
            raise dg.Failure(f"{key} fails")
        DURING.pop(key, lambda: None)()
        return dg.MaterializeResult(data_version=dg.DataVersion(VERSIONS.get(key, "0")))

    return asset


logs = versioned("logs", False, [], None)
executions = versioned("executions", True, [logs], on_new_data)
patterns = versioned("patterns", True, [executions], on_new_data)
merged = versioned("merged", False, [patterns], over_available("patterns"))
# patterns → plan → adapters → agreed, and each of the last two reads patterns as well
plan = versioned("plan", True, [patterns], on_new_data)
adapters = versioned("adapters", True, [patterns, plan], on_new_data)
agreed = versioned("agreed", True, [patterns, adapters], on_new_data)
everything = versioned("everything", False, [agreed, patterns], over_available("agreed", "patterns"))


@dg.asset_check(asset=plan, blocking=True, partitions_def=domains)
def plan_is_sound(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=f"plan:{context.partition_key}" not in UNSOUND)


ASSETS = {a.key.to_user_string(): a for a in (logs, executions, patterns, merged, plan, adapters, agreed, everything)}
DEFS = dg.Definitions(list(ASSETS.values()), asset_checks=[plan_is_sound])


class World:
    """Ticks of automation over an instance; each tick materializes what was requested.

    `within`: the assets whose conditions a test is about; each costs as much as all that happens.
    """

    def __init__(self, instance: dg.DagsterInstance, cursor: Any = None):
        self.instance, self.cursor = instance, cursor
        self.within = dg.AssetSelection.all()

    def make(self, asset, partition: str | None = None) -> None:
        name = asset.key.to_user_string()
        key = f"{name}:{partition}" if partition else name
        if asset is not plan and key not in FAILING | DURING.keys():
            # What a run of it would leave: a run takes as long as looking at all the conditions
            tags = {"dagster/data_version": VERSIONS.get(key, "0")}
            self.instance.report_runless_asset_event(dg.AssetMaterialization(name, partition=partition, tags=tags))
            return
        checked = [asset, plan_is_sound] if asset is plan else [asset]
        selection = dg.AssetSelection.assets(asset)
        dg.materialize(
            checked, partition_key=partition, instance=self.instance, selection=selection, raise_on_error=False
        )

    def tick(self) -> set[tuple[str, str | None]]:
        result = dg.evaluate_automation_conditions(
            DEFS, instance=self.instance, cursor=self.cursor, asset_selection=self.within
        )
        self.cursor = result.cursor
        requested = {
            (key.to_user_string(), partition)
            for key in (a.key for a in ASSETS.values())
            for partition in (result.get_requested_partitions(key) or ())
        }
        for name, partition in requested:
            self.make(ASSETS[name], partition)
        return requested

    def settle(self) -> set[tuple[str, str | None]]:
        """Ticks until two in a row ask for nothing."""
        seen: set[tuple[str, str | None]] = set()
        quiet = 0
        for _ in range(10):
            seen |= (asked := self.tick())
            quiet = 0 if asked else quiet + 1
            if quiet == 2:
                return seen
        raise AssertionError(f"still asking after ten ticks: {seen}")


@pytest.fixture(scope="module")
def settled() -> Iterator[World]:
    """Everything made once from the first logs; each test works on a copy."""
    VERSIONS.clear()
    with dg.DagsterInstance.ephemeral() as instance:
        world = World(instance)
        world.settle()
        world.make(logs)
        world.settle()
        yield world


@pytest.fixture
def world(settled: World) -> Iterator[World]:
    VERSIONS.clear()
    FAILING.clear()
    UNSOUND.clear()
    DURING.clear()
    with dg.DagsterInstance.ephemeral() as instance:
        copy_history(settled.instance, instance)
        yield World(instance, settled.cursor)


def test_nothing_is_requested_while_nothing_exists():
    with dg.DagsterInstance.ephemeral() as instance:
        assert World(instance).settle() == set()


def test_everything_follows_the_first_logs(settled: World):
    for asset in (executions, patterns):
        assert settled.instance.get_materialized_partitions(asset.key) == set(domains.get_partition_keys())


@pytest.mark.parametrize(
    "chain", [("executions", "patterns", "merged"), pytest.param((*ASSETS,), marks=pytest.mark.extended)]
)
def test_a_domain_that_nobody_asked_for_neither_starts_nor_holds_up_what_stands_over_all(chain: tuple[str, ...]):
    """Neither at the first tick, when everything is missing, nor with new data; it starts when it is chosen."""
    VERSIONS.clear()
    with dg.DagsterInstance.ephemeral() as instance:
        choose_domains(instance, (Domain.PYTHON, Domain.SQL))
        world = World(instance)
        world.within = dg.AssetSelection.assets(*chain)
        over_all = [ASSETS[name].key for name in chain if name in ("merged", "everything")]
        world.make(logs)
        assert {partition for _, partition in world.settle()} == {"python", "sql", None}
        assert all(instance.get_latest_materialization_event(key) is not None for key in over_all)
        VERSIONS.update({"logs": "1", "executions:sql": "1", "patterns:sql": "1", "executions:ml": "1"})
        world.make(logs)
        assert {partition for _, partition in world.settle()} == {"python", "sql", None}
        choose_domains(instance, (Domain.PYTHON, Domain.SQL, Domain.ML))
        asked = world.settle()
        assert {(name, "ml") for name in chain if ASSETS[name].partitions_def is not None} <= asked
        assert {partition for _, partition in asked} == {"ml", None}


def test_a_domain_that_is_no_longer_chosen_does_not_hold_up_the_others(world: World):
    choose_domains(world.instance, (Domain.PYTHON, Domain.SQL))
    world.within = dg.AssetSelection.assets(executions, patterns, merged)
    VERSIONS.update({"executions:ml": "5", "executions:sql": "5", "patterns:sql": "5"})
    for domain in ("ml", "sql"):
        world.make(executions, domain)
    asked = world.settle()
    assert ("merged", None) in asked and ("patterns", "ml") not in asked


def test_nothing_is_made_of_what_failed_a_blocking_check(world: World):
    world.within = dg.AssetSelection.assets(executions, patterns, plan, adapters)
    VERSIONS.update({"logs": "4"} | {f"{name}:sql": "4" for name in ("executions", "patterns", "plan", "adapters")})
    UNSOUND.add("plan:sql")
    world.make(logs)
    asked = world.settle()
    assert ("plan", "sql") in asked and ("adapters", "sql") not in asked
    UNSOUND.clear()
    world.make(plan, "sql")
    assert ("adapters", "sql") in world.settle()


def test_a_rerun_with_the_same_version_wakes_nothing(world: World):
    world.make(logs)
    assert world.settle() == set()


def test_new_sql_data_stops_in_the_other_domains(world: World):
    world.within = dg.AssetSelection.assets(executions, patterns, merged)
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
        world.within = dg.AssetSelection.assets(executions, patterns, merged)
        world.settle()
        world.make(patterns, "sql")
        assert ("merged", None) in world.settle()


def test_what_stands_behind_another_input_waits_for_it(world: World):
    """No adapters of an old plan, no agreement on old adapters, and each is made once."""
    later = ("patterns", "plan", "adapters", "agreed")
    world.within = dg.AssetSelection.assets(executions, patterns, plan, adapters, agreed)
    VERSIONS.update({"logs": "2"} | {f"{name}:sql": "2" for name in ("executions", *later)})
    world.make(logs)
    order = [name for _ in range(8) for name, partition in sorted(world.tick()) if name in later and partition == "sql"]
    assert order == list(later)


def test_nothing_is_agreed_on_while_a_plan_is_made_for_new_adapters(world: World):
    """The plan's blocking check has not passed then: no reason to take the old adapters."""
    VERSIONS.update({"logs": "2"} | {f"{name}:sql": "2" for name in ("executions", "patterns", "plan", "adapters")})
    world.within = dg.AssetSelection.assets(executions, patterns, plan, adapters, agreed)
    meanwhile: list[set[tuple[str, str | None]]] = []

    def look() -> None:
        result = dg.evaluate_automation_conditions(
            DEFS, instance=world.instance, cursor=world.cursor, asset_selection=world.within
        )
        meanwhile.append({("agreed", one) for one in result.get_requested_partitions(agreed.key) or ()})

    DURING["plan:sql"] = look
    world.make(logs)
    assert ("agreed", "sql") in world.settle()
    assert meanwhile == [set()]


def test_a_domain_that_fails_does_not_hold_up_the_merge_of_the_others(world: World):
    later = ("executions", "patterns", "plan", "adapters", "agreed")
    VERSIONS.update({"logs": "3"} | {f"{name}:{domain}": "3" for name in later for domain in ("sql", "ml")})
    world.within = dg.AssetSelection.all() - dg.AssetSelection.assets(merged)
    FAILING.add("adapters:ml")
    world.make(logs)
    requested = [world.tick() for _ in range(10)]
    assert sum(("adapters", "ml") in tick for tick in requested) == 1, "asked for once, not for ever"
    assert ("agreed", "ml") not in set.union(*requested)
    assert ("agreed", "sql") in set.union(*requested) and ("everything", None) in set.union(*requested)


# An input that a person brings, or does not: as the imported examples are to the datasets
brought = dg.AssetSpec("brought", partitions_def=domains)
joined = versioned("joined", True, [patterns, brought], on_new_data_without("brought"))
WITH_BROUGHT = dg.Definitions([patterns, brought, joined])


def test_what_a_person_brings_wakes_its_domain_and_is_not_waited_for():
    VERSIONS.clear()
    cursor = None
    with dg.DagsterInstance.ephemeral() as instance:

        def bring(domain: str, version: str) -> None:
            event = dg.AssetMaterialization("brought", partition=domain, tags={"dagster/data_version": version})
            instance.report_runless_asset_event(event)

        def make(asset, domain: str) -> None:
            dg.materialize([asset], partition_key=domain, instance=instance, selection=[asset.key])

        def settle() -> set[str]:
            nonlocal cursor
            seen: set[str] = set()
            for _ in range(3):
                result = dg.evaluate_automation_conditions(WITH_BROUGHT, instance=instance, cursor=cursor)
                cursor = result.cursor
                requested = result.get_requested_partitions(joined.key) or set()
                for domain in sorted(requested):
                    make(joined, domain)
                seen |= requested
            return seen

        assert settle() == set()
        for domain in ("sql", "python"):
            make(patterns, domain)
        assert settle() == {"sql", "python"}, "nothing was brought, and nothing has to be"
        bring("sql", "1")
        assert settle() == {"sql"}
        bring("sql", "1")
        assert settle() == set()
        bring("sql", "2")
        bring("ml", "1")
        assert settle() == {"sql"}, "ml has no patterns yet"
