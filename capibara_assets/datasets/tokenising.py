"""Examples as token ids: rendered by the base model's own chat template, loss on the assistant's tokens only.

The mask comes from the template's `{% generation %}` markers; a template without them is rendered with and without the
assistant's turn, and the difference is the mask. Nothing is truncated: what does not fit is left out by name.
"""

import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from capibara_assets.datasets.schema import Example
from capibara_assets.errors import InputError
from capibara_assets.storage.digests import canonical_json, combine, sha256_bytes
from capibara_assets.storage.records import frame_digest

IGNORED = -100  # label of a token without loss
_BATCH = 256
_FORMAT = "1"  # of the cache; a change of how labels are made needs a new one

Messages = Sequence[Mapping[str, str]]
Tokenizer = Any  # transformers.PreTrainedTokenizerBase, which this module must not import


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
            template that cannot tell the assistant's turn from the rest.
    """
    [found] = _encode(["this conversation"], [messages], tokenizer, max_length)
    if isinstance(found, str):
        raise InputError(f"this conversation cannot be trained on: {found}")
    return found


def encode_examples(
    frame: pl.DataFrame,
    tokenizer: Tokenizer,
    max_length: int,
    *,
    cache: Path | None = None,
    dataset_digest: str | None = None,
) -> EncodedSet:
    """A table of examples (Example) as tokens.

    Args:
        cache: folder of encoded sets, one Arrow file per (dataset, tokenizer, template, max_length); read when present,
            else written beside and renamed.
        dataset_digest: digest of the dataset whose rows these are; computed from all columns when not given.

    Raises:
        InputError: the tokenizer has no chat template, or one that cannot tell the assistant's turn from the rest.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise InputError(
            f"the tokenizer {getattr(tokenizer, 'name_or_path', '')} has no chat template: set one to train on messages"
        )
    path = None
    if cache is not None:
        digests = {
            "dataset": dataset_digest or frame_digest(Example, frame),
            "examples": sha256_bytes("\n".join(frame["example_id"]).encode()),  # which rows of it, in which order
            **tokenizer_digests(tokenizer),
            "max_length": str(max_length),
            "format": _FORMAT,
        }
        path = cache / f"{combine(digests)}.arrow"
        if path.is_file():
            return _from_table(pl.read_ipc(path))
    ids = frame["example_id"].to_list()
    conversations = [json.loads(text) for text in frame["messages"]]
    rows: list[tuple[str, list[int] | None, list[int] | None, str | None]] = []
    for start in range(0, len(ids), _BATCH):
        part = slice(start, start + _BATCH)
        for example_id, found in zip(
            ids[part], _encode(ids[part], conversations[part], tokenizer, max_length), strict=True
        ):
            if isinstance(found, str):
                rows.append((example_id, None, None, found))
            else:
                rows.append((example_id, found.input_ids, found.labels, None))
    schema: dict[str, Any] = {
        "example_id": pl.String,
        "input_ids": pl.List(pl.Int32),
        "labels": pl.List(pl.Int32),
        "left_out": pl.String,
    }
    encoded = pl.DataFrame(rows, schema=schema, orient="row")
    if path is not None:
        _write(encoded, path)
    return _from_table(encoded)


def tokenizer_digests(tokenizer: Tokenizer) -> dict[str, str]:
    """Digests of the vocabulary with all its rules, and of the chat template."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = backend.to_str() if backend is not None else json.dumps(tokenizer.get_vocab(), sort_keys=True)
    special = {key: str(value) for key, value in tokenizer.special_tokens_map.items()}
    return {
        "tokenizer": sha256_bytes(rules.encode() + canonical_json(special)),
        "template": sha256_bytes(str(tokenizer.chat_template).encode()),
    }


def _encode(
    ids: Sequence[str], conversations: Sequence[Messages], tokenizer: Tokenizer, max_length: int
) -> list[Encoded | str]:
    """Each conversation encoded, or the reason why it cannot be."""
    control = [token for token in tokenizer.all_special_tokens if token]
    clean = [index for index, messages in enumerate(conversations) if not _holds(messages, control)]
    if "generation %}" in str(tokenizer.chat_template) or "generation -%}" in str(tokenizer.chat_template):
        pairs = _by_markers([conversations[i] for i in clean], tokenizer)
    else:
        pairs = [_by_prefix(conversations[i], tokenizer, ids[i]) for i in clean]
    found: list[Encoded | str] = ["a control token of the tokenizer occurs in its text"] * len(conversations)
    for index, (tokens, mask) in zip(clean, pairs, strict=True):
        labels = [token if supervised else IGNORED for token, supervised in zip(tokens, mask, strict=True)]
        count = sum(mask)
        if not count:
            found[index] = "no token of the assistant's turn is supervised"
        elif len(tokens) > max_length:
            found[index] = f"longer than max_length={max_length}"
        else:
            found[index] = Encoded(tokens, labels, count)
    return found


def _holds(messages: Messages, control: Sequence[str]) -> bool:
    return any(token in message["content"] for message in messages for token in control)


def _by_markers(conversations: Sequence[Messages], tokenizer: Tokenizer) -> list[tuple[list[int], list[bool]]]:
    """(tokens, mask) from the template's generation markers; the end-of-turn token after them is supervised too."""
    if not conversations:
        return []
    rendered = tokenizer.apply_chat_template(
        [list(messages) for messages in conversations],
        tokenize=True,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    end = tokenizer.eos_token_id
    found = []
    for tokens, mask in zip(rendered["input_ids"], rendered["assistant_masks"], strict=True):
        supervised = [bool(value) for value in mask]
        for position in range(1, len(tokens)):
            if mask[position - 1] and not mask[position] and tokens[position] == end and tokens[position - 1] != end:
                supervised[position] = True
        found.append((list(tokens), supervised))
    return found


def _by_prefix(messages: Messages, tokenizer: Tokenizer, name: str) -> tuple[list[int], list[bool]]:
    """(tokens, mask) by rendering up to each assistant turn, and through it.

    Raises:
        InputError: the rendering through a turn does not begin with the rendering up to it.
    """
    conversation = [dict(message) for message in messages]
    whole = tokenizer.apply_chat_template(conversation, tokenize=False)
    spans = []
    for position, message in enumerate(conversation):
        if message["role"] != "assistant":
            continue
        before = tokenizer.apply_chat_template(conversation[:position], tokenize=False, add_generation_prompt=True)
        through = tokenizer.apply_chat_template(conversation[: position + 1], tokenize=False).rstrip("\n")
        if not through.startswith(before) or not whole.startswith(through):
            raise InputError(f"{name}: the chat template changes earlier turns: add {{% generation %}} markers to it")
        spans.append((len(before), len(through)))
    rendered = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
    mask = [
        any(start <= first and last <= end and first < last for start, end in spans)
        for first, last in rendered["offset_mapping"]
    ]
    return list(rendered["input_ids"]), mask


def _from_table(table: pl.DataFrame) -> EncodedSet:
    kept = table.filter(pl.col("left_out").is_null())
    encoded = [
        Encoded(ids, labels, sum(label != IGNORED for label in labels))
        for ids, labels in kept.select("input_ids", "labels").iter_rows()
    ]
    rejected = table.filter(pl.col("left_out").is_not_null())
    left_out = dict(rejected.select("example_id", "left_out").iter_rows())
    lengths = np.array([len(item.input_ids) for item in encoded], dtype=np.int64)
    supervised = sum(item.supervised for item in encoded)
    audit = {
        "examples": len(encoded),
        "left_out": dict(sorted(rejected["left_out"].value_counts().iter_rows())),
        "tokens": int(lengths.sum()),
        "supervised": supervised,
        "supervised_share": round(supervised / int(lengths.sum()), 6) if lengths.sum() else 0.0,
        "length": {f"p{q}": int(np.percentile(lengths, q)) if len(lengths) else 0 for q in (50, 95, 100)},
    }
    return EncodedSet(kept["example_id"].to_list(), encoded, left_out, audit)


def _write(table: pl.DataFrame, path: Path) -> None:
    """Beside, synced, renamed: a reader sees the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex}")
    try:
        with beside.open("wb") as file:
            table.write_ipc(file, compression="uncompressed")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
