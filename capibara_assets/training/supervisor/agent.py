"""A voter's process where several train the voter: starts them through torchrun, speaks for them, leaves none behind.

Each of them holds a connection to this process. Over it come the first one's events and everyone's last word, and
over it goes the request to stop. A connection that ends without a last word is a process that was killed; a process
whose agent ends stops by itself, also after `kill -9`. Imports no torch.
"""

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import psutil

from capibara_assets.storage.jsonfiles import write_json_atomic
from capibara_assets.training.monitoring.events import Report
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.supervisor.rank import AGENT_ADDRESS, AGENT_KEY
from capibara_assets.training.supervisor.signals import StopSignal, stop_signal
from capibara_assets.training.supervisor.voter_process import FAILED, follow_supervisor, reporter

_STOP_GRACE_S = 12.0  # for a resume point when asked to stop; the supervisor waits 15
_BROKEN_GRACE_S = 5.0  # for the others when one has failed or was killed: they can do nothing without it
_TICK_S = 0.2


def run_ranks(request: TrainingRequest, voter: VoterSpec, folder: Path, connection: Connection) -> None:
    """Entry of the process, as `worker.run_voter`: passes events on and exits by the same codes."""
    stop_signal.listen()
    follow_supervisor(stop_signal)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "request.json"
    write_json_atomic(file, request.model_dump(mode="json"))
    key, arrived = secrets.token_bytes(32), SimpleQueue[Connection]()
    with Listener(family="AF_UNIX", authkey=key) as listener:
        threading.Thread(target=_accept, args=(listener, arrived), daemon=True).start()
        # DDP warns of a setting that we want (sharded.py).
        defaults = {"OMP_NUM_THREADS": str(request.recipe.hardware.threads), "TORCH_CPP_LOG_LEVEL": "ERROR"}
        torchrun = subprocess.Popen(
            torchrun_command(request, voter, file),
            env=defaults | os.environ | {AGENT_ADDRESS: str(listener.address), AGENT_KEY: key.hex()},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        crew = _Crew(torchrun, reporter(connection, stop_signal), stop_signal)
        try:
            crew.follow(arrived)
        finally:
            crew.kill()
    sys.exit(crew.exit_code())


def torchrun_command(request: TrainingRequest, voter: VoterSpec, file: Path) -> list[str]:
    """torchrun on this host: a free port, the recipe's processes, and no restarts of its own.

    Args:
        file: the request, written.
    """
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "0"),
        *("--nproc-per-node", str(request.recipe.hardware.processes)),
        *("-m", "capibara_assets.training.supervisor.rank", "--request", str(file), "--voter", voter.name),
    ]


def _accept(listener: Listener, arrived: "SimpleQueue[Connection]") -> None:
    while True:
        try:
            arrived.put(listener.accept())
        except AuthenticationError:
            continue
        except (OSError, EOFError):
            return  # closed


@dataclass
class _Member:
    """One process, as far as it has said anything.

    Attributes:
        pid: its id.
        spoken: whether it has said how it ends.
    """

    pid: int | None = None
    spoken: bool = False


@dataclass
class _Crew:
    """torchrun and the processes it started.

    Attributes:
        report: to the supervisor.
        stop_signal: what signals have asked for.
        open: those whose connection stands.
        left: exit codes that processes have announced.
        failures: events of what would fail again.
        silent: whether one went without a word.
        begun: whether training has begun: from then on there is something to save.
        told: whether they were asked to stop.
        deadline: when those still there are killed.
    """

    torchrun: "subprocess.Popen[bytes]"
    report: Report
    stop_signal: StopSignal
    open: dict[Connection, _Member] = field(default_factory=dict)
    left: list[int] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    silent: bool = False
    begun: bool = False
    told: bool = False
    deadline: float = float("inf")

    def follow(self, arrived: "SimpleQueue[Connection]") -> None:
        """Until all have ended, or their time is over."""
        while time.monotonic() < self.deadline:
            while not arrived.empty():
                self.open[arrived.get()] = _Member()
            if self.stop_signal.number is not None and not self.told:
                if not self.begun:
                    return  # there is nothing to save
                self._stop(self.stop_signal.number)
            if self.open:
                for ready in wait(list(self.open), _TICK_S):
                    self._hear(cast(Connection, ready))
            else:
                time.sleep(_TICK_S)
            if self.torchrun.poll() is None:
                continue
            if not self.open and arrived.empty():
                return
            if not self.told and not self.left:  # torchrun was killed over their heads
                self.silent = True
                self._stop(signal.SIGTERM)

    def kill(self) -> None:
        """Whoever is still there."""
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.torchrun.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        self.torchrun.kill()
        self.torchrun.wait()
        for member in self.open.values():
            if member.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(member.pid, signal.SIGKILL)

    def exit_code(self) -> int:
        """As of a voter that trains in one process; a failure that would come again is reported."""
        bad_input = [event for event in self.failures if event["bad_input"]]
        if self.stop_signal.number is not None:
            return 128 + self.stop_signal.number
        if self.silent and not bad_input:  # what else failed came of it
            return 128 + signal.SIGKILL
        if self.failures:
            self.report((bad_input or self.failures)[0])
            return FAILED
        if not self.left:
            error = f"torchrun ended with exit code {self.torchrun.returncode} before any process had begun"
            self.report({"event": "failed", "error": error, "bad_input": False})
            return FAILED
        return max(self.left)

    def _hear(self, connection: Connection) -> None:
        member = self.open[connection]
        try:
            said = connection.recv()
        except (EOFError, OSError):
            del self.open[connection]
            self.silent |= not member.spoken
            if not member.spoken or not self.open:
                self._hurry(_BROKEN_GRACE_S)
            return
        if "pid" in said and "event" not in said:
            member.pid = said["pid"]
        elif "left" in said:
            member.spoken = True
            self.left.append(said["left"])
        elif said["event"] == "failed":
            member.spoken = True
            self.failures.append(said)
            self._hurry(_BROKEN_GRACE_S)
        else:
            self.begun = True
            self.report(said)

    def _stop(self, number: int) -> None:
        self.told = True
        for connection in self.open:
            with suppress(OSError):
                connection.send(number)
        self._hurry(_STOP_GRACE_S)

    def _hurry(self, seconds: float) -> None:
        self.deadline = min(self.deadline, time.monotonic() + seconds)
