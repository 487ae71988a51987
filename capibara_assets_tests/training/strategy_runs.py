"""Runs of one voter with a strategy, whole or stopped again and again, as the tests of the strategies need them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from capibara_assets.storage.digests import sha256_file
from capibara_assets.training.data.voter_run import Interrupted, VoterRun
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.supervisor.worker import train_by_strategy

QUIET = {"rank": 2, "alpha": 4, "dropout": 0.0, "use_rslora": False}


def voters(strategy: dict[str, Any], n: int = 1) -> list[dict[str, Any]]:
    """Specs of n voters with a strategy."""
    return [{"name": f"voter-{i}", "seed": i, "shard": i, "strategy": strategy} for i in range(n)]


def go_on() -> None:
    """A poll that never stops anything."""


class StopEvery:
    """A poll that asks to stop at every n-th call, over all attempts, so many times."""

    def __init__(self, calls: int, times: int):
        self._calls, self._left, self._done = calls, times, 0

    def __call__(self) -> None:
        self._done += 1
        if self._left and self._done % self._calls == 0:
            self._left -= 1
            raise Interrupted


def train(
    request: TrainingRequest, poll: Callable[[], None] = go_on, events: list[Any] | None = None, voter: int = 0
) -> Path:
    """Train a voter of a request."""
    spec, heard = request.recipe.voters[voter], events if events is not None else []
    return train_by_strategy(VoterRun(request, spec, request.work / spec.name, heard.append, poll))


def train_stopped(request: TrainingRequest, calls: int, times: int = 4) -> Path:
    """Train with a stop at every `calls`-th poll, `times` times, going on after each; stopped at least once."""
    poll, stops = StopEvery(calls, times), 0
    while True:
        try:
            result = train(request, poll)
        except Interrupted:
            stops += 1
        else:
            assert stops, f"never stopped: fewer than {calls} polls"
            return result


def manifest(result: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((result / "manifest.json").read_text())
    return found


def digests(result: Path) -> dict[str, str]:
    """Of everything that must be equal between equal runs."""
    names = ("adapter_model.safetensors", "adapter_config.json", "curve.json", "manifest.json")
    return {name: sha256_file(result / name) for name in names}
