"""Decontamination: finds examples that hold an item of a benchmark that models are compared on.

Either of two tests is sufficient:

- n-gram: a run of `ngram` words (13 by default) of the item's prompt, solution or tests, in lower case and without
  punctuation or spacing, is in one of the example's messages; an item's text of fewer words counts when the whole of
  it is. So in Brown et al., "Language Models are Few-Shot Learners" (2020), appendix C, who also leave out runs that
  are common: a run counts only with substance (enough different words beyond keywords, builtins, numbers and the
  usual words of a task; no import) and while few items of the benchmark share it.
- structural: a function of the example is the item's reference solution under other names, comments, annotations or
  spacing (alpha-renamed syntax tree; Python and JavaScript). Solutions of a few nodes (`return x + y`) prove nothing.
"""

import ast
import builtins
import json
import keyword
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import polars as pl
from pydantic import Field

from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.datasets.code.structure import structural_key
from capibara_assets.datasets.duplicates.public_benchmarks import BenchmarkItem, read_items
from capibara_assets.datasets.duplicates.shingles import Ints, shingle_texts
from capibara_assets.datasets.recipe import Decontamination
from capibara_assets.executions.parsing import JAVASCRIPT, walk
from capibara_assets.storage.records import Record, table

_WORD = re.compile(r"[a-z0-9_\u0080-\U0010ffff]+")  # as in datasets/duplicates/shingles.py
_IMPORT = re.compile(
    r"^[ \t>.]*(?:from[ \t]+[\w.]+[ \t]+)?import\b.*$", re.MULTILINE
)  # cuts a text: no run goes across
_SUBSTANCE = 3  # different words with a meaning of their own that a run must have
_MORE_SUBSTANCE = 4  # the same for a whole text that is shorter than a run
_SHARED_BY = 2  # items of one benchmark; a run in more of them is boilerplate
_FEWEST_NODES = 30  # of a solution's syntax tree; small ones coincide by chance
_FUNCTION = re.compile(r"^(?P<indent>[ \t]*)(?:async[ \t]+)?def[ \t]+\w+[ \t]*\(", re.MULTILINE)
_JAVASCRIPT_FUNCTIONS = frozenset(
    {"function_declaration", "generator_function_declaration", "lexical_declaration", "variable_declaration"}
)
_UNTELLING = """
__name__ __main__ main args kwargs self cls typing collections abc list dict tuple set optional union any callable
iterable iterator sequence mapping numpy np pandas pd math re os sys json random time datetime itertools functools
matplotlib pyplot plt function const let var console log new this undefined
a an the to of for from in into on at by with and or not is are be was it its that this these those which as if then
else than write python code program given return returns find check test tests assert using use candidate input output
example examples result value values number numbers string strings array
"""
_COMMON = frozenset(
    word.lower() for word in (*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *_UNTELLING.split())
)


class Contaminated(Record):
    """An example that holds an item of a benchmark."""

    schema_name: ClassVar[str] = "Contaminated"
    schema_version: ClassVar[int] = 1
    key: ClassVar[tuple[str, ...]] = ("example_id", "benchmark", "item", "how")

    example_id: str = Field(description="Example that must not be trained on")
    benchmark: str = Field(description="Name of the benchmark in the recipe")
    item: str = Field(description="task_id of the item")
    how: Literal["ngram", "structural"] = Field(description="Shared run of words, or the same function")
    overlap: float = Field(
        description="Share of the item's runs of words that the example holds; 1 when structural", ge=0, le=1
    )


def contaminated(examples: pl.DataFrame, recipe: Decontamination) -> pl.DataFrame:
    """The contaminated examples (table Contaminated); empty when the recipe names no benchmark.

    Args:
        examples: of any domain and split (Example; `example_id`, `language` and `messages` are read).
        recipe: names and paths of the benchmarks (a path is relative to the working directory), and `ngram`.

    Raises:
        InputError: a benchmark's file is missing, damaged or of another shape (see public_benchmarks.py).
    """
    items = [item for name, path in sorted(recipe.benchmarks.items()) for item in read_items(name, Path(path))]
    return contaminated_by(examples, items, recipe.ngram)


def contaminated_by(examples: pl.DataFrame, items: Sequence[BenchmarkItem], ngram: int) -> pl.DataFrame:
    """The contaminated examples (table Contaminated), given the items of the benchmarks."""
    if not items or examples.is_empty():
        return table(Contaminated, [])
    rows = examples.select("example_id", "language", "messages").iter_rows()
    contents = [
        (example_id, language, message["content"])
        for example_id, language, messages in rows
        for message in json.loads(messages)
    ]
    overlaps = {**_by_runs(contents, items, ngram), **_by_structure(contents, items)}
    return table(
        Contaminated,
        [
            Contaminated(
                example_id=example, benchmark=items[n].benchmark, item=items[n].item_id, how=how, overlap=overlap
            )
            for (example, n, how), overlap in _once(overlaps, items).items()
        ],
    )


Overlaps = dict[tuple[str, int, Literal["ngram", "structural"]], float]  # (example, item's position, how) -> overlap


def _once(overlaps: Overlaps, items: Sequence[BenchmarkItem]) -> Overlaps:
    """The largest overlap of items that share a name (a benchmark may list a task_id twice)."""
    names: dict[tuple[str, str, str, str], tuple[str, int, Literal["ngram", "structural"]]] = {}
    for key in sorted(overlaps, key=lambda key: (-overlaps[key], key)):
        names.setdefault((key[0], items[key[1]].benchmark, items[key[1]].item_id, key[2]), key)
    return {key: overlaps[key] for key in names.values()}


@dataclass(frozen=True)
class _Runs:
    """Runs of words of one length, as ascending hashes, with the items that have each."""

    values: np.ndarray
    items: list[list[int]]


def _by_runs(contents: Sequence[tuple[str, str, str]], items: Sequence[BenchmarkItem], ngram: int) -> Overlaps:
    runs = _runs(items, ngram)
    totals = Counter(item for of_length in runs.values() for owners in of_length.items for item in owners)
    held: dict[tuple[str, int], set[tuple[int, int]]] = defaultdict(set)
    texts = [text for _, _, text in contents]
    for length, of_length in runs.items():
        sets = shingle_texts(texts, length)
        places = np.minimum(np.searchsorted(of_length.values, sets.values), len(of_length.values) - 1)
        hits = np.flatnonzero(of_length.values[places] == sets.values)
        owner: Ints = np.searchsorted(sets.offsets, hits, side="right") - 1
        for content, run in zip(owner.tolist(), places[hits].tolist(), strict=True):
            for item in of_length.items[run]:
                held[contents[content][0], item].add((length, run))
    return {(example, item, "ngram"): len(those) / totals[item] for (example, item), those in held.items()}


def _runs(items: Sequence[BenchmarkItem], ngram: int) -> dict[int, _Runs]:
    """Length -> runs of words with substance; those shorter than `ngram` are whole texts."""
    owners: dict[str, dict[int, None]] = defaultdict(dict)
    for number, item in enumerate(items):
        for text in (part for whole in item.texts for part in _IMPORT.split(whole)):
            words = _WORD.findall(text.lower())
            for start in range(max(1, len(words) - ngram + 1)):
                run = words[start : start + ngram]
                if _substance(run) >= (_SUBSTANCE if len(run) == ngram else _MORE_SUBSTANCE):
                    owners[" ".join(run)][number] = None
    lengths: dict[int, dict[str, list[int]]] = defaultdict(dict)
    for text, numbers in owners.items():
        shared = Counter(items[number].benchmark for number in numbers)
        kept = [number for number in numbers if shared[items[number].benchmark] <= _SHARED_BY]
        if kept:
            lengths[text.count(" ") + 1][text] = kept
    runs = {}
    for length, of_length in sorted(lengths.items()):
        values = shingle_texts(list(of_length), length).values
        order = np.argsort(values)
        numbers_of = list(of_length.values())
        runs[length] = _Runs(values[order], [numbers_of[place] for place in order.tolist()])
    return runs


def _substance(run: Sequence[str]) -> int:
    return len({word for word in run if word not in _COMMON and len(word) > 1 and not word.isdigit()})


def _by_structure(contents: Sequence[tuple[str, str, str]], items: Sequence[BenchmarkItem]) -> Overlaps:
    wanted: dict[str, list[int]] = defaultdict(list)
    for number, item in enumerate(items):
        for key in _solution_keys(item):
            wanted[key].append(number)
    languages = {item.language for item in items}
    overlaps: Overlaps = {}
    for example, language, text in contents:
        spoken = "javascript" if language in JAVASCRIPT else language
        if spoken in languages:
            for key in _function_keys(text, spoken):
                for number in wanted.get(key, ()):
                    overlaps[example, number, "structural"] = 1.0
    return overlaps


def _solution_keys(item: BenchmarkItem) -> Iterator[str]:
    """The structural key of the item's reference function, where it is large enough to prove something."""
    if item.language == "python":
        tree = python_source.parse(item.solution)
        functions = [node for node in walk(tree) if isinstance(node, python_source.Function)] if tree else []
        named = [node for node in functions if node.name == item.entry_point]
        for node in (named or functions)[-1:]:
            if (key := _python_key(node)) is not None:
                yield key
    elif item.language == "javascript":
        yield from _function_keys(item.solution, item.language)


def _function_keys(text: str, language: str) -> Iterator[str]:
    """Structural keys of the functions in a text, whatever else is in it."""
    if language == "python":
        for match in _FUNCTION.finditer(text):
            yield from _python_keys(_block(text, match.start(), len(match["indent"])))
    elif language == "javascript":
        for node in javascript_source.walk(javascript_source.parse(text)):
            if node.type in _JAVASCRIPT_FUNCTIONS and not node.has_error:
                leaves = sum(1 for _ in javascript_source.leaves(node))
                if leaves >= _FEWEST_NODES:
                    yield structural_key(javascript_source.text(node).rstrip(";"), "javascript")


def _block(text: str, start: int, indent: int) -> str:
    """The lines of a definition: its head, to the colon at its end, and all that is indented further."""
    lines = text[start:].split("\n")
    end = 1
    while end < len(lines) and (
        not lines[end].strip()
        or len(lines[end]) - len(lines[end].lstrip()) > indent
        or lines[end].lstrip()[:1] in ")]}"
    ):
        end += 1
    return textwrap.dedent("\n".join(lines[:end]))


@lru_cache(maxsize=8192)
def _python_keys(block: str) -> tuple[str, ...]:
    tree = python_source.parse(block)
    first = tree.body[0] if tree is not None and tree.body else None
    key = _python_key(first) if isinstance(first, python_source.Function) else None
    return (key,) if key is not None else ()


def _python_key(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    """Structural key of a function without annotations and decorators; None for one of few nodes."""
    plain = _Plain().visit(ast.parse(ast.unparse(function)).body[0])
    docstring = python_source.docstring_node(plain)
    counted = [n for n in ast.walk(plain) if not isinstance(n, (ast.expr_context, ast.arguments))]
    if len(counted) - (2 if docstring else 0) < _FEWEST_NODES:
        return None
    return structural_key(ast.unparse(plain), "python")


class _Plain(ast.NodeTransformer):
    """Removes annotations and decorators."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns, node.decorator_list = None, []
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns, node.decorator_list = None, []
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return ast.Pass()
        return ast.copy_location(ast.Assign([node.target], node.value), node)
