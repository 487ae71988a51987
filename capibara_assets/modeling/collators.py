"""Collators by model head: examples as one batch, padded, packed into rows, or for an encoder and a decoder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from capibara_assets.datasets.tokens.packing import block_diagonal, sequences
from capibara_assets.errors import InputError
from capibara_assets.modeling.heads import Head
from capibara_assets.modeling.losses import IGNORED, Batch, collate, moved

if TYPE_CHECKING:
    from capibara_assets.datasets.tokens.tokenising import Encoded

Collate = Callable[[Sequence["Encoded"], torch.device], Batch]


@dataclass(frozen=True)
class Packing:
    """Settings of packed rows.

    Attributes:
        capacity: most tokens of a row.
        attention: Transformers' attention implementation, which keeps the examples of a row apart: `sdpa` and `eager`
            by a mask of (rows, 1, length, length); `flash_attention_2` in one unpadded row, by the position ids.
    """

    capacity: int
    attention: str


def collator(config: Any, head: Head, packing: Packing | None = None) -> Collate:
    """The collator for a model.

    Args:
        config: the model's Transformers config.

    Raises:
        InputError: packing for another head than the causal one, or for a model whose attention reaches less far
            than a row is long (its own mask would be lost).
    """
    if head == "seq2seq":
        return partial(collate_seq2seq, start=_decoder_start(config))
    if head == "masked":
        return collate_masked
    if packing is None:
        return collate
    window = getattr(config, "sliding_window", None)
    used = getattr(config, "use_sliding_window", True) and packing.attention != "flash_attention_2"
    if window and used and window < packing.capacity:
        raise InputError(
            f"data.packing with max_length {packing.capacity}, but the base attends only {window} tokens back: "
            f"set max_length to {window} at most, or packing: false"
        )
    return partial(collate_packed, packing=packing)


def collate_packed(examples: Sequence["Encoded"], device: torch.device | str = "cpu", *, packing: Packing) -> Batch:
    """Batch of examples packed into rows in their order; positions restart at each, and attention stays within each."""
    flat = packing.attention == "flash_attention_2"
    rows = rows_of([len(example.input_ids) for example in examples], 1 << 62 if flat else packing.capacity)
    tokens = [[(_ints(examples[at].input_ids), _ints(examples[at].labels)) for at in row] for row in rows]
    length = max(sum(len(ids) for ids, _ in row) for row in tokens)
    laid = sequences(tokens, length, pad_id=0)
    labels = torch.from_numpy(laid.labels).long()
    places, columns = torch.nonzero(labels != IGNORED, as_tuple=True)
    first = np.concatenate([[0], np.cumsum([len(row) for row in rows])])  # the number of each row's first example
    order = torch.tensor([at for row in rows for at in row])
    segments = torch.from_numpy(laid.segment_ids).long()
    inputs = {"position_ids": torch.from_numpy(laid.position_ids).long()}
    if not flat:
        inputs["attention_mask"] = _mask(laid.segment_ids, packing.attention)
    return Batch(
        input_ids=moved(torch.from_numpy(laid.input_ids).long(), device),
        positions=moved(places * length + columns - 1, device),
        targets=moved(labels[places, columns], device),
        owners=moved(order[torch.from_numpy(first)[places] + segments[places, columns] - 1], device),
        inputs={name: moved(value, device) for name, value in inputs.items()},
    )


def collate_masked(examples: Sequence["Encoded"], device: torch.device | str = "cpu") -> Batch:
    """Padded batch for a bidirectional model, which predicts a label at its own position."""
    ids, mask = padded([example.input_ids for example in examples])
    labels, _ = padded([example.labels for example in examples], IGNORED)
    owners, columns = torch.nonzero(labels != IGNORED, as_tuple=True)
    return Batch(
        input_ids=moved(ids, device),
        positions=moved(owners * ids.shape[1] + columns, device),
        targets=moved(labels[owners, columns], device),
        owners=moved(owners, device),
        inputs={"attention_mask": moved(mask, device)},
        head="masked",
    )


def collate_seq2seq(examples: Sequence["Encoded"], device: torch.device | str = "cpu", *, start: int = 0) -> Batch:
    """Padded batch for an encoder and a decoder; the decoder's input is `start` and the labels shifted right.

    Tokens before the first label go to the encoder, the others to the decoder (`Encoded`).
    """
    begins = [
        next((at for at, label in enumerate(one.labels) if label != IGNORED), len(one.labels)) for one in examples
    ]
    ids, mask = padded([one.input_ids[:begin] for one, begin in zip(examples, begins, strict=True)])
    labels, _ = padded([one.labels[begin:] for one, begin in zip(examples, begins, strict=True)], IGNORED)
    if not labels.shape[1]:  # an empty batch that only keeps the ranks in step
        labels = torch.full((len(examples), 1), IGNORED)
    owners, columns = torch.nonzero(labels != IGNORED, as_tuple=True)
    shown = labels.clamp(min=0)
    decoder = torch.cat([torch.full_like(shown[:, :1], start), shown[:, :-1]], dim=1)
    return Batch(
        input_ids=moved(ids, device),
        positions=moved(owners * labels.shape[1] + columns, device),
        targets=moved(labels[owners, columns], device),
        owners=moved(owners, device),
        inputs={"attention_mask": moved(mask, device), "decoder_input_ids": moved(decoder, device)},
        head="seq2seq",
    )


def rows_of(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Assign examples (by index, in order) to rows of at most `capacity` tokens, next-fit."""
    rows: list[list[int]] = []
    room = 0
    for index, length in enumerate(lengths):
        if not rows or length > room:
            rows.append([])
            room = capacity
        rows[-1].append(index)
        room -= length
    return rows


def padded(rows: Sequence[Sequence[int]], filler: int = 0) -> tuple[Tensor, Tensor]:
    """Rows padded to (rows, longest) int64, and a mask that is 1 where a row has a value."""
    longest = max(len(row) for row in rows)
    values = torch.full((len(rows), longest), filler, dtype=torch.int64)
    mask = torch.zeros((len(rows), longest), dtype=torch.int64)
    for at, row in enumerate(rows):
        values[at, : len(row)] = torch.as_tensor(row, dtype=torch.int64)
        mask[at, : len(row)] = 1
    return values, mask


def _mask(segments: np.ndarray, attention: str) -> Tensor:
    """Attention mask of packed rows: booleans for `sdpa`, values added to the scores for `eager`."""
    allowed = torch.from_numpy(block_diagonal(segments))
    if attention == "sdpa":
        return allowed
    return torch.zeros(allowed.shape).masked_fill_(~allowed, torch.finfo(torch.float32).min)


def _decoder_start(config: Any) -> int:
    start = getattr(config, "decoder_start_token_id", None)
    if start is None:
        raise InputError("the base's config names no decoder_start_token_id: its decoder would not know how to begin")
    return int(start)


def _ints(values: Sequence[int]) -> np.ndarray:
    return np.asarray(values, dtype=np.int32)
