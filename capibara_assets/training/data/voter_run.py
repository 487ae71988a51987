"""One voter's run: its request, its folder, and the callbacks that report progress and stop it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from capibara_assets.training.monitoring.events import EVENTS, EventLog, Report
from capibara_assets.training.ranks import ALONE, Ranks
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest


class Interrupted(Exception):
    """Training was stopped by request; raised by `VoterRun.poll`."""


@dataclass(frozen=True)
class VoterRun:
    """A voter to train.

    Attributes:
        folder: the voter's folder of work, with its resume points, log and result.
        report: receives every event of the log.
        poll: called often; raises `Interrupted` when the process has to stop.
        ranks: the processes that train this voter; each has a `VoterRun` of its own, and the first one writes.
        initial: weights to start from (by the names of trained parameters), instead of LoRA's own start.
    """

    request: TrainingRequest
    voter: VoterSpec
    folder: Path
    report: Report
    poll: Callable[[], None]
    ranks: Ranks = ALONE
    initial: Mapping[str, Tensor] | None = None

    @property
    def order(self) -> str:
        """The seed of this voter's example order and dropout."""
        return f"{self.request.seed}/{self.voter.seed}"

    def log(self) -> EventLog:
        """Open the voter's event log as a new attempt."""
        return EventLog(
            self.folder / EVENTS, run=self.request.run_id(self.voter), listener=self.report, writes=self.ranks.main
        )

    def poll_all(self) -> None:
        """Poll on all processes together: all of them stop, or none. Collective."""
        interruption = None
        try:
            self.poll()
        except Interrupted as interrupted:
            interruption = interrupted
        if self.ranks.any(interruption is not None):
            raise interruption or Interrupted()

    def poll_if_alone(self) -> None:
        """Poll if there is only one process; with several, none may stop alone."""
        if self.ranks.world == 1:
            self.poll()
