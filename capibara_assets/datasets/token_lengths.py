"""Where the tokens of a byte-level BPE stand, from their ids alone: each one is a fixed number of the text's bytes.

The tokenizers library encodes a sixth faster when it need not report offsets. For tokenizers that lose no byte of the
text (Llama 3, Qwen, GPT, Mistral's newer ones, capibara-nano) lengths of tokens give the same positions.
"""

import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers.pre_tokenizers import ByteLevel

_KEEPS_ALL = ("Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")


@dataclass(frozen=True)
class TokenLengths:
    """Bytes of each token of a tokenizer that loses none.

    Attributes:
        of: token id -> bytes of the text, (ids,) int32.
        form: Unicode normal form that a text must already have, where the tokenizer brings it into one.
    """

    of: NDArray[np.int32]
    form: str | None

    def fits(self, text: str) -> bool:
        """Whether the tokenizer leaves the text as it is."""
        return self.form is None or text.isascii() or unicodedata.is_normalized(self.form, text)  # type: ignore[arg-type]


def token_lengths(backend: Any) -> TokenLengths | None:
    """Lengths of the tokens of a tokenizer (tokenizers.Tokenizer); None where it is not one that keeps every byte."""
    document = json.loads(backend.to_str())
    model, normalizer = document["model"], document["normalizer"]
    steps = list(_steps(document["pre_tokenizer"]))
    plain = (
        model.get("type") == "BPE"
        and not any(model.get(key) for key in ("dropout", "unk_token", "continuing_subword_prefix"))
        and not any(model.get(key) for key in ("end_of_word_suffix", "byte_fallback"))
        and (normalizer is None or normalizer["type"] in ("NFC", "NFKC"))
        and any(step["type"] == "ByteLevel" for step in steps)
        and all(_keeps(step) for step in steps)
    )
    alphabet = set(ByteLevel.alphabet())
    if not plain or not set("".join(model["vocab"])) <= alphabet | set("".join(_added(document))):
        return None
    if any(
        token["lstrip"] or token["rstrip"] or (token["normalized"] and normalizer) for token in document["added_tokens"]
    ):
        return None
    added = {token["id"]: len(token["content"].encode("utf-8")) for token in document["added_tokens"]}
    numbers = {number: len(token) for token, number in model["vocab"].items() if set(token) <= alphabet}
    of = np.zeros(max([*numbers, *added], default=0) + 1, dtype=np.int32)
    for number, length in {**numbers, **added}.items():
        of[number] = length
    return TokenLengths(of, normalizer["type"] if normalizer else None)


def _added(document: dict[str, Any]) -> list[str]:
    return [token["content"] for token in document["added_tokens"]]


def _steps(pre_tokenizer: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    if pre_tokenizer is None:
        return
    if pre_tokenizer["type"] == "Sequence":
        for step in pre_tokenizer["pretokenizers"]:
            yield from _steps(step)
    else:
        yield pre_tokenizer


def _keeps(step: dict[str, Any]) -> bool:
    """Whether a pre-tokenizer only cuts the text, and drops or adds nothing."""
    if step["type"] == "ByteLevel":
        return not step["add_prefix_space"]
    return step["type"] == "Digits" or (step["type"] == "Split" and step["behavior"] in _KEEPS_ALL)
