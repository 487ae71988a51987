"""Validation: the mean loss over examples, in batches distributed over the processes."""

from collections.abc import Callable, Sequence

import torch

from capibara_assets.datasets.tokens.packing import length_buckets
from capibara_assets.datasets.tokens.tokenising import Encoded
from capibara_assets.training.ranks import Ranks
from capibara_assets.training.step.stepper import Stepper
from capibara_assets.training.step.subject import Subject


def evaluate(
    subject: Subject,
    stepper: Stepper,
    examples: Sequence[Encoded],
    batch_tokens: int,
    ranks: Ranks,
    poll: Callable[[], None],
) -> float:
    """Nats per supervised token over all examples, the same bits on every process; NaN without any token.

    Args:
        batch_tokens: rows x longest row of a batch, at most.
        ranks: the processes that share the batches; all call this.
        poll: called before each batch; may raise to stop.
    """
    batches = list(length_buckets([len(example.input_ids) for example in examples], batch_tokens))
    batches += [
        [] for _ in range(-len(batches) % ranks.world)
    ]  # forward passes may be collective, so every process makes equally many
    nll = torch.zeros((), dtype=torch.float64, device=subject.device)
    tokens = 0
    was_training = subject.loss.training
    subject.loss.eval()
    try:
        with torch.no_grad():
            for indices in batches[ranks.rank :: ranks.world]:
                poll()
                losses = stepper.loss(subject.collate([examples[index] for index in indices]))
                nll += losses.double().sum()
                tokens += len(losses)
    finally:
        subject.loss.train(was_training)
    total, count = ranks.sum([float(nll), float(tokens)])
    return total / count if count else float("nan")
