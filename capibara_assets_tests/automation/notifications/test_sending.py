"""What happens in a real history reaches a real server once, over restarts and failures of the webhook."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from capibara_assets.assets.inputs import DIGEST
from capibara_assets.automation.notifications.sending import Sent, begin, send
from capibara_assets.automation.notifications.sensor import notification_sensors
from capibara_assets.checks.results import judged
from capibara_assets.deployment.environment import Deployment
from capibara_assets.deployment.file import AutomationChoice, DayBudget, NotificationChoice, Webhook
from capibara_assets.partitions import domains
from capibara_assets_tests.automation.notifications.conftest import Receiver

HOOK = Webhook(url_variable="TEAM_HOOK")


@dg.asset(partitions_def=domains)
def trained_adapters() -> dg.MaterializeResult:
    return dg.MaterializeResult()


@dg.asset_check(asset=trained_adapters, partitions_def=domains)
def good_enough(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    wrong = ["loss 2.0 is above 1.0"] if context.partition_key == "sql" else []
    return judged(wrong, "fine", "train on more")


CHECKS = [good_enough.check_key]


def happened(instance: dg.DagsterInstance) -> None:
    """A failed check of sql (python's passed), a promotion, one that moved nothing, a rejected voter."""
    for domain in ("sql", "python"):
        dg.materialize([trained_adapters, good_enough], partition_key=domain, instance=instance, raise_on_error=False)
    for number, moved in ((1, ["sql"]), (2, [])):
        event = dg.AssetMaterialization(
            "promoted_model", metadata={"moved": moved, "number": number, "by": "gate (gate)"}
        )
        instance.report_runless_asset_event(event)
    voters = [
        {"name": "voter-0", "accepted": True, "reason": ""},
        {"name": "voter-3", "accepted": False, "reason": "2 of 4"},
    ]
    metadata = {"certificate": dg.MetadataValue.json({"voters": voters}), DIGEST: "d1"}
    instance.report_runless_asset_event(
        dg.AssetMaterialization("consensus_checkpoint", partition="sql", metadata=metadata)
    )


@pytest.fixture
def deployment(tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setenv("TEAM_HOOK", receiver.url)
    return replace(
        Deployment.from_environment({"CAPIBARA_HOME": str(tmp_path)}),
        notifications=NotificationChoice(webhooks=(HOOK,)),
    )


@pytest.fixture(scope="module")
def history() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp() as instance:
        instance.daemon_cursor_storage.set_cursor_values({"before": "x"})
        happened(instance)
        yield instance


@pytest.fixture
def instance(history: dg.DagsterInstance) -> dg.DagsterInstance:
    """The history, and a webhook that is told all of it."""
    since = f'{{"since": {time.time() - 3600}, "ids": {{}}}}'
    history.daemon_cursor_storage.set_cursor_values({"capibara/notified/TEAM_HOOK": since})
    return history


def test_each_thing_is_told_once_also_after_a_restart(
    deployment: Deployment, instance: dg.DagsterInstance, receiver: Receiver
):
    assert send(instance, deployment, CHECKS) == ["3 of 3 notifications sent to the webhook of TEAM_HOOK"]
    assert [(one["kind"], one["title"]) for one in receiver.got] == [
        ("failed_checks", "Check good_enough of trained_adapters[sql] failed"),
        ("promotions", "What is served has changed: sql"),
        ("rejected_voters", "Voters of sql were rejected: voter-3"),
    ]
    assert receiver.got[0]["lines"] == ["loss 2.0 is above 1.0. What to do: train on more"]
    assert receiver.keys == [one["id"] for one in receiver.got] and len({*receiver.keys}) == 3
    with dg.DagsterInstance.from_ref(instance.get_ref()) as again:
        assert send(again, deployment, CHECKS) == [] and len(receiver.got) == 3


def test_a_webhook_that_fails_gets_the_rest_later_and_fails_nothing(
    deployment: Deployment, instance: dg.DagsterInstance, receiver: Receiver
):
    receiver.answers = [200, 403]
    (line,) = send(instance, deployment, CHECKS)
    assert line == "1 of 3 notifications sent to the webhook of TEAM_HOOK; it answers with HTTP 403"
    assert receiver.url not in line
    assert send(instance, deployment, CHECKS) == ["2 of 2 notifications sent to the webhook of TEAM_HOOK"]
    assert len({*receiver.keys}) == len(receiver.keys) == 3


def test_without_its_variable_the_notifications_wait_and_that_is_said(
    deployment: Deployment, instance: dg.DagsterInstance, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("TEAM_HOOK")
    (line,) = send(instance, deployment, CHECKS)
    assert line.startswith("3 notifications wait: TEAM_HOOK is not set")


def test_the_address_is_kept_nowhere(deployment: Deployment, instance: dg.DagsterInstance, receiver: Receiver):
    send(instance, deployment, CHECKS)
    folder = Path(instance.root_directory)
    assert receiver.got and not [
        file for file in folder.rglob("*") if file.is_file() and b"s3cret" in file.read_bytes()
    ]


def test_only_the_kinds_asked_for_and_nothing_from_before_it_was_configured(
    deployment: Deployment, instance: dg.DagsterInstance, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTHER_HOOK", receiver.url)
    only = Webhook(url_variable="TEAM_HOOK", kinds=("promotions",), shape="slack")
    new = Webhook(url_variable="OTHER_HOOK")
    deployment = replace(deployment, notifications=NotificationChoice(webhooks=(only, new)))
    begin(instance, deployment)
    assert send(instance, deployment, CHECKS) == ["1 of 1 notifications sent to the webhook of TEAM_HOOK"]
    assert receiver.got[0]["blocks"][0]["text"]["text"] == "What is served has changed: sql"


def test_a_clock_that_was_set_back_holds_no_notices_up(
    deployment: Deployment, instance: dg.DagsterInstance, receiver: Receiver
):
    ahead = f'{{"since": {time.time() + 86_400}, "ids": {{}}}}'
    instance.daemon_cursor_storage.set_cursor_values({"capibara/notified/TEAM_HOOK": ahead})
    begin(instance, deployment)
    sent = Sent.read(instance, HOOK)
    assert sent is not None and sent.since <= time.time()


def test_a_spent_budget_is_told_once(
    deployment: Deployment, instance: dg.DagsterInstance, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    deployment = replace(
        deployment,
        automation=AutomationChoice(per_day=DayBudget(trainings=2)),
        notifications=NotificationChoice(webhooks=(Webhook(url_variable="TEAM_HOOK", kinds=("budget",)),)),
    )
    send(instance, deployment, CHECKS)
    send(instance, deployment, CHECKS)
    (told,) = receiver.got
    assert told["kind"] == "budget" and told["lines"][0].startswith("2 of 2 trainings a day are spent, next look")


def test_the_sensor_sends_and_says_so(deployment: Deployment, instance: dg.DagsterInstance, receiver: Receiver):
    assert notification_sensors(replace(deployment, notifications=NotificationChoice())) == []
    (sensor,) = notification_sensors(deployment)
    definitions = dg.Definitions([trained_adapters], asset_checks=[good_enough], sensors=[sensor])
    with dg.build_sensor_context(instance=instance, definitions=definitions) as context:
        tick = sensor.evaluate_tick(context)
    assert tick.skip_message == "3 of 3 notifications sent to the webhook of TEAM_HOOK" and len(receiver.got) == 3
