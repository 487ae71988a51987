"""Dagster's home as a deployment's file decides it: history in PostgreSQL, what steps print in a bucket."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sql
import yaml

from capibara_assets.cli.graph.instance import POSTGRES, dagster_home, open_instance, settings_file
from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.lineage.history import Traces, compact_server, scrub
from capibara_assets_tests.cluster.postgres import PASSWORD, postgres
from capibara_assets_tests.spoilt_files import put_in_place

NEEDLE = "kanarienvogel7391"


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setenv("DAGSTER_HOME", "")
    for variable in POSTGRES.values():
        monkeypatch.delenv(variable, raising=False)
    return replace(Deployment.from_environment({"CAPIBARA_HOME": str(tmp_path)}), history="postgres")


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with postgres() as variables:
        yield variables


def test_what_the_file_does_not_say_is_as_shipped(deployment: Deployment) -> None:
    home = dagster_home(replace(deployment, history=None))
    assert (home / "dagster.yaml").read_bytes() == settings_file("dagster.yaml").read_bytes()


def test_the_file_decides_history_and_compute_logs(deployment: Deployment) -> None:
    home = dagster_home(replace(deployment, compute_logs="gs://there/logs"))
    written = yaml.safe_load((home / "dagster.yaml").read_text())
    shipped = yaml.safe_load(settings_file("dagster.yaml").read_text())
    assert {key: written[key] for key in shipped} == shipped
    assert written["storage"]["postgres"]["postgres_db"]["password"] == {"env": "DAGSTER_POSTGRES_PASSWORD"}
    logs = written["compute_logs"]["config"]
    assert (logs["bucket"], logs["prefix"]) == ("there", "logs")


@pytest.mark.parametrize(("name", "fits"), [("q?x", False), ("p%41", False), ("50% off", True), ("x#y é", True)])
def test_a_home_that_dagster_would_write_beside_is_refused(tmp_path: Path, name: str, fits: bool) -> None:
    here = Deployment.from_environment({"CAPIBARA_HOME": str(tmp_path / "in" / name)})
    try:
        with open_instance(here) as instance:
            assert instance.get_runs() == []
    except InputError as error:
        assert "choose another one (CAPIBARA_HOME or DAGSTER_HOME)" in str(error)
    made = [path.name for path in (tmp_path / "in").iterdir()] if (tmp_path / "in").exists() else []
    assert made == [name] * fits


def test_a_home_that_keeps_its_history_elsewhere_is_not_taken(deployment: Deployment) -> None:
    dagster_home(replace(deployment, history=None))
    with pytest.raises(InputError, match=r"dagster.yaml says something else under storage .*remove the file"):
        dagster_home(deployment)


@pytest.mark.parametrize("damage", ["a: b\nc", "a pipe", "a device", "- a list", "\0", "telemetry: {enabled: [1]}"])
def test_damaged_settings_are_told(deployment: Deployment, damage: str) -> None:
    here = replace(deployment, history=None)
    with open_instance(here):
        pass
    put_in_place(dagster_home(here) / "dagster.yaml", damage)
    with pytest.raises(IntegrityError, match=r"dagster\.yaml .*; mend the file, or remove it, and it is made anew"):
        open_instance(here)


def test_missing_variables_are_named(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_POSTGRES_HOST", "127.0.0.1")
    with pytest.raises(InputError, match="set DAGSTER_POSTGRES_PORT, DAGSTER_POSTGRES_USER, DAGSTER_POSTGRES_PASSWORD"):
        open_instance(deployment)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("DAGSTER_POSTGRES_PORT", "1", "Connection refused"),
        ("DAGSTER_POSTGRES_PORT", "no-port", "invalid integer value"),
        ("DAGSTER_POSTGRES_PASSWORD", "wrong-canary", "password authentication failed"),
        ("DAGSTER_POSTGRES_DB", "nowhere", 'database "nowhere" does not exist'),
    ],
)
def test_a_server_that_cannot_be_used_is_told_in_a_line(
    deployment: Deployment,
    server: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    said: str,
) -> None:
    for name, setting in {**server, variable: value}.items():
        monkeypatch.setenv(name, setting)
    with pytest.raises(InputError, match=said) as refused:
        open_instance(deployment)
    assert "\n" not in str(refused.value) and "canary" not in str(refused.value)


def test_what_is_forgotten_leaves_no_old_rows_in_postgres(
    deployment: Deployment, server: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    place = sql.URL.create(
        "postgresql+psycopg2",
        server["DAGSTER_POSTGRES_USER"],
        PASSWORD,
        "127.0.0.1",
        int(server["DAGSTER_POSTGRES_PORT"]),
    ).set(database="postgres")
    with open_instance(deployment) as instance:
        instance.run_storage.set_cursor_values({"sensor": f"read {NEEDLE} last"})
    engine = sql.create_engine(place, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sql.text("CREATE EXTENSION pageinspect"))
        table = "kvs"
        raw = sql.text(
            f"SELECT count(*) FROM generate_series(0, pg_relation_size('{table}') / 8192 - 1) AS page"
            f" WHERE position(convert_to('{NEEDLE}', 'UTF8') IN get_raw_page('{table}', page::int)) > 0"
        )
        assert connection.execute(raw).scalar() == 1
        assert scrub(connection, Traces((NEEDLE,), frozenset())) == 1
        assert connection.execute(raw).scalar() == 1, "the old version of the row is still in its page"
        compact_server(connection)
        assert connection.execute(raw).scalar() == 0
    engine.dispose()


def test_a_home_where_no_folder_can_be_made_is_refused_in_words(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", "/proc/none")
    with pytest.raises(InputError, match="/proc/none: no folder can be made there: write elsewhere: CAPIBARA_HOME"):
        dagster_home(deployment)
