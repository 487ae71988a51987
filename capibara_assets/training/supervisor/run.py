"""Supervises the training of a domain: one process per voter, restarted when killed, assembled when enough finish.

Imports no torch: the supervisor stays small, and one fork server imports what voters need, once for all of them.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.modeling.files import modeling_module
from capibara_assets.processes.startup import set_up_trainings
from capibara_assets.processes.supervise import OVER, TICK_S, Attempt, Patience, supervise
from capibara_assets.training.devices import VISIBLE, Gpus, Placement, gpus_here, place
from capibara_assets.training.monitoring.events import Report
from capibara_assets.training.plan.plan import plan_training, settings_of
from capibara_assets.training.plan.prediction import keep_plan
from capibara_assets.training.plan.preflight import require_ready
from capibara_assets.training.plan.smaller import kills_for_memory, smaller_setting
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.supervisor.assembly import assemble, has_result
from capibara_assets.training.supervisor.voter_process import require_not_a_rank

_STOP_GRACE_S = 15.0  # under the 20 s that Dagster Pipes waits
_MOST_DOUBLINGS = 8  # of the wait before a restart


class TooFewVoters(Exception):
    """Fewer than 2f + 1 voters finished: nothing is published."""


class TrainingInterrupted(Exception):
    """Training was stopped by a signal; every running voter has written a resume point.

    Attributes:
        signal: its number.
    """

    def __init__(self, number: int):
        super().__init__(f"training stopped by signal {number}; run again to go on from the last resume points")
        self.signal = number


@dataclass(frozen=True)
class TrainingOutcome:
    """A finished domain: `out` holds `voters/<name>/` of the finished voters and `summary.json`."""

    out: Path
    finished: tuple[str, ...]
    missing: dict[str, str]
    summary: dict[str, Any]


@dataclass(frozen=True)
class _Domain:
    """Shared state of a domain's voters.

    Attributes:
        report, stop: of `train_domain`.
        taken: GPUs of the running voters.
    """

    request: TrainingRequest
    placement: Placement
    context: ForkServerContext
    patience: Patience
    report: Report
    stop: Callable[[], int | None]
    taken: list[Gpus] = field(default_factory=list)


@dataclass
class _Voter:
    """A voter as the supervisor sees it: its restarts, and why it failed.

    Attributes:
        request: that it is started with: the domain's, or one that needs less memory.
        gpus: that it trains on; none on a processor.
        failure: why it ended without a result; None while it may still finish.
        bad_input: whether the failure is due to its input.
        out_of_memory: how its last attempt ended, where that was for want of memory.
        kills: of processes for want of memory on this system, when it was started.
    """

    domain: _Domain
    spec: VoterSpec
    request: TrainingRequest
    restarts: int = 0
    gpus: Gpus = ()
    failure: str | None = None
    bad_input: bool = False
    out_of_memory: str | None = None
    kills: int = 0

    def start(self) -> Attempt:
        """Start its process; returns early when a stop is requested, because the first start waits for imports.

        Raises:
            TrainingInterrupted: `stop` returned a signal; the process is killed as soon as it exists.
        """
        domain = self.domain
        self.kills, self.gpus = kills_for_memory(), domain.placement.next_group(domain.taken)
        ours, theirs = domain.context.Pipe(duplex=False)
        arguments = (self.gpus, _enter, self.request, self.spec, theirs)
        process = domain.context.Process(target=_enter_on, args=arguments, name=self.spec.name, daemon=True)
        _start(process, domain.stop)
        theirs.close()
        domain.taken.append(self.gpus)
        return Attempt(process, ours, self.receive, process.terminate)

    def receive(self, event: dict[str, Any]) -> None:
        """Relay an event that it has sent."""
        if event["event"] == "failed":
            if event.get("out_of_memory"):
                self.out_of_memory = event["error"]
                return  # the last word is `_made_smaller`'s
            self.failure, self.bad_input = event["error"], event["bad_input"]
        self.tell(event)

    def tell(self, event: dict[str, Any]) -> None:
        """Report an event of this voter."""
        _tell(self.domain.report, self.request, self.spec, event)

    def judge(self, code: int | None) -> float | None:
        """As `Worker.judge`; says why a voter failed for good, and that it is started again."""
        if code is None:
            return None
        self.domain.taken.remove(self.gpus)
        if has_result(self.domain.request, self.spec):
            self.failure = None
            return OVER
        killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)
        if killed and kills_for_memory() > self.kills:
            self.out_of_memory = self.out_of_memory or "killed by the system for want of memory"
        if self.out_of_memory is not None:
            return self._made_smaller(self.out_of_memory)
        if self.failure is not None:
            return OVER
        if 0 <= code < 128:
            self.failure = f"ended with exit code {code} and no adapter"
            return OVER
        how = f"killed by signal {-code if code < 0 else code - 128}"
        pause = self.domain.patience.pause(self.restarts + 1)
        if pause == OVER:
            self.failure = f"{how}, after {self.restarts} restarts"
            return OVER
        self.restarts += 1
        of = self.domain.request.recipe.checkpoint.max_restarts
        self.tell({"event": "restarted", "reason": how, "restart": self.restarts, "of": of})
        return pause

    def _made_smaller(self, why: str) -> float:
        """After it ran out of memory: starts it again at once with the plan's next smaller setting, if there is one."""
        request = self.request
        plan = plan_training(request)
        smaller = smaller_setting(request.recipe, settings_of(request, None), plan.longest)
        if request.asked is not None or smaller is None:
            tried = (
                "the plan's next smaller setting, too" if request.asked is not None else "with nothing smaller to try"
            )
            self.failure = (
                f"{why}; {tried}: hold the base quantised (model.quantization), lower data.max_length, run fewer "
                "voters at a time (hardware.parallel), or take a larger machine"
            )
            return OVER
        self.request, self.out_of_memory = request.with_less_memory(smaller.recipe), None
        self.tell({"event": "made_smaller", "reason": why, "setting": smaller.said})
        return 0.0


def train_domain(
    request: TrainingRequest,
    report: Report,
    stop: Callable[[], int | None] = lambda: None,
    hurry: Callable[[], bool] = lambda: False,
) -> TrainingOutcome:
    """Train all voters of a domain and assemble `request.out`.

    Voters that an earlier attempt finished from the same inputs are reused; the others go on from their resume points.
    A voter killed by a signal is restarted, at most `max_restarts` times; any other failure would repeat and is final.
    The other voters train on.

    Args:
        report: called in this process with every event of every voter (`domain`, `voter`, `event`, `step`, ...).
        stop: called several times a second; when it returns a signal's number, all voters write resume points and
            exit.
        hurry: called meanwhile; True kills voters that still write: their earlier resume points stay valid.

    Raises:
        InputError: a check before the run failed (preflight.py), no voter could train because of its input, or there
            is no resume point where the request wants one.
        TooFewVoters: fewer than 2f + 1 voters finished; says why for each.
        TrainingInterrupted: `stop` returned a signal.
    """
    started = time.monotonic()
    failed, placement = _train(request, request.recipe.voters, report, stop, hurry)
    return _assembled(request, {voter.spec.name: voter for voter in failed}, started, placement)


def train_voters(
    request: TrainingRequest,
    names: Sequence[str],
    report: Report,
    stop: Callable[[], int | None] = lambda: None,
    hurry: Callable[[], bool] = lambda: False,
) -> None:
    """Train these voters alone, while other processes train the others; `assemble_domain` puts them together.

    Raises:
        InputError: as `train_domain`, or a name that is no voter's.
        TooFewVoters: one of them failed; says why.
        TrainingInterrupted: `stop` returned a signal.
    """
    if unknown := sorted(set(names) - {spec.name for spec in request.recipe.voters}):
        raise InputError(f"the recipe has no voter {', '.join(unknown)}")
    failed, _ = _train(request, [spec for spec in request.recipe.voters if spec.name in names], report, stop, hurry)
    if failed:
        raise TooFewVoters("; ".join(f"{request.domain}/{voter.spec.name}: {voter.failure}" for voter in failed))


def assemble_domain(request: TrainingRequest) -> TrainingOutcome:
    """Assemble `request.out` of the voters that have finished, without training any.

    Raises:
        TooFewVoters: fewer than 2f + 1 have.
    """
    missing = [spec for spec in request.recipe.voters if not has_result(request, spec)]
    return _assembled(request, {spec.name: None for spec in missing}, time.monotonic(), None)


def _train(
    request: TrainingRequest,
    voters: Sequence[VoterSpec],
    report: Report,
    stop: Callable[[], int | None],
    hurry: Callable[[], bool],
) -> tuple[list[_Voter], Placement | None]:
    """Train those of the voters that have not finished; returns the failed ones, and where they trained, if any did."""
    require_not_a_rank()
    keep_plan(request.work, require_ready(request))
    waiting = [spec for spec in voters if not has_result(request, spec)]
    for spec in voters:
        if spec not in waiting:
            _tell(report, request, spec, {"event": "reused"})
    if request.resume_from == "latest" and not (len(waiting) < len(voters) or _any_point(request)):
        raise InputError(
            f"there is no resume point in {request.output or request.work}: leave resume_from out to start anew"
        )
    if not waiting:  # where several hosts have trained, one with fewer GPUs only puts their voters together
        return [], None
    placement = place(request, gpus_here(), len(os.sched_getaffinity(0)))
    for spec in waiting if placement.note else ():
        _tell(report, request, spec, {"event": "warning", "text": placement.note})
    again, first_s = request.recipe.checkpoint.max_restarts, request.recipe.checkpoint.restart_delay_s
    patience = Patience(1 + again, first_s, first_s * 2**_MOST_DOUBLINGS)
    domain = _Domain(request, placement, _fork_server(request), patience, report, stop)
    return _run(domain, [_Voter(domain, spec, request) for spec in waiting], hurry), placement


def _assembled(
    request: TrainingRequest, failed: Mapping[str, _Voter | None], started: float, placement: Placement | None
) -> TrainingOutcome:
    """Assemble the voters that did not fail; None stands for one that another process trained.

    Raises:
        InputError, TooFewVoters: as `train_domain`.
    """
    elsewhere = "has not finished where it was trained: see its own log"
    reasons = {name: elsewhere if voter is None else voter.failure for name, voter in failed.items()}
    missing = {name: reason for name, reason in reasons.items() if reason is not None}
    bad_input = bool(failed) and all(voter is not None and voter.bad_input for voter in failed.values())
    _require_quorum(request, missing, bad_input)
    folders = {spec.name: request.folder(spec) for spec in request.recipe.voters if spec.name not in missing}
    summary = assemble(request, folders, missing, time.monotonic() - started, placement)
    return TrainingOutcome(request.out, tuple(summary["finished"]), missing, summary)


def _run(domain: _Domain, voters: list[_Voter], hurry: Callable[[], bool]) -> list[_Voter]:
    """Run voters until each has finished or failed, or the quorum is out of reach; returns those that have failed."""
    recipe = domain.request.recipe

    def failed() -> list[_Voter]:
        return [voter for voter in voters if voter.failure is not None]

    def go_on() -> bool:
        if len(failed()) > len(recipe.voters) - recipe.quorum:
            return False
        _require_no_stop(domain.stop)
        return True

    supervise(voters, domain.placement.at_once, go_on, grace_s=_STOP_GRACE_S, hurry=hurry)
    return failed()


def _fork_server(request: TrainingRequest) -> ForkServerContext:
    """A fork server that imports what voters need once, so that each of them starts in a fraction of a second."""
    context = multiprocessing.get_context("forkserver")
    parts = ["capibara_assets.training.supervisor.fork_server"]
    if request.recipe.hardware.processes > 1:
        parts.append("capibara_assets.training.supervisor.agent")
    else:
        parts += ["capibara_assets.training.supervisor.worker", modeling_module(request.base_model)]
    context.set_forkserver_preload(parts)
    set_up_trainings()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a few hundred texts; its threads do not survive a fork
    return context


def _start(process: ForkServerProcess, stop: Callable[[], int | None]) -> None:
    """Start a process; TrainingInterrupted is raised without waiting for it, and it is killed as soon as it exists."""
    started, unwanted = Future[None](), threading.Event()

    def start() -> None:
        try:
            process.start()
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            started.set_exception(error)
            return
        if unwanted.is_set():
            process.kill()
        started.set_result(None)

    threading.Thread(target=start, daemon=True).start()
    try:
        while not wait_for([started], timeout=TICK_S).done:
            _require_no_stop(stop)
    except TrainingInterrupted:
        unwanted.set()
        raise
    started.result()


def _require_no_stop(stop: Callable[[], int | None]) -> None:
    if number := stop():
        raise TrainingInterrupted(number)


def _enter_on(
    gpus: Gpus,
    enter: Callable[[TrainingRequest, VoterSpec, Connection], None],
    request: TrainingRequest,
    spec: VoterSpec,
    connection: Connection,
) -> None:
    """First function of a voter's process: CUDA, which nothing has used yet, sees the voter's GPUs only."""
    if gpus:
        os.environ[VISIBLE] = ",".join(gpus)
    enter(request, spec, connection)


def _enter(request: TrainingRequest, spec: VoterSpec, connection: Connection) -> None:
    """Entry point of a voter's process; torch is imported in it, or in its ranks, never in the supervisor."""
    if request.recipe.hardware.processes > 1:
        from capibara_assets.training.supervisor.agent import run_ranks

        run_ranks(request, spec, connection)
    else:
        from capibara_assets.training.supervisor.worker import run_voter

        run_voter(request, spec, connection)


def _tell(report: Report, request: TrainingRequest, spec: VoterSpec, event: dict[str, Any]) -> None:
    report({"domain": request.domain, "voter": spec.name, "step": 0, **event})


def _any_point(request: TrainingRequest) -> bool:
    """Whether any voter has a resume point."""
    return any(next(request.folder(spec).glob("checkpoint-*/state.json"), None) for spec in request.recipe.voters)


def _require_quorum(request: TrainingRequest, missing: Mapping[str, str], bad_input: bool) -> None:
    recipe = request.recipe
    finished = sum(has_result(request, spec) for spec in recipe.voters)
    if finished >= recipe.quorum:
        return
    reasons = "; ".join(f"{name}: {failure}" for name, failure in sorted(missing.items()))
    message = f"{request.domain}: {finished} of {len(recipe.voters)} voters finished, {recipe.quorum} needed: {reasons}"
    if bad_input:
        raise InputError(message)
    raise TooFewVoters(message)
