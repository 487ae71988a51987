"""`data.engine: ray`: the whole graph through Ray's workers, of which some are killed, makes what one machine makes."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml

from capibara_assets.deployment.environment import Deployment
from capibara_assets_tests.cluster.test_demo import versions_of
from capibara_assets_tests.home import DOMAINS, MadeHome
from capibara_assets_tests.late import late

late("ray", reason="the extra ray is not installed")
pytestmark = pytest.mark.extended
WORKS = {  # asset → what Ray calls a worker that works for it: ingest, search for near-duplicates, execution of code
    "e2b_logs": "ray::Map(_done)",
    "example_groups": "ray::FlatMap(_spread)",
    "moe_dataset": "ray::Map(_done)",
}


def kill_one_for_each(run: "subprocess.Popen[bytes]", log: Path) -> list[str]:
    """Until the run ends, kill a worker at its work for each of the assets above; those whose worker was killed."""
    killed = list[str]()
    while run.poll() is None:
        printed = log.read_text()
        asset = next((name for name in WORKS if f" {name} in " not in printed), None)
        if asset is not None and asset not in killed:
            with suppress(psutil.Error):
                for process in psutil.Process(run.pid).children(recursive=True):
                    if " ".join(process.cmdline()).strip() == WORKS[asset]:
                        process.kill()
                        killed.append(asset)
                        break
        time.sleep(0.02)
    return killed


def test_a_run_whose_workers_are_killed_makes_what_one_machine_makes(shared_home: MadeHome, tmp_path: Path) -> None:
    made_from = shared_home.folder
    file = tmp_path / "deployment.yaml"
    document = {
        "storage": {"home": str(tmp_path / "home")},
        "experience": {"folder": str(made_from / "experience")},
        "model": {"base": str(made_from / "base_model")},
        "recipes": {"folder": str(made_from / "recipes")},
        "data": {"engine": "ray", "workers": 2, "from_mib": 0, "from_texts": 1, "from_sessions": 1},
    }
    file.write_text(yaml.safe_dump(document))
    deployment = {"CAPIBARA_DEPLOYMENT": str(file), "DAGSTER_HOME": ""}
    command = [sys.executable, "-m", "capibara_assets.cli", "run", "--domains", ",".join(DOMAINS)]
    with (log := tmp_path / "log").open("wb") as out:
        run = subprocess.Popen(command, env=os.environ | deployment, stdout=out, stderr=subprocess.STDOUT)
        try:
            killed = kill_one_for_each(run, log)
        finally:
            run.kill()
    printed = log.read_text()
    assert run.wait() == 0, printed[-4000:]
    assert killed == list(WORKS), printed[-4000:]
    assert "WARNING" not in printed
    assert versions_of(Deployment.from_environment(deployment)) == versions_of(shared_home.deployment)
