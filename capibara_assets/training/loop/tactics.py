"""Tactics: what a strategy does to weights and gradients during a training, and which adapter it publishes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.training.step.subject import Subject

Score = Callable[[Mapping[str, Tensor]], float]
"""Validation loss, nats per token, of weights by the names of trained parameters."""


@dataclass(frozen=True)
class Published:
    """The adapter that a training publishes.

    Attributes:
        adapter: the one to write.
        loss: its validation loss; None: that of the best validation.
        report: the strategy's own figures, as JSON; for the manifest and the log.
    """

    adapter: LoraAdapter
    loss: float | None = None
    report: dict[str, Any] = field(default_factory=dict)


class Tactic:
    """The part of a strategy that acts on gradients and weights. Its state is tensors, kept in resume points.

    This one is the plain strategy's: it changes nothing and publishes the weights of the best validation.
    """

    def __init__(self, subject: Subject):
        self.subject = subject

    def before_step(self) -> None:
        """Called when a step's gradient is complete and not yet clipped; may change it in place."""

    def after_step(self, learning_rate: float, gradient_norm: float) -> None:
        """Called when the optimizer has changed the weights; may change them further, in place.

        Args:
            gradient_norm: before clipping.
        """

    def after_validation(self, step: int, loss: float, weights: Mapping[str, Tensor]) -> None:
        """Called with the weights just validated; they must be copied to be kept."""

    def state(self) -> dict[str, Tensor]:
        """Tensors that a resumed run needs."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore exactly what `state` returned."""

    def result(self, best: Mapping[str, Tensor], score: Score) -> Published:
        """The adapter to publish.

        Args:
            best: weights of the best validation.
            score: collective where there are several processes.
        """
        return Published(self.subject.adapter(best))
