"""`capibara forget` where the store lies in a bucket: no object keeps the record, copies are named."""

import gzip
import io
import json
import zipfile
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner
from upath import UPath

from capibara_assets.cli.dataset.forget import forget
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.cli.graph.run import run
from capibara_assets.deployment.environment import Deployment
from capibara_assets.lineage.history import objects_holding
from capibara_assets.storage.mirror import mirror
from capibara_assets_tests.canary import CANARY, FAILED, MENDED, plant, singing, told

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
    for assets in (("--select", "e2b_logs"), ("--select", "e2b_executions", "--domains", "python")):
        done = CliRunner().invoke(run, assets, catch_exceptions=False)
        assert done.exit_code == 0, done.output[-3000:]
    write(bucket / "store" / "backup-of-monday.zip", backup())
    write(bucket / "store" / "reports" / "old.json.gz", gzip.compress(told().encode()))
    before = singing(mirror(f"{bucket}/store", tmp_path / "before"))
    assert any("e2b_logs" in one for one in before) and any("e2b_executions" in one for one in before)
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
