"""Parallel loss computation in workers of one torch thread each: fast, and bit-identical for any number of workers.

A sum that torch splits over its threads may round differently with their number; a batch that one thread computes
does not. So batches are fixed beforehand, and the number of lanes only decides how many are computed at once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import nn

from capibara_assets.datasets.tokens.packing import length_buckets
from capibara_assets.domains import Domain
from capibara_assets.modeling.losses import Losses, TokenLosses, token_losses
from capibara_assets.processes.cores import cores_here

if TYPE_CHECKING:
    from capibara_assets.datasets.tokens.tokenising import Encoded

BATCH_TOKENS = 1024
Item = TypeVar("Item")
Result = TypeVar("Result")


class Lanes:
    """A pool of one-thread workers."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Apply a function to items, several at once; results in the order of the items."""
        return list(self._pool.map(function, items))

    def token_losses(self, model: nn.Module, examples: Sequence["Encoded"]) -> TokenLosses:
        """`losses.token_losses`, batch by batch. The model must already be in eval mode; its mode is not changed."""
        batches = list(length_buckets([len(example.input_ids) for example in examples], BATCH_TOKENS))
        by_batch = self.map(
            lambda indices: token_losses(model, [examples[i] for i in indices], batch_tokens=BATCH_TOKENS), batches
        )
        of: list[np.ndarray] = [np.zeros(0)] * len(examples)
        for indices, losses in zip(batches, by_batch, strict=True):
            for index, own in zip(indices, np.split(losses.nll, np.cumsum(losses.tokens)[:-1]), strict=True):
                of[index] = own
        return TokenLosses(np.concatenate([np.zeros(0), *of]), np.array([len(own) for own in of], dtype=np.int64))

    def losses(self, model: nn.Module, examples: Sequence["Encoded"]) -> Losses:
        """Losses summed over each example."""
        return self.token_losses(model, examples).by_example

    def by_domain(self, model: nn.Module, examples: Mapping[Domain, Sequence["Encoded"]]) -> dict[Domain, float]:
        """Losses of each domain in nats per token; computed in shared batches, which need less padding."""
        pooled = self.losses(model, [example for own in examples.values() for example in own])
        means, start = {}, 0
        for domain, own in examples.items():
            part = slice(start, start + len(own))
            means[domain] = Losses(pooled.nll[part], pooled.tokens[part]).mean
            start += len(own)
        return means


@contextmanager
def lanes() -> Iterator[Lanes]:
    """Open a one-thread worker for each core; torch uses one thread everywhere while they are open."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with (
            threadpool_limits(1, user_api="blas"),  # NumPy's: the same holds for its sums
            ThreadPoolExecutor(cores_here(), initializer=torch.set_num_threads, initargs=(1,)) as pool,
        ):
            yield Lanes(pool)
    finally:
        torch.set_num_threads(threads)
