"""The stored record of the latest `capibara run`, which `capibara report` reads, and the figures of its report."""

from pathlib import Path
from typing import Any

from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError
from capibara_assets.storage.jsonfiles import read_object, write_json_atomic

FIGURES, BEFORE = "figures", "before"


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
    return read_object(path)


def latest_experience(deployment: Deployment) -> Path | None:
    """The folder of logs and playbooks that the latest `capibara run` read; None if there was none."""
    return Path(read_object(path)["experience"]) if (path := _place(deployment)).is_file() else None


def keep_figures(deployment: Deployment, figures: dict[str, Any]) -> None:
    """Store the figures of the latest run; those that were the latest become those of the run before."""
    former = kept_figures(deployment, FIGURES)
    if former is not None and former.get("started") != figures.get("started"):
        write_json_atomic(_place(deployment, BEFORE), former)
    write_json_atomic(_place(deployment, FIGURES), figures)


def kept_figures(deployment: Deployment, which: str = BEFORE) -> dict[str, Any] | None:
    """Figures of the latest run or the one before; None if there is none."""
    path = _place(deployment, which)
    return read_object(path) if path.is_file() else None


def _place(deployment: Deployment, name: str = "latest") -> Path:
    return deployment.home / "runs" / f"{name}.json"
