"""Examples as lists of token ids, for loops that take them one by one; made by `DataPreprocessor`.

Loss on the assistant's tokens only, ends of turns included. What does not fit is left out by name, an error, or cut
where the recipe says so; a cut example without any token to learn is an error in any case.
"""

import json
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
    """One example as token ids; `labels` are the ids that have a loss and -100 elsewhere.

    A sequence-to-sequence example is what the encoder reads (no labels), then what the decoder has to write (all
    labels); of a masked one all tokens have labels that may be hidden.
    """

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
    truncated: tuple[str, ...] = ()  # ids of those whose end was cut off

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
    on_fault: OnFault = "leave_out",
    too_long: TooLong | None = None,
    head: str = "causal",
    poll: Callable[[], None] = lambda: None,
) -> EncodedSet:
    """A table of examples (Example) as tokens.

    Args:
        on_fault: faulty ones are left out by name, or an error that names them.
        too_long: the same for those longer than `max_length`, or their end is cut off; None: as `on_fault` says.
        cache: folder of tokenised sets (`DataPreprocessor.preprocess`); only causal ones are kept there.
        dataset_digest: digest of the dataset whose rows these are; computed from all columns when not given.
        head: what kind of model reads them (modeling/heads.py).
        poll: called after each batch of them; may raise to stop, and nothing is left half written.

    Raises:
        InputError: the tokenizer has no chat template (causal only), or one that refuses, drops or changes turns;
            faulty examples under `raise`; one of whose labels truncation leaves nothing.
    """
    too_long = too_long or on_fault
    length = _ANY_LENGTH if too_long == "truncate" else max_length
    if head == "causal":
        preprocessor = DataPreprocessor(tokenizer, length, on_fault="leave_out")
        found = as_lists(preprocessor.preprocess(frame, cache, dataset_digest=dataset_digest, poll=poll))
    else:
        found = _of_head(frame, tokenizer, length, head)
    require_whole(
        {
            name: reason
            for name, reason in found.left_out.items()
            if (too_long if reason == too_long_reason(length) else on_fault) == "raise"
        },
        frame.height,
    )
    return _cut(found, max_length) if too_long == "truncate" else found


def as_lists(done: TokenisedSet) -> EncodedSet:
    """A tokenised set as Python lists: convenient for thousands of examples, not for millions."""
    encoded = []
    for index, supervised in enumerate(done.supervised.tolist()):
        ids, labels = done.tokens(index)
        encoded.append(Encoded(ids.tolist(), labels.tolist(), supervised))
    return EncodedSet(done.example_ids, encoded, done.left_out, done.audit)


def _of_head(frame: pl.DataFrame, tokenizer: Tokenizer, max_length: int, head: str) -> EncodedSet:
    """Examples for a head other than the causal one."""
    found, left_out = head_tokens(frame, tokenizer, head)
    left_out |= {name: too_long_reason(max_length) for name, (ids, _) in found.items() if len(ids) > max_length}
    kept = {name: tokens for name, tokens in found.items() if name not in left_out}
    encoded = [Encoded(ids, labels, _supervised(labels)) for ids, labels in kept.values()]
    return EncodedSet(list(kept), encoded, left_out, {"examples": len(kept)})


def _cut(found: EncodedSet, max_length: int) -> EncodedSet:
    """The set with no example longer than `max_length`: their beginnings are kept.

    Raises:
        InputError: of some examples only tokens without loss are left; it names them.
    """
    cut = [index for index, example in enumerate(found.encoded) if len(example.input_ids) > max_length]
    encoded = list(found.encoded)
    for index in cut:
        labels = encoded[index].labels[:max_length]
        encoded[index] = Encoded(encoded[index].input_ids[:max_length], labels, _supervised(labels))
    empty = [found.example_ids[index] for index in cut if not encoded[index].supervised]
    if empty:
        raise InputError(
            f"cut to max_length {max_length}, {len(empty)} examples have no token with a loss: "
            f"{', '.join(empty[:5])}: raise max_length, or leave them out (too_long: leave_out)"
        )
    return replace(found, encoded=encoded, truncated=tuple(found.example_ids[index] for index in cut))


def _supervised(labels: list[int]) -> int:
    return sum(label != IGNORED for label in labels)
