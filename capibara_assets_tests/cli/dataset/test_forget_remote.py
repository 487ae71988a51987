"""`capibara forget` where store, captured output and history lie elsewhere: none keeps the record, copies are named."""

import gzip
import io
import json
import os
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import fsspec
import polars as pl
import pytest
from click.testing import CliRunner
from upath import UPath

from capibara_assets.cli.dataset.forget import _search, forget, rewrite_history
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.cli.graph.run import run
from capibara_assets.deployment.environment import Deployment
from capibara_assets.lineage import history
from capibara_assets.lineage.history import Traces, objects_holding
from capibara_assets.lineage.traces import pieces
from capibara_assets.storage.mirror import mirror
from capibara_assets_tests.canary import CANARY, FAILED, MENDED, plant, singing, told
from capibara_assets_tests.cluster import postgres
from capibara_assets_tests.storage.gcs import BUCKET, gcs_emulator

pytestmark = pytest.mark.slow


@pytest.fixture
def bucket(tmp_path: Path) -> UPath:
    return UPath(f"memory://{tmp_path.name}-{tmp_path.parent.name}")


@pytest.fixture
def deployment(bucket: UPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """The canary's logs on this machine, and the store in a bucket."""
    logs = tmp_path / "experience" / "e2b_logs"
    logs.mkdir(parents=True)
    (tmp_path / "experience" / "playbooks").mkdir()
    plant(logs)
    named = {"HOME": tmp_path / "home", "EXPERIENCE": tmp_path / "experience", "STORE": f"{bucket}/store"}
    for name, value in named.items():
        monkeypatch.setenv(f"CAPIBARA_{name}", str(value))
    monkeypatch.setenv("DAGSTER_HOME", "")
    return Deployment.from_environment()


def write(path: UPath, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def backup() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("old/journal.jsonl", json.dumps({"answer": told()}))
    return packed.getvalue()


def test_no_object_of_the_bucket_keeps_it_and_a_copy_is_named(
    deployment: Deployment, bucket: UPath, tmp_path: Path
) -> None:
    done = CliRunner().invoke(run, ["--select", "e2b_logs"], catch_exceptions=False)
    assert done.exit_code == 0, done.output[-3000:]
    write(bucket / "store" / "backup-of-monday.zip", backup())
    write(bucket / "store" / "reports" / "old.json.gz", gzip.compress(told().encode()))
    before = singing(mirror(f"{bucket}/store", tmp_path / "before"))
    assert any("e2b_logs" in one for one in before)
    with open_instance(deployment) as instance:
        told_of = dg.AssetMaterialization("planted", metadata={"preview": told()})
        instance.report_runless_asset_event(told_of)

    done = CliRunner().invoke(forget, [FAILED, MENDED, "--json"], catch_exceptions=False)
    report = json.loads(done.stdout)
    copies = {"backup-of-monday.zip", "reports/old.json.gz"}
    assert done.exit_code == 1, "copies that a person made are left, and that is no success"
    assert {one.split("/store/")[1].split()[0] for one in report["left"]} == copies
    assert set(singing(mirror(f"{bucket}/store", tmp_path / "after"))) == copies
    assert singing(deployment.home) == []


def test_objects_are_searched_in_every_form_and_one_at_a_time(bucket: UPath) -> None:
    assert objects_holding(f"{bucket}/none", [CANARY]) == []
    for name, data in {"plain.log": told().encode(), "a/b.zip": backup(), "fine.json": b"{}"}.items():
        write(bucket / "place" / name, data)
    assert [one.partition("/place/")[2] for one in objects_holding(f"{bucket}/place", [CANARY])] == [
        "a/b.zip",
        "plain.log",
    ]
    assert objects_holding(f"{bucket}/place", []) == []


def _says_it(context: dg.AssetExecutionContext) -> None:
    """What a step may print, log, publish and fail with."""
    for text in (told(), repr(told()), json.dumps({"code": told()}), f"warning: {told().splitlines()[0]} is odd"):
        os.write(1, f"{text}\n".encode())
        os.write(2, f"{text}\n".encode())
    context.log.info(told())
    context.add_output_metadata({"preview": dg.MetadataValue.md(f"|code|\n|---|\n|{told().splitlines()[0]}|")})
    raise dg.Failure(f"cannot run {told()}", metadata={"code": told()})


@pytest.mark.gcs
def test_captured_output_in_a_bucket_and_events_on_a_server_lose_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gcs_emulator() as emulator, postgres.postgres() as server:
        named = {"HOME": str(tmp_path / "home"), "STORE": f"gs://{BUCKET}/store"}
        variables = {f"CAPIBARA_{name}": value for name, value in named.items()} | server
        variables |= {"STORAGE_EMULATOR_HOST": emulator, "NO_GCE_CHECK": "true", "DAGSTER_HOME": ""}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        elsewhere = {"history": "postgres", "compute_logs": f"gs://{BUCKET}/logs"}
        deployment = replace(Deployment.from_environment(), **elsewhere)
        with open_instance(deployment) as instance:
            spoken = dg.asset(name="spoken")(_says_it)
            assert not dg.materialize([spoken], instance=instance, raise_on_error=False).success
            [needles] = pieces(pl.DataFrame({"execution_id": [FAILED], "code": [told()]}))
            records = SimpleNamespace(needles=needles)
            before = _search(deployment, instance, records)  # type: ignore[arg-type]
            assert {"Dagster's database of events"} < set(before), before
            assert any(one.startswith(f"gs://{BUCKET}/logs/") for one in before), before
            counts, logs = rewrite_history(deployment, instance, Traces(tuple(needles), frozenset()), write=True)
            assert counts["events"] and any(one.startswith("gs://") for one in logs)
            assert _search(deployment, instance, records) == []  # type: ignore[arg-type]
            emptied: list[str] = []
            monkeypatch.setattr(history, "compact_server", lambda connection: emptied.append(connection.dialect.name))
            rewrite_history(deployment, instance, Traces(tuple(needles), frozenset()), write=True)
            assert set(emptied) == {"postgresql"}, "an earlier forget may have been interrupted before it"
            assert instance.get_runs()[0].status is dg.DagsterRunStatus.FAILURE and instance.all_logs(
                instance.get_runs()[0].run_id
            ), "Dagster still reads them"
        bucket = fsspec.filesystem("gs", token="anon", endpoint_url=emulator)
        objects = {name: bucket.cat_file(name) for name in bucket.find(BUCKET)}
        assert objects and not any(CANARY.encode() in data for data in objects.values())
        place = {f"PG{part}": server[f"DAGSTER_POSTGRES_{part}"] for part in ("HOST", "PORT", "USER", "PASSWORD")}
        dump = [str(postgres.program("pg_dump")), "--no-password", "postgres"]
        rows = subprocess.run(dump, env={**os.environ, **place}, check=True, capture_output=True).stdout
        assert b"spoken" in rows and CANARY.encode() not in rows
