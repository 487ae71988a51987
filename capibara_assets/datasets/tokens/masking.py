"""Masking for masked language models, as a pure function of a key, so that a resumed run masks the same tokens.

Devlin et al. 2018 (arXiv 1810.04805, section 3.1): 15 % of the tokens have to be predicted; of these 80 % are shown as
[MASK], 10 % as any other token, 10 % unchanged.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from capibara_assets.datasets.tokens.packing import IGNORED
from capibara_assets.datasets.tokens.templates import Tokenizer, control_ids
from capibara_assets.datasets.tokens.tokenising import Encoded
from capibara_assets.errors import InputError

SHARE = 0.15
_SHOWN_AS_MASK, _SHOWN_AS_ANOTHER = 0.8, 0.9  # draws below the first: mask; below the second: another token


@dataclass(frozen=True)
class Masking:
    """Masks tokens of examples.

    Attributes:
        mask_id: id of the mask token.
        ordinary: ids of the tokens that may replace another: all but special ones, ascending.
    """

    mask_id: int
    ordinary: NDArray[np.int64]

    @classmethod
    def of_tokenizer(cls, tokenizer: Tokenizer) -> "Masking":
        """Masking with a tokenizer's mask token.

        Raises:
            InputError: it has none.
        """
        if tokenizer.mask_token_id is None:
            raise InputError("the tokenizer has no mask token: it is none of a masked language model")
        special = [*control_ids(tokenizer).values(), *tokenizer.all_special_ids]
        return cls(int(tokenizer.mask_token_id), np.setdiff1d(np.arange(len(tokenizer)), special))

    def hidden(self, example: Encoded, *key: object) -> Encoded:
        """The example with `SHARE` of its labelled tokens masked, at least one; these alone keep their labels.

        Args:
            example: `labels` are the ids of the tokens that may be masked, -100 elsewhere (special tokens).
            key: the same example and key give the same masks, on every machine.
        """
        labels = np.asarray(example.labels, dtype=np.int64)
        places = np.flatnonzero(labels != IGNORED)
        digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
        draw = np.random.PCG64(int.from_bytes(digest[:16], "big"))  # its raw stream is fixed, unlike Generator's
        chosen = places[np.argsort(draw.random_raw(len(places)), kind="stable")[: max(1, round(SHARE * len(places)))]]
        shown = draw.random_raw(len(chosen)) / 2.0**64
        others = self.ordinary[draw.random_raw(len(chosen)) % np.uint64(len(self.ordinary))]
        ids = np.asarray(example.input_ids, dtype=np.int64)
        kept = np.where(shown < _SHOWN_AS_ANOTHER, others, ids[chosen])
        ids[chosen] = np.where(shown < _SHOWN_AS_MASK, self.mask_id, kept)
        left = np.full_like(labels, IGNORED)
        left[chosen] = labels[chosen]
        return replace(example, input_ids=ids.tolist(), labels=left.tolist(), supervised=len(chosen))

    def all_hidden(self, ids: Sequence[str], examples: Sequence[Encoded], *key: object) -> list[Encoded]:
        """The examples, each masked by the key and its id."""
        return [self.hidden(example, *key, name) for name, example in zip(ids, examples, strict=True)]
