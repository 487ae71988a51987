"""Payloads of notices for webhooks: JSON of our own, or Slack's Block Kit."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from capibara_assets.automation.notifications.notices import Notice
from capibara_assets.deployment.file import WebhookShape
from capibara_assets.escaping.languages import flat, slack_text
from capibara_assets.executions.secrets.redact import redact_text

_HEADER, _SECTION, _LINES = 150, 3000, 20  # Slack refuses longer texts; more lines nobody reads


def payload(notice: Notice, shape: WebhookShape, deployment: str) -> dict[str, Any]:
    """The JSON document of a notice; secrets in its texts are redacted."""
    return SHAPES[shape](notice, deployment)


def _json(notice: Notice, deployment: str) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "id": notice.id,
        "kind": notice.kind,
        "deployment": deployment,
        "at": datetime.fromtimestamp(notice.at, UTC).isoformat(timespec="seconds"),
        "title": _said(notice.title),
        "lines": [_said(line) for line in notice.lines],
    }


def _slack(notice: Notice, deployment: str) -> dict[str, Any]:
    """Plain texts only: what is foreign in them makes no link, mention or format."""
    title, more = _said(notice.title), len(notice.lines) - _LINES
    lines = [_said(line) for line in notice.lines[:_LINES]] + [f"and {more} more"] * (more > 0)
    at = datetime.fromtimestamp(notice.at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return {
        "text": _cut(slack_text(title), _SECTION),  # in notifications of the system, which show no blocks
        "blocks": [
            {"type": "header", "text": _plain(title, _HEADER)},
            *({"type": "section", "text": _plain(line, _SECTION)} for line in lines if line),
            {"type": "context", "elements": [_plain(f"{deployment}, {at}, {notice.kind}", _SECTION)]},
        ],
    }


SHAPES: Mapping[WebhookShape, Callable[[Notice, str], dict[str, Any]]] = {"json": _json, "slack": _slack}


def _plain(words: str, most: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": _cut(slack_text(words), most), "emoji": False}


def _said(words: str) -> str:
    return redact_text(flat(words))


def _cut(words: str, most: int) -> str:
    """At most so many characters; an escaped one is not cut in two."""
    if len(words) <= most:
        return words
    cut = words[: most - 1]
    return (cut[: cut.rindex("&")] if "&" in cut[-5:] and ";" not in cut[cut.rindex("&") :] else cut) + "…"
