"""Generated launch scripts: bash accepts them, they hold no path, and one really trains, resumes and does nothing."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.standalone.scripts import launch_scripts, write_scripts
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.waiting import until

SNAPSHOT = Path(__file__).parent / "launch_8xh100.sh"
ONE_VOTER = [{"name": "voter-0", "seed": 0, "shard": 0}]


def mistral_8xh100(make_request: MakeRequest, **changes: object) -> TrainingRequest:
    """The published recipe: ZeRO-2, r 64 on all projections, 8 x 2 x 8 GPUs = 128 examples a step."""
    return make_request(
        **{
            "lora": {"rank": 64, "alpha": 128, "dropout": 0.05, "use_rslora": False},
            "backend": "zero2",
            "processes": 8,
            "global_batch": 128,
            "micro_batch": 8,
            "accumulation": 2,
            "precision": "bf16",
            "attention": "flash_attention_2",
            **changes,
        }
    )


@pytest.mark.parametrize("backend", ["single", "ddp", "fsdp2", "zero2", "accelerate"])
@pytest.mark.parametrize("target", ["h100-8", "cpu-laptop", None])
def test_bash_accepts_the_scripts_and_they_hold_no_path_and_no_secret(
    backend: str, target: str | None, make_request: MakeRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_" + "a" * 34)
    request = make_request(backend=backend, processes=1 if backend == "single" else 2)
    folder = write_scripts(tmp_path / "launch", request, find_target(target) if target else None)
    for file in folder.glob("*.sh"):
        done = subprocess.run(["bash", "-n", file], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert os.access(file, os.X_OK)
        text = file.read_text()
        assert "hf_aaa" not in text and str(tmp_path) not in text and str(request.base_model) not in text
        assert file.name == "environment.sh" or "set -euo pipefail" in text


def test_the_same_inputs_give_the_same_scripts_wherever_they_lie(make_request: MakeRequest) -> None:
    target = find_target("h100-8")
    one, other = (launch_scripts(make_request(work=name), target) for name in ("here", "there"))
    assert one == other
    assert one != launch_scripts(make_request(seed=2, backend="ddp", processes=2), target)


def test_the_script_for_eight_h100(make_request: MakeRequest) -> None:
    scripts = launch_scripts(mistral_8xh100(make_request), find_target("h100-8"))
    launch = re.sub(r"CAPIBARA_RUN:-[0-9a-f]{12}", "CAPIBARA_RUN:-RUN", scripts["launch.sh"])
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOT.write_text(launch)
    assert launch == SNAPSHOT.read_text(), "UPDATE_SNAPSHOTS=1 writes the new one: read the difference first"
    environment = scripts["environment.sh"]
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "NCCL_DEBUG", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM"):
        assert re.search(rf'^export {name}="\${{{name}:-[^"]+}}"', environment, re.MULTILINE), name
    assert "deepspeed" in scripts["check.sh"] and "bitsandbytes" not in scripts["check.sh"]


def test_processes_and_nodes_have_to_make_the_recipes_processes(make_request: MakeRequest, tmp_path: Path) -> None:
    request = mistral_8xh100(make_request)
    folder = write_scripts(tmp_path / "launch", request, find_target("h100-8"))
    (folder / "check.sh").write_text("exit 0\n")
    done = run(folder, tmp_path / "any.json", NNODES="3")
    assert done.returncode == 2
    assert "3 nodes x 8 processes = 24, the recipe says 8" in done.stderr
    assert run(folder, None).returncode == 2


def test_several_nodes_meet_voter_by_voter_and_signals_reach_them(make_request: MakeRequest, tmp_path: Path) -> None:
    two = [{"name": f"voter-{number}", "seed": number, "shard": number} for number in range(2)]
    request = mistral_8xh100(make_request, voters=two)
    folder = write_scripts(tmp_path / "launch", request, find_target("h100-8"))
    (folder / "check.sh").write_text("exit 0\n")
    python = tmp_path / "python"  # stands for Python: writes down what it was asked, and stays where it is told to
    python.write_text(
        "#!/usr/bin/env bash\n"
        'echo "$@" >> "$LOG"\n'
        'if [[ -n "${STAY:-}" && "$*" == *torch* ]]; then trap "exit 143" TERM; touch "$LOG.up"; '
        "while :; do sleep 0.05; done; fi\n"
        'if [[ "$*" == *voter-1* ]]; then exit 3; fi\n'
    )
    python.chmod(0o755)
    log = tmp_path / "log"
    nodes = {"NNODES": "2", "NPROC_PER_NODE": "4", "MASTER_ADDR": "10.0.0.1", "PYTHON": str(python), "LOG": str(log)}
    assert run(folder, tmp_path / "r.json", **nodes).returncode == 0  # a voter fails alone
    asked = log.read_text().splitlines()
    assert [line.rpartition(" ")[2] for line in asked[:2]] == ["voter-0", "voter-1"]
    assert all("--nnodes 2 --nproc-per-node 4 --node-rank 0" in line for line in asked[:2])
    assert all("--rdzv-endpoint 10.0.0.1:29500" in line for line in asked[:2])
    assert asked[2] == f"-m capibara_assets.training --request {tmp_path / 'r.json'}"
    log.unlink()
    assert run(folder, tmp_path / "r.json", **nodes, NODE_RANK="1").returncode == 1  # only the first puts together
    assert len(log.read_text().splitlines()) == 2

    process = start(folder, tmp_path / "r.json", **nodes, STAY="1")
    try:
        until(lambda: Path(f"{log}.up").exists())
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=300) == 143
    finally:  # what stands for Python would stay for ever
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
        process.wait()


@pytest.mark.extended
@pytest.mark.resume
def test_the_script_trains_is_stopped_goes_on_and_then_has_nothing_to_do(
    make_request: MakeRequest, tmp_path: Path
) -> None:
    request = make_request(voters=ONE_VOTER, max_steps=150, epochs=99, checkpoint_every=1000, evaluate_every=75)
    folder = write_scripts(tmp_path / "launch", request)
    letter = folder / "request.json"
    with start(folder, letter, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "trainable parameters" in line:  # it has begun
                process.send_signal(signal.SIGTERM)
                break
        assert process.wait(timeout=300) == 143
    assert list((request.work / "voter-0").glob("checkpoint-*")) and not request.out.exists()

    done = run(folder, letter)
    assert done.returncode == 0, done.stderr
    assert "goes on from step" in done.stdout and "disk" in done.stderr
    summary = json.loads((request.out / "summary.json").read_text())
    assert summary["voters"]["voter-0"]["steps"] == 150
    weights = (request.out / "voters" / "voter-0" / "adapter_model.safetensors").read_bytes()

    done = run(folder, letter)
    assert done.returncode == 0 and "was finished before" in done.stdout
    assert (request.out / "voters" / "voter-0" / "adapter_model.safetensors").read_bytes() == weights


def test_another_base_or_dataset_is_refused(make_request: MakeRequest, tiny_folder: Path, tmp_path: Path) -> None:
    base = shutil.copytree(tiny_folder, tmp_path / "base")
    request = make_request(base=base)
    folder = write_scripts(tmp_path / "launch", request)
    config = base / "config.json"
    config.write_text(config.read_text().replace('"rope_theta": 10000.0', '"rope_theta": 20000.0'))
    done = subprocess.run(
        ["bash", folder / "check.sh", folder / "request.json"],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "is not the one that these scripts were made for" in done.stderr


def start(folder: Path, letter: Path | None, stdout: int | None = None, **environment: str) -> subprocess.Popen[str]:
    """The launch script as a process of its own."""
    return subprocess.Popen(
        ["bash", folder / "launch.sh", *([letter] if letter else [])],
        env={**os.environ, "PYTHON": sys.executable, **environment},
        stdout=stdout,
        text=True,
        start_new_session=True,
    )


def run(folder: Path, letter: Path | None, **environment: str) -> subprocess.CompletedProcess[str]:
    """The launch script to its end."""
    return subprocess.run(
        ["bash", folder / "launch.sh", *([letter] if letter else [])],
        env={**os.environ, "PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
