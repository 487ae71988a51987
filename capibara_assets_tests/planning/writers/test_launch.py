"""Launch files: Kubernetes accepts them, bash reads them, a fake gcloud runs them, and what cannot be had says so."""

import ast
import os
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from capibara_assets.errors import InputError
from capibara_assets.planning.hardware.targets import HardwareTarget, find_target, load_targets
from capibara_assets.planning.writers.launch import GKE, QUEUED, RUN, VERTEX, XMANAGER, LaunchJob, launch_files
from capibara_assets_tests.cluster.jobset_schema import problems

SLICES = [target for target in load_targets().values() if target.kind == "tpu"]
JOB = LaunchJob(
    name="capibara-sql",
    domain="sql",
    trainers=("jax", "maxtext", "t5x"),
    files={"jax.yaml": "a: 1\n", "maxtext.yml": "b: 2\n", "t5x.gin": "C = 3\n"},
    storage_root="gs://bucket/capibara",
    xla_flags=("--xla_tpu_enable_async_collective_fusion=true",),
)


@pytest.mark.parametrize("slices", [1, 4])
@pytest.mark.parametrize("target", SLICES, ids=lambda target: target.name)
@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_kubernetes_accepts_every_object(target: HardwareTarget, slices: int, version: str) -> None:
    assert target.kubernetes is not None
    found = list(yaml.safe_load_all(launch_files(JOB._replace(slices=slices), target)[GKE]))
    kinds = [one["kind"] for one in found]
    assert kinds == (["ConfigMap", "Service", "Job"] if slices == 1 else ["ConfigMap", "JobSet"])
    if slices > 1:  # Kubernetes knows no JobSet; what it makes of it are Jobs
        jobset = found.pop()
        assert problems(jobset, version) == []
        (replicated,) = jobset["spec"]["replicatedJobs"]
        assert replicated["replicas"] == slices
        found.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "one"}, **replicated["template"]})
    for one in found:
        kubernetes_validate.validate(one, version, strict=True)
    job = found[-1]["spec"]
    pod = job["template"]["spec"]
    assert job["completions"] == job["parallelism"] == target.kubernetes.nodes
    asked = sum(int(count) for count in pod["containers"][0]["resources"]["limits"].values())
    assert asked * job["completions"] == target.chips
    assert pod["nodeSelector"] == target.kubernetes.node_selector
    assert set(found[0]["data"]) == {*JOB.files, RUN}


def test_a_name_that_is_too_long_for_the_pods_of_several_slices_is_refused() -> None:
    job, target = JOB._replace(name="a" * 50), find_target("tpu-v5e-64")
    launch_files(job, target)
    with pytest.raises(InputError, match=r"its pods would be called a{50}-slice-3-15-xxxxx, 67 characters"):
        launch_files(job._replace(slices=4), target)


@pytest.mark.parametrize("slices", [1, 2])
@pytest.mark.parametrize("target", SLICES, ids=lambda target: target.name)
def test_scripts_and_launchers_can_be_read(target: HardwareTarget, slices: int) -> None:
    files = launch_files(JOB._replace(slices=slices), target)
    for name in (RUN, QUEUED):
        done = subprocess.run(["bash", "-n"], input=files[name], text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
    ast.parse(files[XMANAGER])
    yaml.safe_load(files[VERTEX])


def test_xmanager_says_that_its_launcher_knows_v2_only() -> None:
    text = launch_files(JOB, find_target("tpu-v5e-64"))[XMANAGER]
    assert "knows TPU v2 only" in text and QUEUED in text
    assert "JobRequirements" not in text
    v2 = find_target("tpu-v5e-64").model_copy(update={"family": "tpu-v2", "chips": 4})
    assert "xm.JobRequirements(tpu_v2=8)" in launch_files(JOB, v2)[XMANAGER]


def test_vertex_has_v5e_and_v6e_and_says_what_it_has_not() -> None:
    spec = yaml.safe_load(launch_files(JOB, find_target("tpu-v6e-64"))[VERTEX])
    (pool,) = spec["workerPoolSpecs"]
    assert pool["machineSpec"] == {"machineType": "ct6e-standard-4t", "tpuTopology": "8x8"}
    assert pool["replicaCount"] == 16
    assert pool["containerSpec"]["command"][1] == "/gcs/bucket/capibara/sql/plan/run.sh"
    text = launch_files(JOB, find_target("tpu-v4-64"))[VERTEX]
    assert yaml.safe_load(text) is None and "not tpu-v4" in text


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def fake_gcloud(folder: Path, states: list[str], failing: str = "nothing fails") -> Path:
    """A gcloud that writes its arguments down; describe answers the states one after the other."""
    folder.mkdir()
    for index, state in enumerate(states):
        (folder / f"state-{index}").write_text(state)
    (folder / "gcloud").write_text(
        f"""#!/usr/bin/env bash
printf '%s\\n' "$*" >> "{folder}/calls"
case "$*" in
  *describe*)
    files=("{folder}"/state-*)
    cat "${{files[0]}}"
    if ((${{#files[@]}} > 1)); then rm "${{files[0]}}"; fi
    ;;
  *"{failing}"*) exit 7 ;;
esac
"""
    )
    (folder / "sleep").write_text("#!/usr/bin/env bash\n")
    for name in ("gcloud", "sleep"):
        (folder / name).chmod(0o755)
    return folder


def queued(place: Path, bin_: Path, **extra: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    environment = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "PROJECT": "p", "ZONE": "z", **extra}
    done = subprocess.run(
        ["bash", str(place / QUEUED)], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    calls = bin_ / "calls"
    return done, calls.read_text().splitlines() if calls.exists() else []


def test_the_queued_resource_is_waited_for_used_and_given_back(tmp_path: Path) -> None:
    place = write(tmp_path / "plan", launch_files(JOB._replace(slices=2), find_target("tpu-v5e-64")) | JOB.files)
    done, calls = queued(place, fake_gcloud(tmp_path / "bin", ["WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"]))
    assert done.returncode == 0, done.stderr
    assert calls[0].startswith("compute tpus queued-resources create capibara-sql --project p --zone z")
    assert "--accelerator-type v5litepod-64 --runtime-version v2-alpha-tpuv5-lite" in calls[0]
    assert "--node-count 2 --node-prefix capibara-sql" in calls[0]
    assert sum("describe" in call for call in calls) == 3
    runs = sorted(call for call in calls if "run.sh" in call and "ssh" in call)
    assert [run.split()[4] for run in runs] == ["capibara-sql-0", "capibara-sql-1"]
    assert all("--worker all" in run and run.endswith("bash capibara/run.sh jax") for run in runs)
    assert "queued-resources delete capibara-sql" in calls[-1]


def test_a_job_that_fails_gives_the_slice_back_too(tmp_path: Path) -> None:
    place = write(tmp_path / "plan", launch_files(JOB, find_target("tpu-v5e-64")) | JOB.files)
    done, calls = queued(place, fake_gcloud(tmp_path / "bin", ["ACTIVE"], failing="capibara/run.sh"))
    assert done.returncode == 1
    assert "queued-resources delete" in calls[-1]


def test_a_refused_queued_resource_ends_the_wait(tmp_path: Path) -> None:
    place = write(tmp_path / "plan", launch_files(JOB, find_target("tpu-v5e-64")) | JOB.files)
    done, calls = queued(place, fake_gcloud(tmp_path / "bin", ["FAILED"]))
    assert done.returncode == 1 and "is FAILED" in done.stderr
    assert not any("ssh" in call for call in calls)


def test_what_is_not_set_is_named(tmp_path: Path) -> None:
    place = write(tmp_path / "plan", launch_files(JOB, find_target("tpu-v5e-64")))
    done, calls = queued(place, fake_gcloud(tmp_path / "bin", ["ACTIVE"]), ZONE="")
    assert done.returncode != 0 and "ZONE" in done.stderr and not calls


@pytest.mark.parametrize(
    ("trainer", "expected"),
    [
        ("", "-m capibara_assets.training.jax {here}/jax.yaml"),
        ("maxtext", "-m maxtext.trainers.post_train.sft.train_sft {here}/maxtext.yml"),
        ("t5x", "-m t5x.train --gin_file={here}/t5x.gin --gin_search_paths=/t5x"),
    ],
)
def test_run_calls_each_trainer_with_its_file_and_the_flags(trainer: str, expected: str, tmp_path: Path) -> None:
    place = write(tmp_path / "plan", launch_files(JOB, find_target("tpu-v5e-64")) | JOB.files)
    python = tmp_path / "python"
    python.write_text('#!/usr/bin/env bash\necho "$LIBTPU_INIT_ARGS | $*"\n')
    python.chmod(0o755)
    environment = {**os.environ, "PYTHON": str(python), "T5X_CHECKOUT": "/t5x", "CAPIBARA_DATA": "/data"}
    environment.pop("LIBTPU_INIT_ARGS", None)
    command = ["bash", str(place / RUN), *([trainer] if trainer else [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == f"{JOB.xla_flags[0]} | {expected.format(here=place)}", done.stderr
    assert subprocess.run(["bash", str(place / RUN), "none"], capture_output=True, check=False).returncode == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "Capibara SQL"}, "lower-case letters"),
        ({"files": {"jax.yaml": ""}}, "maxtext.yml, t5x.gin is not among"),
        ({"trainers": ()}, "no trainer"),
    ],
)
def test_what_cannot_be_launched_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        launch_files(JOB._replace(**change), find_target("tpu-v5e-64"))


def test_gpus_have_scripts_of_their_own() -> None:
    with pytest.raises(InputError, match="h100-8 is no TPU slice"):
        launch_files(JOB, find_target("h100-8"))
