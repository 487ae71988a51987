"""`DataPreprocessor`: a table of examples as tokens on disk, keyed by all that changes their bytes, read as columns."""

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
from numpy.typing import NDArray

from capibara_assets.datasets.schema import Example
from capibara_assets.datasets.tokens.batches import CONTROL, SCHEMA, token_batches
from capibara_assets.datasets.tokens.packing import Packs, Padding, Sequences, length_buckets, pack_lengths, sequences
from capibara_assets.datasets.tokens.templates import Tokenizer
from capibara_assets.errors import InputError
from capibara_assets.storage.digests import canonical_json, combine, sha256_bytes
from capibara_assets.storage.records import frame_digest

OnFault = Literal["raise", "leave_out"]
_FORMAT = "2"  # of the cache; a change of how labels are made needs a new one
_SHOWN = 5  # examples that an error names


@dataclass(frozen=True)
class DataPreprocessor:
    """Examples as tokens, with a loss on the assistant's turns only.

    Nothing is ever truncated. An example whose labels are all masked, that has more than `max_length` tokens (its
    answer would be cut), or whose answer the template does not reproduce is a fault: with `on_fault="raise"` an error
    names it, with `"leave_out"` it stays in the set by name, without tokens. An example whose text holds a control
    token of the tokenizer is left out by name and counted under both: such text comes with logs of chats.

    Attributes:
        tokenizer: the base model's, of the tokenizers library, with its chat template.
        max_length: tokens of the longest example, and of a pack.
        padding: of `TokenisedSet.batches`: to the longest of the batch, to `max_length`, or none at all (the examples
            of a batch one after the other in one row, kept apart by `cu_seqlens`).
        workers: 1 for one thread, else the cores (`token_batches`); the result does not depend on it.
        cache: whether a set made once is read from disk the next time.
        packing: whether `batches` are packs of several examples (block-diagonal attention) or of similar lengths.
        on_fault: what happens to an example that cannot be trained on.
    """

    tokenizer: Tokenizer
    max_length: int = 2048
    padding: Padding = "longest"
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    cache: bool = True
    packing: bool = False
    on_fault: OnFault = "raise"

    def __post_init__(self) -> None:
        if self.max_length < 2 or self.workers < 1:
            raise InputError(f"max_length {self.max_length} must be at least 2, workers {self.workers} at least 1")
        if self.padding not in ("longest", "max_length", "none"):
            raise InputError(f"padding {self.padding!r} is none of longest, max_length, none")
        if self.on_fault not in ("raise", "leave_out"):
            raise InputError(f"on_fault {self.on_fault!r} is none of raise, leave_out")

    def preprocess(
        self,
        examples: pl.DataFrame,
        folder: Path | None = None,
        *,
        dataset_digest: str | None = None,
        poll: Callable[[], None] = lambda: None,
    ) -> "TokenisedSet":
        """The examples as a tokenised set: an Arrow file in `folder`, mapped into memory; in memory without a folder.

        Args:
            examples: columns `example_id` and `messages` (Example); their order is kept.
            folder: one file `<digest>.arrow` per (dataset, rows, tokenizer, template, max_length); read when present
                and `cache` is on, else written beside and renamed.
            dataset_digest: digest of the dataset whose rows these are; computed from all columns when not given.
            poll: called after each batch; may raise to stop.

        Raises:
            InputError: faulty examples under `on_fault="raise"`, or a tokenizer or template that cannot be used.
        """
        if folder is None:
            table = pa.Table.from_batches(list(self._batches(examples, poll)), SCHEMA)
        else:
            path = folder / f"{self.key(examples, dataset_digest)}.arrow"
            found = _mapped(path) if self.cache else None
            if found is None:
                self._write(examples, path, poll)
                found = _mapped(path)
            if found is None:
                raise OSError(f"{path} was written, but cannot be read")
            table = found
        done = TokenisedSet(table, self.max_length, self.padding, self.packing, pad_id(self.tokenizer))
        if self.on_fault == "raise":
            done.require_whole()
        return done

    def key(self, examples: pl.DataFrame, dataset_digest: str | None = None) -> str:
        """Digest of everything that the file's bytes depend on (contract 6)."""
        return combine(
            {
                "dataset": dataset_digest or frame_digest(Example, examples),
                "examples": sha256_bytes("\n".join(examples["example_id"]).encode()),  # which of it, in which order
                **tokenizer_digests(self.tokenizer),
                "max_length": str(self.max_length),
                "format": _FORMAT,
            }
        )

    def _batches(self, examples: pl.DataFrame, poll: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        for batch in token_batches(examples, self.tokenizer, self.max_length, workers=self.workers):
            poll()
            yield batch

    def _write(self, examples: pl.DataFrame, path: Path, poll: Callable[[], None]) -> None:
        """Beside, synced, renamed: a reader sees the whole file or none; never more than some batches in memory."""
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex}")
        try:
            with beside.open("wb") as file:
                with pyarrow.ipc.new_file(file, SCHEMA) as writer:
                    for batch in self._batches(examples, poll):
                        writer.write_batch(batch)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


@dataclass(frozen=True)
class TokenisedSet:
    """Examples as tokens, in the order of the table; those that cannot be trained on are there by name only.

    Attributes:
        table: rows of `token_batches.SCHEMA`; its memory is the file's where it was read from one.
        max_length: tokens of the longest example, and of a pack.
        padding: of `batches`.
        packing: whether `batches` are packs.
        pad_id: id that fills rows; attention and labels never go by it, so it may be the end-of-turn token.
    """

    table: pa.Table
    max_length: int
    padding: Padding
    packing: bool
    pad_id: int

    def __len__(self) -> int:
        """Examples that have tokens."""
        return len(self._rows)

    @cached_property
    def example_ids(self) -> list[str]:
        """Ids of the examples that have tokens."""
        ids: list[str] = self.table["example_id"].filter(self._kept).to_pylist()
        return ids

    @cached_property
    def left_out(self) -> dict[str, str]:
        """Id of each example without tokens, and why it has none."""
        rows = self.table.select(["example_id", "left_out"]).filter(pc.invert(self._kept))
        return dict(zip(rows["example_id"].to_pylist(), rows["left_out"].to_pylist(), strict=True))

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each example, (examples,)."""
        found = pc.list_value_length(self.table["input_ids"].filter(self._kept))
        return np.asarray(found.to_numpy(), dtype=np.int64)

    @cached_property
    def supervised(self) -> NDArray[np.int64]:
        """Tokens with a loss of each example, (examples,)."""
        return np.asarray(self.table["supervised"].filter(self._kept).to_numpy(), dtype=np.int64)

    def tokens(self, index: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """(input_ids, labels) of one example, (tokens,) each: views into the file, read-only."""
        row = int(self._rows[index])
        chunk = int(np.searchsorted(self._chunk_ends, row, side="right"))
        bounds, ids, labels = self._chunks[chunk]
        at = row - (int(self._chunk_ends[chunk - 1]) if chunk else 0)
        here = slice(int(bounds[at]), int(bounds[at + 1]))
        return ids[here], labels[here]

    @cached_property
    def packs(self) -> Packs:
        """Which examples stand in which pack of `max_length` tokens."""
        return pack_lengths(self.lengths, self.max_length)

    def batches(self, batch_tokens: int) -> Iterator[tuple[NDArray[np.int64], Sequences]]:
        """(indices of the examples, their tokens), every example once.

        Packs in their order, as many rows as fit; without packing batches of similar length, padded as `padding` says.

        Args:
            batch_tokens: rows times the length of a row, at most; one row is always taken.
        """
        if self.packing:
            rows = max(1, batch_tokens // self.max_length)
            for first in range(0, len(self.packs), rows):
                chosen = [self.packs.of(pack) for pack in range(first, min(first + rows, len(self.packs)))]
                yield np.concatenate(chosen), self.rows(chosen, self.max_length)
            return
        lengths = np.full_like(self.lengths, self.max_length) if self.padding == "max_length" else self.lengths
        for indices in length_buckets(lengths, batch_tokens):
            longest = int(self.lengths[indices].max())
            if self.padding == "none":
                yield indices, self.rows([indices], int(self.lengths[indices].sum()))
            else:
                alone = [indices[at : at + 1] for at in range(len(indices))]
                yield indices, self.rows(alone, self.max_length if self.padding == "max_length" else longest)

    def rows(self, examples: Sequence[Sequence[int] | NDArray[np.int64]], length: int) -> Sequences:
        """Rows of examples, one after the other, padded to `length`."""
        return sequences([[self.tokens(int(index)) for index in row] for row in examples], length, self.pad_id)

    @cached_property
    def audit(self) -> dict[str, Any]:
        """Counts for a report: examples, reasons of those left out, tokens, and which share of them has a loss."""
        lengths, supervised = self.lengths, int(self.supervised.sum())
        reasons = self.table["left_out"].drop_null().value_counts().to_pylist()
        kept = self.table.filter(self._kept)
        tokens = int(lengths.sum())
        return {
            "examples": len(lengths),
            "left_out": dict(sorted((row["values"], row["counts"]) for row in reasons)),
            "tokens": tokens,
            "supervised": supervised,
            "supervised_share": round(supervised / tokens, 6) if tokens else 0.0,
            "length": {f"p{q}": int(np.percentile(lengths, q)) if len(lengths) else 0 for q in (50, 95, 100)},
            "answers": pc.sum(kept["answers"]).as_py() or 0,
            "answers_without_end_of_turn": pc.sum(kept["unended"]).as_py() or 0,
            "tokens_merged_with_other_text": pc.sum(kept["merged"]).as_py() or 0,
        }

    def require_whole(self) -> None:
        """Raises InputError: an example is left out for another reason than a control token in its text."""
        require_whole(self.left_out, self.table.num_rows)

    @cached_property
    def _kept(self) -> pa.ChunkedArray:
        return pc.is_null(self.table["left_out"])

    @cached_property
    def _rows(self) -> NDArray[np.int64]:
        return np.flatnonzero(self._kept.to_numpy())

    @cached_property
    def _chunks(self) -> list[tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]]:
        pairs = zip(self.table["input_ids"].chunks, self.table["labels"].chunks, strict=True)
        return [(ids.offsets.to_numpy(), ids.values.to_numpy(), labels.values.to_numpy()) for ids, labels in pairs]

    @cached_property
    def _chunk_ends(self) -> NDArray[np.int64]:
        return np.cumsum([len(chunk) for chunk in self.table["input_ids"].chunks])


def require_whole(left_out: Mapping[str, str], of: int) -> None:
    """Check that nothing is left out for another reason than a control token in its text.

    Args:
        left_out: id of an example -> reason.
        of: examples that there are.

    Raises:
        InputError: something is; it names some of them.
    """
    faults = {name: reason for name, reason in left_out.items() if reason != CONTROL}
    if faults:
        named = "; ".join(f"{name}: {reason}" for name, reason in list(faults.items())[:_SHOWN])
        raise InputError(
            f"{len(faults)} of {of} examples cannot be trained on: {named}. Mend or remove them, "
            'raise max_length, or leave them out by name (on_fault="leave_out")'
        )


def tokenizer_digests(tokenizer: Tokenizer) -> dict[str, str]:
    """Digests of the vocabulary with all its rules, and of the chat template."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = backend.to_str() if backend is not None else str(sorted(tokenizer.get_vocab().items()))
    special = {key: str(value) for key, value in tokenizer.special_tokens_map.items()}
    return {
        "tokenizer": sha256_bytes(rules.encode() + canonical_json(special)),
        "template": sha256_bytes(str(tokenizer.chat_template).encode()),
    }


def pad_id(tokenizer: Tokenizer) -> int:
    """The id that fills rows: the tokenizer's padding, else its end of sequence, else 0."""
    for found in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if found is not None:
            return int(found)
    return 0


def _mapped(path: Path) -> pa.Table | None:
    """The file as a table over mapped memory; None where there is none, or one that is damaged."""
    if not path.is_file():
        return None
    try:
        table = pyarrow.ipc.open_file(pa.memory_map(str(path))).read_all()  # the table keeps the mapping
    except (pa.ArrowInvalid, OSError):
        return None  # it is made again
    return table if table.schema.equals(SCHEMA) else None
