"""The stored record of the latest `capibara run`, which `capibara report` reads."""

import json
from pathlib import Path
from typing import Any

from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError
from capibara_assets.storage.jsonfiles import write_json_atomic


def keep_record(deployment: Deployment, record: dict[str, Any]) -> None:
    """Store a record as that of the latest run."""
    write_json_atomic(_place(deployment), record)


def latest_record(deployment: Deployment) -> dict[str, Any]:
    """The record of the latest `capibara run`.

    Raises:
        InputError: there was none.
    """
    path = _place(deployment)
    if not path.is_file():
        raise InputError(f"no run yet in {deployment.home}: start one with `capibara run`")
    record: dict[str, Any] = json.loads(path.read_text())
    return record


def _place(deployment: Deployment) -> Path:
    return deployment.home / "runs" / "latest.json"
