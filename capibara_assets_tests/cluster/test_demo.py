"""`make cluster-demo`: the whole graph on gs://, PostgreSQL and a fake cluster makes what one machine makes."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import fsspec
import pytest
import yaml

from capibara_assets.definitions import defs
from capibara_assets.deployment.environment import Deployment
from capibara_assets_tests.canary import CANARY, FAILED, MENDED, singing
from capibara_assets_tests.cluster import postgres
from capibara_assets_tests.cluster.fake.api import TOKEN, Api
from capibara_assets_tests.cluster.fake.cluster import Cluster
from capibara_assets_tests.cluster.launched import SECRET, SECRETS
from capibara_assets_tests.home import DOMAINS, MadeHome, command, make_inputs, versions
from capibara_assets_tests.storage.gcs import BUCKET, gcs_emulator

pytestmark = pytest.mark.extended
TARGET = "axion-c4a-32"  # the machine of Google Cloud that a computer without accelerators can stand for


class Demo:
    """The deployment on the cluster, and the services that it uses.

    Attributes:
        variables: environment of its commands: where the services are, and their credentials.
    """

    def __init__(self, folder: Path, services: ExitStack):
        emulator = services.enter_context(gcs_emulator())
        database = services.enter_context(postgres.postgres())
        (folder / "pods").mkdir()
        # there is no Google Cloud, nor a metadata server to ask for credentials
        bucket = {"STORAGE_EMULATOR_HOST": emulator, "NO_GCE_CHECK": "true"}
        self.cluster = Cluster(folder / "pods", secrets=SECRETS, surroundings=bucket)
        kubeconfig = folder / "kubeconfig"
        services.enter_context(Api(self.cluster).serving(kubeconfig))
        os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"  # as the store does: it would ask over gRPC
        self.bucket = fsspec.filesystem("gs", token="anon", endpoint_url=emulator)
        self.bucket.put(str(folder / "experience"), f"{BUCKET}/experience", recursive=True)
        self.home = folder / "cluster"
        self.home.mkdir()
        file = self.home / "deployment.yaml"
        file.write_text(yaml.safe_dump(self._document(folder)))
        self.variables = {
            **database,
            **bucket,
            "CAPIBARA_DEPLOYMENT": str(file),
            "DAGSTER_HOME": "",
            "KUBECONFIG": str(kubeconfig),
        }

    def _document(self, folder: Path) -> dict[str, Any]:
        return {
            "storage": {
                "home": str(self.home),
                "store": f"gs://{BUCKET}/store",
                "history": "postgres",
                "compute_logs": f"gs://{BUCKET}/logs",
            },
            "experience": {"folder": f"gs://{BUCKET}/experience"},
            "model": {"base": str(folder / "base_model")},
            "recipes": {"folder": str(folder / "recipes")},
            "launcher": {
                "mode": "k8s",
                "image": "registry.example/capibara:1",
                "namespace": "ml",
                "secrets": list(SECRETS),
                "volume_claim": "work",
                "volume_path": str(folder),
            },
            "hardware": {"default": {"targets": [TARGET]}},
        }

    def run(self, *arguments: str) -> str:
        return command(self.variables, *arguments)

    def versions(self) -> dict[str, str]:
        return versions_of(Deployment.from_environment(self.variables))

    def holding(self, *words: str) -> list[str]:
        """Where a word stands, in any form, in what the deployment keeps: objects, rows, manifests and files."""
        with tempfile.TemporaryDirectory() as name:
            kept = Path(name)
            self.bucket.invalidate_cache()
            for path in self.bucket.find(BUCKET):  # one after the other: the emulator leaves parallel requests waiting
                (kept / path).parent.mkdir(parents=True, exist_ok=True)
                (kept / path).write_bytes(self.bucket.cat_file(path))
            shutil.copytree(self.home, kept / "home")
            (kept / "manifests.json").write_text(json.dumps(self.cluster.made))
            place = {
                f"PG{part}": self.variables[f"DAGSTER_POSTGRES_{part}"] for part in ("HOST", "PORT", "USER", "PASSWORD")
            }
            dump = [str(postgres.program("pg_dump")), "--no-password", "--file", str(kept / "rows.sql"), "postgres"]
            subprocess.run(dump, env={**os.environ, **place}, check=True)
            return singing(kept, words)


def versions_of(deployment: Deployment) -> dict[str, str]:
    return versions(
        deployment, sorted(key.to_user_string() for key in defs.resolve_asset_graph().materializable_asset_keys)
    )


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """Experience, base model and recipes that train each voter in two processes."""
    make_inputs(tmp_path)
    recipe = tmp_path / "recipes" / "training-demo.yaml"
    values = yaml.safe_load(recipe.read_text())
    values["hardware"] = {**values.get("hardware", {}), "backend": "ddp", "processes": 2}
    recipe.write_text(yaml.safe_dump(values))
    return tmp_path


@pytest.fixture
def demo(inputs: Path) -> Iterator[Demo]:
    with ExitStack() as services:
        yield Demo(inputs, services)


def test_a_cluster_makes_what_one_machine_makes(
    inputs: Path, demo: Demo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def say(text: str) -> None:
        with capsys.disabled():
            print(text, flush=True)

    for name, value in demo.variables.items():
        monkeypatch.setenv(name, value)
    say("on a cluster: gs:// store and experience, PostgreSQL, trainings as Jobs, two processes a voter")
    printed = demo.run("run", "--domains", ",".join(DOMAINS))
    made = demo.versions()
    assert {job["metadata"]["labels"]["capibara/domain"] for job in demo.cluster.made} == set(DOMAINS)
    with demo.cluster.lock:
        assert (demo.cluster.jobs, demo.cluster.sets, demo.cluster.pods) == ({}, {}, {})
    say(f"  {len(made)} results, {len(demo.cluster.made)} Jobs, none left")
    credentials = (TOKEN, SECRET, postgres.PASSWORD)
    assert not demo.holding(*credentials) and not any(one in printed for one in credentials)
    say("  no credential in any object, row, manifest, log or file")

    again = demo.run("run", "--domains", ",".join(DOMAINS))
    assert demo.versions() == made and len(demo.cluster.made) == len(DOMAINS), again
    say("  a second run makes nothing")

    local = MadeHome(inputs)
    for name in demo.variables:
        monkeypatch.delenv(name)
    command({**local.environment, "CAPIBARA_TARGET": TARGET}, "run", "--domains", ",".join(DOMAINS))
    monkeypatch.setenv("CAPIBARA_TARGET", TARGET)
    one_machine = versions_of(local.deployment)
    assert one_machine == made
    say("  the same data versions on one machine")

    for name, value in demo.variables.items():
        monkeypatch.setenv(name, value)
    assert demo.holding(CANARY)
    demo.run("forget", FAILED, MENDED)
    left = [name for name in demo.holding(CANARY, FAILED, MENDED) if not name.startswith(f"{BUCKET}/experience/")]
    assert not left, "\n".join(left)
    say("  a forgotten execution is gone from the bucket, the database and the logs")
