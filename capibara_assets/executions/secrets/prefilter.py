"""Prefilter for redaction: one pass of Vectorscan over a text says which rules could match in it; in most, none.

Each rule stands in the automaton with its gate, or with its expression where it has none. No rule matches in a text in
which its pattern is not found (a property test checks that). Further patterns tell which texts may have a view of
their own (`levelled.py`), in which the rules are sought, too.
"""

import hashlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import hyperscan

from capibara_assets.executions.secrets.byte_patterns import VERSION, byte_pattern, folded
from capibara_assets.executions.secrets.levelled import MAY_BE_LEVELLED, levelled, levelled_as_told
from capibara_assets.executions.secrets.personal import personal_rules
from capibara_assets.executions.secrets.rules import (
    BARE_TOKEN_NAME,
    Narrowed,
    Rule,
    provider_rules,
    provider_rules_for,
    rules_for,
)
from capibara_assets.executions.secrets.words import Scanner
from capibara_assets.storage.jsonfiles import write_bytes_atomic

_WORTH_AN_AUTOMATON = 128  # texts; fewer are examined in less time than it takes to compile one
_KEPT = Path(__file__).parent / "__pycache__"  # as trustworthy as the code: it is written by whoever may write that


def may_hold_secrets(texts: Sequence[str], also: Sequence[str] = ()) -> list[bool]:
    """For each text whether a rule (or one of `personal_rules(also)`) could match; of a few texts all are suspected."""
    if len(texts) < _WORTH_AN_AUTOMATON:
        return [True] * len(texts)
    automaton = _compiled(tuple(also))
    return [bool(automaton.found(text)) for text in texts]


def narrowed_rules(also: Sequence[str] = ()) -> Narrowed:
    """What gives the rules (with `personal_rules(also)`) that could match in a text: by automaton once there is one."""
    if (automaton := _AUTOMATA.get(tuple(also))) is not None:
        return automaton.rules
    return partial(_by_anchors, personal=personal_rules(also))


def _by_anchors(text: str, personal: Sequence[Rule]) -> list[Rule]:
    return [*provider_rules_for(text), *rules_for(text, personal)]


class _Automaton:
    """The patterns of rules, compiled; a text is scanned in a few microseconds."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        places: dict[tuple[str, int], list[int]] = {(BARE_TOKEN_NAME, 0): []}
        for place, rule in enumerate(rules):
            pattern = (rule.gate, 0) if rule.gate else (rule.pattern.pattern, rule.pattern.flags)
            places.setdefault(pattern, []).append(place)
        self._by_id = list(places.values())
        self._scanner = Scanner(_database((*places, *((pattern, 0) for pattern in MAY_BE_LEVELLED))))

    def found(self, text: str) -> list[int]:
        """The numbers of the rules' patterns that a text holds, or its view."""
        numbers = self._scanned(text)
        told = [number - len(self._by_id) for number in numbers if number >= len(self._by_id)]
        if not told and text.isascii():
            return numbers
        return self._also_in_view(numbers, text, levelled_as_told(text, told))

    def _also_in_view(self, numbers: list[int], text: str, view: str) -> list[int]:
        every = [*numbers, *(self._scanned(view) if view != text else ())]
        return [number for number in every if number < len(self._by_id)]

    def _scanned(self, text: str) -> list[int]:
        return [number for each in {text, folded(text)} for number in self._scanner.numbers_in(each)]

    def rules(self, text: str) -> list[Rule]:
        """The rules whose pattern and anchor a text holds, in their order: those of `rules_for`, or fewer."""
        found = self._also_in_view(self._scanned(text), text, levelled(text))
        places = sorted({place for number in found for place in self._by_id[number]})
        return rules_for(text, [self._rules[place] for place in places]) if places else []


_AUTOMATA: dict[tuple[str, ...], _Automaton] = {}


def _compiled(also: tuple[str, ...]) -> _Automaton:
    if also not in _AUTOMATA:
        _AUTOMATA[also] = _Automaton((*provider_rules(), *personal_rules(also)))
    return _AUTOMATA[also]


def _database(patterns: Sequence[tuple[str, int]]) -> hyperscan.Database:
    """Compiled patterns, numbered by their order. It takes seconds: what was compiled is kept beside the code.

    It is kept under what the patterns are made from, because writing them as bytes takes half a second by itself.
    """
    digest = hashlib.sha256(repr((VERSION, sys.version, list(patterns))).encode()).hexdigest()[:16]
    kept = _KEPT / f"prefilter-{digest}.vectorscan"
    try:
        return hyperscan.loadb(kept.read_bytes(), hyperscan.HS_MODE_BLOCK)
    except (OSError, hyperscan.HyperscanError):  # none yet, or another version's or processor's
        database = hyperscan.Database()
    expressions = [byte_pattern(*pattern).encode() for pattern in patterns]
    database.compile(expressions, ids=range(len(patterns)), flags=hyperscan.HS_FLAG_SINGLEMATCH)
    with suppress(OSError):  # an installation that may not be written to: each process compiles
        write_bytes_atomic(kept, hyperscan.dumpb(database))
    return database
