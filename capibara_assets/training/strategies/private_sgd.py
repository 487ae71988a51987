"""Differential privacy of single train examples: DP-SGD (Abadi et al. 2016, arXiv 1607.00133) on LoRA's numbers.

A step draws its examples by Poisson sampling: each one independently, with the probability that makes the recipe's
global batch the expected one. The gradient of each example's mean loss is clipped to `clip` over all modules together,
the *sum* gets Gaussian noise of `noise_multiplier * clip` on each number, and is divided by the expected batch, a
constant. So one example more or less moves the sum by at most `clip`, and everything after it is post-processing:
AdamW, its clipping, the schedule. `privacy` accounts for it, including amplification by sampling.

Trained are all of LoRA's numbers, B alone, or one number a component (`client`); `scales` are noised as what they are,
one number each, and not as the entries of B that they move together.

Reported are weights after a step, and validation losses. Not reported are losses of train examples, and which examples
a step had or how many; token counts in the manifest are expectations under the sampling. An example whose gradient is
not finite counts as zero. Sampling and noise have a secret seed (`secret_seed`). Not covered: the validation shard,
which picks the weights that are published, the number of examples, which determines the sampling rate, and the
duration of a step, which hints at how many examples it had.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capibara_assets.datasets.tokens.tokenising import Encoded
from capibara_assets.errors import InputError
from capibara_assets.training.data.order import rank
from capibara_assets.training.data.voter_examples import VoterExamples
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.environment import seed_all
from capibara_assets.training.loop.client import ClientTactic, along, lora_only, signs, spread
from capibara_assets.training.loop.gradients import StepGradient
from capibara_assets.training.loop.guards import TrainingDiverged
from capibara_assets.training.loop.resuming import resume
from capibara_assets.training.loop.setup import TrainingSetup, set_up
from capibara_assets.training.loop.train import fit, log_start, publish
from capibara_assets.training.loop.trainer import Trainer
from capibara_assets.training.monitoring.usage import memory_mib
from capibara_assets.training.resume.epoch_folders import EpochFolders
from capibara_assets.training.resume.epochs import EpochCheckpoints
from capibara_assets.training.resume.points import ResumePoint
from capibara_assets.training.step.settings import learning_rate, total_steps
from capibara_assets.training.step.subject import Subject
from capibara_assets.training.strategies.changes import Coordinates, Mechanism, length, noised
from capibara_assets.training.strategies.privacy import clip_factor
from capibara_assets.training.strategies.privacy_plan import Budget, budget_of_steps, document_of, warnings_of
from capibara_assets.training.strategies.secret_seed import drop_secret, secret_seed
from capibara_assets.training.strategy import ClientStrategy, Privacy, PrivateStrategy, TrainedNumbers

_SAMPLED, _NOISE = 1, 2  # streams of the secret seed


@dataclass(frozen=True)
class GradientSpace:
    """The coordinates in which an example's gradient is clipped and noise is added to the sum.

    `factors`: A (r, in) and B (out, r). `b_only`: B. `scales`: (r,) a module, along unit vectors: signs / sqrt(out).

    Attributes:
        signs: name of each B -> (out, r), for `scales`.
    """

    subject: Subject
    names: tuple[str, ...]
    signs: Mapping[str, Tensor]

    @classmethod
    def of(cls, trained: TrainedNumbers, subject: Subject) -> "GradientSpace":
        """The space of a subject. Raises InputError: more is trained than LoRA's products."""
        parts = lora_only(subject)
        names = [part.b for part in parts] + [part.a for part in parts if trained == "factors"]
        scaled = parts if trained == "scales" else []
        of_b = {part.b: signs(part.module, subject.trainable[part.b].shape) for part in scaled}
        return cls(subject, tuple(names), of_b)

    def zeros(self) -> Coordinates:
        """An empty sum."""
        shapes = {name: self.subject.trainable[name].shape for name in self.names}
        return {name: np.zeros(shape[1:] if name in self.signs else shape) for name, shape in shapes.items()}

    def of_example(self, example: Encoded) -> Coordinates:
        """The gradient of the mean loss of one example's supervised tokens; float64."""
        self._clear()
        self.subject.loss(self.subject.collate([example])).mean().backward()
        gradients = {}
        for name in self.names:
            parameter = self.subject.trainable[name]
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            value = gradient.detach().cpu().double()
            gradients[name] = (along(value, self.signs[name]) if name in self.signs else value).numpy()
        return gradients

    def write(self, mean: Coordinates) -> None:
        """Set the parameters' gradients for the optimizer; untrained ones get none."""
        self._clear()
        for name, coordinates in mean.items():
            value, parameter = torch.from_numpy(coordinates), self.subject.trainable[name]
            if name in self.signs:
                value = spread(value, self.signs[name])
            parameter.grad = value.to(parameter.device, parameter.dtype)

    def _clear(self) -> None:
        for parameter in self.subject.trainable.values():
            parameter.grad = None


@dataclass(frozen=True)
class PrivateGradients:
    """DP-SGD as a gradient source: the noised sum of the clipped gradients of a step's secretly drawn examples.

    Attributes:
        coordinates: in which gradients are clipped and noised.
        secret: seed of draws and noise.
        asked: steps that the recipe requests; the budget may end the training earlier.
    """

    examples: VoterExamples
    coordinates: GradientSpace
    privacy: Privacy
    budget: Budget
    secret: int
    asked: int

    @property
    def total(self) -> int:
        return self.budget.rounds

    @property
    def lengths(self) -> list[int]:
        return [self.asked]

    @property
    def parameters(self) -> int:
        return sum(value.size for value in self.coordinates.zeros().values())

    @property
    def example_count(self) -> int:
        return len(self.examples.train)

    def about(self) -> dict[str, Any]:
        return {}

    @cached_property
    def expected_tokens(self) -> float:
        """Expected number of supervised tokens of a step; the actual number is private."""
        return self.budget.sampling_rate * sum(example.supervised for example in self.examples.train)

    def extension(self, point: ResumePoint) -> None:
        if point.length != [self.asked]:
            raise InputError(
                f"resume point {point.path} is of a private training of {sum(point.length)} steps, and this one would "
                f"have {self.asked}; its noise was computed for the former number: train in a new folder"
            )

    def gather(self, step: int) -> StepGradient:
        run, settings, train = self.examples.run, self.examples.settings, self.examples.train
        drawn = np.random.default_rng((self.secret, step, _SAMPLED)).random(len(train))
        self.coordinates.subject.loss.train()
        summed = self.coordinates.zeros()
        for index in np.flatnonzero(drawn < self.budget.sampling_rate):
            run.poll_all()
            # Each example seeds its own dropout: drawn in sequence, one example more would change all later gradients.
            seed_all(int(rank(run.order, "dropout", step, self.examples.ids[index])[:15], 16))
            add_clipped(summed, self.coordinates.of_example(train[index]), self.privacy.clip)
        noise = (self.secret, step, _NOISE)
        how = Mechanism(self.privacy.clip, self.budget.noise_multiplier, self.budget.denominator, noise)
        self.coordinates.write(noised(summed, how))
        rate = learning_rate(step, self.asked, settings.learning_rate, run.request.recipe)
        return StepGradient(rate, self._figures)

    def _figures(self, seconds: float) -> dict[str, Any]:
        device = self.coordinates.subject.device
        return {"tokens_per_s": round(self.expected_tokens / seconds, 1), "memory_mib": memory_mib(device)}


def train_private(run: VoterRun, strategy: PrivateStrategy) -> Path:
    """Train one voter with DP-SGD, or resume an earlier attempt; publish the weights of its best validation.

    Runs in one process. Interrupted anywhere and resumed, it takes the same steps with the same noise.

    Raises:
        As `train_voter`.
        InputError: even one step exceeds the budget, delta is too large for so many examples, layers besides LoRA are
            trained, or the training would be extended: its noise was computed for its steps.
    """
    if run.request.start is not None:
        raise InputError("a private training starts from LoRA's own start: leave --from-epoch out")
    setup = set_up(run)
    source = private_gradients(setup, strategy)
    trainer = Trainer(
        setup,
        source,
        tactic=ClientTactic(ClientStrategy(trained=strategy.trained, proximal=0.0), setup.subject),
        ema=None,
        guards=run.request.recipe.guards.model_copy(update={"spike": None, "continuity": None}),  # they judge by losses
        epoch_folders=EpochFolders(None, ()),
        verifies_first_point=False,
        keeps_points=False,  # it cannot be extended
    )
    resume(trainer)
    log_start(trainer)
    for text in warnings_of(strategy.privacy, source.budget, source.asked, source.parameters):
        setup.log.write("warning", trainer.state.progress.step, text=text)
    progress = trainer.state.progress
    # A private training has no epoch checkpoints.
    without_store = replace(run, request=run.request.model_copy(update={"checkpoints": None}))
    epochs = EpochCheckpoints(without_store, progress, setup.log)
    fit(trainer, epochs)
    if not trainer.state.best:
        raise TrainingDiverged("no validation loss of a private training was finite: lower learning_rate")
    progress.tokens = round(progress.step * source.expected_tokens)
    result = publish(trainer, epochs, {"privacy": privacy_of(source, strategy)})
    drop_secret(run.folder)
    return result


def private_gradients(setup: TrainingSetup, strategy: PrivateStrategy) -> PrivateGradients:
    """The gradient source of a voter under DP-SGD, with the noise and number of steps of its budget."""
    run, examples, settings = setup.run, setup.examples, setup.settings
    coordinates = GradientSpace.of(strategy.trained, setup.subject)
    asked = total_steps([len(example.input_ids) for example in examples.train], settings, run.request.recipe)
    budget = budget_of_steps(strategy.privacy, settings.global_batch, len(examples.train), asked)
    secret = secret_seed(run.folder, strategy.privacy.seed, run.ranks)
    return PrivateGradients(examples, coordinates, strategy.privacy, budget, secret, asked)


def privacy_of(source: PrivateGradients, strategy: PrivateStrategy) -> dict[str, Any]:
    """The privacy document; counts all planned steps, even if training stopped early."""
    return document_of(
        strategy.privacy, source.budget, source.asked, len(source.examples.train), strategy.trained, source.parameters,
        covers="the weights of this adapter; several voters over the same examples compose",
        not_covered=["validation examples", "the number of train examples", "times of steps"],
    )  # fmt: skip


def add_clipped(total: Coordinates, gradient: Coordinates, clip: float) -> None:
    """Add a gradient in place, scaled to a total 2-norm of at most `clip`; one that is not finite adds zero."""
    norm = length(gradient)
    if math.isfinite(norm):
        factor = clip_factor(norm, clip)
        for name, value in gradient.items():
            total[name] += factor * value
