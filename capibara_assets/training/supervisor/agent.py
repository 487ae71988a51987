"""The agent of a voter that several processes (ranks) train: starts them through torchrun, relays events, ends them.

Each rank holds a connection to this process. Over it the first rank sends its events, every rank announces how it ends,
and the agent sends the request to stop. A connection that closes without an announcement is a rank that was killed; a
rank whose agent is gone stops by itself, also after `kill -9`. The ranks are torchrun's children, end together
and share a deadline: `processes.supervise`, which tries each process for itself, has no place here. Imports no torch.
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
from tempfile import TemporaryDirectory
from typing import Any, cast

from capibara_assets.processes.groups import kill_family
from capibara_assets.storage.jsonfiles import write_json_atomic
from capibara_assets.training.monitoring.events import Report
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.supervisor.signals import StopSignal, stop_signal
from capibara_assets.training.supervisor.voter_process import (
    AGENT_ADDRESS,
    AGENT_KEY,
    FAILED,
    follow_supervisor,
    reporter,
)

_STOP_GRACE_S = 12.0  # to write a resume point when stopped; the supervisor waits 15
_BROKEN_GRACE_S = 5.0  # for the other ranks when one has failed or was killed: they cannot go on without it
_TICK_S = 0.2


def run_ranks(request: TrainingRequest, voter: VoterSpec, connection: Connection) -> None:
    """Entry point of the agent's process: relay the ranks' events, and exit by the codes of `worker.run_voter`."""
    stop_signal.listen()
    follow_supervisor(stop_signal)
    request.work.mkdir(parents=True, exist_ok=True)
    file = request.work / f"request-{voter.name}.json"
    write_json_atomic(file, request.model_dump(mode="json"))
    key, arrived = secrets.token_bytes(32), SimpleQueue[Connection]()
    with (
        Listener(family="AF_UNIX", authkey=key) as listener,
        # torchrun makes a folder for the ranks' output, never removes it, and leaves it empty: they write to ours.
        TemporaryDirectory(prefix="capibara-torchrun-", ignore_cleanup_errors=True) as logs,
    ):
        threading.Thread(target=_accept, args=(listener, arrived), daemon=True).start()
        # DDP warns about a setting that is chosen on purpose (parallel/sharded.py).
        defaults = {"OMP_NUM_THREADS": str(request.recipe.hardware.threads), "TORCH_CPP_LOG_LEVEL": "ERROR"}
        torchrun = subprocess.Popen(
            torchrun_command(request, voter, file, Path(logs)),
            env=defaults | os.environ | {AGENT_ADDRESS: str(listener.address), AGENT_KEY: key.hex()},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        ranks = _RankGroup(torchrun, reporter(connection, stop_signal), stop_signal)
        try:
            ranks.follow(arrived)
        finally:
            ranks.kill()
    sys.exit(ranks.exit_code())


def torchrun_command(request: TrainingRequest, voter: VoterSpec, file: Path, logs: Path) -> list[str]:
    """The torchrun command on this host: a free port, the recipe's processes, and no restarts of its own.

    Args:
        file: the request as JSON.
        logs: an existing folder in which torchrun makes its own.
    """
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "0"),
        *("--log-dir", str(logs)),
        *("--nproc-per-node", str(request.recipe.hardware.processes)),
        *("-m", "capibara_assets.training.rank", "--request", str(file), "--voter", voter.name),
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
class _Rank:
    """One connected rank.

    Attributes:
        pid: its process id, once announced.
        ended: whether it has announced how it ends.
    """

    pid: int | None = None
    ended: bool = False


@dataclass
class _RankGroup:
    """torchrun and the ranks it started.

    Attributes:
        report: to the supervisor.
        stop_signal: of this process.
        open: ranks by their connections, while these are open.
        exit_codes: announced by ranks.
        failures: `failed` events of failures that a restart would repeat.
        killed: whether a rank ended without an announcement.
        begun: whether training has begun: from then on there is something to save.
        stopping: whether the ranks were told to stop.
        deadline: when ranks that still run are killed.
    """

    torchrun: "subprocess.Popen[bytes]"
    report: Report
    stop_signal: StopSignal
    open: dict[Connection, _Rank] = field(default_factory=dict)
    exit_codes: list[int] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    killed: bool = False
    begun: bool = False
    stopping: bool = False
    deadline: float = float("inf")

    def follow(self, arrived: "SimpleQueue[Connection]") -> None:
        """Relay events until all ranks have ended or the deadline has passed."""
        while time.monotonic() < self.deadline:
            while not arrived.empty():
                self.open[arrived.get()] = _Rank()
            if self.stop_signal.number is not None and not self.stopping:
                if not self.begun:
                    return  # there is nothing to save
                self._stop(self.stop_signal.number)
            if self.open:
                for ready in wait(list(self.open), _TICK_S):
                    self._receive(cast(Connection, ready))
            else:
                time.sleep(_TICK_S)
            if self.torchrun.poll() is None:
                continue
            if not self.open and arrived.empty():
                return
            if not self.stopping and not self.exit_codes:  # torchrun was killed, and its ranks still run
                self.killed = True
                self._stop(signal.SIGTERM)

    def kill(self) -> None:
        """Kill torchrun and every rank that still runs."""
        kill_family(self.torchrun)
        for rank in self.open.values():
            if rank.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(rank.pid, signal.SIGKILL)

    def exit_code(self) -> int:
        """The exit code, as of a voter trained in one process; reports a failure that a restart would repeat."""
        bad_input = [event for event in self.failures if event["bad_input"]]
        if self.stop_signal.number is not None:
            return 128 + self.stop_signal.number
        if out_of_memory := [event for event in self.failures if event.get("out_of_memory")]:
            self.report(out_of_memory[0])
            return FAILED
        if self.killed and not bad_input:  # the other failures are its consequences
            return 128 + signal.SIGKILL
        if self.failures:
            self.report((bad_input or self.failures)[0])
            return FAILED
        if not self.exit_codes:
            error = f"torchrun ended with exit code {self.torchrun.returncode} before any process had begun"
            self.report({"event": "failed", "error": error, "bad_input": False})
            return FAILED
        return max(self.exit_codes)

    def _receive(self, connection: Connection) -> None:
        rank = self.open[connection]
        try:
            message = connection.recv()
        except (EOFError, OSError):
            del self.open[connection]
            self.killed |= not rank.ended
            if not rank.ended or not self.open:
                self._shorten_deadline(_BROKEN_GRACE_S)
            return
        if "pid" in message and "event" not in message:
            rank.pid = message["pid"]
        elif "exit_code" in message:
            rank.ended = True
            self.exit_codes.append(message["exit_code"])
        elif message["event"] == "failed":
            rank.ended = True
            self.failures.append(message)
            self._shorten_deadline(_BROKEN_GRACE_S)
        else:
            self.begun = True
            self.report(message)

    def _stop(self, number: int) -> None:
        self.stopping = True
        for connection in self.open:
            with suppress(OSError):
                connection.send(number)
        self._shorten_deadline(_STOP_GRACE_S)

    def _shorten_deadline(self, seconds: float) -> None:
        self.deadline = min(self.deadline, time.monotonic() + seconds)
