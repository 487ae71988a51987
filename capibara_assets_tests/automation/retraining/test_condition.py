"""Ticks of the automation under a deployment's rules: what is held back, what goes on behind it, what a tick says."""

import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml

from capibara_assets.automation.chosen import choose_domains
from capibara_assets.automation.conditions import CONDITIONS
from capibara_assets.automation.retraining.condition import BECAUSE, ExplainedAutomation
from capibara_assets.datasets.schema import Example
from capibara_assets.domains import Domain
from capibara_assets.partitions import domains
from capibara_assets.storage.records import table
from capibara_assets_tests.lineage.conftest import example
from capibara_assets_tests.published import Published

pytestmark = pytest.mark.slow

DEPS = {
    "moe_dataset": [],
    "trained_adapters": ["moe_dataset"],
    "consensus_checkpoint": ["trained_adapters", "moe_dataset"],
    "merged_checkpoint": ["consensus_checkpoint", "moe_dataset"],
}


def made(name: str, deps: list[str]) -> dg.AssetsDefinition:
    @dg.asset(
        name=name,
        deps=deps,
        partitions_def=None if name == "merged_checkpoint" else domains,
        automation_condition=CONDITIONS[name] if deps else None,
    )
    def asset() -> None:
        raise AssertionError("nothing is run here")

    return asset


GRAPH = dg.Definitions([made(name, deps) for name, deps in DEPS.items()])
SENSOR = ExplainedAutomation("heavy", target=dg.AssetSelection.all(), use_user_code_server=True)
WITH_SENSOR = dg.Definitions(GRAPH.assets, sensors=[SENSOR])


class World:
    """A deployment with rules, of two domains, and the automation's ticks over it."""

    def __init__(self, published: Published):
        self.published, self.cursor = published, None
        self.upstream: dict[tuple[str, str | None], dict[str, str]] = {}

    def grow(self, domain: Domain, count: int) -> None:
        """The domain's dataset has so many train examples now."""
        rows = [example(f"{domain}-{n}", f"g{n}", "train", [f"e{n}"]) for n in range(count)]
        artifact = self.published.put("moe_dataset", domain, tables={"examples": (Example, table(Example, rows))})
        self.upstream["moe_dataset", domain] = artifact.digest

    def make(self, name: str, domain: Domain | None) -> None:
        """What a run of it would leave: an artifact of the latest inputs."""
        now = {f"{one}|{domain}": self.upstream[one, domain] for one in DEPS[name] if (one, domain) in self.upstream}
        artifact = self.published.put(name, domain, documents={"of": [now, time.time()]}, upstream=now)
        self.upstream[name, domain] = artifact.digest

    def tick(self) -> set[tuple[str, str | None]]:
        """Ask once, and make what was asked for."""
        result = dg.evaluate_automation_conditions(GRAPH, self.published.instance, cursor=self.cursor)
        self.cursor = result.cursor
        asked = {(n, p) for n in DEPS for p in result.get_requested_partitions(dg.AssetKey(n)) or ()}
        for name, partition in asked:
            self.make(name, Domain(partition) if partition else None)
        return asked

    def settle(self) -> list[tuple[str, str | None]]:
        """What is asked for until two ticks ask for nothing, in order."""
        seen, quiet = [], 0
        while quiet < 2:
            seen += sorted(asked := self.tick(), key=str)
            quiet = 0 if asked else quiet + 1
            assert len(seen) < 30
        return seen

    def said(self) -> tuple[list[dg.RunRequest], str]:
        """A tick of the sensor: what it asks for, and says."""
        with dg.build_sensor_context(instance=self.published.instance, definitions=WITH_SENSOR) as context:
            data = SENSOR.look(context)
            return list(data.run_requests or ()), data.skip_message or ""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with dg.DagsterInstance.ephemeral() as instance:
        published = Published.afresh(instance, tmp_path)
        choose_domains(instance, (Domain.PYTHON, Domain.SQL))
        monkeypatch.setenv("CAPIBARA_STORE", published.store.root)
        monkeypatch.setenv("CAPIBARA_WORK", published.store.work)
        yield World(published)


def rules(folder: Path, monkeypatch: pytest.MonkeyPatch, **automation: object) -> None:
    file = folder / f"rules-{time.monotonic_ns()}.yaml"
    file.write_text(yaml.safe_dump({"automation": automation}))
    monkeypatch.setenv("CAPIBARA_DEPLOYMENT", str(file))


def test_too_little_new_data_trains_nothing_and_the_other_domains_go_on(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rules(tmp_path, monkeypatch, default={"new_examples": 5})
    world.settle()
    for domain in (Domain.PYTHON, Domain.SQL):
        world.grow(domain, 6)
    made = world.settle()
    assert {("trained_adapters", "python"), ("consensus_checkpoint", "sql"), ("merged_checkpoint", None)} <= {*made}
    world.grow(Domain.PYTHON, 9)
    assert world.settle() == [], "3 of 5: neither it nor what stands behind it"
    world.grow(Domain.SQL, 12)
    made = world.settle()
    assert {name for name, _ in made} == {"trained_adapters", "consensus_checkpoint", "merged_checkpoint"}
    assert {domain for _, domain in made} == {"sql", None}, "python does not hold up the merge of sql"
    world.grow(Domain.PYTHON, 11)
    order = [name for name, domain in world.settle() if domain in ("python", None)]
    assert order == ["trained_adapters", "consensus_checkpoint", "merged_checkpoint"], "5 of 5, though they came in two"


def test_what_was_trained_is_agreed_on_also_where_newer_data_wait(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rules(tmp_path, monkeypatch, default={"new_examples": 5})
    world.settle()
    world.grow(Domain.PYTHON, 6)
    world.settle()
    world.grow(Domain.PYTHON, 12)
    assert world.tick() == {("trained_adapters", "python")}
    world.grow(Domain.PYTHON, 14)
    assert world.settle() == [("consensus_checkpoint", "python"), ("merged_checkpoint", None)]


def test_one_training_a_day_is_one_also_where_two_domains_are_due(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rules(tmp_path, monkeypatch, per_day={"trainings": 1})
    world.settle()
    for domain in (Domain.PYTHON, Domain.SQL):
        world.grow(domain, 6)
    assert len([one for one in world.tick() if one[0] == "trained_adapters"]) == 1


def test_a_tick_says_of_each_chosen_domain_why_it_is_trained_or_not(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    world.grow(Domain.PYTHON, 3)
    requests, said = world.said()
    assert requests and not said and BECAUSE not in requests[0].tags, "without rules there is nothing to say"
    rules(tmp_path, monkeypatch, default={"new_examples": 5})
    requests, said = world.said()
    assert not requests and "python: 3 of 5 new examples, next look" in said and "sql: trained on" in said


def test_a_run_that_is_asked_for_carries_the_reason(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rules(tmp_path, monkeypatch, default={"new_examples": 5})
    with dg.build_sensor_context(instance=world.published.instance, definitions=WITH_SENSOR) as context:
        cursor = SENSOR.look(context).cursor
    world.grow(Domain.PYTHON, 7)
    with dg.build_sensor_context(instance=world.published.instance, definitions=WITH_SENSOR, cursor=cursor) as context:
        (asked,) = SENSOR.look(context).run_requests or ()
    assert asked.tags[BECAUSE] == "7 new examples, may train (5 needed)"
