"""Prefilter for redaction: vectorised passes that rule out nearly every text as free of secrets.

The passes are expressions that polars runs in Rust: the anchors of the rules as literals, and for rules whose anchors
stand in many texts their gates. Few literals at a time: a dozen or two are searched sixteen bytes at once, a hundred
byte by byte. Texts that a pass suspects are examined rule by rule (`rules.py`); no pass drops a text in which a rule
would match (a property test checks that).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import polars as pl

from capibara_assets.executions.secrets.personal import personal_rules
from capibara_assets.executions.secrets.rules import BARE_TOKEN_NAME, NAME_ANCHORS, Rule, provider_rules

_WORTH_A_PASS = 128  # texts; fewer are examined rule by rule in less time than it takes to set up the passes
_LITERALS, _GATES, _NAMES = 24, 16, 16  # at a time
_MANY = 8  # names
_TELLING = 3  # characters of an anchor that does not stand in every other text


def may_hold_secrets(texts: Sequence[str] | pl.Series, also: Sequence[str] = ()) -> list[bool]:
    """For each text whether a rule (or one of `personal_rules(also)`) could match; texts hold no lone surrogates."""
    if len(texts) < _WORTH_A_PASS:
        return [True] * len(texts)
    passes = _passes()
    text = pl.col("text")
    expressions = (*passes.expressions, *(rule.gate for rule in personal_rules(also)))
    # names such as `token` stand in one text of twenty: only there their longer expressions are tried
    frame = pl.DataFrame({"text": texts}, schema={"text": pl.String})
    suspected = frame.select(pl.any_horizontal([text.str.contains(each) for each in expressions])).to_series()
    small = frame.select(text.str.to_lowercase())
    named = small.select(pl.any_horizontal([text.str.contains(names) for names in passes.names])).to_series()
    places = named.arg_true()
    near = frame.select("text", small=small["text"]).select(pl.all().gather(places))
    for names, gates in passes.after_names:
        holding = near.select(pl.any_horizontal([pl.col("small").str.contains(each) for each in names])).to_series()
        there = near.filter(holding)
        matches = there.select(pl.any_horizontal([text.str.contains(each) for each in gates])).to_series()
        suspected = suspected.scatter(places.filter(holding).filter(matches), True)
    return suspected.to_list()


def rules_by_text(texts: Sequence[str], rules: Sequence[Rule]) -> list[list[Rule]]:
    """For each suspected text the rules that could match in it: it holds an anchor, and what a gate asks for.

    Only the gates of rules whose anchors say little are tried: with many names, or with so short ones that they stand
    in every other text. (Polars caches the last 32 expressions it compiled; all gates would evict the passes.)
    """
    column = pl.Series(texts, dtype=pl.String)
    gates = {
        rule.gate
        for rule in rules
        if rule.gate and (len(rule.anchors) >= _MANY or min(map(len, rule.anchors)) < _TELLING)
    }
    near = [
        [rule for rule in rules if not (folded if rule.ignore_case else plain).isdisjoint(rule.anchors)]
        for plain, folded in zip(_found(column, rules, False), _found(column, rules, True), strict=True)
    ]
    for gate in gates:  # of the texts that hold an anchor: few, so that compiling the gate is half of the work
        places = [i for i, anchored in enumerate(near) if any(rule.gate == gate for rule in anchored)]
        for i, matches in zip(places, column.gather(places).str.contains(gate) if places else (), strict=True):
            if not matches:
                near[i] = [rule for rule in near[i] if rule.gate != gate]
    return near


def _found(column: pl.Series, rules: Sequence[Rule], ignore_case: bool) -> Iterator[set[str]]:
    """The anchors in each text: found in one pass, but for those of a letter or two, which stand everywhere."""
    anchors = sorted({anchor for rule in rules if rule.ignore_case == ignore_case for anchor in rule.anchors})
    long, short = [one for one in anchors if len(one) >= _TELLING], [one for one in anchors if len(one) < _TELLING]
    text = column.str.to_lowercase() if ignore_case else column
    for each, found in zip(text, text.str.extract_many(long, overlapping=True), strict=True):
        yield {*found, *(anchor for anchor in short if anchor in each)}


@dataclass(frozen=True)
class _Passes:
    """Expressions for every text, names (in lower case), and expressions for texts with some of these names.

    `password` stands in one text of seventy, some name in one of five: most expressions are for the former.
    """

    expressions: tuple[str, ...]
    names: tuple[str, ...]
    after_names: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]


@cache
def _passes() -> _Passes:
    rules = provider_rules()
    literal = [rule for rule in rules if not rule.gate]
    gated = [rule for rule in rules if rule.gate]
    folded = _anchors(rule for rule in literal if rule.ignore_case)
    named = [rule for rule in gated if _is_named(rule)]
    gates = list(dict.fromkeys(rule.gate for rule in gated if rule not in named))
    # those of single providers start with a literal and go together; the others are faster one by one
    joined = [gate for gate in gates if gate.startswith("(?-u:")]
    bare = frozenset(name.lower() for name in NAME_ANCHORS)
    holders: dict[str, set[str]] = {"(?i)" + _any(folded): {*folded}, BARE_TOKEN_NAME: {*bare}}
    for rule in named:
        holders.setdefault(rule.gate, set()).update(rule.anchors)
    by_names: dict[tuple[str, ...], list[str]] = {}
    for gate, names in holders.items():
        by_names.setdefault(_names(names), []).append(gate)
    return _Passes(
        expressions=(
            *map(_any, _groups(_anchors(rule for rule in literal if not rule.ignore_case), _LITERALS)),
            *("|".join(group) for group in _groups(joined, _GATES)),
            *(gate for gate in gates if gate not in joined),
        ),
        names=_names({name for names in holders.values() for name in names}),
        after_names=tuple((names, tuple(_joined(gates))) for names, gates in by_names.items()),
    )


def _names(names: set[str]) -> tuple[str, ...]:
    """Expressions that find any of these names."""
    # `key` is enough where `_key` is asked for, too
    shortest = sorted(name for name in names if not any(other in name for other in names - {name}))
    # a name of two letters slows down those that are looked for with it
    long, short = [name for name in shortest if len(name) > 2], [name for name in shortest if len(name) <= 2]
    return tuple(map(_any, (*_groups(long, _NAMES), *_groups(short, _NAMES))))


def _joined(gates: Sequence[str]) -> Iterator[str]:
    """Those that may run on to the end of a line are ten times as fast alone as joined to others."""
    alone = [gate for gate in gates if r"[^\n" in gate]
    yield from alone
    if len(alone) < len(gates):
        yield "|".join(f"(?:{gate})" for gate in gates if gate not in alone)


def _is_named(rule: Rule) -> bool:
    """Whether a rule is about names of any case that occur in few texts."""
    return bool(rule.gate) and rule.ignore_case and min(map(len, rule.anchors)) >= 2


def _anchors(rules: Iterable[Rule]) -> list[str]:
    return sorted({anchor for rule in rules for anchor in rule.anchors})


def _any(literals: Iterable[str]) -> str:
    return "|".join(map(re.escape, literals))


def _groups(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (items[start : start + size] for start in range(0, len(items), size))
