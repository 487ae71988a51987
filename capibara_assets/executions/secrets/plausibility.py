"""Tests whether a candidate value is a real secret: random characters, not a word, path, name or placeholder."""

import base64
import binascii
import json
import math
import re
import string
from collections import Counter
from itertools import pairwise

_PLACEHOLDER = re.compile(
    r"your|example|placeholder|x{4}|\*{3}|changeme|dummy|insert|replace|todo|redacted", re.IGNORECASE
)
_BLANK = re.compile(r"(.)\1{5}|your[-_]", re.IGNORECASE)
_WORDS = "password passwd pass pwd secret user username postgres mysql root admin test guest token changeme key"
_ACCESS_WORDS = frozenset(_WORDS.split())
_HEX = frozenset(string.hexdigits)
_UUID_DASHES = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def entropy(text: str) -> float:
    """Shannon entropy in bits per character."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values()) if text else 0.0


def has_digit(value: str) -> bool:
    """Whether a value holds a digit: nearly all random texts of 16 characters do, few names."""
    return any(c.isdigit() for c in value)


def token(value: str) -> bool:
    """Whether the value behind a known prefix is a token: a digit or both cases, and not one character repeated."""
    return filled_in(value) and (has_digit(value) or (value != value.lower() and value != value.upper()))


def filled_in(value: str) -> bool:
    """Whether a key is filled in, unlike the `hf_xxxxxxxx` and `key-your-key-here` of documentation."""
    return not _BLANK.search(value)


def random_looking(value: str) -> bool:
    """Whether a value has a long run of random letters and digits, judged by character classes and entropy."""
    longest = max(re.split(r"[-_./:=+%~]", value), key=len)
    if len(longest) < 8 or _UUID_DASHES.fullmatch(value):
        return False
    if set(longest) <= _HEX and len(longest) >= 24:
        return has_digit(longest) and entropy(longest) >= 2.8
    classes = sum(any(test(c) for c in value) for test in (str.isupper, str.islower, str.isdigit))
    mixed = has_digit(value) and any(c.isalpha() for c in value) and (classes == 3 or len(longest) >= 24)
    return (mixed or (len(longest) >= 20 and _scattered_capitals(longest))) and entropy(value) >= 3.5


def assigned_secret(value: str) -> bool:
    """Whether a literal assigned to a secret-looking name is a secret: no placeholder, path, model name or sentence."""
    if len(value) < 16 or _PLACEHOLDER.search(value) or value[0] in "<{$%":
        return False
    longest = max(re.split(r"[-_./:]", value), key=len)
    if value[0] in "/." and not (len(longest) >= 20 and has_digit(longest) and longest != longest.lower()):
        return False  # a path
    if len(longest) < 12 and not (_scattered_capitals(value) and has_digit(value)):
        return False
    if not (has_digit(longest) and any(c.isalpha() for c in longest)) and not _scattered_capitals(value):
        return False
    return entropy(value) >= (2.8 if set(longest) <= _HEX else 3.3)


def password(value: str) -> bool:
    """Whether the password of a connection string is real: neither a template nor a word of documentation."""
    return (
        len(value) > 3
        and value.lower() not in _ACCESS_WORDS
        and value[0] not in "<{$["
        and not value.startswith(("%s", "%d", "%("))
        and not _PLACEHOLDER.search(value)
    )


def strong_password(value: str) -> bool:
    """Whether a password mixes three kinds of characters; `password1` is documentation."""
    if not password(value) or entropy(value) < 2.7 or value.startswith(("./", "../", "~/", "\\")) or "://" in value:
        return False
    if value[0] == "/" and value.count("/") > 1:
        return False
    signs = sum(not c.isalnum() for c in value)
    sorts = (any(map(str.islower, value)), any(map(str.isupper, value)), has_digit(value), signs > 0)
    return sum(sorts) >= 3 and any(c.isalpha() for c in value) and signs <= len(value) / 2


def header_credential(value: str) -> bool:
    """Whether the value behind `Bearer` or `Basic` is a credential: no placeholder and no plain word."""
    mixed = has_digit(value) or (value != value.lower() and value != value.upper())
    return len(value) >= 12 and mixed and not _PLACEHOLDER.search(value) and entropy(value) >= 2.5


def json_web_token(value: str) -> bool:
    """Whether a value is a JWT: its first part decodes to a JSON object with an algorithm or a type."""
    head = value.split(".")[0]
    try:
        header = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (ValueError, binascii.Error):
        return False
    return isinstance(header, dict) and bool({"alg", "typ", "enc"} & header.keys())


def mixed_case_and_digits(value: str) -> bool:
    """Whether a value has capitals, small letters and digits."""
    return has_digit(value) and value != value.lower() and value != value.upper()


def hex_letters_and_digits(value: str) -> bool:
    """Whether the part behind a prefix of two characters mixes letters and digits, and not the same few."""
    return has_digit(value) and any(c.isalpha() for c in value[2:]) and entropy(value[2:]) > 2.5


def _scattered_capitals(value: str) -> bool:
    """Whether capitals are placed at random: CamelCase has one capital in five letters, chance one in two."""
    letters = [c for c in value if c.isalpha()]
    changes = sum(a.isupper() != b.isupper() for a, b in pairwise(letters))
    capitals = sum(map(str.isupper, letters))
    return len(letters) >= 12 and changes >= 0.3 * len(letters) and 0.32 <= capitals / len(letters) <= 0.75
