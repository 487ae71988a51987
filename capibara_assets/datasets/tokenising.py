"""Examples as lists of token ids, for loops that take them one by one; made by `DataPreprocessor`.

Loss on the assistant's tokens only, ends of turns included. Nothing is truncated: what does not fit is left out by
name.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.datasets.packing import IGNORED
from capibara_assets.datasets.preprocessing import DataPreprocessor, TokenisedSet, tokenizer_digests
from capibara_assets.datasets.templates import Tokenizer
from capibara_assets.datasets.templates_jinja import Messages
from capibara_assets.errors import InputError

__all__ = ["IGNORED", "Encoded", "EncodedSet", "encode", "encode_examples", "tokenizer_digests"]


@dataclass(frozen=True)
class Encoded:
    """One example as token ids; `labels` are the ids that have a loss and -100 elsewhere."""

    input_ids: list[int]
    labels: list[int]
    supervised: int


@dataclass(frozen=True)
class EncodedSet:
    """Examples as tokens, in the order of the table, and those that have no place in it."""

    example_ids: list[str]
    encoded: list[Encoded]
    left_out: dict[str, str]  # example id -> reason
    audit: dict[str, Any]

    def select(self, example_ids: Iterable[str]) -> list[Encoded]:
        """The encoded ones of these examples, in their order; those left out are skipped."""
        found = dict(zip(self.example_ids, self.encoded, strict=True))
        return [found[example_id] for example_id in example_ids if example_id in found]


def encode(messages: Messages, tokenizer: Tokenizer, max_length: int) -> Encoded:
    """Token ids and labels of one conversation.

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
) -> EncodedSet:
    """A table of examples (Example) as tokens; faulty ones are left out by name.

    Args:
        cache: folder of tokenised sets (`DataPreprocessor.preprocess`).
        dataset_digest: digest of the dataset whose rows these are; computed from all columns when not given.

    Raises:
        InputError: the tokenizer has no chat template, or one that refuses, drops or changes turns.
    """
    preprocessor = DataPreprocessor(tokenizer, max_length, on_fault="leave_out")
    return as_lists(preprocessor.preprocess(frame, cache, dataset_digest=dataset_digest))


def as_lists(done: TokenisedSet) -> EncodedSet:
    """A tokenised set as Python lists: convenient for thousands of examples, not for millions."""
    encoded = []
    for index, supervised in enumerate(done.supervised.tolist()):
        ids, labels = done.tokens(index)
        encoded.append(Encoded(ids.tolist(), labels.tolist(), supervised))
    return EncodedSet(done.example_ids, encoded, done.left_out, done.audit)
