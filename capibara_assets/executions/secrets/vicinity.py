"""Random values shortly behind words that speak of a secret, whatever stands between them.

The other rules know forms: a name and its value, a flag, a table, a prompt. Forms without a rule of their own are told
here by two things. Of the words before the value that say what random values are, the last speaks of a secret, not of
a digest, an id or a revision. And the value stands for itself: it is a literal or fills its line, and has no name of
its own that says otherwise.
"""

import re
from collections.abc import Iterator
from functools import partial

from capibara_assets.executions.secrets.plausibility import credential, random_looking, signed_password
from capibara_assets.executions.secrets.roles import Role

_FAR = 300  # characters from the word to the value
_LINES = 5
_JOINED = 4  # characters that join a name to its value

_OF_KEYS = (
    "api|app|application|access|auth|signing|private|master|encryption|secret|licen[sc]e|deploy|client|session|webhook"
    "|service|account|recovery|shared|hmac|bot|storage|consumer|subscription|integration|ingest|publish|write|root|push"
)
_SPEAK = (
    r"(?:secret|passw(?:or)?d|passphrase|passcode|credential|token|mnemonic|\bpsk\b|\btotp|\botp\b|seed[ ]phrase"
    rf"|(?:{_OF_KEYS})[ _.-]?key(?![ _-]?id)|[\w-][._-]key\b|(?-i:[a-z0-9]Key)\b"
    r"|set-?up[ ]key|secure_?string|openssl[ ]rand|\bpwgen\b|to_seed|pragma[ ](?:hex|re)?key"
    r"|\bkeys[ ](?:list|show|regenerate|renew))(?!\w{0,40}:\d{1,9}>)"  # in a placeholder
)
#: What random values are besides, and tokens and keys that are no secrets.
_OTHERS = (
    r"(?:csrf|xsrf|page|next|sync|cursor|continuation|resume|cancel\w{0,6}|eos|bos|pad|unk|special|stop|mask|sep|cls"
    r"|design|claim)[ _-]?tokens?|tokens\b|tokeni[sz]\w{0,6}|public[ _-]?(?:api[ _-]?)?key|primary[ _-]?key"
    r"|foreign[ _-]?key|(?:cache|sort|partition|object|idempotency|dedup\w{0,12})[ _-]?key"
    r"|sha-?\d{1,3}|\bmd5|blake\d\w?|\bcrc|digest|checksum|commit|revision|\brev\b|\bref\b|e-?tag|fingerprint|thumbprint"
    r"|uu?id\b|[a-z]Id\b|(?:\b|_)ids?\b|identifiers?|request|trace|span|version|hash|signature|\bsig\b|\bcert|serial|nonce"
    r"|integrity|blob|image|container|layer|docker|build|cache|object|\bkid\b|\bjti\b|\biv\b|\bsalt|tree|parent|merge"
    r"|cipher|encrypted|sealed|public|mask|\bhead\b|branch|\btag\b|release|session"
)
#: In the same line before the word, they say what digests stand below it.
_OF_DIGESTS = re.compile(
    r"\bgit\b|\bdocker\b|podman|sha-?\d|md5|digest|checksum|commit|hash|\blog\b", re.IGNORECASE | re.ASCII
)
_DIGEST = re.compile(r"[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|[0-9A-F]{32}|[0-9A-F]{40}|[0-9A-F]{64}")
_WORDS = re.compile(rf"({_OTHERS})|(?:{_SPEAK})", re.IGNORECASE | re.ASCII)
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
    """Values behind a word that is the last to say what they are; none if it is one of `_OTHERS` (the first group)."""
    if word.group(1):
        return
    text, start = word.string, word.end()
    end = min(len(text), start + _FAR)
    if (further := _WORDS.search(text, start, end)) is not None:
        end = further.start()
    line = max(text.rfind("\n", 0, word.start()) + 1, word.start() - _FAR)
    of_digests = _OF_DIGESTS.search(text, line, word.start()) is not None
    for value in looks.finditer(text, start, min(len(text), end + 500)):
        if value.start() >= end or text.count("\n", start, value.start()) >= _LINES:
            return
        named = value.start() <= start + _JOINED and "\n" not in text[start : value.start()]
        if of_digests and not named and _DIGEST.fullmatch(value.group(1)):
            continue
        if _stands_for_itself(text, *value.span(1)):
            yield value.span(1)


def _stands_for_itself(text: str, start: int, end: int) -> bool:
    before = text[max(0, start - 60) : start]
    name = _NAME.search(before)
    if name is not None and name.group(1).lower() not in _UNNAMED and not _WORDS.search(name.group(1)):
        return False
    own_line = not before.rpartition("\n")[2].strip(" \t\"'`-*>=[]()") and "\n" in before
    told = own_line or _QUOTED.search(before) is not None or _TOLD.search(before) is not None
    return told and _ENDS.match(text, end) is not None


def _random(value: str) -> bool:
    return _TWICE.search(value) is not None and random_looking(value) and credential(value)


_SPOT = "(?:[A-Za-z][0-9]+[A-Za-z]|[a-z][A-Z]{1,2}[a-z]{1,2}[A-Z])"  # as in `plausibility.MINGLED`
_TWICE = re.compile(f"{_SPOT}[A-Za-z0-9+/_-]*{_SPOT}")
_ANCHORS = (
    *("secret", "passw", "passphrase", "passcode", "credential", "token", "mnemonic", "psk", "otp", "seed phrase"),
    *("key", "secure", "openssl rand", "pwgen", "to_seed"),
)
_OF_PASSWORDS = ("secret", "passw", "passphrase", "passcode", "credential")
_SIGNED = r"(?-u:[0-9][A-Za-z0-9_.-]*[!@#%^$*?]|[!@#%^$*?][A-Za-z0-9_.-]*[0-9])"  # as in `plausibility.MINGLED`

VICINITY: tuple[Role, ...] = (
    Role(
        "SECRET", _ANCHORS, _WORDS.pattern, _random, rf"(?is)(?:{'|'.join(_ANCHORS)}).*(?-i:{_TWICE.pattern})",
        cells=partial(_values_behind, looks=_VALUE),
    ),
    Role(
        "PASSWORD", _OF_PASSWORDS, rf"({_OTHERS})|(?:passw(?:or)?d|passphrase|passcode|secret|credential)",
        signed_password, rf"(?is)(?:{'|'.join(_OF_PASSWORDS)}).*[\"'\[][^\s\"'\\\[\]<>]*{_SIGNED}",
        cells=partial(_values_behind, looks=_LITERAL),
    ),
)  # fmt: skip
