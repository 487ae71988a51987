"""Values that were redacted, kept as keyed digests: what one session showed to be a secret is one everywhere.

Only random-looking values are kept. A word that somebody called a password would otherwise disappear from everybody's
texts, and the digest of a short one could be guessed. Hexadecimal texts as long as a SHA-1 or SHA-256 are left out,
too: named as a secret by one author, a dataset's digest would stop everybody's results.
"""

import hmac
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from capibara_assets.executions.secrets.characters import MINGLED, one_case_at_random
from capibara_assets.executions.secrets.plausibility import random_looking
from capibara_assets.executions.secrets.rules import Secret
from capibara_assets.executions.secrets.shaped import has_shape

SEEN: dict[str, Any] = {"digest": pl.Binary(), "length": pl.Int64(), "kind": pl.String()}
"""Columns of a table of seen values."""
_DIGEST_BYTES = 16
_SIGNS = r"A-Za-z0-9_+/=.~!@#$%^&*?-"
_RUN = re.compile(f"[{_SIGNS}]{{12,}}")
_ESCAPE = re.compile(r"\\(?:[nrtbf]|u[0-9a-fA-F]{4})")  # as JSON has it: its letter is no part of the word that follows
_OF_CONTENT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def kept_parts(value: str) -> Iterator[str]:
    """The parts of a redacted value that are kept: random-looking, or a provider's; none with what needs an escape."""
    for run in _RUN.findall(value):
        telling = random_looking(run) or one_case_at_random(run) or has_shape(run)
        if telling and MINGLED.search(run) and not _OF_CONTENT.fullmatch(run):
            yield run


def seen_rows(found: Iterable[tuple[str, str]], key: bytes) -> pl.DataFrame:
    """A table of the (value, kind) that are kept; each value once."""
    rows = {_digest(part, key): (len(part), kind) for value, kind in found for part in kept_parts(value)}
    return pl.DataFrame([(digest, *row) for digest, row in rows.items()], schema=SEEN, orient="row")


@dataclass(frozen=True)
class SeenSecrets:
    """Finds values that were redacted somewhere, under the key of their digests."""

    kinds: Mapping[bytes, str] = field(default_factory=dict)
    lengths: frozenset[int] = frozenset()
    key: bytes = b""

    @classmethod
    def of(cls, rows: pl.DataFrame, key: bytes) -> "SeenSecrets":
        """Of a table of seen values."""
        return cls(dict(rows.select("digest", "kind").iter_rows()), frozenset(rows["length"]), key)

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def find(self, text: str) -> list[Secret]:
        """The places in `text` of values that were redacted somewhere, left to right, not overlapping."""
        if not self.kinds:
            return []
        plain = _ESCAPE.sub(lambda match: " " * len(match.group()), text)
        return [
            secret
            for run in _RUN.finditer(plain)
            if MINGLED.search(run.group())
            for secret in self._in_run(run.group(), run.start())
        ]

    def replaced(self, text: str) -> str:
        """`text` with the placeholder `<KIND:0>` in these places: 0, since a session numbers its own from 1."""
        parts, last = [], 0
        for secret in self.find(text):
            parts += [text[last : secret.start], f"<{secret.kind}:0>"]
            last = secret.end
        return "".join([*parts, text[last:]])

    def holding(self, texts: pl.Series) -> pl.Series:
        """For each text whether it holds such a value. One vectorised pass; each distinct word is looked up once."""
        if not self.kinds:
            return pl.Series([False]).new_from_index(0, len(texts))
        runs = texts.str.replace_all(_ESCAPE.pattern, " ").str.extract_all(_RUN.pattern)
        every = runs.explode().drop_nulls().unique()
        words = [run for run in every.filter(every.str.contains(MINGLED.pattern)) if any(self._in_run(run, 0))]
        return texts.str.contains_any(words).fill_null(False) if words else texts.is_null() & False

    @cached_property
    def _descending(self) -> list[int]:
        return sorted(self.lengths, reverse=True)

    def _in_run(self, run: str, at: int) -> Iterator[Secret]:
        """The values in one run of characters: each begins and ends at its border or at a sign."""
        edges = [
            i for i in range(len(run) + 1) if i in (0, len(run)) or not (run[i - 1].isalnum() and run[i].isalnum())
        ]
        ends, done = set(edges), 0
        for start in edges:
            for length in self._descending if start >= done else ():
                if start + length in ends:
                    kind = self.kinds.get(_digest(run[start : start + length], self.key))
                    if kind is not None:
                        done = start + length
                        yield Secret(at + start, at + done, kind)
                        break


def _digest(value: str, key: bytes) -> bytes:
    return hmac.digest(key, value.encode("utf-8"), "sha256")[:_DIGEST_BYTES]
