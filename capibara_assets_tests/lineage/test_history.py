"""Dagster's history without a record: events stay readable, previews become a note, and no page keeps old bytes."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import dagster as dg
import polars as pl
import pytest
import sqlalchemy as sql

from capibara_assets.errors import InputError
from capibara_assets.lineage import history
from capibara_assets.lineage.history import NOTE, Traces, rewritten, scrub, scrub_files, scrub_text
from capibara_assets.metadata import preview

CANARY = "kanarienvogel_sings_at_noon"
DIGEST, OTHER = "a" * 64, "b" * 64
SOURCE = "vogelwarte"


def test_json_keeps_its_form() -> None:
    traces = Traces((CANARY,), frozenset())
    value = json.dumps({"n": 1.5, "a": [f"x {CANARY}", "y"], "inner": json.dumps({"code": CANARY}), CANARY: None})
    found = json.loads(rewritten(value, traces))
    assert found == {"n": 1.5, "a": [NOTE, "y"], "inner": json.dumps({"code": NOTE}), NOTE: None}
    untouched = json.dumps({"n": 1, "a": "y"}, separators=(",", ":"))
    assert rewritten(untouched, traces) is untouched


def test_of_other_text_the_lines_go(tmp_path: Path) -> None:
    traces = Traces((CANARY,), frozenset())
    assert rewritten(f"a\nb {CANARY}\nc", traces) == f"a\n{NOTE}\nc"
    (tmp_path / "run.out").write_bytes(f"a\nb {CANARY}\n".encode() + b"\xff\n")
    scrub_text(tmp_path / "run.out", traces)
    assert (tmp_path / "run.out").read_bytes() == f"a\n{NOTE}\n".encode() + b"\xff\n"


def test_a_record_of_a_run_is_still_one(tmp_path: Path) -> None:
    """It is JSON in one line: `capibara report` reads it after a forget as before."""
    (tmp_path / "latest.json").write_text(json.dumps({"domains": {"sql": {"error": f"x {CANARY}", "loss": 1.5}}}))
    scrub_text(tmp_path / "latest.json", Traces((CANARY,), frozenset()))
    assert json.loads((tmp_path / "latest.json").read_bytes()) == {"domains": {"sql": {"error": NOTE, "loss": 1.5}}}


@pytest.fixture(scope="module")
def materialized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Dagster home with two materializations: one shows the record, one another artifact."""

    @dg.asset
    def shown(config: dict) -> dg.MaterializeResult:  # type: ignore[type-arg]
        frame = pl.DataFrame({"code": [config["code"], "a neighbour"]})
        return dg.MaterializeResult(
            metadata={
                "preview": preview(frame),
                "quality": dg.MetadataValue.md(f"| source |\n| --- |\n| {SOURCE} |"),
                "statistics": dg.MetadataValue.json({"sources": {SOURCE: 2}}),
                "rows": 2,
                "inputs": dg.MetadataValue.json({"upstream": {"logs": OTHER}}),
                "digest": config["digest"],
            },
            data_version=dg.DataVersion(config["digest"]),
        )

    home = tmp_path_factory.mktemp("history") / "dagster"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        for digest, code in ((DIGEST, f"{CANARY[:16]} cut off"), (DIGEST, CANARY * 300), (OTHER, "other code")):
            result = dg.materialize(
                [shown],
                instance=instance,
                run_config={"ops": {"shown": {"config": {"code": code, "digest": digest}}}},
            )
            assert result.success
    return home


@pytest.fixture
def home(tmp_path: Path, materialized: Path) -> Path:
    """A copy of it that may be scrubbed."""
    return Path(shutil.copytree(materialized, tmp_path / "dagster"))


def raw(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_no_byte_stays_and_dagster_reads_on(home: Path) -> None:
    assert CANARY.encode() in raw(home) and b"cut off" in raw(home)
    traces = Traces((CANARY, f"{CANARY[:16]} cut off"), frozenset({DIGEST}))
    counted = scrub_files(home, traces, write=False)
    assert CANARY.encode() in raw(home)
    done = scrub_files(home, traces)
    assert done == counted and sum(done.values()) >= 8
    assert CANARY.encode() not in raw(home) and b"cut off" not in raw(home)
    assert scrub_files(home, traces) == {}
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        records = instance.fetch_materializations(dg.AssetKey("shown"), limit=5).records
        found = [record.asset_materialization.metadata for record in records]  # type: ignore[union-attr]
        assert [one["digest"].value for one in found] == [OTHER, DIGEST, DIGEST]
        assert [one["rows"].value for one in found] == [2, 2, 2]
        assert isinstance(found[0]["preview"], dg.TableMetadataValue)
        for name in ("preview", "quality", "statistics"):
            assert [one[name].value for one in found[1:]] == [NOTE, NOTE], "a table by source names the record's, too"
        assert SOURCE in str(found[0]["quality"].value) and found[0]["statistics"].value == {"sources": {SOURCE: 2}}
        assert [one["inputs"].value for one in found] == 3 * [{"upstream": {"logs": OTHER}}], "later stages read them"
        latest = instance.get_latest_materialization_event(dg.AssetKey("shown"))
        assert latest is not None and latest.asset_materialization is not None
        assert len(instance.get_runs()) == 3


def test_any_database_is_read_through_sqlalchemy() -> None:
    engine = sql.create_engine("sqlite://")
    with engine.begin() as connection:
        connection.execute(sql.text("CREATE TABLE a (k TEXT, n INTEGER, v TEXT, PRIMARY KEY (k, n))"))
        connection.execute(sql.text("CREATE TABLE without_key (v TEXT)"))
        connection.execute(sql.insert(sql.table("a", *map(sql.column, "knv"))), [
            {"k": "x", "n": n, "v": f"{CANARY} {n}" if n % 2 else None if n == 4 else "plain"} for n in range(10)
        ])  # fmt: skip
        assert scrub(connection, Traces((), frozenset())) == 0
        assert scrub(connection, Traces((CANARY,), frozenset())) == 5
        values = connection.execute(sql.text("SELECT v FROM a ORDER BY n")).scalars().all()
    assert values == [NOTE if n % 2 else None if n == 4 else "plain" for n in range(10)]


def test_a_database_that_is_in_use_is_an_error_and_not_a_trace(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_WAIT_S", 0.3)
    [index] = home.rglob("index.db")
    with closing(sqlite3.connect(index, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InputError, match=r"index\.db is held by another process"):
            scrub_files(home, Traces((CANARY,), frozenset({DIGEST})))
    scrub_files(home, Traces((CANARY, f"{CANARY[:16]} cut off"), frozenset({DIGEST})))
    assert CANARY.encode() not in raw(home)
