"""One voter's process: what it learns becomes events, how it ends becomes an exit code."""

import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path

from capibara_assets.errors import InputError
from capibara_assets.training.data.voter_run import Interrupted, VoterRun
from capibara_assets.training.loop.guards import TrainingDiverged
from capibara_assets.training.monitoring.events import Report
from capibara_assets.training.ranks import ALONE, Ranks
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.strategies.voters import train_by_strategy
from capibara_assets.training.supervisor.signals import StopSignal, stop_signal
from capibara_assets.training.supervisor.voter_process import FAILED, alone_in, follow_supervisor, reporter


def run_voter(request: TrainingRequest, voter: VoterSpec, folder: Path, connection: Connection) -> None:
    """Entry of a voter's process: trains, sends events and at last `failed` over the connection, exits by code.

    Exit codes: 0 finished, 128 + signal after a resume point was written, 3 a failure that would come again.
    """
    stop_signal.listen()
    follow_supervisor(stop_signal)
    sys.exit(attempt(request, voter, folder, reporter(connection, stop_signal), stop_signal))


def attempt(
    request: TrainingRequest,
    voter: VoterSpec,
    folder: Path,
    report: Report,
    stop_signal: StopSignal,
    join: Callable[[], Ranks] = lambda: ALONE,
) -> int:
    """Train in this process; how it went as an exit code.

    Args:
        report: gets the events, and `failed` of a failure that would come again.
        asked: what signals have asked for; training stops when there is one.
        join: meets the voter's other processes.
    """
    # PEFT asks Transformers for it
    warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated")

    def poll() -> None:
        if stop_signal.number is not None:
            raise Interrupted(stop_signal.number)

    try:
        ranks = join()
        with alone_in(folder, poll) if ranks.main else nullcontext():
            train_by_strategy(VoterRun(request, voter, folder, report, poll, ranks))
    except Interrupted:
        return 128 + (stop_signal.number or signal.SIGTERM)  # another process of this voter was asked
    except (InputError, TrainingDiverged) as error:
        report({"event": "failed", "error": str(error), "bad_input": isinstance(error, InputError)})
        return FAILED
    except Exception as error:  # noqa: BLE001 - reported, and the process fails
        traceback.print_exc()
        report({"event": "failed", "error": f"{type(error).__name__}: {error}", "bad_input": False})
        return FAILED
    return 0
