"""Trains the voters of one domain: a process each, some at a time, restarted when killed, published when enough finish.

Imports no torch: the supervisor stays small, and one fork server imports what voters need, once for all of them.
"""

import json
import multiprocessing
import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.modeling.files import read_config
from capibara_assets.storage.jsonfiles import sync_folder, write_json_atomic
from capibara_assets.training.monitoring.events import EVENTS, Report
from capibara_assets.training.plan.prediction import compared, keep_plan
from capibara_assets.training.plan.preflight import require_ready
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.supervisor.faults import inject
from capibara_assets.training.supervisor.voter_process import require_not_a_rank

RESULT = "result"
# Files whose bytes differ between equal runs (times, speeds, hosts): left out of an artifact's digest.
VOLATILE = (
    "summary.json",
    "launch/request.json",
    "voters/*/events.jsonl",
    "voters/*/metrics.json",
    "voters/*/timings.json",
    "voters/*/checkpoints.json",
)
_STOP_GRACE_S = 15.0  # under the 20 s that Dagster Pipes waits
_TICK_S = 0.2
_MOST_DOUBLINGS = 8  # of the wait before a restart


class TooFewVoters(Exception):
    """Fewer than 2f + 1 voters finished: nothing is published."""


class TrainingInterrupted(Exception):
    """Asked to stop; every running voter left a resume point.

    Attributes:
        signal: number of the signal that asked.
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


@dataclass
class _SupervisedVoter:
    """A voter's state in the supervisor."""

    spec: VoterSpec
    folder: Path
    process: ForkServerProcess | None = None
    connection: Connection | None = None
    restarts: int = 0
    not_before: float = 0.0
    failure: str | None = None
    bad_input: bool = False


def train_domain(
    request: TrainingRequest,
    report: Report,
    stop: Callable[[], int | None] = lambda: None,
    hurry: Callable[[], bool] = lambda: False,
) -> TrainingOutcome:
    """Train all voters of a domain and assemble `request.out`.

    Voters that finished in the work folder before, from the same inputs, are taken as they are; others go on from
    their resume points. A voter killed by a signal is started again, `max_restarts` times; any other failure would
    come again and is not retried. The others train on.

    Args:
        report: called in this process with every event of every voter (`domain`, `voter`, `event`, `step`, ...).
        stop: asked several times a second; a signal's number makes all voters write resume points and leave.
        hurry: asked while they do so; True ends those that still write, whose resume points of before stay good.

    Raises:
        InputError: a check before the run failed (preflight.py), no voter could train because of its input, or there
            is no resume point where the request wants one.
        TooFewVoters: fewer than 2f + 1 voters finished; says why for each.
        TrainingInterrupted: `stop` asked for it.
    """
    started = time.monotonic()
    require_not_a_rank()
    keep_plan(request.work, require_ready(request))
    voters = [_SupervisedVoter(spec, request.folder(spec)) for spec in request.recipe.voters]
    waiting = [voter for voter in voters if not _finished(voter, request)]
    for voter in voters:
        if voter not in waiting:
            report({"domain": request.domain, "voter": voter.spec.name, "event": "reused", "step": 0})
    if request.resume_from == "latest" and not (len(waiting) < len(voters) or _any_point(request)):
        raise InputError(f"there is no resume point in {request.work}: leave resume_from out to start anew")
    if waiting:
        _run(request, waiting, report, stop, hurry)

    missing = {voter.spec.name: voter.failure for voter in voters if voter.failure is not None}
    _require_quorum(request, voters, missing)
    summary = _assemble(
        request, [voter for voter in voters if voter.failure is None], missing, time.monotonic() - started
    )
    return TrainingOutcome(request.out, tuple(summary["finished"]), missing, summary)


def _run(
    request: TrainingRequest,
    voters: list[_SupervisedVoter],
    report: Report,
    stop: Callable[[], int | None],
    hurry: Callable[[], bool],
) -> None:
    """Run voters, `parallel` at a time, until each has finished or failed, or the quorum is out of reach."""
    recipe = request.recipe
    context = _fork_server(request)
    alone = 1 if recipe.hardware.processes > 1 else max(1, len(os.sched_getaffinity(0)) // recipe.hardware.threads)
    parallel = recipe.hardware.parallel or alone
    waiting, running = list(voters), list[_SupervisedVoter]()
    try:
        while waiting or running:
            if number := stop():
                raise TrainingInterrupted(number)
            ready = [voter for voter in waiting if voter.not_before <= time.monotonic()]
            for voter in ready[: parallel - len(running)]:
                waiting.remove(voter)
                running.append(voter)
                _start(context, voter, request, stop)
            wait([end for voter in running for end in _ends(voter)], timeout=_TICK_S)
            for voter in list(running):
                ended = voter.process is not None and not voter.process.is_alive()
                _drain(voter, request, report)  # after the question: what it said last is then there
                if ended:
                    running.remove(voter)
                    if _wants_restart(voter, request, report):
                        waiting.append(voter)
            if sum(voter.failure is not None for voter in voters) > len(recipe.voters) - recipe.quorum:
                return
    finally:
        _stop(running, request, report, hurry)


def _fork_server(request: TrainingRequest) -> ForkServerContext:
    """Imports what voters need once, so that each of them starts in a fraction of a second."""
    context = multiprocessing.get_context("forkserver")
    parts = ["capibara_assets.training.supervisor.fork_server"]
    if request.recipe.hardware.processes > 1:
        parts.append("capibara_assets.training.supervisor.agent")
    else:
        model_type = read_config(request.base_model).get("model_type", "")
        parts += [
            "capibara_assets.training.supervisor.worker",
            f"transformers.models.{model_type}.modeling_{model_type}",
        ]
    context.set_forkserver_preload(parts)
    # Batches differ in length, and oneDNN keeps compiled kernels of 1,024 shapes: some 400 MB a voter for no speed.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a few hundred texts; its threads do not survive a fork
    return context


def _start(
    context: ForkServerContext, voter: _SupervisedVoter, request: TrainingRequest, stop: Callable[[], int | None]
) -> None:
    """Start a voter's process. The first one waits for the fork server's imports; a request to stop does not.

    Raises:
        TrainingInterrupted: `stop` asked for it; the process is ended as soon as there is one.
    """
    voter.connection, theirs = context.Pipe(duplex=False)
    process = context.Process(
        target=_enter, args=(request, voter.spec, voter.folder, theirs), name=voter.spec.name, daemon=True
    )
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
    while not wait_for([started], timeout=_TICK_S).done:
        if number := stop():
            unwanted.set()
            raise TrainingInterrupted(number)
    started.result()
    voter.process = process
    theirs.close()


def _enter(request: TrainingRequest, spec: VoterSpec, folder: Path, connection: Connection) -> None:
    """First function of a voter's process; torch is imported there, or in its ranks, never in the supervisor."""
    if request.recipe.hardware.processes > 1:
        from capibara_assets.training.supervisor.agent import run_ranks

        run_ranks(request, spec, folder, connection)
    else:
        from capibara_assets.training.supervisor.worker import run_voter

        run_voter(request, spec, folder, connection)


def _ends(voter: _SupervisedVoter) -> list[Connection | int]:
    assert voter.process is not None
    return [voter.process.sentinel, *([voter.connection] if voter.connection else [])]


def _drain(voter: _SupervisedVoter, request: TrainingRequest, report: Report) -> None:
    """Pass on what a voter has said so far."""
    try:
        while voter.connection and voter.connection.poll():
            event = voter.connection.recv()
            if event["event"] == "failed":
                voter.failure, voter.bad_input = event["error"], event["bad_input"]
            report({"domain": request.domain, "voter": voter.spec.name, "step": 0, **event})
    except (EOFError, OSError):
        voter.connection = None


def _wants_restart(voter: _SupervisedVoter, request: TrainingRequest, report: Report) -> bool:
    """What became of a voter whose process has ended; True if it is to be started again."""
    assert voter.process is not None
    voter.process.join()
    code = voter.process.exitcode
    if _finished(voter, request):
        voter.failure = None
        return False
    if voter.failure is not None:
        return False
    if code is not None and 0 <= code < 128:
        voter.failure = f"ended with exit code {code} and no adapter"
        return False
    how = f"killed by signal {-code if code and code < 0 else (code or 128) - 128}"
    if voter.restarts >= request.recipe.checkpoint.max_restarts:
        voter.failure = f"{how}, after {voter.restarts} restarts"
        return False
    doubled = min(voter.restarts, _MOST_DOUBLINGS)
    voter.not_before = time.monotonic() + request.recipe.checkpoint.restart_delay_s * 2**doubled
    voter.restarts += 1
    report(
        {
            "domain": request.domain,
            "voter": voter.spec.name,
            "event": "restarted",
            "step": 0,
            "reason": how,
            "restart": voter.restarts,
            "of": request.recipe.checkpoint.max_restarts,
        }
    )
    return True


def _stop(running: list[_SupervisedVoter], request: TrainingRequest, report: Report, hurry: Callable[[], bool]) -> None:
    """Ask running voters to write resume points and leave; kill those that do not."""
    for voter in running:
        if voter.process and voter.process.is_alive():
            voter.process.terminate()
    deadline = time.monotonic() + _STOP_GRACE_S
    for voter in running:
        if voter.process:
            while voter.process.is_alive() and time.monotonic() < deadline and not hurry():
                wait(_ends(voter), timeout=_TICK_S)
                _drain(voter, request, report)
            voter.process.kill()
            voter.process.join()
            _drain(voter, request, report)


def _any_point(request: TrainingRequest) -> bool:
    """Whether any voter has begun to leave resume points."""
    return any(next((request.work / spec.name).glob("checkpoint-*"), None) for spec in request.recipe.voters)


def _finished(voter: _SupervisedVoter, request: TrainingRequest) -> bool:
    """Whether the voter's result lies in the work folder, whole and made from these inputs."""
    manifest = voter.folder / RESULT / "manifest.json"
    return manifest.is_file() and json.loads(manifest.read_text("utf-8"))["input_digest"] == request.input_digest()


def _require_quorum(request: TrainingRequest, voters: list[_SupervisedVoter], missing: dict[str, str]) -> None:
    recipe = request.recipe
    finished = sum(_finished(voter, request) for voter in voters)
    if finished >= recipe.quorum:
        return
    reasons = "; ".join(f"{name}: {reason}" for name, reason in sorted(missing.items()))
    message = f"{request.domain}: {finished} of {len(recipe.voters)} voters finished, {recipe.quorum} needed: {reasons}"
    if all(voter.bad_input for voter in voters if voter.failure is not None):
        raise InputError(message)
    raise TooFewVoters(message)


def _assemble(
    request: TrainingRequest, voters: list[_SupervisedVoter], missing: dict[str, str], seconds: float
) -> dict[str, Any]:
    """Copy finished voters to `out`, damage those that a drill names, write the summary; `out` appears whole."""
    beside = request.out.with_name(f".{request.out.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    rows = {}
    for voter in voters:
        name = voter.spec.name
        folder = beside / "voters" / name
        shutil.copytree(voter.folder / RESULT, folder)
        if name in request.fault:
            inject(folder, request.fault[name])
        manifest, timings, curve = (
            json.loads((folder / f"{part}.json").read_text("utf-8")) for part in ("manifest", "timings", "curve")
        )
        kept = (
            "status",
            "fault",
            "digest",
            "steps",
            "examples",
            "validation_examples",
            "trainable_parameters",
            "supervised_tokens",
            "base_validation_loss",
            "validation_loss",
            "best_step",
            "precision",
        )
        rows[name] = (
            {key: manifest[key] for key in kept if key in manifest}
            | timings
            | {
                "skipped_steps": len(manifest["skipped_steps"]),
                "curve": [point for point in curve if "validation_loss" in point],
            }
        )
        if (checkpoints := folder / "checkpoints.json").is_file():
            rows[name]["checkpoints"] = json.loads(checkpoints.read_text("utf-8"))
    summary = {
        "domain": request.domain,
        "input_digest": request.input_digest(),
        "seed": request.seed,
        "tolerated": request.recipe.tolerated,
        "quorum": request.recipe.quorum,
        "finished": sorted(rows),
        "missing": missing,
        "injected": {name: fault for name, fault in request.fault.items() if name in rows},
        "voters": rows,
        "seconds": round(seconds, 3),
        "prediction": compared(
            request.work,
            {name: beside / "voters" / name / EVENTS for name in rows},
            {name: row["seconds"] for name, row in rows.items()},
        ),
    }
    write_json_atomic(beside / "summary.json", summary)
    sync_folder(beside)
    if request.out.exists():
        shutil.rmtree(request.out)
    beside.replace(request.out)
    sync_folder(request.out.parent)
    return summary
