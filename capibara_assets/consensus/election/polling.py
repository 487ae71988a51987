"""Supervisor of a vote: one process per voter, restarted if it dies or hangs; a voter that never answers is absent.

Where accepted voters are to confirm the outcome, those who answered stay and wait for it: their keys are in them. Who
dies meanwhile is not started again, and confirms nothing.

Where each voter has one thread and the model is on a CPU, voters are forked: they share the base model's memory and
start at once, and each draws its key after the fork. Otherwise they are new processes that map the base model.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from capibara_assets.consensus.election.ballots import Ballot, in_order
from capibara_assets.consensus.election.confirmations import Confirmation
from capibara_assets.consensus.election.voter import (
    ANSWER,
    CONFIRMATION,
    FAILURE,
    PROPOSAL,
    PULSE,
    Assignment,
    BaseModelSource,
    Proposal,
    read_answer,
    read_confirmation,
    run,
)
from capibara_assets.errors import InputError
from capibara_assets.modeling.base import Base
from capibara_assets.processes.supervise import OVER, Attempt, Patience, supervise
from capibara_assets.storage.jsonfiles import write_json_atomic

_MOST_SAID = 2000  # characters of a failure that are reported
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_COPIES = 2.5  # of the model's weights that a voter holds at most: its own, the originals while a candidate is applied


@dataclass(frozen=True)
class Poll:
    """Answers to a vote: the voters' public keys and ballots, and why voters are absent.

    Attributes:
        confirmations: of voters that were asked for one in the second round, and sent it.
        unconfirmed: those that were asked and sent none -> why.
    """

    keys: dict[str, str]
    ballots: tuple[Ballot, ...]
    absent: dict[str, str]
    confirmations: tuple[Confirmation, ...] = ()
    unconfirmed: Mapping[str, str] = field(default_factory=dict)


Decide = Callable[[Poll], Mapping[str, Proposal]]
"""What follows from the first round: voter -> what it is asked to confirm."""
Hold = Callable[[Base, Sequence[Assignment], float, int, Decide], Poll]


@dataclass
class _Voter:
    """One voter's attempts so far and their results.

    Attributes:
        begin: starts a process that judges the assignment and answers in a folder.
        quiet_s: seconds without a sign of life after which a process counts as hung.
        over: whether nothing more is expected of it.
        answer: public key and ballots.
        stays: whether it is kept after its answer, for the second round.
        proposal: what it is asked to confirm, once it is asked.
    """

    assignment: Assignment
    folder: Path
    begin: Callable[[Assignment, Path], BaseProcess]
    patience: Patience
    quiet_s: float
    attempts: int = 0
    heard: float = 0.0  # `time.monotonic()` of the last sign of life
    stamp: int = 0  # of its pulse, as it was then
    problems: list[str] = field(default_factory=list)
    over: bool = False
    answer: tuple[str, tuple[Ballot, ...]] | None = None
    stays: bool = False
    proposal: Proposal | None = None
    confirmation: Confirmation | None = None

    @property
    def rests(self) -> bool:
        """Whether the process is only waiting for the second round."""
        return self.answer is not None and self.proposal is None and not self.over

    @property
    def place(self) -> Path:
        """Folder of this attempt, so that files still being written by an earlier process are not read."""
        return self.folder / f"attempt-{self.attempts}"

    def start(self) -> Attempt:
        """Start a process; it has nothing to save, and SIGKILL ends it: a stopped process ignores other signals."""
        self.attempts += 1
        self.place.mkdir(parents=True)
        self.heard, self.stamp = time.monotonic(), 0
        return Attempt(self.begin(self.assignment, self.place))

    def judge(self, code: int | None) -> float | None:
        """Same as `Worker.judge`: an answer counts even if its process is running; a hung process is killed."""
        if self.over:
            return OVER
        if self.answer is not None:
            return self._judge_again(code)
        try:
            if (self.place / ANSWER).is_file():
                self.answer, self.over = read_answer(self.place / ANSWER, self.assignment), not self.stays
                return OVER if self.over else None
            problem = self._problem(code)
        except InputError as error:
            problem = str(error)
        if problem is None:
            return None
        self.problems.append(problem)
        pause = self.patience.pause(self.attempts)
        self.over = pause == OVER
        return pause

    def ask(self, proposal: Proposal) -> None:
        """Start the second round."""
        self.proposal, self.heard = proposal, time.monotonic()
        write_json_atomic(self.place / PROPOSAL, proposal)

    def _judge_again(self, code: int | None) -> float | None:
        """As `judge`, in the second round, or before it is asked for it."""
        try:
            if self.proposal is not None and (self.place / CONFIRMATION).is_file():
                candidates = len(self.proposal["losses"])
                self.confirmation = read_confirmation(self.place / CONFIRMATION, self.assignment.voter, candidates)
                self.over = True
                return OVER
            problem = None if code is None and self.proposal is None else self._problem(code)
        except InputError as error:
            problem = str(error)
        if problem is not None:
            self.problems.append(problem)
            self.over = True
        return OVER if self.over else None

    def _problem(self, code: int | None) -> str | None:
        """Why there is no answer and none will come; None while there is hope."""
        failure = self.place / FAILURE
        if code is None:
            return f"no sign of life for {self.quiet_s:.3g} s" if self._silence() > self.quiet_s else None
        if failure.is_file():
            return failure.read_text("utf-8", errors="replace")[:_MOST_SAID].strip()
        return f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}, no answer"

    def _silence(self) -> float:
        """Seconds since its pulse last changed, by a clock that nobody sets: the pulse's own time may jump."""
        pulse = self.place / PULSE
        stamp = pulse.stat().st_mtime_ns if pulse.is_file() else 0
        if stamp != self.stamp:
            self.stamp, self.heard = stamp, time.monotonic()
        return time.monotonic() - self.heard

    def why_absent(self) -> str:
        attempts = f"{self.attempts} attempt{'s' if self.attempts != 1 else ''}"
        last = "; ".join(dict.fromkeys(self.problems[-2:]))
        return f"{attempts}, last: {last}" if self.attempts else f"never started: {last}"

    def why_unconfirmed(self, timeout: float) -> str:
        return self.problems[-1] if self.over and self.problems else f"late: no confirmation within {timeout:g} s"


@dataclass
class _Rounds:
    """Where a vote stands: its first round, what was decided after it, its second round.

    Attributes:
        decide: what the second round is about; None: there is none.
        closes: `time.monotonic()` at which the round is over.
        poll: the answers of the first round, once it is over.
        asked: voter -> proposal, once it is decided.
    """

    voters: Sequence[_Voter]
    decide: Decide | None
    at_once: int
    timeout: float
    closes: float
    poll: Poll | None = None
    asked: Mapping[str, Proposal] = field(default_factory=dict)

    def go_on(self) -> bool:
        """Callback of `supervise`: starts the second round when the first is over."""
        if self.poll is None:
            if any(voter.answer is None and not voter.over for voter in self.voters):
                if time.monotonic() < self.closes:
                    return True
                if self.decide is None:
                    return False
            elif self.decide is None:
                return True
            self.end_first()
        working = sum(voter.proposal is not None and not voter.over for voter in self.voters)
        waiting = [voter for voter in self.voters if voter.rests]
        for voter in waiting[: max(0, self.at_once - working)]:
            voter.ask(self.asked[voter.assignment.voter])
        return time.monotonic() < self.closes

    def end_first(self) -> None:
        """End the first round: voters without an answer do not count; decide what to confirm."""
        self.poll = _poll(self.voters, self.timeout)
        self.asked = {} if self.decide is None else self.decide(self.poll)
        self.closes = time.monotonic() + self.timeout
        for voter in self.voters:
            voter.over = voter.over or voter.answer is None or voter.assignment.voter not in self.asked

    def result(self) -> Poll:
        """All answers and confirmations."""
        if self.poll is None:  # nobody is left
            self.end_first()
        assert self.poll is not None
        asked = [voter for voter in self.voters if voter.assignment.voter in self.asked]
        given = {v.assignment.voter: v.confirmation for v in asked if v.confirmation is not None}
        return replace(
            self.poll,
            confirmations=tuple(given[name] for name in sorted(given)),
            unconfirmed={
                v.assignment.voter: v.why_unconfirmed(self.timeout)
                for v in sorted(asked, key=lambda v: v.assignment.voter)
                if v.confirmation is None
            },
        )


def hold_vote(
    base: Base,
    assignments: Sequence[Assignment],
    timeout: float = 600.0,
    retries: int = 5,
    decide: Decide | None = None,
    *,
    entry: Callable[..., None] = run,
    processes: int | None = None,
    start_method: str | None = None,
) -> Poll:
    """Run every voter in its own process; a faulty or dead voter does not stop the others.

    A voter whose process dies, fails, or shows no sign of life for timeout / (retries + 1) seconds is started again
    after a pause that doubles, up to `retries` times and not beyond `timeout`, then it is absent. The vote ends when
    all have answered or the timeout is over: voters without an answer by then are late, and absent.

    With `decide` there is a second round: voters who answered wait until it has returned what they are asked to
    confirm, and confirm it or not, within the timeout again.

    Args:
        timeout: seconds for each round.
        retries: restarts of each voter, in the first round.
        decide: makes the proposals of the second round from the first one's answers; may raise to end the vote.
        entry: the function that a voter's process runs.
        processes: voters at a time; default: as many as there are processors and memory for.
        start_method: fork or spawn; default: fork where it is safe.
    """
    cpus = len(os.sched_getaffinity(0))
    at_once = max(1, min(len(assignments), processes or _affordable(base, cpus)))
    threads = max(1, cpus // at_once)
    on_cpu = next(base.model.parameters()).device.type == "cpu"
    # GNU's OpenMP cannot make new threads in a child of a process that had some; one thread needs none
    forks = threads == 1 and on_cpu and os.uname().sysname == "Linux" and _room_to_stay(base, len(assignments), at_once)
    method = start_method or ("fork" if forks else "spawn")
    with TemporaryDirectory(prefix="capibara-vote-") as home:
        given: Base | BaseModelSource = base
        if method != "fork":
            parameter = next(base.model.parameters())
            given = BaseModelSource(
                base.path, base.digest, parameter.dtype, str(parameter.device), Path(home) / "shared"
            )
        begin = partial(_begin, multiprocessing.get_context(method), entry, given, 1 if method == "fork" else threads)
        patience = Patience(retries + 1, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        voters = [
            _Voter(
                each, Path(home) / f"voter-{number}", begin, patience, timeout / patience.attempts,
                stays=decide is not None,
            )
            for number, each in enumerate(assignments)
        ]  # fmt: skip
        rounds = _Rounds(voters, decide, at_once, timeout, time.monotonic() + timeout)
        supervise(voters, at_once, rounds.go_on, rests=lambda at: voters[at].rests)
        return rounds.result()


def _begin(
    context: Any,
    entry: Callable[..., None],
    base: Base | BaseModelSource,
    threads: int,
    assignment: Assignment,
    place: Path,
) -> BaseProcess:
    process: BaseProcess = context.Process(
        target=entry, args=(assignment, base, place, threads), name=assignment.voter, daemon=True
    )
    process.start()
    return process


def _poll(voters: Sequence[_Voter], timeout: float) -> Poll:
    """What the voters answered by now."""
    keys, ballots, absent = {}, list[Ballot](), {}
    for voter in sorted(voters, key=lambda voter: voter.assignment.voter):
        if voter.answer is not None:
            keys[voter.assignment.voter] = voter.answer[0]
            ballots += voter.answer[1]
            continue
        if not voter.over:
            voter.problems.append(f"late: no answer within {timeout:g} s")
        absent[voter.assignment.voter] = voter.why_absent()
    return Poll(keys, in_order(ballots), absent)


def _room_to_stay(base: Base, voters: int, at_once: int) -> bool:
    """Whether memory suffices for forked voters: one that waits keeps the weights that it changed and put back.

    A new process lets go of its model meanwhile, and maps it again.
    """
    weights = sum(parameter.numel() * parameter.element_size() for parameter in base.model.parameters())
    return bool((voters + (_COPIES - 1) * at_once) * weights <= psutil.virtual_memory().available)


def _affordable(base: Base, cpus: int) -> int:
    """Number of voters that processors and free memory suffice for at the same time; at least one."""
    if next(base.model.parameters()).device.type != "cpu":
        return 1
    weights = sum(parameter.numel() * parameter.element_size() for parameter in base.model.parameters())
    return max(1, min(cpus, int(psutil.virtual_memory().available / (_COPIES * max(weights, 1)))))
