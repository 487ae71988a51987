"""What a user gets wrong: one clear sentence, exit code 2, no traceback, nothing run."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from capibara_assets.deployment.locations import resources_root

Done = subprocess.CompletedProcess[str]


def in_a_process(*arguments: str, home: Path, **environment: str) -> Done:
    return subprocess.run(
        [sys.executable, "-m", "capibara_assets.cli", *arguments],
        env={**os.environ, "CAPIBARA_HOME": str(home), "DAGSTER_HOME": "", **environment},
        capture_output=True,
        text=True,
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


PROCESSES = {  # an error of ours and one of click's, as the shell sees them; here: `test_wrong_moves.py`
    "unknown domain": (["run", "--domains", "python,cobol"], "unknown domain cobol"),
    "unknown option": (["run", "--experiense", "x"], "experiense"),
}


@pytest.mark.parametrize("name", ["unknown domain", pytest.param("unknown option", marks=pytest.mark.extended)])
def test_one_sentence_and_exit_code_2(name: str, tmp_path: Path):
    arguments, message = PROCESSES[name]
    done = in_a_process(*arguments, home=tmp_path / "home")
    assert done.returncode == 2, done.stderr
    assert message in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "home" / "store" / "artifacts").exists()


@pytest.mark.extended
def test_warnings_that_are_errors_end_no_command(tmp_path: Path):
    """Libraries warn when they are imported; the sentence is of a command that has imported all of the graph."""
    arguments = ["run", "--select", "no_such_asset"]
    done = in_a_process(*arguments, home=tmp_path / "home", PYTHONWARNINGS="error")
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "no selection of assets" in done.stderr


@pytest.mark.parametrize("closed", ["", "2>&1"])
def test_a_closed_pipe_ends_a_command_quietly(closed: str, tmp_path: Path):
    """Its reader ends before it writes; what other commands of the pipe print is read."""
    command = f"{sys.executable} -m capibara_assets.cli config {closed} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "141" and done.stderr == ""


@pytest.mark.parametrize("how", ["cut", "no config", "no weights"])
def test_an_unreadable_base_model(how: str, capibara: Callable[..., Done], nano: Path, tmp_path: Path):
    done = capibara("run", "--base-model", str(damaged(nano, tmp_path, how)), home=tmp_path / "home")
    assert done.returncode == 2, done.stderr
    assert str(tmp_path / "model") in done.stderr and "Traceback" not in done.stderr


def test_a_hub_id_that_was_not_fetched_is_refused_at_once(capibara: Callable[..., Done], tmp_path: Path):
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
def test_a_recipe_that_does_not_fit_is_refused_before_anything_runs(
    recipe: str, line: str, said: str, capibara: Callable[..., Done], tmp_path: Path
):
    shutil.copytree(resources_root() / "recipes", tmp_path / "recipes")
    file = tmp_path / "recipes" / f"{recipe}.yaml"
    file.write_text(f"{file.read_text()}{line}\n")
    done = capibara("run", home=tmp_path / "home", CAPIBARA_RECIPES=str(tmp_path / "recipes"))
    assert done.returncode == 2, done.stderr
    assert said in done.stderr and str(file) in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "home" / "store" / "artifacts").exists()


def test_malformed_experience_is_quarantined_and_the_run_goes_on(
    capibara: Callable[..., Done], shared_data: Path, tmp_path: Path
):
    bad = shared_data / "experience" / "bad"
    done = capibara(
        "run",
        "--experience",
        str(bad),
        "--select",
        "ace_playbooks,e2b_logs,e2b_executions",
        "--domains",
        "api",
        home=tmp_path / "home",
    )
    assert "Traceback" not in done.stderr
    record = json.loads((tmp_path / "home" / "runs" / "latest.json").read_text())
    assert "e2b_logs[_]" not in record["failures"] and "ace_playbooks[_]" not in record["failures"]
    report = json.loads(capibara("report", "--json", home=tmp_path / "home").stdout)
    assert report["quarantined"] > 30
    assert report["domains"]["api"]["executions"] > 0
