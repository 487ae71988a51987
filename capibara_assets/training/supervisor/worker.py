"""The process that trains one voter: it reports events, and its exit code says how it ended."""

import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path

from capibara_assets.errors import InputError
from capibara_assets.training.callbacks import calling, load_callbacks
from capibara_assets.training.causes import explained, is_out_of_memory
from capibara_assets.training.data.voter_run import Interrupted, VoterRun
from capibara_assets.training.loop.guards import TrainingDiverged
from capibara_assets.training.loop.train import train_voter
from capibara_assets.training.monitoring.events import Report
from capibara_assets.training.ranks import ALONE, Ranks
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.strategy import TRAINERS
from capibara_assets.training.supervisor.assembly import has_result
from capibara_assets.training.supervisor.signals import StopSignal, stop_signal
from capibara_assets.training.supervisor.voter_process import FAILED, alone_in, follow_supervisor, reporter


def run_voter(request: TrainingRequest, voter: VoterSpec, connection: Connection) -> None:
    """Entry point of a voter's process: train, send events over the connection, and exit.

    Exit codes: 0 finished, 128 + signal after a resume point was written, 3 a failure (its event `failed` says which)
    that a restart would repeat.
    """
    stop_signal.listen()
    follow_supervisor(stop_signal)
    sys.exit(attempt(request, voter, reporter(connection, stop_signal), stop_signal))


def attempt(
    request: TrainingRequest,
    voter: VoterSpec,
    report: Report,
    stop_signal: StopSignal,
    join: Callable[[], Ranks] = lambda: ALONE,
) -> int:
    """Train a voter in this process; returns the exit code.

    Args:
        report: gets the events, and `failed` for a failure that a restart would repeat.
        stop_signal: once it holds a signal, training stops at the next safe point.
        join: connects to the voter's other processes.
    """
    # PEFT makes Transformers emit it
    warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated")

    def poll() -> None:
        if stop_signal.number is not None:
            raise Interrupted(stop_signal.number)

    folder = request.folder(voter)
    try:
        ranks = join()
        if not ranks.any(not has_result(request, voter)):
            return 0  # started again over several hosts, where no supervisor knows that it had finished
        if ranks.main:
            about = {"domain": request.domain, "voter": voter.name, "folder": str(folder)}
            report = calling(load_callbacks(request.recipe.report.callbacks), report, about)
        with alone_in(folder, poll) if ranks.main else nullcontext():
            train_by_strategy(VoterRun(request, voter, folder, report, poll, ranks))
    except Interrupted:
        return 128 + (stop_signal.number or signal.SIGTERM)  # else another process of this voter got the signal
    except (InputError, TrainingDiverged) as error:
        report({"event": "failed", "error": str(error), "bad_input": isinstance(error, InputError)})
        return FAILED
    except Exception as error:  # noqa: BLE001 - reported, and the process fails
        traceback.print_exc()
        failed = {"event": "failed", "error": explained(error), "bad_input": False}
        report(failed | ({"out_of_memory": True} if is_out_of_memory(error) else {}))
        return FAILED
    return 0


def train_by_strategy(run: VoterRun) -> Path:
    """Train a voter by its declared strategy; returns the result's folder. Raises as `train_voter`."""
    strategy = run.voter.strategy
    if run.request.tpu is not None:
        from capibara_assets.training.jax.voter import train_jax_voter

        return train_jax_voter(run)
    if strategy.kind not in TRAINERS:
        return train_voter(run)
    module, name = TRAINERS[strategy.kind].split(":")
    folder: Path = getattr(import_module(f"capibara_assets.training.{module}"), name)(run, strategy)
    return folder
