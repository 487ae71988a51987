"""Makes rows of tokens of conversations, and selects the rows of each step: pure functions of their inputs."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from capibara_assets.datasets.tokens.packing import IGNORED, pack_lengths, sequences
from capibara_assets.datasets.tokens.tokenising import Encoded, EncodedSet, encode_examples
from capibara_assets.errors import InputError
from capibara_assets.planning.writers.jax_config import JaxConfig
from capibara_assets.storage.jsonfiles import user_json
from capibara_assets.training.data.order import ExampleOrder

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Rows:
    """Rows of tokens, as the arrays of `modeling.jax.step.batch_table`: name -> (rows, length).

    Attributes:
        examples: number of examples in them; None where it was not counted.
    """

    arrays: Arrays
    examples: int | None = None

    def __len__(self) -> int:
        return int(self.arrays["tokens"].shape[0])

    @property
    def used_tokens(self) -> int:
        """Tokens that are not padding."""
        used = self.arrays["used"]
        return int(used.sum())

    def of_step(self, step: int, count: int, seed: int) -> "Rows":
        """The `count` rows of step `step` (from 0); every epoch has its own order, and may end within a step."""
        places = np.arange(step * count, (step + 1) * count)
        epochs = places // len(self)
        orders = {
            epoch: np.random.default_rng([seed, epoch]).permutation(len(self)) for epoch in np.unique(epochs).tolist()
        }
        chosen = [
            orders[epoch][place % len(self)] for place, epoch in zip(places.tolist(), epochs.tolist(), strict=True)
        ]
        return Rows({name: values[chosen] for name, values in self.arrays.items()})

    def filled_up(self, count: int) -> "Rows":
        """The same with empty rows up to `count`; they have no loss, and no token attends to them."""
        missing = count - len(self)
        arrays = {name: np.pad(values, ((0, missing), (0, 0))) for name, values in self.arrays.items()}
        return Rows(arrays, self.examples)

    def batches(self, count: int) -> Iterator["Rows"]:
        """All rows in their order, `count` at a time; the last batch is filled up."""
        for begin in range(0, len(self), count):
            yield Rows({name: values[begin : begin + count] for name, values in self.arrays.items()}).filled_up(count)

    def batch(self) -> Arrays:
        """The arrays that the step takes."""
        return {name: values for name, values in self.arrays.items() if name != "used"}


def step_rows(config: JaxConfig, encoded: EncodedSet) -> Callable[[int], Rows]:
    """A function from a step's number (from 0) to its rows, `config.sequences` of them.

    Raises:
        InputError: with `examples`, those of a step do not fit into so many rows.
    """
    if config.examples is None:
        rows = rows_of(config, encoded.encoded)
        return lambda step: rows.of_step(step, config.sequences, config.seed)
    order = example_order(config, encoded)

    def of_step(step: int) -> Rows:
        rows = rows_of(config, [encoded.encoded[index] for index in order.step(step)])
        if len(rows) > config.sequences:
            raise InputError(f"step {step + 1}: its examples fill {len(rows)} rows, `sequences` is {config.sequences}")
        return rows.filled_up(config.sequences)

    return of_step


def example_order(config: JaxConfig, encoded: EncodedSet) -> ExampleOrder:
    """The order in which `config.examples` of the examples at a time are trained on, as the PyTorch trainer has it."""
    assert config.examples is not None
    return ExampleOrder(
        encoded.example_ids,
        [len(one.input_ids) for one in encoded.encoded],
        seed=config.seed if config.order is None else config.order,
        global_batch=config.examples,
        window=config.length_window,
    )


def most_rows(order: ExampleOrder, lengths: Sequence[int], steps: int, row_tokens: int | None) -> int:
    """Rows that the fullest of the first `steps` steps fills.

    Args:
        row_tokens: capacity of a row that holds several examples; None: a row for each.
    """
    if row_tokens is None:
        return max(len(order.step(step)) for step in range(min(steps, order.steps_per_epoch)))
    return max(len(pack_lengths([lengths[at] for at in order.step(step)], row_tokens)) for step in range(steps))


def read_examples(config: JaxConfig, data: Path, tokenizer: Any) -> EncodedSet:
    """Read the conversations of a JSON-lines file as tokens.

    Raises:
        InputError: a line is no conversation (with its number), or none can be trained on.
    """
    head = "causal" if config.model.family == "decoder" else "seq2seq"
    length = config.max_length or config.sequence
    done = encode_examples(_conversations(data), tokenizer, length, too_long=config.too_long, head=head)
    if not done.encoded:
        reasons = "; ".join(sorted(set(done.left_out.values()))[:3])
        raise InputError(f"{data}: no conversation can be trained on ({reasons})")
    return done


def rows_of(config: JaxConfig, encoded: Sequence[Encoded]) -> Rows:
    """Examples as rows, several in one where the configuration packs."""
    return Rows((_causal if config.model.family == "decoder" else _seq2seq)(config, encoded), len(encoded))


def _conversations(data: Path) -> pl.DataFrame:
    names, texts = [], []
    try:
        lines = data.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as unreadable:
        raise InputError(
            f"{data} cannot be read: {unreadable}; `capibara dataset export DOMAIN --storage ROOT` writes the files of"
            " a plan"
        ) from unreadable
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            document = user_json(line, f"{data}:{number}")
            messages = document["messages"]
        except (ValueError, KeyError, TypeError) as odd:
            raise InputError(f"{data}:{number}: expected a JSON object with messages; got {line[:60]!r}") from odd
        names.append(str(document.get("example_id", f"line {number}")))
        texts.append(json.dumps(messages))
    return pl.DataFrame(
        {"example_id": names, "messages": texts}, schema={"example_id": pl.String, "messages": pl.String}
    )


def _causal(config: JaxConfig, encoded: Sequence[Encoded]) -> Arrays:
    pairs = [(np.asarray(one.input_ids), np.asarray(one.labels)) for one in encoded]
    if config.packing:
        packs = pack_lengths([len(ids) for ids, _ in pairs], config.sequence)
        rows = [[pairs[index] for index in packs.of(pack)] for pack in range(len(packs))]
    else:
        rows = [[pair] for pair in pairs]
    laid = sequences(rows, config.sequence, pad_id=0)
    # Padding is never a target, and causal attention hides it from the tokens before it.
    arrays: Arrays = {"tokens": laid.input_ids, "mask": (laid.labels != IGNORED).astype(np.float32)}
    arrays["used"] = (laid.segment_ids > 0).astype(np.int32)
    return arrays | ({"segments": laid.segment_ids} if config.packing else {})


def _seq2seq(config: JaxConfig, encoded: Sequence[Encoded]) -> Arrays:
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
    used = np.concatenate([inputs_mask, mask.astype(np.int32)], axis=1)
    return {"tokens": targets, "mask": mask, "inputs": inputs, "inputs_mask": inputs_mask, "used": used}
