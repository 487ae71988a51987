"""When new content asks for a run: what a sensor remembers between ticks, and what became of the run it asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import dagster as dg

TAG = "capibara/experience"
RETRY_SECONDS = 30
"""Wait before the run of a failure is asked for again; doubles each time, up to an hour."""
_LONGEST_WAIT = 3600


class Fate(StrEnum):
    """What became of a requested run."""

    SUCCEEDED = "succeeded"
    QUEUED = "queued"
    GOING = "going"
    FAILED = "failed"
    UNKNOWN = "unknown"


_FATES = {
    dg.DagsterRunStatus.SUCCESS: Fate.SUCCEEDED,
    dg.DagsterRunStatus.FAILURE: Fate.FAILED,
    dg.DagsterRunStatus.CANCELED: Fate.FAILED,
    dg.DagsterRunStatus.QUEUED: Fate.QUEUED,
}


@dataclass(frozen=True)
class LastRequest:
    """The last request for one asset, as the cursor holds it."""

    fingerprint: str
    serial: int
    """Requests so far: makes every run key new, also when the folder is as it was before."""
    tries: int
    """Requests for this content."""
    at: int
    """Unix time of the request."""
    done: bool = False

    def key(self, asset: str) -> str:
        return f"{asset}:{self.fingerprint}:{self.serial}"

    def __str__(self) -> str:
        return f"{self.fingerprint} {self.serial} {self.tries} {self.at} {int(self.done)}"

    @classmethod
    def read(cls, text: str) -> "LastRequest":
        """The inverse of `str`; a lone fingerprint, as older cursors have it, was dealt with."""
        fingerprint, *numbers = text.split(" ")
        if len(numbers) != 4:
            return cls(fingerprint, 1, 1, 0, done=True)
        serial, tries, at, done = map(int, numbers)
        return cls(fingerprint, serial, tries, at, bool(done))


@dataclass(frozen=True)
class RequestDecision:
    """What to remember, whether to ask for a run now, and why (for people)."""

    asked: LastRequest | None
    request: bool
    reason: str


def decide(asked: LastRequest | None, found: str, fate: Fate, *, now: float, patience: float) -> RequestDecision:
    """Whether content with the fingerprint `found` needs a run.

    One run at a time: while the last one is queued or going, what comes meanwhile waits for its end (of a started one
    at most `patience` seconds: where no launcher notices a killed run, it stays "started" for ever). A run that failed
    or got lost is asked for again, later each time; it never is forgotten.
    """
    if asked is not None and not asked.done and fate is Fate.SUCCEEDED:
        asked = replace(asked, done=True)
    if asked is None:
        return _ask(None, found, now, "first look")
    waited = now - asked.at
    if not asked.done and (fate is Fate.QUEUED or (fate is Fate.GOING and waited < patience)):
        return RequestDecision(asked, False, f"run {asked.serial} is {fate}")
    if asked.fingerprint != found:
        return _ask(asked, found, now, "new content")
    if asked.done:
        return RequestDecision(asked, False, f"run {asked.serial} read it")
    pause = min(_LONGEST_WAIT, RETRY_SECONDS * 2 ** (asked.tries - 1))
    if waited < pause:
        return RequestDecision(asked, False, f"run {asked.serial} {fate}, again in {pause - waited:.0f} s")
    return _ask(asked, found, now, f"run {asked.serial} {fate}")


def fate_of(instance: dg.DagsterInstance, key: str) -> Fate:
    """What became of the run with this key, retries by Dagster included."""
    runs = instance.get_runs(filters=dg.RunsFilter(tags={TAG: key}), limit=10)
    fates = {_FATES.get(run.status, Fate.GOING) for run in runs}
    return next(
        (fate for fate in (Fate.SUCCEEDED, Fate.GOING, Fate.QUEUED, Fate.FAILED) if fate in fates), Fate.UNKNOWN
    )


def request(asset: str, asked: LastRequest, tags: Mapping[str, Any]) -> dg.RunRequest:
    """One run of one asset."""
    key = asked.key(asset)
    return dg.RunRequest(
        run_key=key,
        asset_selection=[dg.AssetKey(asset)],
        tags={TAG: key, **{name: str(value) for name, value in tags.items()}},
    )


def _ask(asked: LastRequest | None, found: str, now: float, reason: str) -> RequestDecision:
    same = asked is not None and asked.fingerprint == found
    serial = asked.serial + 1 if asked is not None else 1
    tries = asked.tries + 1 if asked is not None and same else 1
    return RequestDecision(LastRequest(found, serial, tries, int(now)), True, reason)
