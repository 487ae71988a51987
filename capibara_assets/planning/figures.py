"""The dataset statistics that a plan is computed from, validated on entry."""

from collections.abc import Mapping
from math import ceil
from typing import Any, NamedTuple

from capibara_assets.errors import InputError

_LARGEST = 1e15  # of a count or a length: beyond it floats are not exact


class DatasetFigures(NamedTuple):
    """Number, difficulty and token lengths of a dataset's training examples."""

    domain: str
    training_examples: int
    difficulty: float | None
    p95_tokens: int
    tokens_source: str
    p50_tokens: int


def read_statistics(domain: str, statistics: Mapping[str, Any], chars_per_token: float) -> DatasetFigures:
    """Read a plan's figures from a dataset's `statistics` document.

    Token lengths come from the statistics where present (`tokens.p95`), else from characters divided by
    `chars_per_token`.

    Raises:
        InputError: a figure is missing, or the training split is empty.
    """
    examples, split = _number(domain, statistics, "examples"), statistics.get("by_split")
    training = int(_number(domain, split, "train") if isinstance(split, Mapping) and "train" in split else examples)
    if training <= 0:
        raise InputError(f"dataset of {domain!r}: no training examples (by_split.train = {training})")
    tokens = statistics.get("tokens")
    if isinstance(tokens, Mapping) and "p95" in tokens:
        p95, source = ceil(_number(domain, tokens, "p95")), "token lengths of the dataset"
        p50 = ceil(_number(domain, tokens, "p50")) if "p50" in tokens else p95
    else:
        chars = statistics.get("chars")
        if not isinstance(chars, Mapping):
            raise InputError(f"dataset of {domain!r}: its statistics have neither tokens.p95 nor chars.p95")
        count = _number(domain, chars, "p95")
        p95, source = ceil(count / chars_per_token), f"{count:g} characters / {chars_per_token:g} characters per token"
        p50 = ceil((_number(domain, chars, "p50") if "p50" in chars else count) / chars_per_token)
    difficulty = statistics.get("difficulty")
    mean = difficulty.get("mean") if isinstance(difficulty, Mapping) else None
    hard = None if mean is None else _number(domain, {"difficulty.mean": mean}, "difficulty.mean")
    return DatasetFigures(domain, training, hard, p95, source, p50)


def _number(domain: str, document: Mapping[str, Any], key: str) -> float:
    value = document.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InputError(f"dataset of {domain!r}: its statistics need a number {key!r}, got {str(value)[:80]!r}")
    if not abs(value) <= _LARGEST:  # NaN is refused too
        raise InputError(f"dataset of {domain!r}: {key!r} is {str(value)[:20]}…, more than {_LARGEST:g}")
    return float(value)
