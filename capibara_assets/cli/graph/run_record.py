"""The stored record of the latest `capibara run`, which `capibara report` reads, and the figures of its report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from capibara_assets.deployment.environment import Deployment
from capibara_assets.deployment.home import EXPERIENCE, FOLDER, kept_experience
from capibara_assets.deployment.locations import shipped_experience
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage.foreign import read_stored
from capibara_assets.storage.jsonfiles import parse_json, why_not_json, write_json_atomic

FIGURES, BEFORE = "figures", "before"
_REMEDY = "remove it: the next `capibara run` writes it anew"


def keep_record(deployment: Deployment, record: dict[str, Any]) -> None:
    """Store a record as that of the latest run."""
    write_json_atomic(_place(deployment), record)


def keep_experience(deployment: Deployment, location: str) -> None:
    """Store where a run's experience lies, for later commands in this home; nothing for what ships, which may move."""
    place = deployment.home / EXPERIENCE
    if location == shipped_experience():
        place.unlink(missing_ok=True)
    elif location != kept_experience(deployment.home):
        write_json_atomic(place, {FOLDER: location})


def latest_record(deployment: Deployment) -> dict[str, Any]:
    """The record of the latest `capibara run`.

    Raises:
        InputError: there was none.
        IntegrityError: it is damaged.
    """
    record = _kept(_place(deployment), ("started", "seconds", "experience", "domains"))
    if record is None:
        raise InputError(f"no run yet in {deployment.home}: start one with `capibara run`")
    return record


def latest_experience(deployment: Deployment) -> Path | None:
    """The folder of logs and playbooks that the latest `capibara run` read; None if there was none."""
    record = _kept(_place(deployment), ("experience",))
    return None if record is None else Path(record["experience"])


def keep_figures(deployment: Deployment, figures: dict[str, Any]) -> None:
    """Store the figures of the latest run; those that were the latest become those of the run before."""
    former = kept_figures(deployment, FIGURES)
    if former is not None and former.get("started") != figures.get("started"):
        write_json_atomic(_place(deployment, BEFORE), former)
    write_json_atomic(_place(deployment, FIGURES), figures)


def kept_figures(deployment: Deployment, which: str = BEFORE) -> dict[str, Any] | None:
    """Figures of the latest run or the one before; None if there is none."""
    return _kept(_place(deployment, which), ("started", "domains"))


def _kept(path: Path, names: Sequence[str]) -> dict[str, Any] | None:
    """The document in a file, which has these names; None where there is none. Raises IntegrityError: it is damaged."""
    try:
        document = parse_json(read_stored(path))
    except FileNotFoundError:
        return None
    except IntegrityError as error:
        raise IntegrityError(f"{error}; {_REMEDY}") from error
    except ValueError as error:
        raise IntegrityError(f"{path} is {why_not_json(error)}; {_REMEDY}") from error
    if not isinstance(document, dict) or not set(names) <= document.keys():
        raise IntegrityError(f"{path} is no record of a run; {_REMEDY}")
    return document


def _place(deployment: Deployment, name: str = "latest") -> Path:
    return deployment.home / "runs" / f"{name}.json"
