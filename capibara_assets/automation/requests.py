"""Run requests of the experience sensor: the state kept between ticks, and when to request or retry a run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import dagster as dg
from dagster._core.storage.tags import PRIORITY_TAG

from capibara_assets.processes.supervise import doubled

TAG = "capibara/experience"
FIRST = {PRIORITY_TAG: "1"}
"""Tags of runs that take seconds: they do not wait behind a queue of evaluations, which take minutes."""
ARRIVED = {PRIORITY_TAG: "3"}
"""Tags of runs that read new experience: before all others, also those of the domain with the newest executions."""
RETRY_SECONDS = 30
"""Wait before a failed run is requested again; doubles each time, up to an hour."""
_LONGEST_WAIT = 3600


class RunState(StrEnum):
    """State of a requested run."""

    SUCCEEDED = "succeeded"
    QUEUED = "queued"
    GOING = "going"
    FAILED = "failed"
    UNKNOWN = "unknown"


_STATES = {
    dg.DagsterRunStatus.SUCCESS: RunState.SUCCEEDED,
    dg.DagsterRunStatus.FAILURE: RunState.FAILED,
    dg.DagsterRunStatus.CANCELED: RunState.FAILED,
    dg.DagsterRunStatus.QUEUED: RunState.QUEUED,
}


@dataclass(frozen=True)
class LastRequest:
    """The last run request for one asset, as stored in the sensor's cursor."""

    fingerprint: str
    serial: int
    """Number of requests so far; makes every run key unique, even if the folder returns to an earlier content."""
    tries: int
    """Number of requests for this content."""
    at: int
    """Unix time of the request."""
    done: bool = False

    def key(self, asset: str) -> str:
        """The run key of the request."""
        return f"{asset}:{self.fingerprint}:{self.serial}"

    def __str__(self) -> str:
        return f"{self.fingerprint} {self.serial} {self.tries} {self.at} {int(self.done)}"

    @classmethod
    def read(cls, text: str) -> "LastRequest":
        """The inverse of `str`; a lone fingerprint (cursors of older versions) counts as done."""
        fingerprint, *numbers = text.split(" ")
        if len(numbers) != 4:
            return cls(fingerprint, 1, 1, 0, done=True)
        serial, tries, at, done = map(int, numbers)
        return cls(fingerprint, serial, tries, at, bool(done))


@dataclass(frozen=True)
class RequestDecision:
    """The request to store in the cursor, whether to request a run now, and the reason in words."""

    asked: LastRequest | None
    request: bool
    reason: str


def decide(
    asked: LastRequest | None, fingerprint: str, state: RunState, *, now: float, patience: float
) -> RequestDecision:
    """Whether content with this fingerprint needs a run.

    One run at a time: while the last one is queued or going, new content waits for its end (for a started run at most
    `patience` seconds, since a killed run can stay "started" for ever). A run that failed or got lost is requested
    again after increasing waits.

    Args:
        asked: the last request, or None.
        fingerprint: of the folder's current content.
        state: state of the run of the last request.
        now: Unix time.
        patience: seconds after which a started run counts as lost.
    """
    if asked is not None and not asked.done and state is RunState.SUCCEEDED:
        asked = replace(asked, done=True)
    if asked is None:
        return _ask(None, fingerprint, now, "first content")
    if now < asked.at:
        asked = replace(asked, at=int(now))  # the clock was set back: the wait begins anew
    waited = now - asked.at
    if not asked.done and (state is RunState.QUEUED or (state is RunState.GOING and waited < patience)):
        return RequestDecision(asked, False, f"run {asked.serial} is {state}")
    if asked.fingerprint != fingerprint:
        return _ask(asked, fingerprint, now, "new content")
    if asked.done:
        return RequestDecision(asked, False, f"run {asked.serial} read it")
    pause = doubled(RETRY_SECONDS, asked.tries - 1, _LONGEST_WAIT)
    if waited < pause:
        return RequestDecision(asked, False, f"run {asked.serial} {state}, again in {pause - waited:.0f} s")
    return _ask(asked, fingerprint, now, f"run {asked.serial} {state}")


def run_state(instance: dg.DagsterInstance, key: str) -> RunState:
    """State of the run with this key, Dagster's retries included."""
    runs = instance.get_runs(filters=dg.RunsFilter(tags={TAG: key}), limit=10)
    states = {_STATES.get(run.status, RunState.GOING) for run in runs}
    return next(
        (state for state in (RunState.SUCCEEDED, RunState.GOING, RunState.QUEUED, RunState.FAILED) if state in states),
        RunState.UNKNOWN,
    )


def request(asset: str, asked: LastRequest, tags: Mapping[str, Any]) -> dg.RunRequest:
    """A Dagster run request for one asset."""
    key = asked.key(asset)
    return dg.RunRequest(
        run_key=key,
        asset_selection=[dg.AssetKey(asset)],
        tags={TAG: key, **ARRIVED, **{name: str(value) for name, value in tags.items()}},
    )


def _ask(asked: LastRequest | None, fingerprint: str, now: float, reason: str) -> RequestDecision:
    same = asked is not None and asked.fingerprint == fingerprint
    serial = asked.serial + 1 if asked is not None else 1
    tries = asked.tries + 1 if asked is not None and same else 1
    return RequestDecision(LastRequest(fingerprint, serial, tries, int(now)), True, reason)
