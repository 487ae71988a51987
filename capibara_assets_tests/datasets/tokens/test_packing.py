"""Packs hold every example once and waste little; attention in them is as if each example were alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.datasets.tokens.packing import (
    IGNORED,
    Sequences,
    block_diagonal,
    length_buckets,
    pack_lengths,
    sequences,
)
from capibara_assets.errors import InputError

LENGTHS = st.lists(st.integers(1, 30), max_size=60)


def best_fit_decreasing(lengths: list[int], capacity: int) -> int:
    """How many packs the textbook algorithm opens."""
    rooms: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [(room, place) for place, room in enumerate(rooms) if room >= length]
        if fitting:
            room, place = min(fitting)
            rooms[place] = room - length
        else:
            rooms.append(capacity - length)
    return len(rooms)


@given(LENGTHS, st.integers(30, 64))
def test_packs_are_those_of_best_fit_decreasing(lengths: list[int], capacity: int) -> None:
    packs = pack_lengths(lengths, capacity)
    assert sorted(packs.examples.tolist()) == list(range(len(lengths)))
    assert len(packs) == best_fit_decreasing(lengths, capacity)
    held = [packs.of(pack).tolist() for pack in range(len(packs))]
    assert all(0 < sum(lengths[index] for index in pack) <= capacity for pack in held)
    assert held == [sorted(pack) for pack in held] == sorted(held)


def test_known_packs() -> None:
    packs = pack_lengths([6, 4, 5, 3, 2, 10], 10)
    assert [packs.of(pack).tolist() for pack in range(len(packs))] == [[0, 1], [2, 3, 4], [5]]
    assert packs.efficiency == 1.0
    assert (len(pack_lengths([], 10)), pack_lengths([], 10).efficiency) == (0, 1.0)


def test_lengths_like_those_of_examples_waste_less_than_two_percent() -> None:
    lengths = np.clip(np.random.default_rng(1).lognormal(5.6, 0.9, 200_000).astype(int), 8, 2048)
    assert pack_lengths(lengths, 2048).efficiency >= 0.98


@pytest.mark.parametrize("lengths", [[3, 11], [3, 0]])
def test_an_example_that_no_pack_takes_is_named(lengths: list[int]) -> None:
    with pytest.raises(InputError, match=f"example 1 has {lengths[1]} tokens; a pack takes 1 to 10"):
        pack_lengths(lengths, 10)


@given(LENGTHS, st.integers(1, 100))
def test_length_buckets_hold_every_example_once(lengths: list[int], batch_tokens: int) -> None:
    batches = list(length_buckets(lengths, batch_tokens))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    longest = [lengths[index] for batch in batches for index in batch]
    assert longest == sorted(longest, reverse=True)
    assert all(len(batch) == 1 or len(batch) * lengths[batch[0]] <= batch_tokens for batch in batches)


def tokens(*ids: int, supervised: int = 1) -> tuple[Any, Any]:
    labels = [IGNORED] * (len(ids) - supervised) + list(ids[len(ids) - supervised :])
    return np.array(ids, dtype=np.int32), np.array(labels, dtype=np.int32)


def test_rows_begin_again_with_each_example() -> None:
    rows = sequences([[tokens(5, 6, 7), tokens(8, 9)], [tokens(4, 3)]], 6, pad_id=9)
    assert rows.input_ids.tolist() == [[5, 6, 7, 8, 9, 9], [4, 3, 9, 9, 9, 9]]
    assert rows.labels.tolist() == [[-100, -100, 7, -100, 9, -100], [-100, 3, -100, -100, -100, -100]]
    assert rows.position_ids.tolist() == [[0, 1, 2, 0, 1, 0], [0, 1, 0, 1, 2, 3]]
    assert rows.segment_ids.tolist() == [[1, 1, 1, 2, 2, 0], [1, 1, 0, 0, 0, 0]]
    assert (rows.segment_ids > 0).sum() == 7  # an end of turn that is also the padding counts as a token


def test_a_first_token_that_nothing_predicts_may_not_be_supervised() -> None:
    with pytest.raises(InputError, match="first token of an example is supervised"):
        sequences([[tokens(5, 6), tokens(7, supervised=1)]], 6, pad_id=0)
    with pytest.raises(InputError, match="row 0 has more than 2 tokens"):
        sequences([[tokens(5, 6), tokens(7, 8)]], 2, pad_id=0)


def test_the_mask_is_causal_and_block_diagonal() -> None:
    mask = block_diagonal(np.array([[1, 1, 2, 0, 0]]))
    assert mask.shape == (1, 1, 5, 5)
    assert mask[0, 0].astype(int).tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1],
    ]


def logits_of(model: Any, rows: Sequences, *, apart: bool) -> Any:
    """Logits of a transformers model, with attention within examples or over whole rows."""
    import torch

    mask = block_diagonal(rows.segment_ids if apart else np.ones_like(rows.segment_ids))
    length = rows.input_ids.shape[1]
    positions = rows.position_ids if apart else np.tile(np.arange(length), (len(rows.input_ids), 1))
    with torch.no_grad():
        return model(
            input_ids=torch.from_numpy(rows.input_ids).long(),
            position_ids=torch.from_numpy(positions).long(),
            attention_mask=torch.from_numpy(mask),
        ).logits


def losses(logits: Any, labels: Any) -> Any:
    """Loss at every position, 0 where there is none: (rows, length - 1)."""
    import torch

    targets = torch.from_numpy(np.ascontiguousarray(labels[:, 1:])).long()
    return torch.nn.functional.cross_entropy(
        logits[:, :-1].transpose(1, 2).float(), targets, ignore_index=IGNORED, reduction="none"
    )


def test_packed_examples_get_the_logits_and_losses_they_get_alone(nano: Path) -> None:
    import torch

    from capibara_assets.modeling.base import load_base

    model, dice = load_base(nano).model, np.random.default_rng(3)
    lengths = [40, 9, 23, 31, 17, 12, 28]
    alone = [tokens(*dice.integers(6, 4000, length), supervised=length // 2) for length in lengths]
    packs = pack_lengths(lengths, 64)
    assert 1 < len(packs) < len(lengths)
    packed = sequences([[alone[index] for index in packs.of(pack)] for pack in range(len(packs))], 64, pad_id=1)
    kept, mixed = logits_of(model, packed, apart=True), logits_of(model, packed, apart=False)
    kept_loss, mixed_loss = losses(kept, packed.labels), losses(mixed, packed.labels)
    differs = 0
    for pack in range(len(packs)):
        at = 0
        for place, index in enumerate(packs.of(pack)):
            here = slice(at, at + lengths[index])
            single = sequences([[alone[index]]], lengths[index], pad_id=1)
            expected = logits_of(model, single, apart=True)[0]
            torch.testing.assert_close(kept[pack, here], expected, rtol=1e-4, atol=1e-4)
            loss = losses(expected[None], single.labels).sum()
            inside = slice(at, at + lengths[index] - 1)
            torch.testing.assert_close(kept_loss[pack, inside].sum(), loss, rtol=1e-5, atol=1e-4)
            if place:  # without the mask the first example of a pack alone stays as it is
                assert (mixed[pack, here] - expected).abs().max() > 0.1
                assert abs(mixed_loss[pack, inside].sum() - loss) > 1e-3
                differs += 1
            at = here.stop
    assert differs == len(lengths) - len(packs)
