"""Sends each notice once to each webhook; sent notices are recorded in the Dagster instance."""

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from capibara_assets.automation.notifications.notices import Notice, notices
from capibara_assets.automation.notifications.payloads import payload
from capibara_assets.automation.notifications.webhooks import post
from capibara_assets.automation.retraining.rules import DAY
from capibara_assets.deployment.environment import Deployment
from capibara_assets.deployment.file import Webhook
from capibara_assets.storage.locks import locked

AT_ONCE_S = 20.0
"""Seconds of a tick for sending; what is left waits for the next one."""
_KEY = "capibara/notified/"

Send = Callable[[str, dict[str, Any], str], str | None]


@dataclass
class Sent:
    """Record of the notices that a webhook has received.

    Attributes:
        since: Unix time from which on it is told; before that it was not configured.
        ids: id of a notice -> when it was sent, of the last two days.
    """

    since: float
    ids: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, instance: dg.DagsterInstance, webhook: Webhook) -> "Sent | None":
        """Read the record; None before the first notice."""
        text = instance.daemon_cursor_storage.get_cursor_values({_KEY + webhook.url_variable})
        return cls(**json.loads(text[_KEY + webhook.url_variable])) if text else None

    def keep(self, instance: dg.DagsterInstance, webhook: Webhook, now: float) -> None:
        """Store the record, dropping ids too old to occur again."""
        self.ids = {name: at for name, at in self.ids.items() if at > now - 2 * DAY}
        value = json.dumps({"since": self.since, "ids": self.ids})
        instance.daemon_cursor_storage.set_cursor_values({_KEY + webhook.url_variable: value})


def begin(instance: dg.DagsterInstance, deployment: Deployment) -> None:
    """From now on there is something to tell, to webhooks that were never told anything."""
    now = time.time()
    for webhook in deployment.notifications.webhooks:
        sent = Sent.read(instance, webhook)
        if sent is None or sent.since > now:  # the clock was set back: nothing would be told until then
            Sent(now, sent.ids if sent else {}).keep(instance, webhook, now)


def send(
    instance: dg.DagsterInstance, deployment: Deployment, checks: Sequence[dg.AssetCheckKey], deliver: Send = post
) -> list[str]:
    """Send unsent notices of the last day; returns one line per webhook with something to report.

    A webhook that fails is said, not raised, and gets the same again the next time, for a day. Between its arrival
    and our note of it a process may be killed: then it arrives a second time, under the same id.

    Args:
        checks: those whose failures are told.
    """
    begin(instance, deployment)
    lines = []
    with locked(deployment.work / "notifications.lock"):
        now = time.time()
        events = notices(instance, deployment, checks, now - DAY, now)
        until = time.monotonic() + AT_ONCE_S
        for webhook in deployment.notifications.webhooks:
            lines += _send_to(instance, deployment, webhook, events, deliver, until)
    return lines


def _send_to(
    instance: dg.DagsterInstance,
    deployment: Deployment,
    webhook: Webhook,
    events: Sequence[Notice],
    deliver: Send,
    until: float,
) -> list[str]:
    """Send one webhook what it has not got yet."""
    sent = Sent.read(instance, webhook) or Sent(time.time())
    waiting = [one for one in events if one.kind in webhook.kinds and one.at >= sent.since and one.id not in sent.ids]
    if not waiting:
        return []
    url, done, problem = os.environ.get(webhook.url_variable), 0, None
    if not url:
        return [f"{len(waiting)} notifications wait: {webhook.url_variable} is not set, give it the webhook's address"]
    for notice in waiting:
        if time.monotonic() > until:
            problem = "the rest waits for the next time"
            break
        if problem := deliver(url, payload(notice, webhook.shape, deployment.name), notice.id):
            break
        done += 1
        sent.ids[notice.id] = time.time()
        sent.keep(instance, webhook, time.time())
    words = f"{done} of {len(waiting)} notifications sent to the webhook of {webhook.url_variable}"
    return [f"{words}; {problem}" if problem else words]
