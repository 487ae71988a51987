"""Validation of weights made outside a training, such as an average of adapters."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.training.data.examples import read_examples, tokens_of, validation_examples
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.environment import compute_settings, pick_device, settings_on
from capibara_assets.training.loop.evaluator import evaluate
from capibara_assets.training.loop.guards import TrainingDiverged
from capibara_assets.training.loop.products import Average, averaged
from capibara_assets.training.parallel.backends import make_stepper
from capibara_assets.training.step.subject import Subject, load_subject


@dataclass(frozen=True)
class EvaluatedWeights:
    """Weights in PEFT's format, with their validation loss.

    Attributes:
        adapter: of the recipe's rank and alpha.
        names: name of a trained parameter -> its name in the adapter.
        loss: nats per supervised token on the voter's validation shard.
        relative_error: of the cut to the recipe's rank (`Average.relative_error`).
    """

    adapter: LoraAdapter
    names: dict[str, str]
    loss: float
    relative_error: float


def evaluate_average(run: VoterRun, adapters: Sequence[LoraAdapter], shares: Sequence[float]) -> EvaluatedWeights:
    """Average the adapters' deltas, cut to the recipe's rank, and validate the result; raises as `evaluate_weights`."""
    return evaluate_weights(run, lambda subject: averaged(adapters, shares, subject))


def evaluate_weights(run: VoterRun, make: Callable[[Subject], Average]) -> EvaluatedWeights:
    """Load the base, make weights for it, and validate them; the base is released again.

    Collective: all processes of the voter call it.

    Args:
        make: freshly loaded subject, with LoRA's initial weights (the same for all voters) -> weights.

    Raises:
        TrainingDiverged: the loss is not finite.
    """
    request, ranks = run.request, run.ranks
    recipe, device = request.recipe, pick_device(ranks)
    settings = settings_on(request, device)
    compute_settings(recipe.hardware, device)
    subject = load_subject(request, settings, device)
    stepper = make_stepper(recipe, subject, settings, ranks)
    average = make(subject)
    stepper.restore(average.weights, {})
    examples = read_examples(request.dataset)
    tokenizer = subject.base.tokenizer
    encoded = tokens_of(request, examples, tokenizer, settings)
    validation = validation_examples(request, run.voter, examples, encoded, settings, tokenizer)
    loss = evaluate(subject, stepper, validation, recipe.training.micro_batch_tokens, ranks, run.poll_if_alone)
    if not math.isfinite(loss):
        raise TrainingDiverged(f"the combined weights have validation loss {loss}")
    return EvaluatedWeights(subject.adapter(average.weights), subject.peft_names, loss, average.relative_error)
