"""Values that a provider's precise shape tells by itself, wherever they stand: for files that no reader of logs read.

The readers of logs use all rules, since a text of a session is soon redacted and read again. A file that holds
something of such a shape stops the export, so here only those shapes count that no digest, id, name of a test or
random byte has: behind a prefix of the provider's own, filled in, and none of its documentation's examples. Private
keys in PEM are none: a deployment may keep its own.
"""

import re
from functools import cache, partial

from capibara_assets.executions.secrets.plausibility import provider_example
from capibara_assets.executions.secrets.rules import Rule, Secret, find_secrets, provider_rules, rules_for
from capibara_assets.executions.secrets.words import Scanner, seeking

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{2,}[-_.]")
_FURTHER = frozenset(
    (
        *("AKIA", "ASIA", "ABIA", "ACCA", "A3T", "AIza", "T3BlbkFJ", "hf_", "sk-", "SG.", "xox", "XOX", "eyJ", "r8_"),
        *("hooks.slack.com", "webhook.office.com", "SharedAccessKey=", "AccountKey=", "GR1348941", "sk_", "1//0"),
        *("ATATT3", "ATCTT3", "ops_eyJ", "sk.eyJ", "pk.eyJ", "tk.eyJ", "suiprivkey1"),
    )
)
#: Words that are the beginning of much else: of tests, of configurations, of columns.
_WORDS = frozenset(("live_", "test_", "secret_", "pat-", "pat.", "sat.", "key-", "pubkey-", "access-"))


def find_shaped(text: str) -> list[Secret]:
    """The places in `text` of values with a provider's precise shape, left to right, not overlapping."""
    if not _anchors().numbers_in(text):
        return []
    found = find_secrets(text, narrowed=partial(rules_for, rules=precise_rules()))
    return [secret for secret in found if not provider_example(text[secret.start : secret.end])]


def has_shape(value: str) -> bool:
    """Whether a value as a whole has a provider's precise shape."""
    return any(secret.start == 0 and secret.end == len(value) for secret in find_shaped(value))


@cache
def precise_rules() -> tuple[Rule, ...]:
    """The rules of providers whose every anchor is a prefix of the provider's own."""
    return tuple(rule for rule in provider_rules() if all(map(_own, rule.anchors)) and _of_a_provider(rule))


def _own(anchor: str) -> bool:
    return anchor in _FURTHER or (anchor not in _WORDS and _PREFIX.fullmatch(anchor) is not None)


def _of_a_provider(rule: Rule) -> bool:
    """Whether a value's own shape tells it, and not what stands around it."""
    return rule.whole_word and not rule.near_values and not rule.ignore_case and rule.kind != "SECRET"


@cache
def _anchors() -> Scanner:
    return seeking(sorted({anchor for rule in precise_rules() for anchor in rule.anchors}))
