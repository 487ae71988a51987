"""Plans on TPU VMs and on Vertex AI, through Google's own clients to a local endpoint whose hosts are processes."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
import yaml
from click.testing import CliRunner

from capibara_assets.cli.training.plan import plan
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import ClusterSilent, InputError
from capibara_assets.launching.cloud.attempt import CloudAttempt
from capibara_assets.launching.cloud.queued import queued_place
from capibara_assets.launching.cloud.vertex import custom_place
from capibara_assets.launching.endings import Ending, Waits
from capibara_assets.launching.launchers import Launcher
from capibara_assets.launching.slices import BROUGHT, LOGS, SliceResult, SliceTraining, read_state, train_on_slice
from capibara_assets.planning.hardware.declaration import Price
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.options import Option
from capibara_assets.planning.writers.launch import VERTEX, LaunchJob, launch_files
from capibara_assets.processes.background import Jobs, state_of, stop
from capibara_assets_tests.forked import Forked
from capibara_assets_tests.launching.cloud.fake import PROJECT, ZONE, FakeCloud
from capibara_assets_tests.storage.gcs import gcs_emulator
from capibara_assets_tests.waiting import until

pytest.importorskip("google.cloud.tpu_v2", reason="google-cloud-tpu is not installed: extra tpu-cloud")
pytest.importorskip("google.cloud.aiplatform_v1", reason="google-cloud-aiplatform is not installed: extra tpu-cloud")

USD_PER_HOUR = 3600.0
WAITS = Waits(poll=0.02, silence=10.0, start=60.0, delete=20.0)
SECRET = "hf_canaryCanaryCanaryCanaryCanaryCa"
RUN = f"""
cd {{folder}}
echo "$HOSTNAME" >> ran
echo "host $HOSTNAME begins with token {SECRET}"
while [ -e hold ]; do sleep .05; done
if [ -e fail ]; then echo "no data" >&2; exit 2; fi
mkdir -p output/adapter
echo weights > output/adapter/adapter_model.safetensors
echo '{{{{"steps": 3}}}}' > output/result.json
"""
PLACES: dict[str, Callable[[CloudAttempt], Any]] = {"queued": queued_place, "vertex": custom_place}
at_length = pytest.mark.extended
both = pytest.mark.parametrize("kind", list(PLACES))


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCloud]:
    with FakeCloud(tmp_path).serving(monkeypatch) as served:
        yield served


def training(cloud: FakeCloud, target: str = "tpu-v5e-4", **options: Any) -> SliceTraining:
    price = Price(usd_per_hour=USD_PER_HOUR, date="2026-11-01", note="of a test")
    option = Option(find_target(target).model_copy(update={"price": price}), options.pop("spot", False))
    files = {"run.sh": RUN.format(folder=cloud.folder)}
    return SliceTraining("sql", files, str(cloud.folder / "output"), cloud.folder / "work", option, **options)


def follow(kind: str, one: SliceTraining, waits: Waits = WAITS) -> SliceResult:
    def place(state: Any) -> Any:
        return PLACES[kind](CloudAttempt(one, state, PROJECT, ZONE, "registry.example/capibara:1", "", waits))

    return train_on_slice(place, one, jobs_of(one))


def jobs_of(one: SliceTraining) -> Jobs:
    return Jobs(one.folder.parent / "home")


def ran(cloud: FakeCloud) -> list[str]:
    file = cloud.folder / "ran"
    return sorted(file.read_text().split()) if file.exists() else []


def left(cloud: FakeCloud) -> list[str]:
    """What still costs."""
    costs = [name for name, one in cloud.there.items() if one["state"] in ("JOB_STATE_RUNNING", "JOB_STATE_PENDING")]
    return costs + [name for name in cloud.there if "queuedResources" in name]


@both
def test_a_plan_runs_on_every_host_and_its_adapter_cost_and_logs_come_back(kind: str, cloud: FakeCloud) -> None:
    one = training(cloud, "tpu-v5e-16", spot=True)
    cloud.hosts = 4
    done = follow(kind, one)
    assert done.state.ending is Ending.SUCCEEDED and done.result == {"steps": 3}, done.state
    assert done.folder == one.folder / BROUGHT and (done.folder / "adapter" / "adapter_model.safetensors").is_file()
    assert ran(cloud) == ["w-0", "w-1", "w-2", "w-3"] and left(cloud) == []
    assert done.state.usd == pytest.approx(done.state.hours * USD_PER_HOUR, abs=1e-3) and done.state.hours > 0
    logs = [file.read_text() for file in (one.folder / LOGS).iterdir()]
    assert len(logs) == 4 and all("begins with token" in text and SECRET not in text for text in logs)
    assert not any(SECRET in file.read_text() for file in (cloud.folder / "runs").rglob("*.log"))
    assert [job.state for job in jobs_of(one).all()] == ["finished"]
    (made,) = cloud.made
    assert made.get("spot", made.get("jobSpec", {}).get("scheduling")) in ({}, {"strategy": 4})  # SPOT
    assert follow(kind, one) == done and len(cloud.made) == 1  # given again, not run again


@both
def test_who_follows_may_be_killed_and_the_next_one_takes_over_with_its_hours(kind: str, cloud: FakeCloud) -> None:
    (cloud.folder / "hold").touch()
    one = training(cloud)
    first = Forked(lambda say: follow(kind, one))
    try:
        until(lambda: (state := read_state(one.folder)) and state.started and ran(cloud), 120.0)
    finally:
        first.kill()
        first.wait()
    before = read_state(one.folder)
    (job,) = jobs_of(one).all()
    assert before is not None and state_of(job) == "running"
    (cloud.folder / "hold").unlink()
    done = follow(kind, one)
    assert done.state.ending is Ending.SUCCEEDED and done.state.started == before.started
    assert len(cloud.made) == 1 and ran(cloud) == ["w-0"] and left(cloud) == []
    assert [job.state for job in jobs_of(one).all()] == ["finished"]


@at_length
@both
def test_what_ended_while_nobody_looked_is_not_lost(kind: str, cloud: FakeCloud) -> None:
    (cloud.folder / "hold").touch()
    one = training(cloud)
    away = Forked(lambda say: follow(kind, one))
    until(lambda: ran(cloud), 120.0)
    away.kill()
    away.wait()
    (cloud.folder / "hold").unlink()
    until((cloud.folder / "output" / "result.json").exists, 120.0)
    ended = follow(kind, one)
    assert ended.state.ending is Ending.SUCCEEDED and len(cloud.made) == 1 and left(cloud) == []


@at_length
@both
@pytest.mark.parametrize("fault", [503, 429, "drop", "late"])
def test_a_submission_whose_answer_fails_makes_one_job(kind: str, fault: int | str, cloud: FakeCloud) -> None:
    faults = [fault]
    cloud.trouble = lambda method, path: faults.pop() if method == "POST" and faults else None
    done = follow(kind, training(cloud))
    assert done.state.ending is Ending.SUCCEEDED and faults == [] and len(cloud.made) == 1


@at_length
@both
def test_a_cloud_that_is_away_is_waited_for_and_the_job_left_to_it(kind: str, cloud: FakeCloud) -> None:
    (cloud.folder / "hold").touch()
    one = training(cloud)
    cloud.trouble = lambda method, path: "drop" if ran(cloud) else None
    with pytest.raises(ClusterSilent):
        follow(kind, one, replace(WAITS, silence=0.3))
    cloud.trouble = lambda method, path: None
    assert left(cloud) != []
    (cloud.folder / "hold").unlink()
    assert follow(kind, one).state.ending is Ending.SUCCEEDED and len(cloud.made) == 1


@both
def test_one_that_is_cancelled_by_its_job_leaves_nothing_and_may_begin_again(kind: str, cloud: FakeCloud) -> None:
    (cloud.folder / "hold").touch()
    one = training(cloud)
    follower = Forked(lambda say: say(follow(kind, one).state.ending))
    until(lambda: ran(cloud) and jobs_of(one).all(), 120.0)
    stop(jobs_of(one), jobs_of(one).find("latest"))
    assert follower.rest() == f"{Ending.GONE}\n" and left(cloud) == []
    assert [job.state for job in jobs_of(one).all()] == ["stopped"]
    (cloud.folder / "hold").unlink()
    again = follow(kind, one)
    assert again.state.ending is Ending.SUCCEEDED and again.state.attempts == 2 and len(cloud.made) == 2


@at_length
@both
def test_an_interrupted_follower_ends_the_job(kind: str, cloud: FakeCloud) -> None:
    (cloud.folder / "hold").touch()
    one = training(cloud)

    follower = Forked(lambda say: follow(kind, one))
    until(lambda: ran(cloud), 120.0)
    os.kill(follower.pid, signal.SIGINT)
    assert follower.wait() == 1 and left(cloud) == []


@both
def test_one_that_fails_says_why_and_the_next_attempt_does_not_see_its_end(kind: str, cloud: FakeCloud) -> None:
    (cloud.folder / "fail").touch()
    one = training(cloud)
    done = follow(kind, one)
    assert done.state.ending is Ending.FAILED and done.result is None and left(cloud) == []
    assert "no data" in "".join(file.read_text() for file in (one.folder / LOGS).iterdir())
    (cloud.folder / "fail").unlink()
    assert follow(kind, one).state.ending is Ending.SUCCEEDED


@at_length
@both
def test_its_hours_end_it_over_all_attempts(kind: str, cloud: FakeCloud) -> None:
    (cloud.folder / "hold").touch()
    one = training(cloud, max_hours=0.5 / 3600)
    assert follow(kind, one).state.ending is Ending.OUT_OF_TIME and left(cloud) == []
    with pytest.raises(InputError, match="has had its"):
        follow(kind, one)


@both
def test_one_that_gets_no_slice_is_given_up(kind: str, cloud: FakeCloud) -> None:
    cloud.waiting = True
    done = follow(kind, training(cloud), replace(WAITS, start=0.3))
    assert done.state.ending is Ending.NOT_STARTED and left(cloud) == [] and ran(cloud) == []


@both
def test_what_the_cloud_refuses_is_one_sentence(kind: str, cloud: FakeCloud) -> None:
    cloud.trouble = lambda method, path: 403 if method == "POST" else None
    with pytest.raises(InputError, match=r"^Google Cloud refuses to create .*: 403 "):
        follow(kind, training(cloud))


@at_length
def test_a_spot_slice_that_is_taken_away_goes_on_as_another_attempt(cloud: FakeCloud) -> None:
    (cloud.folder / "hold").touch()
    one = training(cloud, spot=True)
    follower = Forked(lambda say: say(follow("queued", one).state.ending))
    until(lambda: ran(cloud), 120.0)
    (name,) = cloud.there
    cloud.preempt(name)
    assert follower.rest() == f"{Ending.PREEMPTED}\n" and left(cloud) == []
    (cloud.folder / "hold").unlink()
    again = follow("queued", one)
    assert again.state.ending is Ending.SUCCEEDED and again.state.attempts == 2


@at_length
def test_a_host_without_its_image_has_failed(cloud: FakeCloud) -> None:
    (cloud.folder / "no_image").touch()
    done = follow("queued", training(cloud))
    assert done.state.ending is Ending.FAILED and done.state.reason == "host w-0 ended with 125" and left(cloud) == []


@at_length
def test_a_slice_of_another_attempt_is_left_alone(cloud: FakeCloud) -> None:
    (cloud.folder / "hold").touch()
    one = training(cloud)
    first = Forked(lambda say: follow("queued", one))
    until(lambda: ran(cloud), 120.0)
    first.kill()
    first.wait()
    (one.folder / "slice.json").unlink()
    with pytest.raises(InputError, match="runs another plan or attempt"):
        follow("queued", one)
    assert len(left(cloud)) == 1


@pytest.mark.parametrize(
    ("kind", "target", "words"),
    [("queued", "tpu7x-8", "queued resources have no tpu7x-8"), ("vertex", "tpu-v5p-8", "Vertex AI has no tpu-v5p-8")],
)
def test_a_target_that_the_cloud_does_not_have_is_refused(kind: str, target: str, words: str, cloud: FakeCloud) -> None:
    with pytest.raises(InputError, match=words):
        follow(kind, training(cloud, target))
    assert cloud.made == []


STUB = """#!{python}
import os, sys
import fsspec
output = "bucket/sql/jax"
bucket = fsspec.filesystem("gs", token="anon", endpoint_url=os.environ["STORAGE_EMULATOR_HOST"])
bucket.pipe_file(output + "/adapter/adapter_model.safetensors", b"weights")
bucket.pipe_file(output + "/result.json", b'{{"steps": 7, "module": "%s"}}' % sys.argv[2].encode())
"""


@at_length
@pytest.mark.gcs
@both
def test_the_command_submits_a_plan_and_brings_its_adapter_from_the_bucket(
    kind: str, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = yaml.safe_load((resources_root() / "recipes" / "planning.yaml").read_text())
    recipe["tpu"]["storage_root"] = "gs://bucket"
    (cloud.folder / "planning.yaml").write_text(yaml.safe_dump(recipe))
    targets = [{"target": "tpu-v5e-4", "capacity": "spot", "usd_per_hour": USD_PER_HOUR}]
    document = {
        "storage": {"home": str(cloud.folder / "home")},
        "launcher": {"slices": kind, "image": "registry.example/capibara:1"},
        "google_cloud": {"project": PROJECT, "zone": ZONE},
        "hardware": {"domains": {"sql": {"targets": targets}}},
    }
    (cloud.folder / "deployment.yaml").write_text(yaml.safe_dump(document))
    monkeypatch.setenv("CAPIBARA_DEPLOYMENT", str(cloud.folder / "deployment.yaml"))
    monkeypatch.setattr(Launcher, "_waits", lambda self: WAITS)
    (cloud.folder / "stub").write_text(STUB.format(python=sys.executable))
    (cloud.folder / "stub").chmod(0o755)
    monkeypatch.setenv("PYTHON", str(cloud.folder / "stub"))  # of the hosts' run.sh
    command = ["--model", "capibara-nano", "--domain", "sql", "--examples", "100", "--json", "--submit"]
    command += ["--hardware", "tpu-v5e-4", "--recipe", str(cloud.folder / "planning.yaml")]
    with gcs_emulator() as emulator:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        fsspec.filesystem("gs", token="anon", endpoint_url=emulator).mkdirs("bucket", exist_ok=True)
        done = CliRunner().invoke(plan, [*command, "--out", str(cloud.folder / "plan")])
    assert done.exit_code == 0, (done.output, done.exception)
    run = json.loads(done.stdout)["run"]
    assert run["state"]["ending"] == "succeeded" and run["state"]["spot"] and run["state"]["usd"] > 0
    assert run["result"] == {"steps": 7, "module": "capibara_assets.training.jax"} and left(cloud) == []


def test_the_file_of_a_plan_for_vertex_is_what_the_library_knows() -> None:
    from google.cloud import aiplatform_v1
    from google.protobuf import json_format

    target = find_target("tpu-v5e-16")
    job = LaunchJob("capibara-sql", "sql", ("jax",), {"jax.yaml": ""}, "gs://bucket")
    spec = yaml.safe_load(launch_files(job, target)[VERTEX])
    message = json_format.ParseDict(spec, aiplatform_v1.CustomJobSpec.pb()())  # refuses what it does not know
    (pool,) = aiplatform_v1.CustomJobSpec.wrap(message).worker_pool_specs
    assert pool.replica_count == target.vms and pool.machine_spec.tpu_topology == "4x4"
