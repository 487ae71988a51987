"""A training in parts: what the loop needs at every step, and what changes while it runs."""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from torch import Tensor

from capibara_assets.training.loop.ema import Ema
from capibara_assets.training.loop.evaluator import evaluate
from capibara_assets.training.loop.gradients import GradientSource
from capibara_assets.training.loop.setup import TrainingSetup
from capibara_assets.training.loop.tactics import Tactic
from capibara_assets.training.recipe import GuardChoice
from capibara_assets.training.resume.epoch_folders import EpochFolders
from capibara_assets.training.resume.points import Progress


@dataclass
class State:
    """What changes in a training besides weights and optimizer; resume points hold it.

    Attributes:
        best: weights of the best validation.
        snapshot: `weights` and `optimizer` that a loss spike goes back to.
        seconds_before: spent by earlier attempts.
        resumed: whether this attempt went on from a resume point.
    """

    progress: Progress = field(default_factory=Progress)
    best: dict[str, Tensor] = field(default_factory=dict)
    snapshot: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    seconds_before: float = 0.0
    resumed: bool = False


@dataclass(frozen=True)
class Trainer:
    """The parts of one voter's training, and its state.

    Attributes:
        source: of the steps' gradients.
        tactic: what the voter's strategy does besides the steps.
        guards: what stops or rolls back a training by its losses.
        passes: folders of the epochs, if the request asks for them.
        rehearses: whether the first step's resume point is read back at once.
        keeps_points: whether resume points stay when it has finished.
    """

    setup: TrainingSetup
    source: GradientSource
    tactic: Tactic
    ema: Ema | None
    guards: GuardChoice
    passes: EpochFolders
    rehearses: bool
    keeps_points: bool
    state: State = field(default_factory=State)

    def seconds(self) -> float:
        """Spent so far, over all attempts."""
        return self.state.seconds_before + time.monotonic() - self.setup.began

    def averaged(self) -> AbstractContextManager[None]:
        """The model has its averaged weights, where the recipe has an average."""
        return self.ema.applied() if self.ema else nullcontext()

    def weights(self) -> dict[str, Tensor]:
        """The trained weights, whole; collective where there are several processes."""
        return self.setup.stepper.full(self.setup.subject.trainable)

    def score(self) -> float:
        """Validation loss of the model as it is, nats per supervised token."""
        setup, batch_tokens = self.setup, self.setup.run.request.recipe.training.micro_batch_tokens
        run = setup.run
        return evaluate(setup.subject, setup.stepper, setup.examples.validation, batch_tokens, run.ranks, run.poll_all)


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies that stay as they are while the training goes on."""
    return {name: value.detach().clone() for name, value in tensors.items()}
