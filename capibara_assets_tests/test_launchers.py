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

from capibara_assets.errors import InputError
from capibara_assets.launchers import Launcher, check_trainable, run_locally
from capibara_assets.planning.hardware import find_target
from capibara_assets_tests.test_process_groups import all_gone, family, pids

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


def test_a_process_that_fails_fails_the_step() -> None:
    with pytest.raises(DagsterPipesExecutionError, match="ended with 9"):
        dg.materialize([asset_running([sys.executable, "-S", "-c", "raise SystemExit(9)"])])


def test_terminating_the_run_leaves_no_orphan_even_if_child_and_grandchild_ignore_the_signal(tmp_path: Path) -> None:
    def interrupt_when_started() -> None:
        pids(tmp_path)
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt_when_started)
    interrupter.start()
    started = time.monotonic()
    # Dagster turns the signal into its own exception inside a step; outside of one it is Python's.
    with pytest.raises((DagsterExecutionInterruptedError, KeyboardInterrupt)):
        dg.materialize([asset_running(family(tmp_path, "ignore"), grace_s=0.5)])
    interrupter.join()
    assert time.monotonic() - started < 30
    assert all_gone(pids(tmp_path))


def test_the_launcher_starts_the_training_module_with_the_request(tmp_path: Path) -> None:
    # A request that is no JSON: that the training process itself complains shows that it was started.
    request = tmp_path / "request.json"
    request.write_text("not json")

    @dg.asset
    def trained(context: dg.AssetExecutionContext, launcher: Launcher) -> None:
        launcher.run(context, request, find_target("cpu-laptop"))

    with pytest.raises(DagsterPipesExecutionError, match=r"capibara_assets\.training --request"):
        dg.materialize([trained], resources={"launcher": Launcher()})


def test_a_missing_request_is_named(tmp_path: Path) -> None:
    context = dg.build_asset_context()
    with pytest.raises(InputError, match=r"no training request at .*absent\.json"):
        Launcher().run(context, tmp_path / "absent.json", find_target("cpu-laptop"))


def test_tpu_slices_are_refused_with_what_to_do() -> None:
    with pytest.raises(InputError, match="T5X and MaxText files of tpu_config"):
        check_trainable(find_target("tpu-v5e-64"))
