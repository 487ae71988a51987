"""`DataPreprocessor`: tokenises a table of examples into a memory-mapped Arrow file, cached by all of its inputs."""

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
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
from capibara_assets.datasets.tokens.templates import Tokenizer
from capibara_assets.errors import InputError
from capibara_assets.storage.digests import canonical_json, combine, sha256_bytes
from capibara_assets.storage.records import frame_digest

OnFault = Literal["raise", "leave_out"]
_FORMAT = "2"  # version of the cache; raise it when tokens or labels are made in another way
_SHOWN = 5  # examples named in an error


@dataclass(frozen=True)
class DataPreprocessor:
    """Tokenises examples, with a loss on the assistant's turns only.

    Nothing is ever truncated. An example whose labels are all masked, that has more than `max_length` tokens (its
    answer would be cut), or whose answer the template does not reproduce is a fault: with `on_fault="raise"` it is an
    error, with `"leave_out"` the set lists it without tokens. An example whose text holds a control token of the
    tokenizer, as logs of chats do, is left out in both cases.

    Attributes:
        tokenizer: the base model's fast tokenizer, with its chat template.
        max_length: most tokens of an example.
        workers: 1 for one thread, else all cores (`token_batches`); the result does not depend on it.
        on_fault: raise an error for an example that cannot be trained on, or leave it out.
    """

    tokenizer: Tokenizer
    max_length: int = 2048
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    on_fault: OnFault = "raise"

    def __post_init__(self) -> None:
        if self.max_length < 2 or self.workers < 1:
            raise InputError(f"max_length {self.max_length} must be at least 2, workers {self.workers} at least 1")
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
        """Tokenise examples: into an Arrow file in `folder`, mapped into memory, or without a folder in memory.

        Args:
            examples: columns `example_id` and `messages` (Example); their order is kept.
            folder: holds one file `<digest>.arrow` per (dataset, rows, tokenizer, template, max_length); an existing
                one is read, else it is written atomically.
            dataset_digest: digest of the dataset that the rows belong to; by default computed from all columns.
            poll: called after each batch; may raise to stop.

        Raises:
            InputError: faulty examples under `on_fault="raise"`, or a tokenizer or template that cannot be used.
        """
        if folder is None:
            table = pa.Table.from_batches(list(self._batches(examples, poll)), SCHEMA)
        else:
            path = folder / f"{self.key(examples, dataset_digest)}.arrow"
            mapped = _mapped(path)
            if mapped is None:
                self._write(examples, path, poll)
                mapped = _mapped(path)
            if mapped is None:
                raise OSError(f"{path} was written, but cannot be read")
            table = mapped
        done = TokenisedSet(table)
        if self.on_fault == "raise":
            done.require_whole()
        return done

    def key(self, examples: pl.DataFrame, dataset_digest: str | None = None) -> str:
        """Digest of all inputs of the file's bytes."""
        return combine(
            {
                "dataset": dataset_digest or frame_digest(Example, examples),
                "examples": sha256_bytes("\n".join(examples["example_id"]).encode()),  # the chosen rows and their order
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
        """Write the file atomically, with a few batches in memory at a time."""
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
    """A table of examples as tokens, in its order; those that cannot be trained on are listed without tokens.

    Attributes:
        table: rows of `batches.SCHEMA`; memory-mapped where it was read from a file.
    """

    table: pa.Table

    def __len__(self) -> int:
        """Number of examples with tokens."""
        return len(self._rows)

    @cached_property
    def example_ids(self) -> list[str]:
        """Ids of the examples with tokens."""
        ids: list[str] = self.table["example_id"].filter(self._kept).to_pylist()
        return ids

    @cached_property
    def left_out(self) -> dict[str, str]:
        """Id of each example without tokens -> the reason."""
        rows = self.table.select(["example_id", "left_out"]).filter(pc.invert(self._kept))
        return dict(zip(rows["example_id"].to_pylist(), rows["left_out"].to_pylist(), strict=True))

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each example, (examples,)."""
        counts = pc.list_value_length(self.table["input_ids"].filter(self._kept))
        return np.asarray(counts.to_numpy(), dtype=np.int64)

    @cached_property
    def supervised(self) -> NDArray[np.int64]:
        """Number of supervised tokens of each example, (examples,)."""
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
    def audit(self) -> dict[str, Any]:
        """Counts for a report: examples, those left out by reason, tokens, and the supervised share."""
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
        """Raise InputError if an example is left out for another reason than a control token in its text."""
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
    """Check that no example is left out for another reason than a control token in its text.

    Args:
        left_out: id of an example -> reason.
        of: number of all examples.

    Raises:
        InputError: names some of the others.
    """
    faults = {name: reason for name, reason in left_out.items() if reason != CONTROL}
    if faults:
        named = "; ".join(f"{name}: {reason}" for name, reason in list(faults.items())[:_SHOWN])
        raise InputError(
            f"{len(faults)} of {of} examples cannot be trained on: {named}. Correct or remove them, "
            'raise max_length, or leave them out by name (on_fault="leave_out")'
        )


def tokenizer_digests(tokenizer: Tokenizer) -> dict[str, str]:
    """Digests of the tokenizer (vocabulary, rules, special tokens) and of the chat template."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = backend.to_str() if backend is not None else str(sorted(tokenizer.get_vocab().items()))
    special = {key: str(value) for key, value in tokenizer.special_tokens_map.items()}
    return {
        "tokenizer": sha256_bytes(rules.encode() + canonical_json(special)),
        "template": sha256_bytes(str(tokenizer.chat_template).encode()),
    }


def _mapped(path: Path) -> pa.Table | None:
    """The file as a memory-mapped table; None where it is missing or damaged."""
    if not path.is_file():
        return None
    try:
        table = pyarrow.ipc.open_file(pa.memory_map(str(path))).read_all()  # the table keeps the mapping
    except (pa.ArrowInvalid, OSError):
        return None  # it is made again
    return table if table.schema.equals(SCHEMA) else None
