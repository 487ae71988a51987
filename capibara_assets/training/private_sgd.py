"""Differential privacy of single train examples: DP-SGD (Abadi et al. 2016, arXiv 1607.00133) on LoRA's numbers.

A step draws its examples by Poisson sampling: each one independently, with the probability that makes the recipe's
global batch the expected one. The gradient of each example's mean loss is clipped to `clip` over all modules together,
the *sum* gets Gaussian noise of `noise_multiplier * clip` on each number, and is divided by the expected batch, a
constant. So one example more or less moves the sum by at most `clip`, and everything after it is post-processing:
AdamW, its clipping, the schedule. `training.privacy` accounts for it, amplification by sampling included.

Trained are all of LoRA's numbers, B alone, or one number a component (`client`); `scales` are noised as what they are,
one number each, and not as the entries of B that they move together.

What is told: weights after a step, and validation losses. What is not: losses of train examples, how many of them a
step had, and which; token counts in the manifest are what the sampling makes one expect. An example whose gradient is
not finite counts as zero. Sampling and noise have a secret seed (`secret_seed`). Not covered: the validation shard,
which picks the weights that are published, the number of examples there are, on which the sampling rate stands, and how
long a step took, from which one may guess how many examples it had.
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from capibara_assets.checkpoints.saving import AsyncSaver
from capibara_assets.datasets.tokenising import Encoded
from capibara_assets.errors import InputError
from capibara_assets.training.backends import make_stepper
from capibara_assets.training.changes import Coordinates, Mechanism, length, noised
from capibara_assets.training.client import ClientTraining, along, lora_only, signs, spread
from capibara_assets.training.environment import (
    compute_settings,
    differences,
    fingerprint,
    memory_mib,
    pick_device,
    seed_all,
    settings_on,
)
from capibara_assets.training.evaluator import evaluate
from capibara_assets.training.events import EVENTS, EventLog, Report
from capibara_assets.training.examples import chosen, read_examples, tokens_of, validation_examples
from capibara_assets.training.guards import should_stop
from capibara_assets.training.loop import Interrupted, TrainingDiverged
from capibara_assets.training.order import rank, training_part
from capibara_assets.training.privacy import clip_factor
from capibara_assets.training.privacy_plan import budget_of_steps, document_of, warnings_of
from capibara_assets.training.ranks import ALONE
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.result import write_result
from capibara_assets.training.resume import Progress, ResumePoints, drop_points, find_point, state_of
from capibara_assets.training.secret_seed import drop_secret, secret_seed
from capibara_assets.training.settings import learning_rate, total_steps
from capibara_assets.training.strategies import Client, Private, Trained
from capibara_assets.training.subject import Subject, load_subject

_SAMPLED, _NOISE = 1, 2  # streams of the secret seed


@dataclass(frozen=True)
class Gradients:
    """The coordinates in which an example's gradient is clipped and the sum noised.

    `factors`: A (r, in) and B (out, r). `b_only`: B. `scales`: (r,) a module, along unit vectors: signs / sqrt(out).

    Attributes:
        signs: name of each B -> (out, r), for `scales`.
    """

    trained: Trained
    subject: Subject
    names: tuple[str, ...]
    signs: Mapping[str, Tensor]

    @classmethod
    def of(cls, trained: Trained, subject: Subject) -> "Gradients":
        """Raises InputError: more is trained than LoRA's products."""
        parts = lora_only(subject)
        names = [part.b for part in parts] + [part.a for part in parts if trained == "factors"]
        scaled = parts if trained == "scales" else []
        of_b = {part.b: signs(part.module, subject.trainable[part.b].shape) for part in scaled}
        return cls(trained, subject, tuple(names), of_b)

    def zeros(self) -> Coordinates:
        """A sum of none."""
        shapes = {name: self.subject.trainable[name].shape for name in self.names}
        return {name: np.zeros(shape[1:] if name in self.signs else shape) for name, shape in shapes.items()}

    def of_example(self, example: Encoded) -> Coordinates:
        """Of the mean loss of one example's supervised tokens; float64."""
        self._clear()
        self.subject.loss(self.subject.collate([example])).mean().backward()
        found = {}
        for name in self.names:
            parameter = self.subject.trainable[name]
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            value = gradient.detach().cpu().double()
            found[name] = (along(value, self.signs[name]) if name in self.signs else value).numpy()
        return found

    def write(self, mean: Coordinates) -> None:
        """Let the optimizer find it as the gradient, and none of what is not trained."""
        self._clear()
        for name, coordinates in mean.items():
            value, parameter = torch.from_numpy(coordinates), self.subject.trainable[name]
            if name in self.signs:
                value = spread(value, self.signs[name])
            parameter.grad = value.to(parameter.device, parameter.dtype)

    def _clear(self) -> None:
        for parameter in self.subject.trainable.values():
            parameter.grad = None


def train_private(
    request: TrainingRequest,
    voter: VoterSpec,
    strategy: Private,
    folder: Path,
    report: Report,
    poll: Callable[[], None],
) -> Path:
    """Train one voter with DP-SGD, or go on where an earlier attempt stopped; publish its best validation's weights.

    In one process. Interrupted anywhere and started again it takes the same steps with the same noise.

    Raises:
        As `train_voter`.
        InputError: not one step is within the budget, delta is too large for so many examples, layers besides LoRA are
            trained, or the training is to be made longer than it was: its noise was measured out for its steps.
    """
    started = time.monotonic()
    recipe, device = request.recipe, pick_device()
    settings = settings_on(request, device)
    compute_settings(recipe.hardware, device)
    environment, inputs = fingerprint(device, settings, recipe.hardware), request.inputs(voter)
    log = EventLog(folder / EVENTS, run=request.run_id(voter), listener=report)

    subject = load_subject(request, settings, device)
    stepper = make_stepper(recipe, subject, settings, ALONE)
    tactic = ClientTraining(Client(trained=strategy.trained, proximal=0.0), subject)
    gradients = Gradients.of(strategy.trained, subject)
    examples, tokenizer = read_examples(request.dataset), subject.base.tokenizer
    encoded = tokens_of(request, examples, tokenizer, settings, poll=poll)
    ids, train = chosen("train", training_part(examples, voter.shard, len(recipe.voters)), encoded, settings)
    validation = validation_examples(request, voter, examples, encoded, settings, tokenizer)

    # The budget: how much noise, for how many of the steps that the recipe asks for.
    asked = total_steps([len(example.input_ids) for example in train], settings, recipe)
    budget = budget_of_steps(strategy.privacy, settings.global_batch, len(train), asked)
    numbers = sum(value.size for value in gradients.zeros().values())
    secret = secret_seed(folder, strategy.privacy.seed, ALONE)
    total = budget.rounds
    expected_tokens = budget.sampling_rate * sum(example.supervised for example in train)

    progress, best = Progress(), dict[str, Tensor]()
    point, damaged = find_point(folder, inputs=inputs, wanted=request.resume_from)
    if point:
        if point.length != [asked] or request.start is not None:
            raise InputError(
                f"resume point {point.path} is of a private training of {sum(point.length)} steps, and this one would "
                f"have {asked}: its noise was measured out for those: train anew in a new folder"
            )
        progress, best = point.progress, point.tensors["best"]
        stepper.restore(point.weights(subject.peft_names), point.tensors["optimizer"])
        differs = differences(point.fingerprint, environment)
        continuation = "statistical" if differs else "exact"
        log.write("resumed", progress.step, continuation=continuation, differs=differs, damaged=damaged)
    elif request.start is not None:
        raise InputError("a private training starts from LoRA's own start: leave --from-epoch out")
    log.write(
        "started", progress.step, steps=total, domain=request.domain, voter=voter.name, pid=os.getpid(),
        examples=len(train), validation=len(validation), left_out=len(encoded.left_out),
        truncated=len(encoded.truncated), parameters=numbers, base_parameters=subject.base_parameters,
        modules=list(settings.modules), new_layers=list(subject.base.new_layers),
        unread_layers=list(subject.base.unread), precision=settings.precision, backend=recipe.hardware.backend,
        processes=1, strategy=strategy.kind, load_seconds=round(time.monotonic() - started, 3),
    )  # fmt: skip
    for text in warnings_of(strategy.privacy, budget, asked, numbers):
        log.write("warning", progress.step, text=text)
    seconds_before = progress.seconds

    def save_point() -> None:
        progress.seconds = seconds_before + time.monotonic() - started
        adapter = subject.adapter(stepper.full(subject.trainable))
        points.save(state_of(progress, adapter, optimizer=stepper.state(), best=best), progress.step, voter.name)
        log.write("checkpoint", progress.step, waited_s=0.0)

    with AsyncSaver(ResumePoints(folder, inputs, environment, [asked], recipe.checkpoint.keep)) as points:
        try:
            while True:
                poll()
                due = progress.step % recipe.training.evaluate_every == 0 or progress.step == total
                if due and progress.validated < progress.step:
                    loss = evaluate(subject, stepper, validation, recipe.training.micro_batch_tokens, ALONE, poll)
                    if progress.judged(loss):
                        best = {name: value.detach().clone() for name, value in subject.trainable.items()}
                    log.write("validation", progress.step, of=total, validation_loss=loss)
                if progress.step == total:
                    break
                if progress.validated == progress.step and should_stop(progress.curve, recipe.training.early_stopping):
                    log.write("stopped_early", progress.step, of=total, best_step=progress.best_step)
                    break

                # One step: the sum of clipped gradients of those examples that the secret draw takes, and its noise.
                begun = time.monotonic()
                drawn = np.random.default_rng((secret, progress.step, _SAMPLED)).random(len(train))
                subject.loss.train()
                summed = gradients.zeros()
                for index in np.flatnonzero(drawn < budget.sampling_rate):
                    poll()
                    # Dropout of its own: drawn one after the other, an example more would change all later gradients.
                    seed_all(int(rank(request.seed, voter.seed, "dropout", progress.step, ids[index])[:15], 16))
                    add_clipped(summed, gradients.of_example(train[index]), strategy.privacy.clip)
                noise = (secret, progress.step, _NOISE)
                how = Mechanism(strategy.privacy.clip, budget.noise_multiplier, budget.denominator, noise)
                gradients.write(noised(summed, how))
                rate = learning_rate(progress.step, asked, settings.learning_rate, recipe)
                norm = stepper.step(rate)
                progress.step += 1
                if norm is None:
                    raise TrainingDiverged(
                        f"step {progress.step} of a private training would have left weights that are not finite: "
                        f"lower learning_rate ({rate:.3g})"
                    )
                tactic.after_step(rate, norm)
                progress.curve.append({"step": progress.step, "learning_rate": rate, "gradient_norm": norm})
                seconds = time.monotonic() - begun
                log.write(
                    "step", progress.step, of=total, learning_rate=rate, gradient_norm=norm,
                    tokens_per_s=round(expected_tokens / seconds, 1), memory_mib=memory_mib(device),
                )  # fmt: skip
                points.check()
                if progress.step % recipe.checkpoint.every == 0 and progress.step < total:
                    save_point()
        except Interrupted:
            stepper.clear()
            save_point()
            points.wait()
            log.write("interrupted", progress.step)
            raise
    if not best:
        raise TrainingDiverged("no validation loss of a private training was finite: lower learning_rate")

    progress.tokens = round(progress.step * expected_tokens)
    progress.seconds = seconds_before + time.monotonic() - started
    # All planned steps count, also where training stopped early.
    document = document_of(
        strategy.privacy, budget, asked, len(train), strategy.trained, numbers,
        covers="the weights of this adapter; several voters over the same examples compose",
        not_covered=["validation examples", "the number of train examples", "times of steps"],
    )  # fmt: skip
    published = {"privacy": document}
    log.write("published", progress.step, strategy=strategy.kind, **published)
    counts = {
        "validation_loss": progress.best_loss,
        "published": published,
        "examples": len(train),
        "validation_examples": len(validation),
        "steps": progress.step,
        "steps_planned": asked,
        "examples_left_out": len(encoded.left_out),
        "trainable_parameters": numbers,
    }
    result = write_result(request, voter, folder, progress, subject.adapter(best), settings, counts, [], log)
    drop_points(folder)
    drop_secret(folder)
    return result


def add_clipped(total: Coordinates, gradient: Coordinates, clip: float) -> None:
    """Add a gradient, scaled to a 2-norm of at most `clip` over all its parts, in place; one not finite adds zero."""
    norm = length(gradient)
    if math.isfinite(norm):
        factor = clip_factor(norm, clip)
        for name, value in gradient.items():
            total[name] += factor * value
