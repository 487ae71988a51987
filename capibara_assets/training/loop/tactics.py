"""What a voter's strategy does besides the steps themselves: after a step, after a validation, and at the end."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from capibara_assets.training.loop.client import ClientTactic
from capibara_assets.training.loop.convexity import ConvexityTactic
from capibara_assets.training.loop.published import Published, Score
from capibara_assets.training.loop.soup import SoupTactic
from capibara_assets.training.recipe import TrainingChoice
from capibara_assets.training.step.stepper import Stepper
from capibara_assets.training.step.subject import Subject
from capibara_assets.training.strategy import ClientStrategy, ConvexityStrategy, SoupStrategy, Strategy


class Tactic(Protocol):
    """The part of a strategy that acts on weights. Its state is tensors, kept in resume points."""

    def before_step(self) -> None:
        """The gradients of all micro-batches are there, not yet clipped; they may be added to, in place."""

    def after_step(self, learning_rate: float, gradient_norm: float) -> None:
        """The optimizer has just changed the weights; they may be changed further, in place.

        Args:
            gradient_norm: before clipping.
        """

    def after_validation(self, step: int, loss: float, weights: Mapping[str, Tensor]) -> None:
        """The model with these weights was just validated; copy them to keep them."""

    def state(self) -> dict[str, Tensor]:
        """What a resumed run needs."""

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """The reverse, exactly."""

    def result(self, best: Mapping[str, Tensor], score: Score) -> Published:
        """What is published.

        Args:
            best: weights of the best validation.
            score: collective where there are several processes.
        """


@dataclass(frozen=True)
class BestValidation:
    """Publishes the weights of the best validation."""

    subject: Subject

    def before_step(self) -> None:
        pass

    def after_step(self, learning_rate: float, gradient_norm: float) -> None:
        pass

    def after_validation(self, step: int, loss: float, weights: Mapping[str, Tensor]) -> None:
        pass

    def state(self) -> dict[str, Tensor]:
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        pass

    def result(self, best: Mapping[str, Tensor], score: Score) -> Published:
        return Published(self.subject.adapter(best))


def tactic_of(strategy: Strategy, subject: Subject, stepper: Stepper, training: TrainingChoice) -> Tactic:
    """The tactic of a strategy."""
    match strategy:
        case ConvexityStrategy():
            return ConvexityTactic(strategy, subject, stepper, training)
        case SoupStrategy():
            return SoupTactic(strategy, subject)
        case ClientStrategy():
            return ClientTactic(strategy, subject)
    return BestValidation(subject)
