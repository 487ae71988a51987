"""The Dagster instance of a deployment, shared by `run` and `ui` so that the UI shows the command's runs."""

import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from dagster._core.instance.ref import InstanceRef

from capibara_assets.automation.compute_logs import uninterrupted
from capibara_assets.deployment.environment import Deployment
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError, IntegrityError, printable
from capibara_assets.resources import Store
from capibara_assets.storage.foreign import read_stored
from capibara_assets.storage.jsonfiles import write_bytes_atomic
from capibara_assets.storage.store import ArtifactStore

POSTGRES = {
    "hostname": "DAGSTER_POSTGRES_HOST",
    "port": "DAGSTER_POSTGRES_PORT",
    "username": "DAGSTER_POSTGRES_USER",
    "password": "DAGSTER_POSTGRES_PASSWORD",
    "db_name": "DAGSTER_POSTGRES_DB",
}
"""Variables with place and credentials of the history, where the deployment keeps it in PostgreSQL."""
POSTGRES_SCHEME = "postgresql+psycopg2"
"""The driver that dagster-postgres brings; SQLAlchemy 2.1 takes another one by itself."""
_PSYCOPG2 = {"hostname": "host", "username": "user", "db_name": "dbname"}
_OF_ADDRESSES = re.compile(r"\?|%[0-9A-Fa-f]{2}")
_ANSWER_S = 10
_MADE_ANEW = "mend the file, or remove it, and it is made anew"
_UPLOAD_S = 30  # of what a step has printed so far


def settings_file(name: str) -> Path:
    """`dagster.yaml` or `workspace.yaml`: beside the package in a checkout, inside it in a wheel.

    Raises:
        InputError: the installation lacks it.
    """
    for candidate in (resources_root() / name, resources_root().parent / name):
        if candidate.is_file():
            return candidate
    raise InputError(f"{name} is missing from this installation: reinstall capibara-assets")


def dagster_home(deployment: Deployment) -> Path:
    """DAGSTER_HOME of the environment, else `<home>/dagster`; created with a dagster.yaml if it has none.

    Raises:
        InputError: it cannot be made, or no databases in it; its dagster.yaml keeps history or logs elsewhere than the
            deployment says.
        IntegrityError: its dagster.yaml is damaged.
    """
    home = Path(os.environ.get("DAGSTER_HOME") or deployment.home / "dagster").expanduser().resolve()
    if deployment.history != "postgres" and _OF_ADDRESSES.search(str(home)):
        raise InputError(
            f"{printable(str(home))}: Dagster names its databases by address, in which ? and % with two digits mean "
            "something else, and would write beside this folder: choose another one (CAPIBARA_HOME or DAGSTER_HOME)"
        )
    try:
        home.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as error:  # a file system that makes no folders, such as /proc
        raise InputError(
            f"{home}: no folder can be made there: write elsewhere: CAPIBARA_HOME or DAGSTER_HOME"
        ) from error
    file, own = home / "dagster.yaml", _own_settings(deployment, home)
    if not os.path.lexists(file):
        shipped = settings_file("dagster.yaml").read_bytes()
        write_bytes_atomic(file, shipped + (yaml.safe_dump(own).encode() if own else b""))
        return home
    settings = _settings(file)
    if other := [key for key, value in own.items() if settings.get(key) != value]:
        raise InputError(
            f"{file} says something else under {', '.join(other)} than the deployment {deployment.name} under"
            " storage.history and storage.compute_logs: remove the file, and it is made anew, or these keys"
        )
    return home


def _settings(file: Path) -> dict[str, Any]:
    """What a dagster.yaml says, read before Dagster reads it: it waits for a pipe, and tells damage to programmers."""
    try:
        settings = yaml.safe_load(read_stored(file)) or {}
    except (IntegrityError, OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise IntegrityError(f"{file} cannot be read: {' '.join(str(error).split())}; {_MADE_ANEW}") from error
    if not isinstance(settings, dict):
        raise IntegrityError(f"{file} holds no settings but a {type(settings).__name__}; {_MADE_ANEW}")
    return settings


def open_store(deployment: Deployment) -> ArtifactStore:
    """The deployment's artifact store."""
    return Store(root=deployment.store, work=str(deployment.work)).open()


def open_instance(deployment: Deployment) -> dg.DagsterInstance:
    """The persistent Dagster instance of the deployment.

    Raises:
        InputError: its PostgreSQL is not named or does not answer, or the extra for it is missing.
        IntegrityError: its dagster.yaml is damaged, or says what Dagster does not know.
    """
    home = dagster_home(deployment)
    if deployment.history != "postgres":
        return _opened(home)
    if find_spec("dagster_postgres") is None:
        raise InputError("storage.history is postgres: pip install 'capibara-assets[postgres]'")
    if missing := [name for name in POSTGRES.values() if not os.environ.get(name)]:
        raise InputError(f"storage.history is postgres: set {', '.join(missing)}")
    import psycopg2
    from psycopg2.extensions import make_dsn

    place = {_PSYCOPG2.get(key, key): os.environ[variable] for key, variable in POSTGRES.items()}
    try:  # once: Dagster would try for a dozen seconds, and end with a traceback
        psycopg2.connect(make_dsn(**place, connect_timeout=_ANSWER_S)).close()
    except psycopg2.Error as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"the PostgreSQL that DAGSTER_POSTGRES_HOST names cannot be used: {reason}") from error
    return _opened(home)


def _opened(home: Path) -> dg.DagsterInstance:
    try:
        return dg.DagsterInstance.from_ref(uninterrupted(InstanceRef.from_dir(str(home))))
    except dg.DagsterInvalidConfigError as error:
        said = "; ".join(" ".join(one.message.split()) for one in error.errors)
        raise IntegrityError(f"{home / 'dagster.yaml'} is no settings of Dagster: {said}; {_MADE_ANEW}") from error


def _own_settings(deployment: Deployment, home: Path) -> dict[str, Any]:
    """What a deployment's file decides of dagster.yaml."""
    own: dict[str, Any] = {}
    if deployment.history == "postgres":
        place = {key: {"env": variable} for key, variable in POSTGRES.items()}
        own["storage"] = {"postgres": {"postgres_db": {**place, "scheme": POSTGRES_SCHEME}}}
    if deployment.compute_logs is not None:
        bucket, _, prefix = deployment.compute_logs.removeprefix("gs://").partition("/")
        own["compute_logs"] = {
            "module": "dagster_gcp.gcs.compute_log_manager",
            "class": "GCSComputeLogManager",
            "config": {
                "bucket": bucket,
                "prefix": prefix or "compute_logs",
                "local_dir": str(home / "compute_logs"),
                "upload_interval": _UPLOAD_S,
            },
        }
    return own
