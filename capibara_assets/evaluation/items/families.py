"""Families of items: whether training contained another variant of an item's program.

Groups are split, so that no test item's problem is in training. Its *family* may be: the same template with other names
and values, another bug in a variant of the same solution, a predicted output where a variant was to be written. An
item's family is *seen* where a training example of its language, of any kind, is about a program of nearly the same
form. The form of a program is the set of runs of its tokens in which the names that it binds itself, fields, strings
and numbers are blanked; names that it takes from the language or a library stay. SQL binds no names: words that are
not SQL's are blanked.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sqlglot.tokens import Tokenizer

from capibara_assets.datasets.code.structure import bound_names, tokens
from capibara_assets.datasets.duplicates.shingles import hash_sets
from capibara_assets.datasets.kinds.prompts import CODE, section
from capibara_assets.datasets.schema import CODE_KINDS
from capibara_assets.evaluation.items.items import Item
from capibara_assets.executions.sandbox.results import LANGUAGES

ALIKE = 0.3
"""Weighed share of two programs' runs that they have in common (Jaccard similarity), from which on they are one family.

Known answer: of the authored tasks that ship, variants reach it and other tasks do not (test_families.py)."""
_RUN = 5  # tokens
_NAME = re.compile(r"[A-Za-z_$][\w$]*")


def with_families(items: Sequence[Item], training: pl.DataFrame) -> list[Item]:
    """Set `seen` on the items, in order; items without a program keep None.

    Args:
        training: rows of `Example` that any of the contenders was trained on.
    """
    seen: dict[str, bool] = {}
    for language in sorted({item.language for item in items} & set(LANGUAGES)):
        own = [item for item in items if item.language == language]
        ours = [form(program(one.kind, one.prompt[-1]["content"], one.reference), language) for one in own]
        rows = training.filter(pl.col("language") == language).select("kind", "messages").unique().iter_rows()
        texts = ((kind, [message["content"] for message in json.loads(messages)]) for kind, messages in rows)
        theirs = {form(program(kind, "\n\n".join(said[:-1]), said[-1]), language) for kind, said in texts}
        nearest = _nearest(ours, sorted(theirs - {frozenset[str]()}, key=sorted))
        seen |= {one.item_id: bool(near >= ALIKE) for one, near, said in zip(own, nearest, ours, strict=True) if said}
    return [replace(item, seen=seen.get(item.item_id)) for item in items]


def program(kind: str, question: str, answer: str) -> str:
    """The program of an example: the answer if it is code, else the code in question."""
    return answer if kind in CODE_KINDS else section(question, CODE)


def form(code: str, language: str) -> frozenset[str]:
    """The form of a program: runs of its blanked tokens; empty if there are none."""
    listed = tokens(code, language)
    own = bound_names(code, language)
    fields = {
        at for at, token in enumerate(listed) if at and listed[at - 1] == "." and listed[at + 1 : at + 2] != ["("]
    }
    blank = [_blanked(token, own, language) if at not in fields else "x" for at, token in enumerate(listed)]
    if len(blank) <= _RUN:
        return frozenset({" ".join(blank)} if blank else ())
    return frozenset(" ".join(blank[at : at + _RUN]) for at in range(len(blank) - _RUN + 1))


def _blanked(token: str, own: frozenset[str], language: str) -> str:
    if token[0] in "'\"`":
        return "'"
    if token[0].isdigit():
        return "0"
    if not _NAME.fullmatch(token):
        return token
    if language == "sql":
        return token if token in _sql_words() else "x"
    return "x" if token in own else token


@cache
def _sql_words() -> frozenset[str]:
    words = {word for known in Tokenizer.KEYWORDS for word in known.lower().split()}
    return frozenset(words | {"count", "sum", "avg", "min", "max", "round", "coalesce", "strftime", "date", "abs"})


def _nearest(ours: Sequence[frozenset[str]], theirs: Sequence[frozenset[str]]) -> NDArray[np.float64]:
    """Highest likeness of each of our forms with any of theirs, (ours,): the weight of the runs in both over all.

    A run weighs the less, the more forms have it (log of its inverse share): imports and scaffolds tell no family.
    """
    if not ours or not theirs:
        return np.zeros(len(ours))
    sets = hash_sets([*ours, *theirs])
    values, columns, counts = np.unique(sets.values, return_inverse=True, return_counts=True)
    weights = np.log1p(len(sets) / counts)
    present = csr_array((np.ones(len(columns)), columns, sets.offsets), shape=(len(sets), len(values)))
    weighed = present * weights[None, :]
    shared = (weighed[: len(ours)] @ present[len(ours) :].T).toarray()
    totals = weighed.sum(axis=1)
    either = totals[: len(ours), None] + totals[None, len(ours) :] - shared
    return np.asarray((shared / np.maximum(either, 1e-12)).max(axis=1))
