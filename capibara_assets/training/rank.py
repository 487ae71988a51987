"""`python -m capibara_assets.training.rank --request FILE --voter NAME`: one rank of a voter.

A rank is one of the several processes that train one voter together.

`torchrun` starts it, either for the voter's agent (supervisor/agent.py), or by hand for a training over several hosts:
there the work folder lies on a file system that all of them share, the first process prints the progress, and when all
voters have finished `python -m capibara_assets.training --request FILE` publishes them.

Exit codes: 0 finished, 130/143 stopped by SIGINT/SIGTERM with a resume point written, 2 bad input, 3 another failure.
"""

import argparse
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.escaping.terminal import print_plainly
from capibara_assets.training.monitoring.events import Report
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest, read_request
from capibara_assets.training.supervisor.reporting import reporting
from capibara_assets.training.supervisor.signals import StopSignal, stop_signal
from capibara_assets.training.supervisor.voter_process import (
    AGENT_ADDRESS,
    AGENT_KEY,
    FAILED,
    ORPHAN_GRACE_S,
    reporter,
    stop_then_exit,
)

_LEAVE_S = 3.0  # for a process that was already stopping when its agent went


def main(arguments: list[str] | None = None) -> int:
    """Train the voter together with its other ranks; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m capibara_assets.training.rank", description="Train one voter")
    parser.add_argument("--request", type=Path, required=True, help="JSON file of a TrainingRequest")
    parser.add_argument("--voter", required=True, help="Name of the voter")
    given = parser.parse_args(arguments)
    try:
        request = read_request(given.request)
        voter = _voter(request, given.voter)
    except InputError as error:
        print(error, file=sys.stderr, flush=True)
        return 2
    stop_signal.listen()
    from capibara_assets.training.ranks import join_ranks
    from capibara_assets.training.supervisor.worker import attempt

    if (agent := _join_agent(stop_signal)) is None:
        with _reporting(request, voter) as report:
            return attempt(request, voter, report, stop_signal, join_ranks)
    report = reporter(agent, stop_signal)
    code = attempt(request, voter, report, stop_signal, join_ranks)
    report({"exit_code": code})
    return FAILED if code == FAILED else 0  # the agent has the code; torchrun would report it as a crash


def _voter(request: TrainingRequest, name: str) -> VoterSpec:
    for voter in request.recipe.voters:
        if voter.name == name:
            return voter
    names = ", ".join(voter.name for voter in request.recipe.voters)
    raise InputError(f"the recipe has no voter {name}: {names}")


def _join_agent(stop_signal: StopSignal) -> Connection | None:
    """Connect to the agent that started this process, if any; it sends the number of a signal to stop.

    When the agent is gone, request a stop, and exit after a grace period.
    """
    if AGENT_ADDRESS not in os.environ:
        return None
    connection = Client(os.environ[AGENT_ADDRESS], "AF_UNIX", authkey=bytes.fromhex(os.environ[AGENT_KEY]))
    connection.send({"pid": os.getpid()})

    def follow() -> None:
        try:
            while True:
                stop_signal.note(connection.recv())
        except (EOFError, OSError):
            stop_then_exit(stop_signal, ORPHAN_GRACE_S if stop_signal.number is None else _LEAVE_S)

    threading.Thread(target=follow, daemon=True).start()
    return connection


@contextmanager
def _reporting(request: TrainingRequest, voter: VoterSpec) -> Iterator[Report]:
    """Context of a rank without an agent: it prints, and the first one has the recipe's exporters, as a supervisor."""

    def say(line: str) -> None:
        print(line, flush=True)

    if os.environ.get("RANK", "0") != "0":
        request = request.model_copy(update={"recipe": request.recipe.without_exporters()})
    with reporting(request, say) as pass_on:

        def report(event: dict[str, Any]) -> None:
            if event["event"] == "failed":
                print(f"{request.domain}/{voter.name}: {event['error']}", file=sys.stderr, flush=True)
            else:
                pass_on({"domain": request.domain, "voter": voter.name, "step": 0, **event})

        yield report


if __name__ == "__main__":
    print_plainly()
    sys.exit(main())
