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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capibara_assets.checkpoints.saving import AsyncSaver
from capibara_assets.errors import InputError
from capibara_assets.training.backends import make_stepper
from capibara_assets.training.changes import Coordinates, Mechanism, length, noised
from capibara_assets.training.client import ClientTraining, lora_only, scales_of, signs
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
from capibara_assets.training.privacy import clip_factor, privacy_document
from capibara_assets.training.privacy_plan import Budget, budget_of_steps, predicted, warnings_of
from capibara_assets.training.products import Product
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
    """

    trained: Trained
    subject: Subject
    parts: tuple[Product, ...]

    def read(self) -> Coordinates:
        """What the backward pass left; float64, zero where it left nothing."""
        found = {}
        for part in self.parts:
            b = self._of(part.b)
            if self.trained == "scales":
                b = math.sqrt(len(b)) * scales_of(b, signs(part.module, b.shape))
            found[part.b] = b.numpy()
            if self.trained == "factors":
                found[part.a] = self._of(part.a).numpy()
        return found

    def write(self, mean: Coordinates) -> None:
        """Let the optimizer find it as the gradient."""
        for part in self.parts:
            b = torch.from_numpy(mean[part.b])
            if self.trained == "scales":
                shape = self.subject.trainable[part.b].shape
                b = signs(part.module, shape).double() * b / math.sqrt(shape[0])
            self._put(part.b, b)
            if self.trained == "factors":
                self._put(part.a, torch.from_numpy(mean[part.a]))

    def _of(self, name: str) -> Tensor:
        parameter = self.subject.trainable[name]
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        return gradient.detach().cpu().double()

    def _put(self, name: str, value: Tensor) -> None:
        parameter = self.subject.trainable[name]
        parameter.grad = value.to(parameter.device, parameter.dtype)


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
    gradients = Gradients(strategy.trained, subject, tuple(lora_only(subject)))
    examples, tokenizer = read_examples(request.dataset), subject.base.tokenizer
    encoded = tokens_of(request, examples, tokenizer, settings, poll=poll)
    ids, train = chosen("train", training_part(examples, voter.shard, len(recipe.voters)), encoded, settings)
    validation = validation_examples(request, voter, examples, encoded, settings, tokenizer)

    # The budget: how much noise, for how many of the steps that the recipe asks for.
    asked = total_steps([len(example.input_ids) for example in train], settings, recipe)
    budget = budget_of_steps(strategy.privacy, settings.global_batch, len(train), asked)
    numbers = sum(value.size for value in gradients.read().values())
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
                    if _judged(progress, loss):
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
                summed = {name: np.zeros_like(value) for name, value in gradients.read().items()}
                for index in np.flatnonzero(drawn < budget.sampling_rate):
                    poll()
                    stepper.clear()
                    # Dropout of its own: drawn one after the other, an example more would change all later gradients.
                    seed_all(int(rank(request.seed, voter.seed, "dropout", progress.step, ids[index])[:15], 16))
                    stepper.backward(stepper.loss(subject.collate([train[index]])).mean())
                    add_clipped(summed, gradients.read(), strategy.privacy.clip)
                stepper.clear()
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
    published = {"privacy": _document(strategy, budget, asked, numbers, len(train))}
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


def _judged(progress: Progress, loss: float) -> bool:
    """Note a validation loss; whether it is the best so far of a step after the first."""
    progress.validated = progress.step
    if not math.isfinite(loss):
        return False
    progress.curve.append({"step": progress.step, "validation_loss": loss})
    if progress.step == 0:
        progress.base_loss = loss
        return False
    if progress.best_loss is not None and loss >= progress.best_loss:
        return False
    progress.best_step, progress.best_loss = progress.step, loss
    return True


def _document(strategy: Private, budget: Budget, asked: int, numbers: int, examples: int) -> dict[str, Any]:
    """What the certificate says of privacy; all planned steps count, also where training stopped early."""
    choice = strategy.privacy
    return privacy_document(
        noise_multiplier=budget.noise_multiplier,
        sampling_rate=budget.sampling_rate,
        steps=budget.rounds,
        delta=choice.delta,
        clip=choice.clip,
        examples=examples,
        budget=choice.epsilon,
        stopped_by_budget=budget.rounds < asked,
        trained=strategy.trained,
        dimensions=numbers,
        denominator=budget.denominator,
        predicted_snr=predicted(choice, budget, numbers).snr,
        seed="declared: no guarantee" if choice.seed is not None else "entropy of the system",
        covers="the weights of this adapter; several voters over the same examples compose",
        not_covered=["validation examples", "the number of train examples", "times of steps"],
    )
