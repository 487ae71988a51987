"""What a user gets wrong: one clear sentence, exit code 2, no traceback, nothing run."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from capibara_assets.locations import resources_root

pytestmark = pytest.mark.slow


def capibara(*arguments: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "capibara_assets.cli", *arguments],
        env={**os.environ, "CAPIBARA_HOME": str(home), "DAGSTER_HOME": "", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def damaged(nano: Path, folder: Path, how: str) -> Path:
    shutil.copytree(nano, folder / "model")
    weights = folder / "model" / "model.safetensors"
    if how == "cut":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif how == "no config":
        (folder / "model" / "config.json").unlink()
    elif how == "no weights":
        weights.unlink()
    return folder / "model"


CASES = {
    "missing experience": (["run", "--experience", "/nowhere/at/all"], "does not exist"),
    "unknown domain": (["run", "--domains", "python,cobol"], "unknown domain cobol"),
    "empty domains": (["run", "--domains", " , "], "unknown domain"),
    "missing base model": (["run", "--base-model", "/nowhere/model"], "/nowhere/model"),
    "unknown target": (["run", "--target", "abacus-1"], "no hardware target 'abacus-1'"),
    "unknown asset": (["run", "--select", "no_such_asset"], "no_such_asset"),
    "no run yet": (["report", "--json"], "no run yet"),
    "unknown option": (["run", "--experiense", "x"], "experiense"),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_one_sentence_and_exit_code_2(name: str, tmp_path: Path):
    arguments, message = CASES[name]
    done = capibara(*arguments, home=tmp_path / "home")
    assert done.returncode == 2, done.stderr
    assert message in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "home" / "store" / "artifacts").exists()


@pytest.mark.parametrize("how", ["cut", "no config", "no weights"])
def test_an_unreadable_base_model(how: str, nano: Path, tmp_path: Path):
    done = capibara("run", "--base-model", str(damaged(nano, tmp_path, how)), home=tmp_path / "home")
    assert done.returncode == 2, done.stderr
    assert str(tmp_path / "model") in done.stderr and "Traceback" not in done.stderr


def test_a_hub_id_that_was_not_fetched_is_refused_at_once(tmp_path: Path):
    done = capibara("run", "--base-model", "someone/model@main", home=tmp_path / "home")
    assert done.returncode == 2 and "model fetch" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("recipe", "line", "said"),
    [
        ("decision", "min_group: 7", "did you mean 'min_groups'"),
        ("consensus", "tolerance: 0.5", "key 'tolerance' is given twice"),
        ("training-demo", "seed: fast", "given twice"),
    ],
)
def test_a_recipe_that_does_not_fit_is_refused_before_anything_runs(recipe: str, line: str, said: str, tmp_path: Path):
    shutil.copytree(resources_root() / "recipes", tmp_path / "recipes")
    file = tmp_path / "recipes" / f"{recipe}.yaml"
    file.write_text(f"{file.read_text()}{line}\n")
    done = capibara("run", home=tmp_path / "home", CAPIBARA_RECIPES=str(tmp_path / "recipes"))
    assert done.returncode == 2, done.stderr
    assert said in done.stderr and str(file) in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "home" / "store" / "artifacts").exists()


@pytest.mark.slow
def test_malformed_experience_is_quarantined_and_the_run_goes_on(shared_data: Path, tmp_path: Path):
    bad = shared_data / "experience" / "bad"
    done = capibara(
        "run",
        "--experience",
        str(bad),
        "--select",
        "ace_playbooks,e2b_logs,e2b_executions",
        home=tmp_path / "home",
    )
    assert "Traceback" not in done.stderr
    record = json.loads((tmp_path / "home" / "runs" / "latest.json").read_text())
    assert "e2b_logs[_]" not in record["failures"] and "ace_playbooks[_]" not in record["failures"]
    report = json.loads(capibara("report", "--json", home=tmp_path / "home").stdout)
    assert report["quarantined"] > 30
    assert report["domains"]["api"]["executions"] > 0
