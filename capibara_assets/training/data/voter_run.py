"""One voter to train: from what, in which folder, who hears of it, and who may stop it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from capibara_assets.training.monitoring.events import EVENTS, EventLog, Report
from capibara_assets.training.ranks import ALONE, Ranks
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest


class Interrupted(Exception):
    """The process was asked to stop; a resume point is on disk."""


@dataclass(frozen=True)
class VoterRun:
    """One voter to train.

    Attributes:
        folder: the voter's folder of work; resume points, log and result lie there.
        report: gets every event of the log.
        poll: called often; raises `Interrupted` when the process has to stop.
        ranks: the processes that train this voter; each has a run of its own, the first one writes.
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
        """The seed of this voter's order of examples and of its dropout."""
        return f"{self.request.seed}/{self.voter.seed}"

    def log(self) -> EventLog:
        """The voter's log, as a new attempt."""
        return EventLog(
            self.folder / EVENTS, run=self.request.run_id(self.voter), listener=self.report, writes=self.ranks.main
        )

    def poll_all(self) -> None:
        """As `poll`, at a place that all processes come by equally often: all of them stop there, or none."""
        asked = None
        try:
            self.poll()
        except Interrupted as interrupted:
            asked = interrupted
        if self.ranks.any(asked is not None):
            raise asked or Interrupted()

    def poll_if_alone(self) -> None:
        """As `poll`, at a place that some processes pass by: of several none may leave there by itself."""
        if self.ranks.world == 1:
            self.poll()
