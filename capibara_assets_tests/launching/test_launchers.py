"""The local launcher as Dagster sees it: messages arrive, failures fail, interruption leaves nothing running."""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError, DagsterPipesExecutionError

from capibara_assets.deployment.environment import LaunchMode
from capibara_assets.errors import InputError
from capibara_assets.launching.launchers import Launcher, check_reachable, run_locally
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.options import HardwareOptions, Option
from capibara_assets.processes.background import Jobs, state_of
from capibara_assets_tests.processes.test_groups import all_gone, family, pids

LAPTOP = HardwareOptions((Option(find_target("cpu-laptop")),))
REPORTING = """
from dagster_pipes import open_dagster_pipes
with open_dagster_pipes() as pipes:
    pipes.log.info("epoch 1 done")
    pipes.report_asset_materialization(metadata={"loss": 0.5, "seed": pipes.get_extra("seed")}, data_version="abc")
"""


def asset_running(command: list[str], grace_s: float = 5.0) -> dg.AssetsDefinition:
    @dg.asset
    def adapter(context: dg.AssetExecutionContext) -> Any:
        return run_locally(context, command, {"seed": 7}, os.environ, grace_s).get_materialize_result()

    return adapter


def test_messages_and_materialization_of_the_process_reach_the_run() -> None:
    instance = dg.DagsterInstance.ephemeral()
    result = dg.materialize([asset_running([sys.executable, "-c", REPORTING])], instance=instance)
    (materialization,) = result.asset_materializations_for_node("adapter")
    assert materialization.metadata["loss"].value == 0.5
    assert materialization.metadata["seed"].value == 7
    assert (materialization.tags or {})["dagster/data_version"] == "abc"
    lines = [record.user_message for record in instance.all_logs(result.run_id)]
    assert any("epoch 1 done" in line for line in lines)


PROGRESSING = """
import os, sys, time
from pathlib import Path
from dagster_pipes import open_dagster_pipes
from capibara_assets.training.supervisor.reporting import PROGRESS
voter = {"voter": "voter-0", "state": "training", "step": 10, "steps": 40, "loss": 2.5, "perplexity": 12.18,
         "gradient_norm": 0.7, "learning_rate": 1e-3, "tokens_per_s": 1234.0, "samples_per_s": 9.5, "memory_mib": 512.0,
         "seconds_left": 30.0, "micro_steps_left": 60}
with open_dagster_pipes() as pipes:
    pipes.report_custom_message({"kind": PROGRESS, "domain": "sql", "voters": [voter, {"voter": "voter-1",
                                 "state": "starting"}]})
    pipes.report_custom_message("another message")
    while not Path(sys.argv[1]).exists():
        time.sleep(0.02)
"""


def test_progress_is_an_observation_while_the_process_still_runs(tmp_path: Path) -> None:
    instance, release = dg.DagsterInstance.ephemeral(), tmp_path / "seen"
    asset = asset_running([sys.executable, "-c", PROGRESSING, str(release)])
    seen = list[dg.AssetObservation]()

    def watch() -> None:
        deadline = time.monotonic() + 60
        while not seen and time.monotonic() < deadline:
            records = instance.fetch_observations(dg.AssetKey("adapter"), limit=1).records
            seen.extend(one.asset_observation for one in records if one.asset_observation)
            time.sleep(0.05)
        release.touch()  # only now may the process end

    watcher = threading.Thread(target=watch)
    watcher.start()
    result = dg.materialize([asset], instance=instance)
    watcher.join()
    (observation,) = seen
    assert observation.metadata["loss voter-0"].value == 2.5
    assert observation.metadata["seconds left voter-0"].value == 30.0
    table = str(observation.metadata["voters"].value)
    losses, speed = "2.5000 | 12.18 | 0.700 | 1.00e-03", "1,234 | – | 9.5 | 512 | –"
    assert f"| voter-0 | training | 10/40 | {losses} | {speed} | 30 s | 30 | 60 |" in table
    assert "| voter-1 | starting | – |" in table
    assert result.success


def test_a_launch_is_a_job_while_it_runs_and_its_end_is_noted(tmp_path: Path) -> None:
    jobs, states, release = Jobs(tmp_path), list[str](), tmp_path / "seen"
    text = "import os; open(os.environ['CAPIBARA_JOB_LOG'], 'a').write('a line'); raise SystemExit({code})"
    until_seen = "import sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"

    @dg.asset
    def adapter(context: dg.AssetExecutionContext) -> Any:
        def watch() -> None:
            deadline = time.monotonic() + 60
            while not jobs.all() and time.monotonic() < deadline:
                time.sleep(0.01)
            states.extend(state_of(job) for job in jobs.all()[:1])
            release.touch()  # only now may the process end

        watcher = threading.Thread(target=watch)
        watcher.start()
        command = [sys.executable, "-c", "import os\n" + until_seen + text.format(code=code), str(release)]
        try:
            return run_locally(context, command, {}, os.environ, 5.0, jobs).get_materialize_result()
        finally:
            watcher.join()

    code = 0
    result = dg.materialize([adapter])
    code = 9
    with pytest.raises(DagsterPipesExecutionError):
        dg.materialize([adapter])
    (first,) = [job for job in jobs.all() if job.run == result.run_id]
    (second,) = [job for job in jobs.all() if job.run != result.run_id]  # both may have begun in the same second
    assert states[0] == "running"
    assert (first.kind, first.state, first.code) == ("pipes", "finished", 0)
    assert (second.state, second.code) == ("failed", 9)
    assert first.log and Path(first.log).read_text() == "a line"


def test_a_home_that_cannot_be_written_holds_no_training_up(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    jobs = Jobs(tmp_path / "file")  # no folder can be made in it

    @dg.asset
    def adapter(context: dg.AssetExecutionContext) -> Any:
        return run_locally(
            context, [sys.executable, "-c", REPORTING], {"seed": 7}, os.environ, 5.0, jobs
        ).get_materialize_result()

    instance = dg.DagsterInstance.ephemeral()
    result = dg.materialize([adapter], instance=instance)
    assert result.success
    messages = [record.user_message for record in instance.all_logs(result.run_id)]
    assert any("`capibara jobs` cannot list this run" in message for message in messages)


def test_a_process_whose_hours_are_over_is_asked_to_end(tmp_path: Path) -> None:
    told = f"""
import signal, sys, time
def leave(number, frame):
    open({str(tmp_path / "asked")!r}, "w").close()
    sys.exit(130)
signal.signal(signal.SIGINT, leave)
open({str(tmp_path / "begun")!r}, "w").close()
time.sleep(60)
"""

    @dg.asset
    def adapter(context: dg.AssetExecutionContext) -> None:
        run_locally(context, [sys.executable, "-c", told], {}, os.environ, 5.0, hours=1.5 / 3600)

    with pytest.raises(DagsterPipesExecutionError, match=r"ended after 0\.000417 h.*run again"):
        dg.materialize([adapter])
    assert (tmp_path / "begun").exists() == (tmp_path / "asked").exists()  # a slow machine may not get as far


def test_a_process_that_fails_fails_the_step() -> None:
    with pytest.raises(DagsterPipesExecutionError, match="ended with 9"):
        dg.materialize([asset_running([sys.executable, "-S", "-c", "raise SystemExit(9)"])])


@pytest.mark.timeout(300)  # left alone, they would stay for longer
def test_terminating_the_run_leaves_no_orphan_even_if_child_and_grandchild_ignore_the_signal(tmp_path: Path) -> None:
    def interrupt_when_started() -> None:
        pids(tmp_path)
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt_when_started)
    interrupter.start()
    # Dagster turns the signal into its own exception inside a step; outside of one it is Python's.
    with pytest.raises((DagsterExecutionInterruptedError, KeyboardInterrupt)):
        dg.materialize([asset_running(family(tmp_path, "ignore"), grace_s=0.5)])
    interrupter.join()
    assert all_gone(pids(tmp_path))


def test_the_launcher_starts_the_training_module_with_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPIBARA_HOME", str(tmp_path / "home"))  # the checkout's own would show a failed job
    # A request that is no JSON: that the training process itself complains shows that it was started.
    request = tmp_path / "request.json"
    request.write_text("not json")

    @dg.asset
    def trained(context: dg.AssetExecutionContext, launcher: Launcher) -> None:
        launcher.run(context, request, LAPTOP)

    # What it logged last is the reason, not its command
    with pytest.raises(DagsterPipesExecutionError, match=r"request\.json.*\(training process ended with 2\)"):
        dg.materialize([trained], resources={"launcher": Launcher()})


def test_a_missing_request_is_named(tmp_path: Path) -> None:
    context = dg.build_asset_context()
    with pytest.raises(InputError, match=r"no training request at .*absent\.json"):
        Launcher().run(context, tmp_path / "absent.json", LAPTOP)


def test_a_slice_of_several_hosts_is_refused_in_a_cluster_with_what_to_do() -> None:
    check_reachable(find_target("tpu-v5e-64"), LaunchMode.LOCAL)
    check_reachable(find_target("tpu-v5e-8"), LaunchMode.K8S)
    with pytest.raises(InputError, match=r"the launcher starts one pod.*gke.yaml"):
        check_reachable(find_target("tpu-v5e-64"), LaunchMode.K8S)
