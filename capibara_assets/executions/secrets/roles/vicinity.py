"""Random values shortly behind words that speak of a secret, whatever stands between them.

The other rules know forms: a name and its value, a flag, a table, a prompt. Forms without a rule of their own are told
here by two things. Of the words before the value that say what random values are, the last speaks of a secret, not of
a digest, an id or a revision. And the value stands for itself: it is a literal or fills its line, and has no name of
its own that says otherwise.
"""

import re
from collections.abc import Iterator
from functools import partial

from capibara_assets.executions.secrets.characters import RANDOM
from capibara_assets.executions.secrets.plausibility import credential, random_looking, signed_password
from capibara_assets.executions.secrets.roles.role import SIGNED, Role

_FAR = 300  # characters from the word to the value
_LINES = 5
_BEFORE = 24  # characters before the word
_JOINED = 4  # characters that join a name to its value

_OF_KEYS = (
    "api|app|application|access|auth|signing|private|master|encryption|secret|licen[sc]e|deploy|client|session|webhook"
    "|service|account|recovery|shared|hmac|bot|storage|consumer|subscription|integration|ingest|publish|write|root|push"
    "|set-?up|pragma(?: hex| re)?"
)
_OF_PASSWORDS = r"passw(?:or)?d|passphrase|passcode|secret|credential"
_SPEAK = (
    rf"(?=[cekmopst])(?:{_OF_PASSWORDS}|token(?!s\b|i[sz])|key(?![a-z]| ?[_-]?id)|keys (?:list|show|regenerate|renew)"
    r"|mnemonic|\bpsk\b|\bt?otp\b|\bseed (?:phrase|\()|(?<=master[ _-])seed|secure_?string|openssl rand|\bpwgen\b"
    r"|to_seed)(?!\w{0,40}:\d{1,9}>)"  # in a placeholder
)
_SPEAKS = re.compile(_SPEAK, re.IGNORECASE | re.ASCII)
#: What stands before `key` where it is a secret, and before keys and tokens that are none.
_OF_KEY = re.compile(rf"(?<![a-z])(?:{_OF_KEYS})[ _.-]?$|[\w-][._-]$", re.IGNORECASE | re.ASCII)
OF_PAGES = "page|pagination|next|starting|sync|cursor|continuation|resume"  # of tokens that say where to go on
_OF_NONE = (
    rf"(?:csrf|xsrf|{OF_PAGES}|cancel\w{{0,6}}|eos|bos|pad|unk|special|stop|mask|sep|cls"
    r"|design|claim|public(?:[ _-]?api)?|primary|foreign|cache|sort|partition|object|idempotency|dedup\w{0,12}"
    r"|site)[ _-]?"
)
_OF_NO_SECRET = re.compile(f"{_OF_NONE}$", re.IGNORECASE | re.ASCII)
#: What random values are besides.
_OTHERS = re.compile(
    rf"{_OF_NONE}(?:token|key)|tokens\b|tokeni[sz]|sha-?\d|\bmd5|blake\d|\bcrc|digest|checksum|commit|revision|\brev\b|\bref\b"
    r"|e-?tag|fingerprint|thumbprint|uu?id\b|[a-z]Id\b|(?:\b|_)ids?\b|identifier|request|trace|span|version|hash|signature"
    r"|\bsig\b|\bcert|serial|nonce|integrity|blob|image|container|layer|docker|build|cache|object|\bkid\b|\bjti\b|\biv\b"
    r"|\bsalt|tree|parent|merge|cipher|encrypted|sealed|public|mask|\bhead\b|branch|\btag\b|release|session",
    re.IGNORECASE | re.ASCII,
)
#: In the same line before the word, they say what digests stand below it.
_OF_DIGESTS = re.compile(
    r"\bgit\b|\bdocker\b|podman|sha-?\d|md5|digest|checksum|commit|hash|\blog\b", re.IGNORECASE | re.ASCII
)
_DIGEST = re.compile(r"[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|[0-9A-F]{32}|[0-9A-F]{40}|[0-9A-F]{64}")
_VALUE = re.compile(
    r"(?<![A-Za-z0-9+/_.$%@~#&?\\-])([A-Za-z0-9+/_-]{16,400}={0,2})(?![A-Za-z0-9+/_=@%:(\[{-]|\.[A-Za-z0-9])", re.ASCII
)
#: A password as it is told from a word: in quotes or brackets.
_LITERAL = re.compile(r"(?<=[\"'\[])([^\s\"'\\\[\]<>]{8,64})(?=[\"'\]\\])")
#: A name before a value; what stands before it tells it from a word of prose.
_NAME = re.compile(
    r"(?:[\s\"'](?=[\w.-]+=)|(?:^|[\n{\[,;(&?|])[ \t]*)(?:-[ ]|export[ ]|const[ ]|let[ ]|var[ ])?"
    r"[\"'\\]*([A-Za-z_][\w.-]*)[\"'\\]*\]?"
    r"(?:[ ]?(?::=|=>|=|:)[ \t]*|\()[bBrfu]?[\"'\\(\[]*$",
    re.ASCII,
)
_PLAIN_NAMES = (
    "value val v key default data input input_value text content contents result output out body stdout raw decoded"
    " plaintext response returned seed hex str string literal params parameters args arg some ok just print echo got"
    " actual left right"
)
_UNNAMED = frozenset(_PLAIN_NAMES.split())
_QUOTED = re.compile(r"[\"'`\[]$")
#: Also as the last column of a table.
_TOLD = re.compile(r"(?:[:=>][ \t]+|[=>]|[ ]{2,}|\t|\b(?:is|was|be|to|as))[ \t]*$", re.IGNORECASE)
_ENDS = re.compile(r"[\"'`]?[)\]}>.,;\"'`]*[ \t\r]*(?:$|\n)|[\"'`][ \t]*(?:[,)\]};]|/?>)|[,;)\]}<|]|\\[nr][\"']")


def _values_behind(word: re.Match[str], looks: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Values behind a word, up to the next that says that they are something else."""
    if not _announces(word):
        return
    text, start = word.string, word.end()
    end = min(len(text), start + _FAR)
    if (other := _OTHERS.search(text, start, end)) is not None:
        end = other.start()
    for value in looks.finditer(text, start, min(len(text), end + 500)):
        if value.start() >= end or text.count("\n", start, value.start()) >= _LINES:
            return
        named = value.start() <= start + _JOINED and "\n" not in text[start : value.start()]
        if not named and _DIGEST.fullmatch(value.group(1)) and _of_digests(word):
            continue
        if _stands_for_itself(text, *value.span(1)):
            yield value.span(1)


def _of_digests(word: re.Match[str]) -> bool:
    text, end = word.string, word.start()
    return _OF_DIGESTS.search(text, max(text.rfind("\n", 0, end) + 1, end - _FAR), end) is not None


def _announces(word: re.Match[str]) -> bool:
    """Whether a word speaks of a secret with what stands before it: not a page token, not the key of a table."""
    before = word.string[max(0, word.start() - _BEFORE) : word.start()]
    spelt = word.group()
    if spelt.lower() not in ("token", "key"):
        return True
    if _OF_NO_SECRET.search(before):
        return False
    in_camel_case = spelt[0] == "K" and before[-1:].islower()
    return spelt.lower() == "token" or in_camel_case or _OF_KEY.search(before) is not None


def _stands_for_itself(text: str, start: int, end: int) -> bool:
    before = text[max(0, start - 60) : start]
    name = _NAME.search(before)
    named = name is not None and name.group(1).lower() not in _UNNAMED
    if name and named and not any(_announces(word) for word in _SPEAKS.finditer(before, *name.span(1))):
        return False
    own_line = not before.rpartition("\n")[2].strip(" \t\"'`-*>=[]()") and "\n" in before
    told = own_line or _QUOTED.search(before) is not None or _TOLD.search(before) is not None
    return told and _ENDS.match(text, end) is not None


def _random(value: str) -> bool:
    return _TWICE.search(value) is not None and random_looking(value) and credential(value)


_TWICE = re.compile(f"{RANDOM}[A-Za-z0-9+/_-]*{RANDOM}")
_ANCHORS = (
    *("secret", "passw", "passphrase", "passcode", "credential", "token", "mnemonic", "psk", "otp", "seed"),
    *("key", "secure", "openssl rand", "pwgen"),
)
_PASSWORD_ANCHORS = ("secret", "passw", "passphrase", "passcode", "credential")

VICINITY: tuple[Role, ...] = (
    Role(
        "SECRET", _ANCHORS, _SPEAK, _random, gate=rf"(?is)(?:{'|'.join(_ANCHORS)}).*(?-i:{_TWICE.pattern})",
        cells=partial(_values_behind, looks=_VALUE),
    ),
    Role(
        "PASSWORD", _PASSWORD_ANCHORS, _OF_PASSWORDS, signed_password,
        gate=rf"(?is)(?:{'|'.join(_PASSWORD_ANCHORS)}).*[\"'\[][^\s\"'\\\[\]<>]*{SIGNED}",
        cells=partial(_values_behind, looks=_LITERAL),
    ),
)  # fmt: skip
