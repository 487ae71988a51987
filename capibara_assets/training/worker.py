"""One voter's process: asks the loop to stop on a signal, never outlives its supervisor, never shares its folder."""

import fcntl
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.training.loop import Interrupted, TrainingDiverged, train_voter
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest

# Exit code of a failure that would come again: bad input, divergence, a defect. Anything killed is worth another try.
FAILED = 3
_ORPHAN_GRACE_S = 15.0
_LOCK_WAIT_S = 30.0


def run_voter(request: TrainingRequest, voter: VoterSpec, folder: Path, connection: Connection) -> None:
    """Entry of a voter's process: trains, sends events and at last `failed` over the connection, exits by code.

    Exit codes: 0 finished, 128 + signal after a resume point was written, 3 a failure that would come again.
    """
    warnings.filterwarnings(
        "ignore", message="`is_gradient_checkpointing` is deprecated"
    )  # PEFT asks Transformers for it
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _frame: asked.append(received))
    threading.Thread(target=_follow_supervisor, args=(asked,), daemon=True).start()

    def report(event: dict[str, Any]) -> None:
        try:
            connection.send(event)
        except OSError:
            asked.append(signal.SIGTERM)  # nobody listens any more

    def poll() -> None:
        if asked:
            raise Interrupted(asked[0])

    try:
        with _alone_in(folder, poll):
            train_voter(request, voter, folder, report, poll)
    except Interrupted:
        sys.exit(128 + asked[0])
    except (InputError, TrainingDiverged) as error:
        report({"event": "failed", "error": str(error), "bad_input": isinstance(error, InputError)})
        sys.exit(FAILED)
    except Exception as error:  # noqa: BLE001 - reported, and the process fails
        traceback.print_exc()
        report({"event": "failed", "error": f"{type(error).__name__}: {error}", "bad_input": False})
        sys.exit(FAILED)


def _follow_supervisor(asked: list[int]) -> None:
    """When the supervisor is gone, however it went, stop as if asked to, and leave for good after a grace period."""
    supervisor = parent_process()
    if supervisor is None:
        return
    wait([supervisor.sentinel])
    asked.append(signal.SIGTERM)
    time.sleep(_ORPHAN_GRACE_S)
    os._exit(128 + signal.SIGTERM)


@contextmanager
def _alone_in(folder: Path, poll: Callable[[], None]) -> Iterator[None]:
    """Hold the folder's lock; wait a while for a former owner that is still leaving.

    Raises:
        InputError: another process trains in this folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + _LOCK_WAIT_S
    with (folder / ".lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                poll()
                if time.monotonic() > deadline:
                    raise InputError(f"another process is training in {folder}: wait for it, or stop it") from None
                time.sleep(0.1)
        yield
