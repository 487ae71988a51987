"""What the characters of a value tell of it: letters, digits and signs mixed as by chance, or as in words and names."""

import math
import re
import string
from collections import Counter
from itertools import pairwise

#: Hexadecimal digits.
HEX = frozenset(string.hexdigits)
_NO_SIGNS = str.maketrans(dict.fromkeys("!@#%^$*?+_-=&~"))
#: What stands in nearly every random value, which gates ask for, too.
RANDOM = "(?:[A-Za-z][0-9]+[A-Za-z]|[a-z][A-Z]{1,2}[a-z]{1,2}[A-Z])"
#: What nearly every `improbable` value has besides, and few names: asked for before it is judged.
CAPITALS = "(?:[a-z][A-Z]{3,9}[a-z]|[A-Z]{2}[a-z]{1,3}[A-Z]{2})"
_RUN = "[A-Za-z0-9_+/.-]{6}"
# bounded, or a long line of digits and hyphens costs the square of its length
SIGNED = re.compile(r"[0-9][A-Za-z0-9_.-]{0,80}[!@#%^$*?]|[!@#%^$*?][A-Za-z0-9_.-]{0,80}[0-9]")
MINGLED = re.compile(f"{RANDOM}|{SIGNED.pattern}")
#: As `MINGLED`, or a value that may be `improbable`.
AT_RANDOM = re.compile(f"{MINGLED.pattern}|{CAPITALS}")
_LONG_MINGLED = re.compile(f"{_RUN}{RANDOM}|{RANDOM}{_RUN}")
_WORD = re.compile(r"[A-Z][a-z]{2,}|[a-z]{4,}")
#: Two letters that hardly follow each other in words: all pairs but the 400 commonest of Python's library and `docs`.
_NO_PAIR = re.compile(
    "(?i)a[ejoqz]|b[fghknqvwxz]|c[bgjqwxz]|d[hjkqwxz]|e[jz]|f[bhjkqvwxz]|g[bfjkqvwxyz]|h[bcfghjkpqvwxz]|i[hijquwy]"
    "|j[bcdfghijklmnpqrstvwxyz]|k[bcfhjkmopqrtuvxyz]|l[ghjkqwxz]|m[cghjkqrvwxz]|n[jqwxz]|o[hjqyz]|p[bgjkmqvxz]|q[^u]"
    "|r[hjqxz]|s[jvxz]|t[gjkq]|u[hjkquvwxyz]|v[^aeio]|w[bfgjkmpquvwxyz]|x[bghjknoqruvwz]|y[fghjkquvwxz]|z[^aeiouyz]"
)
_CASES_CHANGE = "[a-z][A-Z]+[a-z]+[A-Z]+[a-z]"
#: What every value of `letters_at_random` has: capitals among small letters, or signs among letters.
LETTERS_AT_RANDOM = (
    f"(?:{_CASES_CHANGE}|[A-Z][!@#%^*?+=&~][A-Za-z]|[a-z][!@#%^*?+=&~][A-Z]"
    "|[A-Z]{2}[a-z]{1,3}[A-Z]|[a-z][A-Z]{1,3}[a-z]{1,3}[_-])"
)
_LETTERS_CHANGE, _AT_RANDOM = re.compile(_CASES_CHANGE), re.compile(LETTERS_AT_RANDOM)
#: What refers to a variable or is a template, though it mixes signs.
_VARIABLE = re.compile(r"\$[\w{(]|[{}]|<%|%\w+%")
_RUN_OF_LETTERS = re.compile(r"[a-z]{4}|[A-Z]{4}")
_UNSPEAKABLE = re.compile(r"(?i)[^aeiouy]{4}|q[^u]|^.[^aeiouy]+$")


def entropy(text: str) -> float:
    """Shannon entropy in bits per character."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values()) if text else 0.0


def has_digit(value: str) -> bool:
    """Whether a value holds a digit: nearly all random texts of 16 characters do, few names."""
    return any(c.isdigit() for c in value)


def mingled(value: str) -> bool:
    """Whether digits stand among letters or on one side of a sign: so do they in nearly every random value."""
    return MINGLED.search(value) is not None


def long_mingled(value: str) -> bool:
    """As `mingled`, in a run of letters and digits as long as tokens have."""
    return _LONG_MINGLED.search(value) is not None


def jumbled(value: str) -> bool:
    """Whether a value is letters of both cases, digits and signs of three kinds, without a word: no path, no query."""
    signs = {c for c in value if not c.isalnum()}
    jumble = 12 <= len(value) <= 64 and len(signs) >= 3 and three_sorts(value)
    return jumble and not _RUN_OF_LETTERS.search(value) and not _VARIABLE.search(value) and value[0] not in "/.~-"


def at_random(value: str) -> bool:
    """Whether letters of both cases, digits and signs follow one another as by chance, and make no words.

    So they do in the passwords of generators, wherever the signs stand: at the beginning, or around a full stop.
    """
    told = "".join(filter(str.isalnum, value))
    if not (10 <= len(value) <= 64 and len(told) >= 0.6 * len(value) and value.isascii()) or _VARIABLE.search(value):
        return False
    return (
        told not in (told.lower(), told.upper())
        and changes(told) >= 0.25 + in_words(value) / 4
        and in_words(value) <= 0.35
    )


def letters_at_random(value: str) -> bool:
    """Whether a value is letters of both cases, and signs, that hardly make words, as they do in names of classes."""
    letters = value.translate(_NO_SIGNS)
    if letters != value:  # full stops alone join names
        letters = letters.replace(".", "")
    if not (8 <= len(value) <= 64 and letters.isalpha() and value.isascii()):
        return False
    if not _LETTERS_CHANGE.search(value):
        enough = letters != value or len(value) >= 12
        return enough and _AT_RANDOM.search(value) is not None and at_random(value)
    if len(value) < 12:  # few letters may be a name: two of their pairs stand in no word
        return letters == value and _rare_pairs(value) > 1
    if letters != value and in_words(value) > 0.3:
        return False
    spoken = sum(len(word) for word in _WORD.findall(value) if not _UNSPEAKABLE.search(word))
    return min(spoken / len(value), in_words(value)) <= 0.5


def improbable(value: str) -> bool:
    """Whether letters of both cases, and digits, hardly follow each other so in words: most values without `RANDOM`.

    Of identifiers in libraries one in ten thousand is.
    """
    if not (12 <= len(value) <= 64 and value.isascii() and value.isalnum()) or value in (value.lower(), value.upper()):
        return False
    words = sum(len(word) for word in _WORD.findall(value) if not _NO_PAIR.search(word))
    return (
        _rare_pairs(value) >= max(4, len(value) / 5)
        and words <= len(value) / 3
        and entropy(value) >= 2.9
        and not wordy(value)
    )


def one_case_at_random(value: str) -> bool:
    """Whether letters of one case and digits, sixteen and more, make no words: keys in base 32 and base 36.

    Of a hundred thousand words of code one is.
    """
    longest = max(re.split(r"[-_./:=+%~]", value), key=len)
    if len(longest) < 16 or value not in (value.lower(), value.upper()) or set(longest) <= HEX:
        return False
    letters = longest.lower()
    return mingled(longest) and entropy(longest) >= 3.4 and in_words(letters) <= 0.35 and _rare_pairs(letters) >= 2


def _rare_pairs(value: str) -> int:
    """How many letters are followed by one that hardly follows them in words."""
    return sum(_NO_PAIR.match(value, at) is not None for at in range(len(value) - 1))


def wordy(value: str) -> bool:
    """Whether most of a value is words, as in the name of a class."""
    return in_words(value) > 0.7


def in_words(value: str) -> float:
    """The share of a value's characters that stand in words; letters at random hardly make any."""
    words = _WORD.findall(value)
    every, sound = (sum(map(len, some)) for some in (words, (word for word in words if not _NO_PAIR.search(word))))
    return (every if sound >= 2 / 3 * every else sound) / len(value)  # among words there may be a name


def changes(value: str) -> float:
    """The share of characters that a character of another sort follows: digits, capitals, others."""
    kinds = [0 if c.isdigit() else 1 if c.isupper() else 2 for c in value]
    return sum(a != b for a, b in pairwise(kinds)) / max(len(kinds), 1)


def three_sorts(value: str) -> bool:
    """Whether a value has capitals, small letters and digits."""
    return has_digit(value) and value != value.lower() and value != value.upper()


def hexadecimal(value: str, length: int) -> bool:
    """Whether a value is hexadecimal digits of both sorts, at least `length` of them."""
    letters = sum(c.isalpha() for c in value)
    return len(value) >= length and set(value) <= HEX and 0 < letters < len(value) and entropy(value) >= 2.5


def scattered_capitals(value: str) -> bool:
    """Whether capitals are placed at random: CamelCase has one capital in five letters, chance one in two."""
    letters = [c for c in value if c.isalpha()]
    changed = sum(a.isupper() != b.isupper() for a, b in pairwise(letters))
    capitals = sum(map(str.isupper, letters))
    return len(letters) >= 12 and changed >= 0.3 * len(letters) and 0.32 <= capitals / len(letters) <= 0.75
