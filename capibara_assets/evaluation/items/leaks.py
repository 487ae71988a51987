"""Find test items that leak into training data; an evaluation on them is refused, with the items named.

An item leaks where the training data holds:

- its example, one of its executions, or its group (one problem, its sandbox sessions and their near-duplicates): the
  provenance that every example carries;
- its text: the same question with its answer, the same question of the same language, or the same answer, where those
  have substance; or code that is the same under other names (datasets/code/structure.py).

Texts that are only nearly the same (datasets/duplicates/near.py) may be another problem of the same shape. Such items
are left out of the test and named; if more than a tenth are, the whole evaluation is refused.

Items of benchmark files have no provenance: leaks are found as in decontamination, by runs of words and by the
structure of solutions (datasets/duplicates/decontamination.py).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl

from capibara_assets.datasets.code.structure import structural_key
from capibara_assets.datasets.duplicates.decontamination import contaminated_by
from capibara_assets.datasets.duplicates.near import near_texts
from capibara_assets.datasets.duplicates.public_benchmarks import read_items
from capibara_assets.datasets.recipe import NearDuplicates
from capibara_assets.errors import InputError
from capibara_assets.evaluation.items.items import Item

How = Literal["example", "execution", "group", "text", "question", "answer", "structure", "near", "ngram", "structural"]

_NGRAM = 13  # words of a run that training data may not share with a benchmark's item (datasets/recipe.py)
_FEWEST_WORDS = {"question": 10, "answer": 20}  # without which one alone proves nothing
_PROSE = frozenset({"explain", "predict"})  # kinds whose answers are no code: many have the same one
_WORD = re.compile(r"\w+")
_FENCE = re.compile(r"```[^\n]*\n(.*?)```", re.DOTALL)
_NAMED = 20  # leaking items that an error lists
_MOST_NEAR = 0.1  # share of the items that may nearly be training examples and are just left out
_WORDS: dict[How, str] = {
    "example": "is the training example",
    "execution": "shares an execution with the training example",
    "group": "is in the group of the training example",
    "text": "has the same text as the training example",
    "question": "has the same question as the training example",
    "answer": "has the same answer as the training example",
    "near": "has nearly the same text as the training example",
    "structure": "has, but for names, the same code as the training example",
    "ngram": "shares runs of words with the training example",
    "structural": "has the same solution, but for names, as the training example",
}


@dataclass(frozen=True)
class Leak:
    """A test item contained in the training data: the item, the training example, and how they match."""

    item_id: str
    example_id: str
    how: How

    @property
    def certain(self) -> bool:
        """Whether the item is a training item (True) or nearly one (False)."""
        return self.how != "near"

    def __str__(self) -> str:
        return f"{self.item_id} {_WORDS[self.how]} {self.example_id}"


@dataclass(frozen=True)
class _Text:
    """The texts of an item or training example that are compared."""

    kind: str
    language: str
    question: str
    answer: str


def find_leaks(items: Sequence[Item], training: pl.DataFrame, near: NearDuplicates) -> list[Leak]:
    """Find leaking items: one leak per item, sorted by item; the strongest match counts (provenance, equal, near text).

    Args:
        training: rows of `Example` of the train and validation splits that any of the models was trained, voted or
            selected on; of every domain where experts of several are compared.
        near: when texts are nearly the same (from the dataset recipe).
    """
    by_item: dict[str, Leak] = {}
    for leak in (*_by_provenance(items, training), *_by_text(items, training, near)):
        by_item.setdefault(leak.item_id, leak)
    return sorted(by_item.values(), key=lambda leak: leak.item_id)


def find_benchmark_leaks(benchmarks: Mapping[str, Path], training: pl.DataFrame) -> list[Leak]:
    """Items of HumanEval- and MBPP-format files that the training data holds, as `<name>/<task_id>`; one leak per item.

    Raises:
        InputError: a file is missing, damaged or of another shape.
    """
    items = [item for name, path in sorted(benchmarks.items()) for item in read_items(name, path)]
    rows = contaminated_by(training, items, _NGRAM).sort("benchmark", "item", "example_id", "how")
    by_item: dict[str, Leak] = {}
    for row in rows.iter_rows(named=True):
        name = f"{row['benchmark']}/{row['item']}"
        by_item.setdefault(name, Leak(name, row["example_id"], row["how"]))
    return sorted(by_item.values(), key=lambda leak: leak.item_id)


def refuse_leaks(leaks: Sequence[Leak], items: int, source: str) -> list[Leak]:
    """Refuse an evaluation on training items; returns items that are nearly training items, to be left out.

    Args:
        items: number of items that were checked.
        source: where the training data comes from, for the message.

    Raises:
        InputError: an item is a training item, or more than a tenth of them nearly are; names the items, how each one
            leaks, and what to do.
    """
    certain = [leak for leak in leaks if leak.certain]
    near = [leak for leak in leaks if not leak.certain]
    named = certain or (near if len(near) > _MOST_NEAR * items else [])
    if not named:
        return near
    more = f"; and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    raise InputError(
        f"{len(named)} of {items} test items were trained on ({source}): {'; '.join(map(str, named[:_NAMED]))}{more}. "
        "Figures on them would say nothing: take the items out of the test, or train without these examples"
    )


def _by_provenance(items: Sequence[Item], training: pl.DataFrame) -> Iterator[Leak]:
    rows = training.select("example_id", "group_id", "execution_ids").sort("example_id", descending=True).rows()
    examples = {example for example, _, _ in rows}
    groups = {group: example for example, group, _ in rows}
    executions = {execution: example for example, _, those in rows for execution in those}
    for item in items:
        shared = [execution for execution in item.execution_ids if execution in executions]
        if item.item_id in examples:
            yield Leak(item.item_id, item.item_id, "example")
        elif shared:
            yield Leak(item.item_id, executions[shared[0]], "execution")
        elif item.group_id in groups:
            yield Leak(item.item_id, groups[item.group_id], "group")


def _by_text(items: Sequence[Item], training: pl.DataFrame, near: NearDuplicates) -> Iterator[Leak]:
    ordered = training.sort("example_id")
    names = [item.item_id for item in items], ordered["example_id"].to_list()
    ours = [_Text(item.kind, item.language, _said(item.prompt), item.reference) for item in items]
    theirs = [_trained(*row) for row in ordered.select("kind", "language", "messages").iter_rows()]
    parts: tuple[tuple[How, Callable[[_Text], str]], ...]
    parts = (("text", _whole), ("question", _question), ("answer", _answer))
    for how, part in parts:
        yield from _same(list(map(part, ours)), list(map(part, theirs)), names, how)
    yield from _same_code(ours, theirs, names)
    yield from _near(list(map(_whole, ours)), list(map(_whole, theirs)), names, near)
    yield from _near(list(map(_answer, ours)), list(map(_answer, theirs)), names, near)


def _trained(kind: str, language: str, messages: str) -> _Text:
    *prompt, answer = json.loads(messages)
    return _Text(kind, language, _said(prompt), answer["content"])


def _said(messages: Sequence[Mapping[str, str]]) -> str:
    """The conversation without its system message."""
    return "\n".join(message["content"] for message in messages if message["role"] != "system")


def _whole(one: _Text) -> str:
    return f"{one.question}\n{one.answer}"


def _question(one: _Text) -> str:
    """The question with its language, since the same task in another language is another task; "" if too short."""
    return f"{one.language}\n{one.question}" if len(_WORD.findall(one.question)) >= _FEWEST_WORDS["question"] else ""


def _answer(one: _Text) -> str:
    """An answer in code; empty where it has too few words."""
    few = len(_WORD.findall(one.answer)) < _FEWEST_WORDS["answer"]
    return "" if one.kind in _PROSE or few else one.answer


def _same(ours: Sequence[str], theirs: Sequence[str], names: tuple[list[str], list[str]], how: How) -> Iterator[Leak]:
    """Leaks by texts that are equal but for white space; empty texts match nothing."""
    first: dict[tuple[str, ...], str] = {}
    for example, text in zip(names[1], theirs, strict=True):
        first.setdefault(tuple(text.split()), example)
    for item, text in zip(names[0], ours, strict=True):
        if text and tuple(text.split()) in first:
            yield Leak(item, first[tuple(text.split())], how)


def _near(
    ours: Sequence[str], theirs: Sequence[str], names: tuple[list[str], list[str]], near: NearDuplicates
) -> Iterator[Leak]:
    pairs = near_texts([*ours, *theirs], near)
    for left, right in zip(pairs.left.tolist(), pairs.right.tolist(), strict=True):
        if left < len(ours) <= right:
            yield Leak(names[0][left], names[1][right - len(ours)], "near")


def _same_code(ours: Sequence[_Text], theirs: Sequence[_Text], names: tuple[list[str], list[str]]) -> Iterator[Leak]:
    wanted: dict[str, list[str]] = {}
    for name, one in zip(names[0], ours, strict=True):
        if key := _code_key(one):
            wanted.setdefault(key, []).append(name)
    languages = {one.language for one in ours}
    for example, one in zip(names[1], theirs, strict=True):
        if one.language in languages and (key := _code_key(one)):
            yield from (Leak(item, example, "structure") for item in wanted.get(key, ()))


def _code_key(one: _Text) -> str | None:
    """Structural key of an answer's code; None where that is too little to prove anything."""
    fenced = _FENCE.search(one.answer)
    code = fenced.group(1) if fenced else one.answer
    if one.kind in _PROSE or len(_WORD.findall(code)) < _FEWEST_WORDS["answer"]:
        return None
    return structural_key(code, one.language)
