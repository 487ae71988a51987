"""Which of many texts may hold a secret at all: vectorised passes that let nearly every text by.

The passes are Rust code that polars brings along: Aho-Corasick over the rules' anchors, and expressions for the rules
whose anchors stand in many texts. What they find is looked at rule by rule (`secret_rules`); they never hold back a
text in which a rule would find something (a property test holds them to that).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_

import polars as pl

from capibara_assets.executions.personal import personal_rules
from capibara_assets.executions.secret_rules import BARE_TOKEN_NAME, NAME_ANCHORS, Rule, provider_rules

_WORTH_A_PASS = 32  # texts; fewer are looked at rule by rule in less time than the passes take to set up


def may_hold_secrets(texts: Sequence[str], also: Sequence[str] = ()) -> list[bool]:
    """For each text whether a rule (or one of `personal_rules(also)`) could match; texts hold no lone surrogates."""
    if len(texts) < _WORTH_A_PASS:
        return [True] * len(texts)
    passes = _passes()
    text = pl.col("text")
    found = _anyone(
        text.str.contains_any(list(passes.anchors)),
        *(text.str.contains(expression) for expression in passes.expressions),
        *(text.str.contains(rule.gate) for rule in personal_rules(also)),
    )
    # names such as `token` stand in one text of twenty: only there their longer expressions are tried
    named = text.str.contains_any(list(passes.names), ascii_case_insensitive=True)
    after_name = _anyone(*(text.str.contains(expression) for expression in passes.after_names))
    frame = pl.DataFrame({"text": texts}, schema={"text": pl.String}).with_columns(found=found, named=named)
    places = frame["named"].arg_true()
    suspects = places.filter(frame[places].select(after_name).to_series())
    return frame["found"].scatter(suspects, True).to_list()


def _anyone(*conditions: pl.Expr) -> pl.Expr:
    return reduce(or_, conditions)


@dataclass(frozen=True)
class _Passes:
    """What is looked for: literally, by expression, and by expression where a name stands (in any case)."""

    anchors: tuple[str, ...]
    expressions: tuple[str, ...]
    names: tuple[str, ...]
    after_names: tuple[str, ...]


@cache
def _passes() -> _Passes:
    rules = provider_rules()
    literal = [rule for rule in rules if not rule.gate]
    folded = _anchors(rule for rule in literal if rule.ignore_case)
    gated = [rule for rule in rules if rule.gate]
    named = [rule for rule in gated if rule.ignore_case and min(map(len, rule.anchors)) >= 3]
    gates = dict.fromkeys(rule.gate for rule in gated if rule not in named)
    # those of single providers start with a literal and go together; the others are faster one by one
    joined = [gate for gate in gates if gate.startswith("(?-u:")]
    return _Passes(
        anchors=_anchors(rule for rule in literal if not rule.ignore_case),
        expressions=("|".join(joined), *(gate for gate in gates if gate not in joined)),
        names=(*folded, *_anchors(named), *(name.lower() for name in NAME_ANCHORS)),
        after_names=(
            "(?i)" + "|".join(map(re.escape, folded)),
            *dict.fromkeys(rule.gate for rule in named),
            BARE_TOKEN_NAME,
        ),
    )


def _anchors(rules: Iterable[Rule]) -> tuple[str, ...]:
    return tuple(sorted({anchor for rule in rules for anchor in rule.anchors}))
