"""Who sees which examples, in which order: every example once an epoch, shards disjoint, row order of no account."""

import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.errors import InputError
from capibara_assets.training.data.order import ExampleOrder, shards, step_batches, training_part, validation_shard


def table(groups: int, per_group: int = 3, seed: int = 0) -> pl.DataFrame:
    rows = [
        {"example_id": f"{split}-{g}-{i}", "group_id": f"{split}-{g}", "split": split, "messages": "[]"}
        for split in ("train", "validation", "test")
        for g in range(groups)
        for i in range(per_group)
    ]
    random.Random(seed).shuffle(rows)
    return pl.DataFrame(rows)


@given(
    lengths=st.lists(st.integers(1, 300), min_size=1, max_size=60),
    batch=st.integers(1, 9),
    window=st.integers(1, 5),
    epoch=st.integers(0, 3),
    shuffle=st.integers(0, 100),
)
def test_an_epoch_holds_every_example_once_whatever_the_row_order(
    lengths: list[int], batch: int, window: int, epoch: int, shuffle: int
) -> None:
    names = [f"e{index}" for index in range(len(lengths))]
    steps = step_batches(names, lengths, seed=1, epoch=epoch, global_batch=batch, window=window)
    assert sorted(index for step in steps for index in step) == list(range(len(lengths)))
    assert len(steps) == -(-len(lengths) // batch)
    assert sum(len(step) != batch for step in steps) <= 1
    order = random.Random(shuffle).sample(range(len(lengths)), len(lengths))
    other = step_batches([names[i] for i in order], [lengths[i] for i in order], seed=1, epoch=epoch,
                         global_batch=batch, window=window)  # fmt: skip
    assert [[order[index] for index in step] for step in other] == steps


def test_seeds_and_epochs_give_other_orders_and_seeking_needs_no_replay() -> None:
    names, lengths = [f"e{i}" for i in range(40)], [5 + i % 7 for i in range(40)]
    walk = [ExampleOrder(names, lengths, seed=1, global_batch=4, window=2).step(number) for number in range(30)]
    plan = ExampleOrder(names, lengths, seed=1, global_batch=4, window=2)
    assert [plan.step(number) for number in reversed(range(30))] == walk[::-1]
    assert walk[:10] != walk[10:20]
    assert walk != [ExampleOrder(names, lengths, seed=2, global_batch=4, window=2).step(number) for number in range(30)]


@given(groups=st.sets(st.text(min_size=1, max_size=4), min_size=4, max_size=50), n=st.integers(1, 4))
def test_shards_differ_by_one_group_at_most(groups: set[str], n: int) -> None:
    sizes = [list(shards(groups, n).values()).count(shard) for shard in range(n)]
    assert sum(sizes) == len(groups)
    assert max(sizes) - min(sizes) <= 1


def test_voters_train_without_their_own_quarter_and_judge_by_disjoint_ones() -> None:
    examples, n = table(groups=32), 4
    left_out, judged = [], []
    for shard in range(n):
        part = training_part(examples, shard, n)
        assert set(part["split"]) == {"train"} and part["group_id"].n_unique() == 24
        assert part["example_id"].is_sorted()
        left_out += sorted({f"train-{g}" for g in range(32)} - set(part["group_id"]))
        judged += validation_shard(examples, shard, n)["example_id"].to_list()
    assert len(left_out) == len(set(left_out)) == 32
    assert sorted(judged) == sorted(examples.filter(pl.col("split") == "validation")["example_id"])


def test_the_parts_do_not_depend_on_the_row_order() -> None:
    for shard in range(4):
        assert training_part(table(33, seed=1), shard, 4).equals(training_part(table(33, seed=2), shard, 4))
        assert validation_shard(table(33, seed=1), shard, 4).equals(validation_shard(table(33, seed=2), shard, 4))


def test_with_few_groups_voters_share_the_whole_train_split() -> None:
    examples = table(groups=31)
    parts = [training_part(examples, shard, 4) for shard in range(4)]
    assert all(part.equals(parts[0]) and part["group_id"].n_unique() == 31 for part in parts)


def test_fewer_groups_than_voters_are_shared_and_none_is_an_error() -> None:
    few = table(groups=2)
    assert training_part(few, 3, 4).height == validation_shard(few, 3, 4).height == 6
    with pytest.raises(InputError, match="no validation examples"):
        validation_shard(few.filter(pl.col("split") == "train"), 0, 4)
