"""Examples as lists of token ids, for loops that take them one by one; tokenised by `DataPreprocessor`.

Only the assistant's tokens have a loss, ends of turns included. An example that is too long is left out by name, an
error, or truncated, as the recipe says; a truncated example without a supervised token is always an error.
"""

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import polars as pl

from capibara_assets.datasets.tokens.batches import too_long as too_long_reason
from capibara_assets.datasets.tokens.head_tokens import head_tokens
from capibara_assets.datasets.tokens.packing import IGNORED
from capibara_assets.datasets.tokens.preprocessing import (
    DataPreprocessor,
    OnFault,
    TokenisedSet,
    require_whole,
    tokenizer_digests,
)
from capibara_assets.datasets.tokens.templates import Tokenizer
from capibara_assets.datasets.tokens.templates_jinja import Messages
from capibara_assets.errors import InputError

__all__ = ["IGNORED", "Encoded", "EncodedSet", "encode", "encode_examples", "tokenizer_digests"]

TooLong = Literal["leave_out", "raise", "truncate"]
_ANY_LENGTH = 2**30


@dataclass(frozen=True)
class Encoded:
    """One example as token ids; `labels` are the ids of supervised tokens and -100 elsewhere.

    A sequence-to-sequence example is the encoder's input (without labels), then the decoder's target (all labels); in a
    masked one every token that may be masked has a label.
    """

    input_ids: list[int]
    labels: list[int]
    supervised: int
    weight: float = 1.0  # how often training draws it, beside the others


@dataclass(frozen=True)
class EncodedSet:
    """Tokenised examples in the order of the table, and those left out with their reasons."""

    example_ids: list[str]
    encoded: list[Encoded]
    left_out: dict[str, str]  # example id -> reason
    audit: dict[str, Any]
    truncated: tuple[str, ...] = ()  # ids of truncated examples

    def select(self, example_ids: Iterable[str]) -> list[Encoded]:
        """These examples, in their order; those left out are skipped."""
        by_id = dict(zip(self.example_ids, self.encoded, strict=True))
        return [by_id[example_id] for example_id in example_ids if example_id in by_id]


def encode(messages: Messages, tokenizer: Tokenizer, max_length: int) -> Encoded:
    """Tokenise one conversation.

    Raises:
        InputError: longer than `max_length`, no supervised token, a control token inside the text, or a chat
            template that refuses, drops or changes turns.
    """
    frame = pl.DataFrame({"example_id": ["this conversation"], "messages": [json.dumps(list(messages))]})
    done = DataPreprocessor(tokenizer, max_length, workers=1, on_fault="leave_out").preprocess(frame)
    for reason in done.left_out.values():
        raise InputError(f"this conversation cannot be trained on: {reason}")
    return as_lists(done).encoded[0]


def encode_examples(
    frame: pl.DataFrame,
    tokenizer: Tokenizer,
    max_length: int,
    *,
    cache: Path | None = None,
    dataset_digest: str | None = None,
    on_fault: OnFault = "leave_out",
    too_long: TooLong | None = None,
    head: str = "causal",
    workers: int | None = None,
    poll: Callable[[], None] = lambda: None,
) -> EncodedSet:
    """Tokenise a table of examples (Example).

    Args:
        on_fault: leave faulty examples out by name, or raise an error that names them.
        too_long: the same for examples longer than `max_length`, or truncate them; None: as `on_fault` says.
        cache: folder of tokenised sets (`DataPreprocessor.preprocess`); used for causal models only.
        dataset_digest: digest of the dataset that the rows belong to; by default computed from all columns.
        head: kind of model (modeling/heads.py).
        workers: 1 keeps to one thread; None or more: all cores (causal models only).
        poll: called after each batch; may raise to stop, and no partial file is left.

    Raises:
        InputError: the tokenizer has no chat template (causal only), or one that refuses, drops or changes turns;
            faulty examples under `raise`; a truncated example without labels.
    """
    too_long = too_long or on_fault
    length = _ANY_LENGTH if too_long == "truncate" else max_length
    if head == "causal":
        threads = workers or os.cpu_count() or 1
        preprocessor = DataPreprocessor(tokenizer, length, workers=threads, on_fault="leave_out")
        encoded = as_lists(preprocessor.preprocess(frame, cache, dataset_digest=dataset_digest, poll=poll))
    else:
        encoded = _of_head(frame, tokenizer, length, head)
    require_whole(
        {
            name: reason
            for name, reason in encoded.left_out.items()
            if (too_long if reason == too_long_reason(length) else on_fault) == "raise"
        },
        frame.height,
    )
    return _truncated(encoded, max_length) if too_long == "truncate" else encoded


def as_lists(done: TokenisedSet) -> EncodedSet:
    """A tokenised set as Python lists; meant for thousands of examples, not millions."""
    encoded = []
    for index, supervised in enumerate(done.supervised.tolist()):
        ids, labels = done.tokens(index)
        encoded.append(Encoded(ids.tolist(), labels.tolist(), supervised))
    return EncodedSet(done.example_ids, encoded, done.left_out, done.audit)


def _of_head(frame: pl.DataFrame, tokenizer: Tokenizer, max_length: int, head: str) -> EncodedSet:
    """Tokenise examples for another head than the causal one."""
    tokens_of, left_out = head_tokens(frame, tokenizer, head)
    left_out |= {name: too_long_reason(max_length) for name, (ids, _) in tokens_of.items() if len(ids) > max_length}
    kept = {name: tokens for name, tokens in tokens_of.items() if name not in left_out}
    encoded = [Encoded(ids, labels, _supervised(labels)) for ids, labels in kept.values()]
    return EncodedSet(list(kept), encoded, left_out, {"examples": len(kept)})


def _truncated(whole: EncodedSet, max_length: int) -> EncodedSet:
    """The set with every example truncated to its first `max_length` tokens.

    Raises:
        InputError: names the examples that have no supervised token left.
    """
    cut = [index for index, example in enumerate(whole.encoded) if len(example.input_ids) > max_length]
    encoded = list(whole.encoded)
    for index in cut:
        labels = encoded[index].labels[:max_length]
        encoded[index] = Encoded(encoded[index].input_ids[:max_length], labels, _supervised(labels))
    empty = [whole.example_ids[index] for index in cut if not encoded[index].supervised]
    if empty:
        raise InputError(
            f"cut to max_length {max_length}, {len(empty)} examples have no token with a loss: "
            f"{', '.join(empty[:5])}: raise max_length, or leave them out (too_long: leave_out)"
        )
    return replace(whole, encoded=encoded, truncated=tuple(whole.example_ids[index] for index in cut))


def _supervised(labels: list[int]) -> int:
    return sum(label != IGNORED for label in labels)
