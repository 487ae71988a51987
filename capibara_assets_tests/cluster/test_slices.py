"""A TPU plan on a slice of the fake cluster: submitted with its topology, followed, cancelled, and its adapter back."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import fsspec
import pytest
import yaml
from click.testing import CliRunner, Result

from capibara_assets.cli.training.plan import plan
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import ClusterSilent, InputError
from capibara_assets.launching.endings import Ending
from capibara_assets.launching.launchers import Launcher
from capibara_assets.launching.manifests import PodSettings, slice_object
from capibara_assets.launching.slices import BROUGHT, LOGS, bring_back, read_state
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.options import Option
from capibara_assets.processes.background import Jobs, state_of, stop
from capibara_assets_tests.cluster.followed_slice import HOSTS, USD_PER_HOUR, WAITS, follow, training
from capibara_assets_tests.cluster.jobset_schema import problems
from capibara_assets_tests.cluster.launched import SECRET, Launched, launched
from capibara_assets_tests.cluster.test_pods import GOLDEN
from capibara_assets_tests.forked import Forked
from capibara_assets_tests.storage.gcs import gcs_emulator
from capibara_assets_tests.waiting import until


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launched]:
    with launched(tmp_path, monkeypatch) as one:
        one.cluster.program = None  # the plan's own script
        yield one


def sets(there: Launched) -> int:
    """How many sets were ever made."""
    return sum("replicatedJobs" in one["spec"] for one in there.cluster.made)


def ran(there: Launched) -> list[str]:
    file = there.folder / "ran"
    return sorted(file.read_text().split()) if file.exists() else []


def test_a_plan_runs_on_every_host_of_its_slice_and_its_adapter_cost_and_logs_come_back(there: Launched) -> None:
    (there.folder / "hold").touch()
    jobs, one = Jobs(there.folder / "home"), training(there.folder, spot=True)
    there.when(jobs.all, (there.folder / "hold").unlink)  # it is seen to run
    done = follow(one)
    assert done.state.ending is Ending.SUCCEEDED and done.result == {"steps": 3, "validation_loss": 1.5}
    assert done.folder == one.folder / BROUGHT
    brought = sorted(path.relative_to(done.folder).as_posix() for path in done.folder.rglob("*") if path.is_file())
    assert brought == ["adapter/adapter_model.safetensors", "result.json"]  # no resume points
    assert ran(there) == ["0", "1", "2", "3"]
    assert done.state.hours > 0 and done.state.usd == pytest.approx(done.state.hours * USD_PER_HOUR, abs=1e-3)
    logs = [file.read_text() for file in (one.folder / LOGS).iterdir()]
    assert sorted(line.split()[1] for log in logs for line in log.splitlines()) == ["0", "1", "2", "3"]
    assert SECRET not in "".join(logs)
    there.assert_nothing_left()
    (job,) = jobs.all()
    assert job.state == "finished" and job.pod is not None and job.pod.owner == f"JobSet/{one.name}"


def test_what_has_succeeded_is_given_again_and_not_run_again(there: Launched) -> None:
    one = training(there.folder)
    first = follow(one)
    made = len(there.cluster.made)
    assert follow(one) == first and len(there.cluster.made) == made


def test_who_follows_may_be_killed_and_the_next_one_goes_on_with_the_same_set_and_its_hours(there: Launched) -> None:
    (there.folder / "hold").touch()
    one = training(there.folder)
    first = Forked(lambda say: follow(one))
    try:
        until(
            lambda: (state := read_state(one.folder)) and state.started and len(there.cluster.names()) == HOSTS, 600.0
        )
    finally:
        first.kill()
        first.wait()
    before = read_state(one.folder)
    assert before is not None and before.started is not None
    (job,) = Jobs(there.folder / "home").all()
    assert state_of(job) == "running"  # `capibara jobs` still sees it
    (there.folder / "hold").unlink()
    done = follow(one)
    assert done.state.ending is Ending.SUCCEEDED and done.state.started == before.started
    assert sets(there) == 1 and ran(there) == ["0", "1", "2", "3"]
    assert done.state.ended is not None
    seconds = (datetime.fromisoformat(done.state.ended) - datetime.fromisoformat(before.started)).total_seconds()
    assert done.state.hours >= seconds / 3600 > 0
    assert [job.state for job in Jobs(there.folder / "home").all()] == ["finished"]
    there.assert_nothing_left()


def test_what_ended_while_nobody_looked_and_the_api_was_away_is_not_lost(there: Launched) -> None:
    (there.folder / "hold").touch()
    gone = list[str]()
    there.when(lambda: len(there.cluster.names()) == HOSTS, lambda: gone.append("now"))
    there.api.trouble.of = lambda method, path: "drop" if gone else None
    one = training(there.folder)
    with pytest.raises(ClusterSilent):
        follow(one, replace(WAITS, silence=0.3))
    (there.folder / "hold").unlink()
    until(lambda: (there.folder / "output" / "result.json").exists() and not there.cluster.names(), 600.0)
    there.api.trouble.of = lambda method, path: None
    assert follow(one).state.ending is Ending.SUCCEEDED and sets(there) == 1
    there.assert_nothing_left()


@pytest.mark.parametrize("fault", ["evict", "lose_node"])
def test_a_host_that_is_taken_away_starts_the_slice_again_as_a_whole(there: Launched, fault: str) -> None:
    (there.folder / "hold").touch()

    def strike() -> None:
        getattr(there.cluster, fault)(there.cluster.names()[0])
        (there.folder / "hold").unlink()

    there.when(lambda: len(ran(there)) == HOSTS, strike)
    done = follow(training(there.folder))
    assert done.state.ending is Ending.SUCCEEDED and sets(there) == 1 and len(ran(there)) > HOSTS
    there.assert_nothing_left()


def test_one_that_is_cancelled_leaves_nothing_and_may_begin_again(there: Launched) -> None:
    (there.folder / "hold").touch()
    jobs, one = Jobs(there.folder / "home"), training(there.folder)
    there.when(lambda: len(ran(there)) == HOSTS and jobs.all(), lambda: stop(jobs, jobs.find("latest")))
    done = follow(one)
    assert done.state.ending is Ending.GONE and done.result is None and jobs.find("latest").state == "stopped"
    there.assert_nothing_left()
    (there.folder / "hold").unlink()
    again = follow(one)
    assert again.state.ending is Ending.SUCCEEDED and again.state.attempts == 2
    assert again.state.hours > done.state.hours > 0  # both attempts are paid for
    there.assert_nothing_left()


def test_one_that_fails_says_why_and_what_was_published_before_is_no_result_of_it(there: Launched) -> None:
    (there.folder / "fail").touch()
    (there.folder / "output").mkdir()
    (there.folder / "output" / "result.json").write_text("{}")  # of an earlier plan
    one = training(there.folder)
    done = follow(one)
    assert done.state.ending is Ending.FAILED and "failed due to" in done.state.reason and done.result is None
    assert "no data" in "".join(file.read_text() for file in (one.folder / LOGS).iterdir())
    assert not (one.folder / BROUGHT).exists()
    there.assert_nothing_left()


def test_its_hours_end_it_over_all_attempts(there: Launched) -> None:
    (there.folder / "hold").touch()
    one = training(there.folder, max_hours=0.5 / 3600)
    assert follow(one).state.ending is Ending.OUT_OF_TIME
    there.assert_nothing_left()
    with pytest.raises(InputError, match="has had its"):
        follow(one)


PUBLISHES = """
import json, os, pathlib, sys
output = pathlib.Path(sys.argv[1], "sql", "jax")
if os.environ["NODE_RANK"] == "0":
    (output / "adapter").mkdir(parents=True, exist_ok=True)
    (output / "adapter" / "adapter_model.safetensors").write_bytes(b"weights")
    (output / "result.json").write_text(json.dumps({"steps": 7, "command": sys.argv[2:]}))
"""


def submitted(there: Launched, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    """`capibara plan --submit` on the fake cluster, whose pods publish instead of training."""
    storage = there.folder / "storage"
    recipe = yaml.safe_load((resources_root() / "recipes" / "planning.yaml").read_text())
    recipe["tpu"]["storage_root"] = str(storage)
    (there.folder / "planning.yaml").write_text(yaml.safe_dump(recipe))
    launcher = {"mode": "k8s", "image": "registry.example/capibara:1", "namespace": "ml"}
    launcher |= {"volume_claim": "work", "volume_path": str(there.folder)}
    document = {"storage": {"home": str(there.folder / "home")}, "launcher": launcher}
    (there.folder / "deployment.yaml").write_text(yaml.safe_dump(document))
    monkeypatch.setenv("CAPIBARA_DEPLOYMENT", str(there.folder / "deployment.yaml"))
    monkeypatch.setattr(Launcher, "_waits", lambda self: WAITS)
    there.cluster.program = lambda command: [sys.executable, "-c", PUBLISHES, str(storage), *command]
    wanted = ["--model", "capibara-nano", "--domain", "sql", "--examples", "100", "--json", "--submit"]
    return CliRunner().invoke(plan, [*wanted, "--recipe", str(there.folder / "planning.yaml"), *arguments])


def test_the_command_submits_a_plan_and_brings_its_adapter(there: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    out = there.folder / "plans" / "sql"
    done = submitted(there, monkeypatch, "--hardware", "tpu-v5e-16", "--out", str(out))
    assert done.exit_code == 0, done.output
    run = json.loads(done.stdout)["run"]
    assert run["state"]["ending"] == "succeeded" and run["state"]["target"] == "tpu-v5e-16"
    assert run["result"]["command"] == ["bash", str(out / "plan" / "run.sh"), "jax"]
    assert (out / "result" / "adapter" / "adapter_model.safetensors").read_bytes() == b"weights"
    assert "capibara_assets.training.jax" in (out / "plan" / "run.sh").read_text()
    there.assert_nothing_left()


def test_the_command_says_what_it_lacks(there: Launched, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slices = ["--hardware", "tpu-v5e-16"]
    assert "--submit needs --out" in str(submitted(there, monkeypatch, *slices).exception)
    elsewhere = submitted(there, monkeypatch, *slices, "--out", str(tmp_path.parent / "elsewhere"))
    assert "give --out a folder on that volume" in str(elsewhere.exception)
    gpu = submitted(there, monkeypatch, "--hardware", "h100-8", "--out", str(there.folder / "plan"))
    assert "--submit has no use here (the graph starts trainings on CPUs and GPUs)" in str(gpu.exception)
    assert there.cluster.made == []


def slice_body(name: str) -> dict[str, object]:
    pods = PodSettings("registry.example/capibara-assets:1.0", volume_claim="work", volume_path="/mnt/capibara")
    command = ["bash", "/mnt/capibara/slices/sql/plan/run.sh", "jax"]
    return slice_object("capibara-sql", "sql", command, Option(find_target(name), spot=True), pods, 12.0)


def test_a_slice_is_the_golden_file_with_its_topology() -> None:
    """`yaml.safe_dump(slice_body("tpu-v5e-64"), sort_keys=False)` makes the file anew."""
    body = slice_body("tpu-v5e-64")
    assert body == yaml.safe_load((GOLDEN / "tpu-slice.yaml").read_text())


@pytest.mark.parametrize("name", ["tpu-v4-64", "tpu-v5e-8", "tpu-v5e-64", "tpu-v6e-256", "tpu-v5p-128"])
def test_the_controller_takes_every_slice_and_its_pods_are_its_hosts(name: str) -> None:
    body, target = json.loads(json.dumps(slice_body(name))), find_target(name)
    assert problems(body) == [] and target.kubernetes is not None and target.topology is not None
    (job,) = body["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    pod = spec["template"]["spec"]
    shape = "x".join(map(str, target.topology.axes))
    assert pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == shape
    asked = int(pod["containers"][0]["resources"]["limits"]["google.com/tpu"])
    assert spec["completions"] == spec["parallelism"] == target.vms and asked * target.vms == target.chips


def test_what_is_no_slice_is_refused() -> None:
    with pytest.raises(InputError, match="h100-8 is no TPU slice"):
        slice_body("h100-8")


@pytest.mark.gcs
def test_what_was_published_in_a_bucket_comes_back_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gcs_emulator() as emulator:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator)
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        bucket = fsspec.filesystem("gs", token="anon", endpoint_url=emulator)
        bucket.pipe_file("bucket/sql/jax/adapter/adapter_model.safetensors", b"weights")
        with pytest.raises(InputError, match="holds no result"):
            bring_back("gs://bucket/sql/jax", tmp_path / "result")
        bucket.pipe_file("bucket/sql/jax/result.json", b"{}")
        bucket.pipe_file("bucket/sql/jax/points/step-1/state", b"large")
        bring_back("gs://bucket/sql/jax", tmp_path / "result")
    found = sorted(file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*") if file.is_file())
    assert found == ["result/adapter/adapter_model.safetensors", "result/result.json"]
