"""Supervisor of a vote: one process per voter, restarted when it dies or hangs; a voter that never answers is absent.

Where each voter has one thread and the model is on a CPU, voters are forked: they share the base model's memory and
start at once, and each draws its key after the fork. Otherwise they are new processes that map the base model.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from capibara_assets.consensus.election.ballots import Ballot
from capibara_assets.consensus.election.voter import (
    ANSWER,
    FAILURE,
    PULSE,
    Assignment,
    BaseModelSource,
    Evaluate,
    answer,
    read_answer,
    run,
)
from capibara_assets.errors import InputError
from capibara_assets.modeling.base import Base

_TICK_S = 0.05
_MOST_SAID = 2000  # characters of a failure that are reported
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_COPIES = 2.5  # of the model's weights that a voter holds at most: its own, the originals while a candidate is applied


@dataclass(frozen=True)
class Poll:
    """Answers to a vote: public keys and ballots as the voters sent them, and why absent voters are absent."""

    keys: dict[str, str]
    ballots: tuple[Ballot, ...]
    absent: dict[str, str]


Hold = Callable[[Base, Sequence[Assignment], float, int], Poll]


@dataclass
class _VoterProcess:
    """The process of one voter, and its attempts so far."""

    assignment: Assignment
    folder: Path
    attempts: int = 0
    not_before: float = 0.0
    process: BaseProcess | None = None
    started: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.assignment.voter

    @property
    def place(self) -> Path:
        """Folder of this attempt: files that an earlier process still writes are not read."""
        return self.folder / f"attempt-{self.attempts}"


def hold_vote(
    base: Base,
    assignments: Sequence[Assignment],
    timeout: float = 600.0,
    retries: int = 5,
    *,
    entry: Callable[..., None] = run,
    processes: int | None = None,
    start_method: str | None = None,
) -> Poll:
    """Run every voter in a process of its own; no faulty or dead voter stops the others.

    A voter whose process dies, fails, or shows no sign of life for timeout / (retries + 1) seconds is started again
    after a pause that doubles, up to `retries` times and not beyond `timeout`, then it is absent. The vote ends when
    all have answered or the timeout is over: voters without an answer by then are late, and absent.

    Args:
        timeout: seconds for the whole vote.
        retries: restarts of each voter.
        entry: the function that a voter's process runs.
        processes: voters at a time; default: as many as there are processors and memory for.
        start_method: fork or spawn; default: fork where it is safe.
    """
    cpus = len(os.sched_getaffinity(0))
    at_once = max(1, min(len(assignments), processes or _affordable(base, cpus)))
    threads = max(1, cpus // at_once)
    on_cpu = next(base.model.parameters()).device.type == "cpu"
    # GNU's OpenMP cannot make new threads in a child of a process that had some; one thread needs none
    method = start_method or ("fork" if threads == 1 and on_cpu and os.uname().sysname == "Linux" else "spawn")
    with TemporaryDirectory(prefix="capibara-vote-") as home:
        given: Base | BaseModelSource = base
        if method != "fork":
            parameter = next(base.model.parameters())
            given = BaseModelSource(
                base.path, base.digest, parameter.dtype, str(parameter.device), Path(home) / "shared"
            )
        voters = [_VoterProcess(each, Path(home) / f"voter-{number}") for number, each in enumerate(assignments)]
        start = partial(_start, multiprocessing.get_context(method), entry, given, 1 if method == "fork" else threads)
        return _hold(voters, timeout, retries, at_once, start)


def hold_here(
    base: Base, assignments: Sequence[Assignment], timeout: float, retries: int, *, evaluate: Evaluate | None = None
) -> Poll:
    """Run the same vote in this process, for simulations: no voter has its own memory, dies or is late."""
    keys, ballots = {}, list[Ballot]()
    for each in assignments:
        document = answer(each, base, evaluate=evaluate)
        keys[each.voter] = document["public_key"]
        ballots += [Ballot.model_validate(ballot) for ballot in document["ballots"]]
    return Poll(keys, tuple(ballots), {})


def _hold(
    voters: list[_VoterProcess], timeout: float, retries: int, at_once: int, start: Callable[[_VoterProcess], None]
) -> Poll:
    opened = time.monotonic()
    patience = timeout / (retries + 1)
    keys: dict[str, str] = {}
    ballots: list[Ballot] = []
    absent: dict[str, str] = {}
    waiting, running = list(voters), list[_VoterProcess]()
    try:
        while waiting or running:
            now = time.monotonic()
            if now - opened >= timeout:
                break
            for voter in [v for v in waiting if v.not_before <= now][: at_once - len(running)]:
                waiting.remove(voter)
                running.append(voter)
                start(voter)
            wait([voter.process.sentinel for voter in running if voter.process], timeout=_TICK_S)
            for voter in list(running):
                state = _result(voter, patience)
                if state is None:
                    continue
                running.remove(voter)
                _end(voter)
                if isinstance(state, str):
                    voter.problems.append(state)
                    if voter.attempts > retries:
                        absent[voter.name] = _why(voter)
                    else:
                        pause = min(_FIRST_PAUSE_S * 2 ** (voter.attempts - 1), _LONGEST_PAUSE_S)
                        voter.not_before = time.monotonic() + pause
                        waiting.append(voter)
                else:
                    keys[voter.name] = state[0]
                    ballots += state[1]
    finally:
        for voter in running:
            _end(voter)
    for voter in (*running, *waiting):
        voter.problems.append(f"late: no answer within {timeout:g} s")
        absent[voter.name] = _why(voter)
    ballots.sort(key=lambda b: (b.voter, b.round, b.candidate))
    return Poll(dict(sorted(keys.items())), tuple(ballots), dict(sorted(absent.items())))


def _start(
    context: Any, entry: Callable[..., None], base: Base | BaseModelSource, threads: int, voter: _VoterProcess
) -> None:
    voter.attempts += 1
    voter.place.mkdir(parents=True)
    voter.started = time.time()
    voter.process = context.Process(
        target=entry, args=(voter.assignment, base, voter.place, threads), name=voter.name, daemon=True
    )
    voter.process.start()


def _result(voter: _VoterProcess, patience: float) -> tuple[str, tuple[Ballot, ...]] | str | None:
    """A voter's key and ballots; or why this attempt failed; or None while it is running."""
    assert voter.process is not None
    ended = not voter.process.is_alive()  # asked first, so that the answer of an ended process is already there
    if (voter.place / ANSWER).is_file():
        try:
            return read_answer(voter.place / ANSWER, voter.assignment)
        except InputError as error:
            return str(error)
    if ended:
        return _failure(voter)
    pulse = voter.place / PULSE
    alive = max(voter.started, pulse.stat().st_mtime if pulse.is_file() else 0.0)
    return f"no sign of life for {patience:.3g} s" if time.time() - alive > patience else None


def _failure(voter: _VoterProcess) -> str:
    failure = voter.place / FAILURE
    if failure.is_file():
        return failure.read_text("utf-8", errors="replace")[:_MOST_SAID].strip()
    code = voter.process.exitcode if voter.process else None
    return f"killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}, no answer"


def _end(voter: _VoterProcess) -> None:
    """Kill the process by SIGKILL: it has nothing to save, and a stopped process ignores other signals."""
    if voter.process is not None:
        voter.process.kill()
        voter.process.join()
        voter.process.close()
        voter.process = None


def _why(voter: _VoterProcess) -> str:
    attempts = f"{voter.attempts} attempt{'s' if voter.attempts != 1 else ''}"
    last = "; ".join(dict.fromkeys(voter.problems[-2:]))
    return f"{attempts}, last: {last}" if voter.attempts else f"never started: {last}"


def _affordable(base: Base, cpus: int) -> int:
    """Number of voters that processors and free memory suffice for at the same time; at least one."""
    if next(base.model.parameters()).device.type != "cpu":
        return 1
    weights = sum(parameter.numel() * parameter.element_size() for parameter in base.model.parameters())
    return max(1, min(cpus, int(psutil.virtual_memory().available / (_COPIES * max(weights, 1)))))
