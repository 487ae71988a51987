"""Makes rows of tokens of conversations, and selects the rows of each step: pure functions of their inputs."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from capibara_assets.datasets.tokens.packing import IGNORED, pack_lengths, sequences
from capibara_assets.datasets.tokens.tokenising import Encoded, encode_examples
from capibara_assets.errors import InputError
from capibara_assets.planning.writers.jax_config import JaxConfig

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Rows:
    """The rows of a dataset, as the arrays of `modeling.jax.step.batch_table`.

    Attributes:
        arrays: name -> (rows, length).
        left_out: example -> why it is not in a row.
    """

    arrays: Arrays
    left_out: dict[str, str]

    def __len__(self) -> int:
        return int(self.arrays["tokens"].shape[0])

    def of_step(self, step: int, count: int, seed: int) -> Arrays:
        """The `count` rows of step `step` (from 0); every epoch has its own order, and may end within a step."""
        places = np.arange(step * count, (step + 1) * count)
        epochs = places // len(self)
        orders = {
            epoch: np.random.default_rng([seed, epoch]).permutation(len(self)) for epoch in np.unique(epochs).tolist()
        }
        chosen = [
            orders[epoch][place % len(self)] for place, epoch in zip(places.tolist(), epochs.tolist(), strict=True)
        ]
        return {name: values[chosen] for name, values in self.arrays.items()}


def read_rows(config: JaxConfig, data: Path, tokenizer: Any) -> Rows:
    """Read the conversations of a JSON-lines file as rows.

    Raises:
        InputError: a line is no conversation (with its number), or none fits into a row.
    """
    head = "causal" if config.model.family == "decoder" else "seq2seq"
    done = encode_examples(_conversations(data), tokenizer, config.sequence, on_fault="leave_out", head=head)
    if not done.encoded:
        reasons = "; ".join(sorted(set(done.left_out.values()))[:3])
        raise InputError(f"{data}: no conversation can be trained on ({reasons})")
    make = _causal if head == "causal" else _seq2seq
    return Rows(make(config, done.encoded), done.left_out)


def _conversations(data: Path) -> pl.DataFrame:
    names, texts = [], []
    try:
        lines = data.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as unreadable:
        raise InputError(f"training data {data} cannot be read: {unreadable}") from unreadable
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            messages = json.loads(line)["messages"]
        except (ValueError, KeyError, TypeError) as odd:
            raise InputError(f"{data}:{number}: expected a JSON object with messages; got {line[:60]!r}") from odd
        names.append(f"line {number}")
        texts.append(json.dumps(messages))
    return pl.DataFrame(
        {"example_id": names, "messages": texts}, schema={"example_id": pl.String, "messages": pl.String}
    )


def _causal(config: JaxConfig, encoded: list[Encoded]) -> Arrays:
    pairs = [(np.asarray(one.input_ids), np.asarray(one.labels)) for one in encoded]
    if config.packing:
        packs = pack_lengths([len(ids) for ids, _ in pairs], config.sequence)
        rows = [[pairs[index] for index in packs.of(pack)] for pack in range(len(packs))]
    else:
        rows = [[pair] for pair in pairs]
    laid = sequences(rows, config.sequence, pad_id=0)
    # Padding is never a target, and causal attention hides it from the tokens before it.
    arrays: Arrays = {"tokens": laid.input_ids, "mask": (laid.labels != IGNORED).astype(np.float32)}
    return arrays | ({"segments": laid.segment_ids} if config.packing else {})


def _seq2seq(config: JaxConfig, encoded: list[Encoded]) -> Arrays:
    lengths = (config.sequence, config.target_sequence or config.sequence)
    inputs, targets = (np.zeros((len(encoded), length), np.int32) for length in lengths)
    inputs_mask, mask = np.zeros_like(inputs), np.zeros(targets.shape, np.float32)
    for row, one in enumerate(encoded):
        ids, labels = np.asarray(one.input_ids), np.asarray(one.labels)
        read, written = ids[labels == IGNORED], ids[labels != IGNORED]
        if len(read) > lengths[0] or len(written) > lengths[1]:
            raise InputError(
                f"example {row + 1} has {len(read)} tokens to read and {len(written)} to write; the plan's rows have"
                f" {lengths[0]} and {lengths[1]}"
            )
        inputs[row, : len(read)], inputs_mask[row, : len(read)] = read, 1
        targets[row, : len(written)], mask[row, : len(written)] = written, 1
    return {"tokens": targets, "mask": mask, "inputs": inputs, "inputs_mask": inputs_mask}
