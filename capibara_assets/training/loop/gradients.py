"""Gradient sources: a source computes the gradient of each optimizer step that the loop takes."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from capibara_assets.training.data.batches import Curriculum, StepData
from capibara_assets.training.data.order import rank
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.environment import seed_all
from capibara_assets.training.monitoring.usage import ResourceUsage
from capibara_assets.training.resume.points import ResumePoint, extension
from capibara_assets.training.step.stepper import Stepper
from capibara_assets.training.step.subject import Subject


@dataclass(frozen=True)
class StepGradient:
    """Facts about a step whose gradient lies on the trained parameters.

    Attributes:
        rate: learning rate.
        loss: nats per supervised token; None: kept private.
        supervised: tokens with a loss, 0 if the loss is private.
        examples: ids of the step's examples; None: kept private.
        figures: seconds that the step took -> its entries in the log.
    """

    rate: float
    figures: Callable[[float], dict[str, Any]]
    loss: float | None = None
    supervised: int = 0
    examples: Sequence[str] | None = None

    @property
    def finite(self) -> bool:
        """Whether the loss is finite; True for a private one, where the optimizer checks the gradient alone."""
        return self.loss is None or math.isfinite(self.loss)


class GradientSource(Protocol):
    """Gradients of optimizer steps, each a pure function of the step's number and the weights."""

    @property
    def total(self) -> int:
        """Number of optimizer steps to take."""

    @property
    def lengths(self) -> list[int]:
        """Optimizer steps of each level as the recipe plans them; stored in resume points."""

    @property
    def parameters(self) -> int:
        """Number of trained parameters."""

    @property
    def example_count(self) -> int:
        """Number of train examples, over all levels."""

    def about(self) -> dict[str, Any]:
        """Further entries of the event `started`."""

    def extension(self, point: ResumePoint) -> dict[str, int] | None:
        """As `resume.points.extension`. Raises InputError: the training cannot continue with this length."""

    def gather(self, step: int) -> StepGradient:
        """Put the gradient of step `step`, 0-based, onto the parameters. Raises Interrupted: between examples."""


@dataclass(frozen=True)
class BatchGradients:
    """The gradient of the summed loss of a step's batch over the batch's supervised tokens, micro-batch by micro-batch.

    Neither micro-batches nor padding nor the number of processes change it.
    """

    run: VoterRun
    subject: Subject
    stepper: Stepper
    curriculum: Curriculum
    usage: ResourceUsage

    @property
    def total(self) -> int:
        return self.curriculum.total

    @property
    def lengths(self) -> list[int]:
        return [level.steps for level in self.curriculum.levels]

    @property
    def parameters(self) -> int:
        return sum(value.numel() for value in self.subject.trainable.values())

    @property
    def example_count(self) -> int:
        return sum(len(level.ids) for level in self.curriculum.levels)

    def about(self) -> dict[str, Any]:
        return {"levels": self.curriculum.about()}

    def extension(self, point: ResumePoint) -> dict[str, int] | None:
        return extension(point, self.lengths)

    def gather(self, step: int) -> StepGradient:
        begun = time.monotonic()
        data = self.curriculum.step(step)
        # Dropout draws from (seed, step), so a step taken again draws the same.
        seed_all(int(rank(self.run.order, "dropout", step, self.run.ranks.rank)[:15], 16))
        self.subject.loss.train()
        local = torch.zeros((), dtype=torch.float64, device=self.subject.device)
        for number, part in enumerate(data.parts, start=1):
            self.run.poll_all()
            batch = self.subject.collate(part)
            with self.stepper.micro_step(last=number == len(data.parts)):
                nll = self.stepper.loss(batch).sum()
                self.stepper.backward(nll / data.supervised)
            local += nll.detach()  # read once a step: each read waits for the device
        loss = self.run.ranks.sum([float(local)])[0] / data.supervised
        figures = partial(self._figures, data, time.monotonic() - begun)
        return StepGradient(data.rate, figures, loss, data.supervised, data.ids)

    def _figures(self, data: StepData, computed: float, seconds: float) -> dict[str, Any]:
        return {
            "level": data.level,
            "tokens_per_s": round(data.tokens / seconds, 1),
            "samples_per_s": round(len(data.ids) / seconds, 2),
            "tokens": data.tokens,
            "supervised": data.supervised,
            "samples": len(data.ids),
            "micro_steps": len(data.parts),
            "compute_s": round(computed, 4),
            **self.usage.figures(),
        }
