"""A look at the automation follows the end of a run within seconds, and without one waits for its interval."""

import time
from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.storage.tags import PRIORITY_TAG

from capibara_assets.automation import prompt
from capibara_assets.automation.prompt import PromptAutomation
from capibara_assets.automation.requests import ARRIVED, FIRST

EMPTY = "Sensor function returned an empty result"  # Dagster's words for a look that asks for nothing


@dg.asset
def logs() -> None:
    """What the other one is made of."""


@dg.asset(deps=[logs], automation_condition=dg.AutomationCondition.eager())
def table() -> None:
    """What follows."""


DOMAINS = dg.StaticPartitionsDefinition(["api", "debug", "sql"])


@dg.asset(partitions_def=DOMAINS)
def e2b_patterns() -> None:
    """What tells which domains have newer executions."""


@dg.asset(partitions_def=DOMAINS, deps=[e2b_patterns], automation_condition=dg.AutomationCondition.eager())
def dataset() -> None:
    """What follows, a partition each."""


class Automation:
    """A sensor in a code server, and the cursor that Dagster keeps for it."""

    def __init__(self, instance: dg.DagsterInstance):
        self.instance, self.cursor = instance, None
        target = dg.AssetSelection.all()
        self.sensor = PromptAutomation("a", target=target, use_user_code_server=True, emit_backfills=False)
        self.definitions = dg.Definitions([logs, table, e2b_patterns, dataset], sensors=[self.sensor])

    def data(self) -> SensorExecutionData:
        """What a tick gives."""
        with dg.build_sensor_context(self.instance, definitions=self.definitions, cursor=self.cursor) as context:
            data = self.sensor.evaluate_tick(context)
        self.cursor = data.cursor
        self.sensor._took = 0.0  # on a busy machine looks take long
        return data

    def tick(self) -> tuple[list[str], str]:
        """Names of the assets that it asks for, and why it skipped."""
        data = self.data()
        asked = [key.path[0] for request in data.run_requests or () for key in request.asset_selection or ()]
        return asked, data.skip_message or ""


@pytest.fixture
def automation() -> Iterator[Automation]:
    with dg.DagsterInstance.ephemeral() as instance:
        made = Automation(instance)
        assert made.tick() == ([], EMPTY), "a new process looks at once"
        yield made


def test_without_a_run_that_ended_the_next_look_waits_and_says_so(automation: Automation):
    cursor = automation.cursor
    asked, said = automation.tick()
    assert not asked and "no run ended for two looks, the last 0 s ago; the next one is due 20 s after it" in said
    assert automation.cursor == cursor, "what the conditions remember stays"


def test_two_looks_follow_the_end_of_a_run(automation: Automation):
    assert automation.tick()[1] != EMPTY
    assert dg.materialize([logs], instance=automation.instance).success
    asked = automation.data().run_requests or []
    assert [(one.asset_selection, one.tags.get(PRIORITY_TAG)) for one in asked] == [([table.key], None)]
    assert automation.tick() == ([], EMPTY), "some conditions hold only at the look after"
    assert automation.tick()[1] != EMPTY, "that run is not counted for a third one"


def test_the_interval_still_holds_for_what_no_run_made(automation: Automation, monkeypatch: pytest.MonkeyPatch):
    automation.instance.report_runless_asset_event(dg.AssetMaterialization("logs"))
    assert automation.tick()[1]
    later = time.time() + prompt.TICK_SECONDS
    monkeypatch.setattr(prompt.time, "time", lambda: later)
    assert automation.tick() == (["table"], "")


def test_looks_that_take_long_are_not_made_one_after_the_other(automation: Automation):
    automation.sensor._took = 3.0
    assert dg.materialize([logs], instance=automation.instance).success
    asked, said = automation.tick()
    assert not asked and said == "the last look took 3.0 s: the next one waits 5 times as long"


def test_a_clock_that_was_set_back_does_not_end_the_looks(automation: Automation):
    automation.sensor._looked = time.time() + 3600
    assert automation.tick() == ([], EMPTY)


def test_what_has_the_newest_executions_is_asked_for_first(automation: Automation):
    for domain in ("sql", "api", "debug"):
        assert dg.materialize([e2b_patterns], instance=automation.instance, partition_key=domain).success
    requests = automation.data().run_requests or []
    assert [(one.partition_key, one.tags.get(PRIORITY_TAG)) for one in requests] == [
        ("debug", "2"),
        ("api", None),
        ("sql", None),
    ]


def test_new_experience_waits_for_no_run_of_the_newest_domain():
    for tags in ({}, FIRST):
        raised = prompt._raised(dg.RunRequest(tags=tags)).tags[PRIORITY_TAG]
        assert int(FIRST[PRIORITY_TAG]) < int(raised) <= int(ARRIVED[PRIORITY_TAG])
