"""The probe: times a few real optimizer steps of a run in a separate process, for the plan's predicted seconds."""

import dataclasses
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.processes.supervise import end_with_parent
from capibara_assets.training.plan.schema import MeasuredSpeed
from capibara_assets.training.request import TrainingRequest

_LIMIT_S = 600.0


def measure_speed(request: TrainingRequest, *, budget_s: float = 8.0) -> MeasuredSpeed:
    """Time the recipe's own steps on the first voter's data; writes only the tokenised set.

    Steps are spread over the training, because lengths differ; the first one is not counted. Measures one process
    whatever the recipe's backend: `processes` of them do that many times the tokens, less their communication.

    Args:
        budget_s: seconds for steps; at least two are timed.

    Raises:
        InputError: the base or the data cannot be trained on, or no step was done within ten minutes.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(request, budget_s, time.time(), theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(_LIMIT_S):
            raise InputError(f"probe: no optimizer step within {_LIMIT_S:g} s: this machine is too small for the run")
        reply: dict[str, Any] = ours.recv()
    except EOFError as error:
        process.join()
        raise InputError(
            f"probe: the process that tried a few steps ended with exit code {process.exitcode} (-9: out of memory)"
        ) from error
    finally:
        process.kill()
        process.join()
    if "error" in reply:
        raise InputError(f"probe: {reply['error']}")
    return MeasuredSpeed(**reply)


def _child(request: TrainingRequest, budget_s: float, born: float, connection: Connection) -> None:
    end_with_parent()
    try:
        connection.send(dataclasses.asdict(_measure(request, budget_s, born)))
    except InputError as error:
        connection.send({"error": str(error)})


def _measure(request: TrainingRequest, budget_s: float, born: float) -> MeasuredSpeed:
    """Run and time the steps; called in the child process."""
    from capibara_assets.training.data.batches import Curriculum, plain_level
    from capibara_assets.training.data.examples import chosen, read_examples, tokens_of, validation_examples
    from capibara_assets.training.data.order import training_part
    from capibara_assets.training.environment import compute_settings, pick_device, settings_on
    from capibara_assets.training.loop.evaluator import evaluate
    from capibara_assets.training.monitoring.usage import held_mib, memory_mib
    from capibara_assets.training.ranks import ALONE
    from capibara_assets.training.step.settings import total_steps
    from capibara_assets.training.step.stepper import PlainStepper
    from capibara_assets.training.step.subject import load_subject

    recipe, voter = request.recipe, request.recipe.voters[0]
    device = pick_device()
    settings = settings_on(request, device)
    compute_settings(recipe.hardware, device)
    before = held_mib(device)
    subject = load_subject(request, settings, device)
    stepper = PlainStepper(subject.trainable, recipe, subject.loss, scaled=settings.precision == "fp16")
    table = read_examples(request.dataset)
    tokenizer = subject.base.tokenizer
    encoded = tokens_of(request, table, tokenizer, settings)
    ids, train = chosen("train", training_part(table, voter.shard, len(recipe.voters)), encoded, settings)
    validation = validation_examples(request, voter, table, encoded, settings, tokenizer)
    total = total_steps([len(example.input_ids) for example in train], settings, recipe)
    level = plain_level(ids, train, total, f"{request.seed}/{voter.seed}", settings, recipe)
    curriculum = Curriculum([level], recipe)
    began, start_s = time.monotonic(), time.time() - born
    rates: list[float] = []
    at = 0
    subject.loss.train()
    while at < 3 or (time.monotonic() - began < budget_s and at < total):
        data = curriculum.step(_spread(at, total))
        begun = time.monotonic()
        for number, part in enumerate(data.parts, start=1):
            with stepper.micro_step(last=number == len(data.parts)):
                stepper.backward(stepper.loss(subject.collate(part)).sum() / data.supervised)
        stepper.step(data.rate)
        rates.append(data.tokens / (time.monotonic() - begun))
        at += 1
    few = validation[: max(1, 2 * settings.global_batch)]
    begun = time.monotonic()
    evaluate(subject, stepper, few, recipe.training.micro_batch_tokens, ALONE, lambda: None)
    validated = sum(len(example.input_ids) for example in few) / (time.monotonic() - begun)
    return MeasuredSpeed(
        tokens_per_s=statistics.harmonic_mean(rates[1:]),
        validation_tokens_per_s=validated,
        start_s=start_s,
        memory_bytes=round((memory_mib(device) - before) * 2**20),
        steps=len(rates) - 1,
    )


def _spread(at: int, total: int) -> int:
    """The at-th of steps spread over a training, by the golden ratio: any first few of them cover it evenly."""
    return int((at * 0.6180339887498949 % 1.0) * total)
