"""Traits that identify examples about the same problem: equal texts or questions, equal code structure, near texts."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from capibara_assets.datasets.code import javascript_source, python_source
from capibara_assets.datasets.code.structure import normal_text, structural_key, tokens, without_comments
from capibara_assets.datasets.duplicates.near import near_texts
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.tokens.chat_forms import Message
from capibara_assets.domains import Domain
from capibara_assets.executions.parsing import JAVASCRIPT
from capibara_assets.storage.digests import sha256_bytes

_FENCE = re.compile(r"```[ \t]*([\w+#.-]*)[^\n]*\n(.*?)\n?```", re.DOTALL)
_NAMES = {"py": "python", "python3": "python", "js": "javascript", "ts": "typescript", "sh": "bash", "shell": "bash"}
_SQL = re.compile(r"\s*(?:select|insert|update|delete|create|with|alter|drop)\b", re.IGNORECASE)
_QUOTED_CODE = "\n\nCode:\n"  # how kinds/prompts.py quotes the code to explain or run
_FEWEST_WORDS = 5  # a shorter question ("continue") does not tell one problem from another
_LANGUAGE = {Domain.SQL: "sql", Domain.JAVASCRIPT: "javascript"}

Pair = tuple[int, int]


@dataclass(frozen=True)
class Traits:
    """The features of one example that are compared."""

    text: str  # all user and assistant turns, normalised
    question: str | None  # digest of the user's turns; None for a short one
    code: frozenset[str]  # structural keys of the code that it teaches, if it has substance
    programs: tuple[str, ...]  # that code without its comments


def default_language(domain: Domain) -> str:
    """The language of code in a domain where nothing else states it."""
    return _LANGUAGE.get(domain, "python")


def code_of(text: str, language: str) -> list[tuple[str, str]]:
    """(code, language) of a text's fenced blocks; without any, of the whole text if it is code."""
    fenced = [(code, _NAMES.get(name.lower(), name.lower()) or language) for name, code in _FENCE.findall(text)]
    if fenced:
        return fenced
    return [(text, language)] if _is_code(text, language) else []


def traits_of(messages: Sequence[Message], kind: str, language: str, recipe: DatasetRecipe) -> Traits:
    """The traits of one conversation; `language` is that of code that does not name its own."""
    asked = "\n".join(m["content"] for m in messages if m["role"] == "user")
    question = normal_text(asked)
    if kind in ("explain", "predict"):
        quoted = asked.partition(_QUOTED_CODE)[2]
        taught = [(quoted, language)] if quoted else code_of(asked, language)
    else:
        taught = [block for m in messages if m["role"] == "assistant" for block in code_of(m["content"], language)]
    substantial = [(code, spoken) for code, spoken in taught if len(tokens(code, spoken)) >= recipe.substance_tokens]
    return Traits(
        text=spoken_text(messages),
        question=_digest(question) if len(question.split()) >= _FEWEST_WORDS else None,
        code=frozenset(structural_key(code, spoken) for code, spoken in substantial),
        programs=tuple(without_comments(code, spoken) for code, spoken in substantial),
    )


def spoken_text(messages: Sequence[Message]) -> str:
    """User and assistant turns as normalised text; system turns do not count, since many conversations share one."""
    return normal_text("\n".join(m["content"] for m in messages if m["role"] != "system"))


def traits_of_examples(examples: pl.DataFrame, recipe: DatasetRecipe) -> list[Traits]:
    """The traits of a table of examples (Example), in its order."""
    columns = examples.select("messages", "kind", "language")
    return [traits_of(json.loads(messages), kind, language, recipe) for messages, kind, language in columns.iter_rows()]


def linked_pairs(traits: Sequence[Traits], splits: Sequence[str | None], recipe: DatasetRecipe) -> list[Pair]:
    """Pairs (i < j, sorted) about the same problem; among many equal ones each is paired with the first of each split.

    Among many similar texts `near_texts` compares with the first ones only, so existing examples must come first.
    """
    firsts: dict[str, dict[str | None, int]] = defaultdict(dict)
    pairs: set[Pair] = set()
    for position, item in enumerate(traits):
        for key in _keys(item):
            pairs |= {(first, position) for first in firsts[key].values()}
            firsts[key].setdefault(splits[position], position)
    texts = [(position, text) for position, item in enumerate(traits) for text in (item.text, *item.programs)]
    near = near_texts([text for _, text in texts], recipe.near_duplicates)
    for left, right in zip(near.left.tolist(), near.right.tolist(), strict=True):
        if texts[left][0] != texts[right][0]:
            pairs.add((texts[left][0], texts[right][0]))  # positions ascend with their texts
    return sorted(pairs)


def _keys(item: Traits) -> Iterator[str]:
    yield f"text:{_digest(item.text)}"
    if item.question is not None:
        yield f"question:{item.question}"
    for key in item.code:
        yield f"code:{key}"


def _is_code(text: str, language: str) -> bool:
    """Whether a text without fences parses as its language, which prose of some length does not."""
    if language == "python":
        return python_source.parse(text) is not None
    if language in JAVASCRIPT:
        return not javascript_source.parse(text).has_error
    return language == "sql" and _SQL.match(text) is not None


def _digest(text: str) -> str:
    return sha256_bytes(text.encode("utf-8", "replace"))
