"""Selection and order of a voter's examples: pure functions of ids, lengths and seeds, independent of row order.

Imports no torch: training plans count steps with the same functions that the training uses.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain

import polars as pl

from capibara_assets.datasets.tokens.packing import length_buckets, pack_lengths
from capibara_assets.errors import InputError
from capibara_assets.training.recipe import TrainingChoice

GROUPS_PER_VOTER = 8  # with fewer, all voters train on the whole split, in different orders


def rank(*parts: object) -> str:
    """A hexadecimal digest of the parts; sorting by it is a reproducible shuffle."""
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()


def shards(groups: Iterable[str], n: int) -> dict[str, int]:
    """Group → shard 0..n-1: one by one in the order of the groups' digests, so that shards are equal in size."""
    ordered = sorted(set(groups), key=lambda group: rank("shard", group))
    return {group: position % n for position, group in enumerate(ordered)}


def training_part(examples: pl.DataFrame, shard: int, n: int) -> pl.DataFrame:
    """The train examples of a voter: all groups but those of its own shard.

    With one voter, or fewer than eight groups for each voter, it is the whole train split: without a quarter of so few
    groups, one of which may hold most of the examples, voters would learn too different things to agree.
    """
    train = examples.filter(pl.col("split") == "train").sort("example_id")
    of_group = shards(train["group_id"], n)
    if n == 1 or len(of_group) < GROUPS_PER_VOTER * n:
        return train
    own = [group for group, part in of_group.items() if part == shard]
    return train.filter(~pl.col("group_id").is_in(own))


def validation_shard(examples: pl.DataFrame, shard: int, n: int) -> pl.DataFrame:
    """The validation examples of one voter: shard `shard` of `n`, whole groups, disjoint from the others'.

    With fewer validation groups than voters every shard is the whole validation split (the shards then overlap).

    Raises:
        InputError: there is no validation example.
    """
    validation = examples.filter(pl.col("split") == "validation").sort("example_id")
    if validation.is_empty():
        raise InputError(
            "the dataset has no validation examples, which voters need: rebuild the dataset with a validation split"
        )
    of_group = shards(validation["group_id"], n)
    if len(of_group) < n:
        return validation
    own = [group for group, part in of_group.items() if part == shard]
    return validation.filter(pl.col("group_id").is_in(own))


def step_batches(
    ids: Sequence[str], lengths: Sequence[int], *, seed: int | str, epoch: int, global_batch: int, window: int
) -> list[list[int]]:
    """One epoch as a list of optimizer steps, each a list of indices into `ids`.

    Shuffled by (seed, epoch); within `window` steps' worth sorted by length and cut into steps, so that an
    optimizer step holds examples of similar length; the steps of the epoch are then shuffled again.
    Every index occurs exactly once, whatever the order of `ids`.
    """
    order = sorted(range(len(ids)), key=lambda index: rank(seed, epoch, ids[index]))
    steps: list[list[int]] = []
    for start in range(0, len(order), window * global_batch):
        block = order[start : start + window * global_batch]
        block.sort(key=lambda index: (lengths[index], ids[index]))
        steps += [block[at : at + global_batch] for at in range(0, len(block), global_batch)]
    keys = [rank(seed, epoch, "step", position) for position in range(len(steps))]
    return [steps[position] for position in sorted(range(len(steps)), key=keys.__getitem__)]


def drawn(ids: Sequence[str], weights: Sequence[float], *, seed: int | str, epoch: int) -> list[int]:
    """One epoch's examples by index: the epoch keeps its size, and each example occurs according to its weight.

    Systematic resampling in the order of (seed, epoch): an example whose share is 1.7 comes once or twice, 1.7 times on
    average over epochs.
    """
    order = sorted(range(len(ids)), key=lambda index: rank(seed, epoch, "drawn", ids[index]))
    step = math.fsum(weights) / len(ids)
    following = step * int(rank(seed, epoch, "first"), 16) / 16**64
    reached, taken = 0.0, list[int]()
    for index in order:
        reached += weights[index]
        while following < reached and len(taken) < len(ids):
            taken.append(index)
            following += step
    return taken + order[len(taken) :]  # of the last one, lost to rounding


class ExampleOrder:
    """Optimizer step number → indices of its examples, for any number of epochs, without replaying earlier steps.

    With weights that are not all equal an epoch's examples are drawn by them; else each comes exactly once.
    """

    def __init__(
        self,
        ids: Sequence[str],
        lengths: Sequence[int],
        *,
        seed: int | str,
        global_batch: int,
        window: int,
        weights: Sequence[float] | None = None,
    ):
        self._plain = partial(step_batches, seed=seed, global_batch=global_batch, window=window)
        self._ids, self._lengths, self._seed = ids, lengths, seed
        self._weights = weights if weights is not None and len(set(weights)) > 1 else None
        self.steps_per_epoch = math.ceil(len(ids) / global_batch)
        self._epoch: tuple[int, list[list[int]]] = (-1, [])

    def step(self, number: int) -> list[int]:
        """Indices of step `number`, 0-based over all epochs."""
        epoch, within = divmod(number, self.steps_per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self._batches(epoch))
        return self._epoch[1][within]

    def _batches(self, epoch: int) -> list[list[int]]:
        if self._weights is None:
            return self._plain(self._ids, self._lengths, epoch=epoch)
        taken = drawn(self._ids, self._weights, seed=self._seed, epoch=epoch)
        names = [f"{self._ids[index]}/{place}" for place, index in enumerate(taken)]  # copies fall apart in the shuffle
        batches = self._plain(names, [self._lengths[index] for index in taken], epoch=epoch)
        return [[taken[place] for place in batch] for batch in batches]


def micro_batches(
    lengths: Sequence[int], choice: TrainingChoice, world: int, row_tokens: int | None = None
) -> list[list[int]]:
    """An optimizer step's examples, by their index, as micro-batches of similar length.

    Their number is a multiple of the processes; empty micro-batches fill it up.

    Args:
        row_tokens: capacity of a row that holds several examples; those of a micro-batch then stand in the order in
            which they fill rows one after the other. None: a row for each.
    """
    if choice.micro_batch:
        order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
        groups = [order[at : at + choice.micro_batch] for at in range(0, len(order), choice.micro_batch)]
    elif row_tokens:
        rows, each = _packed(lengths, row_tokens), max(1, choice.micro_batch_tokens // row_tokens)
        groups = [list(chain.from_iterable(rows[at : at + each])) for at in range(0, len(rows), each)]
    else:
        groups = list(length_buckets(lengths, choice.micro_batch_tokens))
    while len(groups) % world and any(
        len(group) > 1 for group in groups
    ):  # halve a micro-batch rather than leave a process idle
        largest = max(groups, key=len)
        at = groups.index(largest)
        groups[at : at + 1] = [largest[: len(largest) // 2], largest[len(largest) // 2 :]]
    if row_tokens:
        inner = [_packed([lengths[index] for index in group], row_tokens) for group in groups]
        groups = [[group[at] for at in chain.from_iterable(rows)] for group, rows in zip(groups, inner, strict=True)]
    return groups + [[] for _ in range(-len(groups) % world)]


def _packed(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Indices in rows of at most `capacity` tokens, as few as best-fit decreasing finds."""
    packs = pack_lengths(lengths, capacity)
    return [packs.of(pack).tolist() for pack in range(len(packs))]
