"""A voter's training as an object: its parts, the state that changes while it runs, and the averaged weights."""

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from capibara_assets.training.loop.evaluator import evaluate
from capibara_assets.training.loop.gradients import GradientSource
from capibara_assets.training.loop.setup import TrainingSetup
from capibara_assets.training.loop.tactics import Tactic
from capibara_assets.training.recipe import EmaChoice, GuardChoice
from capibara_assets.training.resume.epoch_folders import EpochFolders
from capibara_assets.training.resume.points import Progress


class Ema:
    """Exponential moving average of the trained weights, which validation and publication use in their place.

    Shadow weights s <- d s + (1 - d) w after every `every`-th step, with d = min(decay, (1 + n) / (10 + n)).

    The smaller d of the first n updates is TensorFlow's `num_updates` rule: a short training is not held to its start.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], choice: EmaChoice):
        self._parameters, self._choice = dict(parameters), choice
        self.shadow = {name: value.detach().clone() for name, value in self._parameters.items()}

    def update(self, step: int) -> None:
        """Update the average after optimizer step `step` (1-based)."""
        if step % self._choice.every:
            return
        done = step // self._choice.every
        decay = min(self._choice.decay, (1 + done) / (10 + done))
        with torch.no_grad():
            for name, value in self._parameters.items():
                self.shadow[name].lerp_(value, 1 - decay)

    def applied(self) -> AbstractContextManager[None]:
        """Context in which the model has the averaged weights; afterwards its own again, bit for bit."""
        return _holding(self._parameters, self.shadow)

    def restore(self, shadow: Mapping[str, Tensor]) -> None:
        """Take over saved shadow weights, exactly."""
        with torch.no_grad():
            for name, value in self.shadow.items():
                value.copy_(shadow[name])


@contextmanager
def _holding(parameters: Mapping[str, nn.Parameter], values: Mapping[str, Tensor]) -> Iterator[None]:
    """Context in which the parameters hold these values; afterwards their own again, bit for bit."""
    own = {name: value.detach().clone() for name, value in parameters.items()}
    _fill(parameters, values)
    try:
        yield
    finally:
        _fill(parameters, own)


def _fill(parameters: Mapping[str, nn.Parameter], values: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(values[name])


@dataclass
class TrainerState:
    """Training state besides weights and optimizer, saved in resume points.

    Attributes:
        best: weights of the best validation.
        snapshot: `weights` and `optimizer` that a loss spike rolls back to.
        seconds_before: of earlier attempts.
        resumed: whether this attempt started from a resume point.
        in_one_order: whether all operations so far could add in one order (`environment.one_order`).
    """

    progress: Progress = field(default_factory=Progress)
    best: dict[str, Tensor] = field(default_factory=dict)
    snapshot: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    seconds_before: float = 0.0
    resumed: bool = False
    in_one_order: bool = True


@dataclass(frozen=True)
class Trainer:
    """The parts of one voter's training, and its state.

    Attributes:
        source: computes the steps' gradients.
        tactic: what the voter's strategy does to gradients and weights.
        guards: what stops or rolls back a training by its losses.
        epoch_folders: the epochs' adapters, if the request wants them.
        verifies_first_point: whether the first step's resume point is read back at once.
        keeps_points: whether resume points stay when the training has finished.
    """

    setup: TrainingSetup
    source: GradientSource
    tactic: Tactic
    ema: Ema | None
    guards: GuardChoice
    epoch_folders: EpochFolders
    verifies_first_point: bool
    keeps_points: bool
    state: TrainerState = field(default_factory=TrainerState)

    def seconds(self) -> float:
        """Seconds of training so far, over all attempts."""
        return self.state.seconds_before + time.monotonic() - self.setup.began

    def averaged(self) -> AbstractContextManager[None]:
        """Context manager that gives the model its averaged weights, if the recipe averages."""
        return self.ema.applied() if self.ema else nullcontext()

    def weights(self) -> dict[str, Tensor]:
        """The complete trained weights; a collective operation with several processes."""
        return self.setup.stepper.full(self.setup.subject.trainable)

    def score(self) -> float:
        """Validation loss of the model's current weights, nats per supervised token."""
        setup, batch_tokens = self.setup, self.setup.run.request.recipe.training.micro_batch_tokens
        run = setup.run
        return evaluate(setup.subject, setup.stepper, setup.examples.validation, batch_tokens, run.ranks, run.poll_all)
