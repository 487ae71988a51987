"""Quality report of a dataset: share of examples with each good property, by kind and source.

Measured on what is published, with the functions that make the examples where there are any: a share below one of
`no_leak` or `sufficient` is a fault of a builder, one of the others tells what there is.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from capibara_assets.datasets.anatomy.dissect import dissect
from capibara_assets.datasets.code.structure import tokens
from capibara_assets.datasets.kinds.difficulty import decisions
from capibara_assets.datasets.kinds.evidence import has_substance
from capibara_assets.datasets.kinds.sufficiency import why_insufficient
from capibara_assets.datasets.schema import CODE_KINDS

EVERY = "every"
NOT_STATED = "not stated"
_FEWEST_TOKENS = 10  # of code without a decision that is more than one call: a function that makes one has as many
_FEWEST_WORDS = 4  # that an explanation adds to what its prompt says already
_MOST_ALIKE = 4  # explanations that add the same words to their prompts; more are a form that was filled in
_QUERY = re.compile(r"['\"`]+\s*(?:select|insert|update|delete|with|create)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{3,}")


class Qualities(NamedTuple):
    """Quality properties of one example; None: not applicable to its kind, or not measured."""

    executed: bool | None  # its answer ran again with the recorded outcome
    judged: bool | None  # code that judges its answer is known
    sufficient: bool | None  # its prompt holds what the answer needs
    no_leak: bool | None  # its answer holds no assertion on what was asked for
    non_trivial: bool  # its answer says or computes something that the prompt does not show
    distinct: bool  # no other example was equal or nearly equal
    derived: bool  # made of a recorded one by a change


SHARES: tuple[str, ...] = Qualities._fields


def quality_report(examples: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows {kind, source, examples, and each of `SHARES`} of a table Example, sorted; the last is of every example.

    A share is that of the examples to which it applies, None where it applies to none.
    """
    rows = list(examples.iter_rows(named=True))
    by_place: dict[tuple[str, str], list[Qualities]] = defaultdict(list)
    measured = _measured(rows)
    for row, qualities in zip(rows, measured, strict=True):
        by_place[row["kind"], row["source"] or NOT_STATED].append(qualities)
    table = [_row(kind, source, qualities) for (kind, source), qualities in sorted(by_place.items())]
    return [*table, _row(EVERY, EVERY, measured)]


def turns_of(messages: str) -> tuple[str, str]:
    """(prompt, answer) of an example's messages; of a longer conversation, all before its last turn is the prompt."""
    contents = [turn["content"] for turn in json.loads(messages)]
    return "\n\n".join(contents[:-1]), contents[-1]


def _measured(rows: Sequence[Mapping[str, Any]]) -> list[Qualities]:
    added = [_added_words(row) for row in rows]
    alike = Counter(words for words in added if words)
    return [_qualities(row, words, alike[words]) for row, words in zip(rows, added, strict=True)]


def _qualities(row: Mapping[str, Any], added: frozenset[str], alike: int) -> Qualities:
    prompt, answer = turns_of(row["messages"])
    code = row["kind"] in CODE_KINDS
    if code:
        non_trivial = _computes(answer, prompt, row["language"])
    elif row["kind"] == "predict":
        non_trivial = not _quoted(answer, prompt, row["language"])
    else:
        non_trivial = len(added) >= _FEWEST_WORDS and alike <= _MOST_ALIKE
    return Qualities(
        executed=row["verified"] == "reexecuted" if code or row["kind"] == "predict" else None,
        judged=row["test"] is not None if code else None,
        sufficient=why_insufficient(row["language"], prompt, answer) is None if code else None,
        no_leak=not dissect(answer, row["language"]).tests if code else None,
        non_trivial=non_trivial,
        distinct=row["weight"] == 1,
        derived=row["derived"] is not None,
    )


def _computes(answer: str, prompt: str, language: str) -> bool:
    """Whether code does something, and something else than code that the prompt shows."""
    words = tokens(answer, language)
    if "\x00".join(words) in "\x00".join(tokens(prompt, language)):
        return False
    words += [word for text in words if _QUERY.match(text) for word in tokens(text.strip("'\"`"), "sql")]
    return has_substance(answer) and (decisions(words) > 0 or len(words) >= _FEWEST_TOKENS)


def _quoted(output: str, prompt: str, language: str) -> bool:
    """Whether an output only repeats what stands between quotes in code that decides nothing."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    repeated = all(f'"{line}"' in prompt or f"'{line}'" in prompt for line in lines)
    return repeated and not decisions(tokens(prompt, language))


def _added_words(row: Mapping[str, Any]) -> frozenset[str]:
    """Of an answer in words: those that its prompt does not use."""
    if row["kind"] in CODE_KINDS or row["kind"] == "predict":
        return frozenset()
    prompt, answer = turns_of(row["messages"])
    return frozenset(_words(answer)) - frozenset(_words(prompt))


def _words(text: str) -> Iterable[str]:
    return (word.casefold() for word in _WORD.findall(text))


def _row(kind: str, source: str, qualities: Sequence[Qualities]) -> dict[str, Any]:
    return {"kind": kind, "source": source, "examples": len(qualities)} | {
        name: _share([value for each in qualities if (value := getattr(each, name)) is not None]) for name in SHARES
    }


def _share(values: Sequence[bool]) -> float | None:
    return round(sum(values) / len(values), 6) if values else None
