"""Rules that recognise secrets: those of detect-secrets, of further providers, and of secrets known by context.

Each rule has anchors, substrings of which a text must hold one before the rule's expression is tried: scanning for a
substring is two orders of magnitude cheaper than matching expressions, and nearly every text holds none.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from capibara_assets.executions.secrets.characters import AT_RANDOM, has_digit, three_sorts
from capibara_assets.executions.secrets.context_shapes import CONTEXT_SHAPES
from capibara_assets.executions.secrets.levelled import levelled
from capibara_assets.executions.secrets.plausibility import access_key_id, filled_in, random_looking, token
from capibara_assets.executions.secrets.providers import PROVIDER_SHAPES, hex_letters_and_digits, json_web_token
from capibara_assets.executions.secrets.roles.every import EVERY_ROLE
from capibara_assets.executions.secrets.roles.foreign import FOREIGN, FOREIGN_ANCHORS, FOREIGN_KEY_ANCHORS, FOREIGN_KEYS
from capibara_assets.executions.secrets.roles.vicinity import OF_PAGES
from capibara_assets.executions.secrets.words import seeking

_TOKEN = "A-Za-z0-9_-"
_BEFORE = 60  # characters
#: What stands before public halves of keys and their fingerprints.
_PUBLIC = re.compile(
    r"(?:\bssh-(?:rsa|dss|ed25519)[ \t]++|\b(?:sk-ssh-|(?:sk-)?ecdsa-)[\w@.-]+[ \t]++"
    r"|\bsha(?:1|256|384|512):|fingerprint[\"']?[ \t]*+(?:is|[:=])?[ \t]*+[\"']?(?:SHA256:|MD5:)?"
    r"|data:(?:image|font|audio|video)/[\w.+-]+;base64,"
    r"|public[ _-]?key(?:[ _-]?token)?[\"']?[ \t]*+[:=][ \t]*+[\"']?|usersecretsid>"
    r"|v=dkim1;[^\n\"']{0,40}\bp=|ENC\[AES256_GCM,data:|,iv:|,tag:|[ ]h1:"
    r"|\bdnskey[ ]\d{1,5}[ ]\d{1,3}[ ]\d{1,3}[ ]|\bpin-sha(?:1|256)=[\"']?"
    r"|\bforce-unlock[ ](?:-force[ ])?[\"']?|accessor[\"']?[ \t]*+[:=]?[ \t]*+[\"']?"
    r"|\barn:aws[\w-]*:secretsmanager:[\w-]*:\d*:secret:"
    r"|\b(?:op|vault|ssm|secretsmanager|gcpsm|azkv|bws?):(?://[^\s\"']{0,50})?"  # where a secret is kept
    # names of what is random and known to all
    rf"|--(?:{OF_PAGES})-token[ \t]++[\"']?"
    rf"|(?:(?:{OF_PAGES})[ _-]?token|(?:idempotency|sec-websocket|site|cache)[ _-]?key"
    r"|sec-websocket-accept|[\"'\n{,][ ]*_?id|(?:request|trace|span|correlation|build|version)[ _-]?id"
    r"|(?<![a-z_])(?:hash|digest|checksum|commit|revision|e-?tag|configuration)"
    r"|(?<![a-z])[jtpgu]id|(?-i:[a-z](?:Manager|Kit|Access|Tokens)))[\"']?[ \t]*+[:=][ \t]*+[\"']?|\w\[)\Z",
    re.IGNORECASE,
)
_AWS_GATE = r"(?is)aws.*[0-9A-Za-z/+]{38}"
# what detect-secrets lets stand between a name and its value, and the same without three ways to divide the blanks
_BETWEEN, _BETWEEN_ONCE = "(?: *)(?:=|:|:=|=>| +|::)(?: *)", "(?: *+(?:=>?|::|:=?)| ) *+"
_LONGEST = 500  # characters of a part of a stretch (`Rule.parts`), and of a tail by which a match is judged


@dataclass(frozen=True, slots=True)
class Secret:
    """A range of text (offsets in characters) that must not be kept."""

    start: int
    end: int
    kind: str  # names the placeholder, never the value


@dataclass(frozen=True)
class Rule:
    """One format of secrets. `group` holds the secret; `plausible` may still reject it; `ignore_case`: of anchors.

    A match must not start inside a word, and is stretched over `tail` characters that follow it: keys are pasted with
    a character too many as often as with one too few, and half a key in the log is a leak all the same.

    `gate` is an expression that is found in every text in which the rule finds something plausible: what the prefilter
    seeks instead of the rule's own expression, where that is too costly or stands in many texts (`prefilter.py`).

    With `near_values` the rule is tried only around lines with something that could be a random value.

    With `parts`, the group is a stretch of text and the secrets are the plausible matches of `parts` that start in it.
    With `cells`, the secrets are the plausible ones of the ranges that it names for a match.
    """

    kind: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    group: int = 0
    plausible: Callable[[str], bool] | None = None
    ignore_case: bool = False
    whole_word: bool = True
    tail: str = "A-Za-z0-9"
    gate: str = ""
    parts: re.Pattern[str] | None = None
    near_values: bool = False
    cells: Callable[[re.Match[str]], Iterable[tuple[int, int]]] | None = None


Narrowed = Callable[[str], Sequence[Rule]]


def find_secrets(text: str, names_in_code: str | None = None, narrowed: Narrowed | None = None) -> list[Secret]:
    """Finds the secrets in `text`, left to right, not overlapping.

    Args:
        names_in_code: for the output of a program: the program. Where it names a secret-looking variable
            (`print(os.environ["AWS_SECRET_ACCESS_KEY"])`), a high-entropy token standing alone in the output is one.
        narrowed: gives the rules that could match in a text; default: `rules_for` of all that recognise secrets.
    """
    name = _secret_name(names_in_code) if names_in_code is not None else None
    secrets: list[Secret] = []
    left = text
    # one key may hide another: two without a gap, or a long match that swallows a shorter one's end
    while new := _find_in_views(left, narrowed or provider_rules_for, name):
        secrets += new
        left = masked(left, new)
    return sorted(secrets, key=lambda secret: secret.start)


def _find_in_views(text: str, narrowed: Narrowed, name: str | None) -> list[Secret]:
    """What is found in a text, and in its view in which no sign ends a value before its quotes do."""
    found = _find_once(text, narrowed(text), name)
    view = levelled(text)
    if view == text or masked(view, found) == masked(text, found):  # nothing that differs is left
        return found
    return _without_overlaps([*found, *_find_once(view, narrowed(view), None)])


def _find_once(text: str, rules: Sequence[Rule], name: str | None) -> list[Secret]:
    candidates: list[Secret] = []
    inside: list[Secret] = []
    for rule in rules:
        for secret in _matches(rule, text):
            told = rule.near_values or rule.kind == "SECRET"  # by what stands around it
            if told and _PUBLIC.search(text, max(0, secret.start - _BEFORE), secret.start):
                continue
            (inside if rule.whole_word and _inside_word(text, secret.start) else candidates).append(secret)
    if name is not None:
        candidates += _bare_tokens(text, name)
    ends = {secret.end for secret in candidates}
    for secret in sorted(inside, key=lambda one: one.start):  # behind another one it begins a word
        if secret.start in ends:
            candidates.append(secret)
            ends.add(secret.end)
    return _without_overlaps(candidates)


def masked(text: str, secrets: Sequence[Secret]) -> str:
    """`text` with NUL in place of each character of `secrets` (left to right, not overlapping)."""
    parts, last = [], 0
    for secret in secrets:
        parts += [text[last : secret.start], "\0" * (secret.end - secret.start)]
        last = secret.end
    return "".join([*parts, text[last:]])


def rules_for(text: str, rules: Sequence[Rule]) -> list[Rule]:
    """The rules that have an anchor in `text`; no other can match in it. Of many rules: `provider_rules_for`."""
    lowered = text.lower()
    return [rule for rule in rules if _has_anchor(rule.anchors, lowered if rule.ignore_case else text)]


def provider_rules_for(text: str) -> list[Rule]:
    """`rules_for` of `provider_rules`, whose thousands of anchors are sought in one pass."""
    as_written, lowered = _every_anchor()
    rules = provider_rules()
    return [rules[number] for number in sorted(as_written.rules_in(text) | lowered.rules_in(text.lower()))]


class _Anchors:
    """The anchors of many rules (by their numbers), sought together."""

    def __init__(self, rules: Sequence[tuple[int, Rule]]) -> None:
        numbers: dict[str, list[int]] = {}
        for number, rule in rules:
            for anchor in rule.anchors:
                numbers.setdefault(anchor, []).append(number)
        self._numbers, self._words = list(numbers.values()), seeking(list(numbers))

    def rules_in(self, text: str) -> set[int]:
        """The numbers of the rules of which `text` holds an anchor."""
        return {number for place in self._words.numbers_in(text) for number in self._numbers[place]}


@cache
def _every_anchor() -> tuple[_Anchors, _Anchors]:
    """The anchors of `provider_rules` that stand as they are written, and those that any case is taken for."""
    numbered = list(enumerate(provider_rules()))
    as_written, ignored = ([one for one in numbered if one[1].ignore_case is case] for case in (False, True))
    return _Anchors(as_written), _Anchors(ignored)


def _has_anchor(anchors: tuple[str, ...], text: str) -> bool:
    for anchor in anchors:  # noqa: SIM110 - a loop is three times as fast as any() with a generator, and this is hot
        if anchor in text:
            return True
    return False


def _matches(rule: Rule, text: str) -> Iterator[Secret]:
    stretch = re.compile(f"[{rule.tail}]*") if rule.tail else None
    run = (0, -1)  # of characters that may follow, and which the match before was stretched over
    covered = (0, 0)
    for start, matched in _spans(rule, text):
        end = matched
        if stretch is not None:
            if not run[0] <= matched <= run[1]:  # else each key of a line of nothing but keys would read on to its end
                more = stretch.match(text, matched)
                run = (matched, more.end() if more else matched)
            end = run[1]
        value = text[start : min(end, matched + _LONGEST)]
        if start >= end or (covered[0] <= start and end <= covered[1]) or "\0" in value:
            continue
        if rule.plausible is not None and not rule.plausible(value):
            continue
        covered = (start, end)
        yield Secret(start, end, rule.kind)


def _spans(rule: Rule, text: str) -> Iterator[tuple[int, int]]:
    """Where the values stand that the rule would have judged."""
    if rule.cells is not None:
        for match in _found(rule, text):
            yield from rule.cells(match)
        return
    if rule.parts is None:
        yield from (match.span(rule.group) for match in _found(rule, text))
        return
    examined = 0
    for region in _found(rule, text):
        start, end = region.span(rule.group)
        for part in rule.parts.finditer(text, max(start, examined), min(end + _LONGEST, len(text))):
            if part.start() >= end:
                break
            examined = part.end()
            yield part.span(part.lastindex or 0)
        examined = max(examined, end)


def _found(rule: Rule, text: str) -> Iterator[re.Match[str]]:
    if not rule.near_values:
        return rule.pattern.finditer(text)
    return (match for start, end in _near_values(text) for match in rule.pattern.finditer(text, start, end))


@lru_cache(maxsize=8)
def _near_values(text: str) -> list[tuple[int, int]]:
    """The lines that could hold a random value, each with the two before it: names cost ten times as much to find."""
    stretches: list[tuple[int, int]] = []
    at = 0
    while match := AT_RANDOM.search(text, at):
        start = match.start()
        for _ in range(3):
            start = max(text.rfind("\n", 0, start), 0)
        at = text.find("\n", match.end())
        at = len(text) if at < 0 else at
        if stretches and start <= stretches[-1][1]:
            start = stretches.pop()[0]
        stretches.append((start, at))
    return stretches


def _inside_word(text: str, start: int) -> bool:
    """Whether a letter or digit precedes; an escape such as the \\n of a string literal is no part of the word."""
    if start == 0 or not (text[start - 1].isalnum() and text[start - 1].isascii()):
        return False
    return not (start >= 2 and text[start - 2] == "\\" and text[start - 1] in "nrtbf")


def _without_overlaps(secrets: list[Secret]) -> list[Secret]:
    """Keeps the earliest, of those the longest; the kind that comes first in the rules wins a tie (stable sort)."""
    kept: list[Secret] = []
    for secret in sorted(secrets, key=lambda s: (s.start, -s.end)):
        if not kept or secret.start >= kept[-1].end:
            kept.append(secret)
        elif secret.end > kept[-1].end:  # two matches that share characters: both are redacted
            kept[-1] = Secret(kept[-1].start, secret.end, kept[-1].kind)
    return kept


# --- names of variables -------------------------------------------------------------------------------------------

_SECRET_NAME = re.compile(r"\b[A-Z][A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:_ID|_VALUE)?\b")
_BARE = re.compile(r"(?:^|(?<=[\s=:]))[\"']?([A-Za-z0-9+/_-]{20,}={0,2})[\"']?$", re.MULTILINE)
NAME_ANCHORS = ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL")

#: What a text with such a name matches (see `Rule.gate`).
BARE_TOKEN_NAME = r"[A-Z0-9_](?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)"


def _secret_name(code: str) -> str | None:
    if not any(anchor in code for anchor in NAME_ANCHORS):
        return None
    match = _SECRET_NAME.search(code)
    return match.group() if match else None


def _bare_tokens(text: str, name: str) -> Iterator[Secret]:
    kind = "AWS_SECRET_ACCESS_KEY" if name == "AWS_SECRET_ACCESS_KEY" else "SECRET"
    for match in _BARE.finditer(text):
        if random_looking(match.group(1)):
            yield Secret(match.start(1), match.end(1), kind)


# --- the rules ----------------------------------------------------------------------------------------------------


@cache
def provider_rules() -> tuple[Rule, ...]:
    """All rules, those with a distinctive prefix first."""
    return (*_block_rules(), *_extra_rules(), *_detect_secrets_rules(), *_context_rules())


def _block_rules() -> Iterator[Rule]:
    # the block with its body; detect-secrets reports the header line alone. A body without an end goes too.
    pem = (
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:(?!-----BEGIN)[\s\S]){0,16000}?-----END [A-Z0-9 ]*-----|[A-Za-z0-9+/=\s\\]*)"
    )
    static = r"-----BEGIN OpenVPN Static key V1-----(?:[0-9a-f\s\\n]*)(?:-----END OpenVPN Static key V1-----)?"
    putty = r"PuTTY-User-Key-File-[23](?:(?!PuTTY-User)[\s\S]){0,16000}?(?:Private-MAC: [0-9a-f]+|$)"
    yield Rule("PRIVATE_KEY", ("PRIVATE KEY",), re.compile(pem), whole_word=False, tail="")
    yield Rule("PRIVATE_KEY", ("OpenVPN Static key",), re.compile(static), whole_word=False, tail="")
    yield Rule("PRIVATE_KEY", ("PuTTY-User-Key-File",), re.compile(putty), whole_word=False, tail="")


def _extra_rules() -> Iterator[Rule]:
    for kind, anchors, expression in PROVIDER_SHAPES:
        plausible = filled_in if kind == "HF_TOKEN" else None if kind == "TWITTER_BEARER" else token
        yield Rule(kind, anchors, re.compile(expression, re.ASCII), plausible=plausible, tail=_TOKEN)
    # one start per word, or a long word of "eyJeyJ..." costs the square of its length
    jwt = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*){0,3}"
    yield Rule("JWT", ("eyJ",), re.compile(jwt), plausible=json_web_token, tail="=")


def _detect_secrets_rules() -> Iterator[Rule]:
    """The expressions of detect-secrets' plugins (Apache-2.0), with our kinds and anchors.

    Its keyword and entropy plugins are left out: on code they report every `password = "..."` and every long word
    (`_context_rules` asks for both, a telling name and entropy). Its OpenAI, npm and Artifactory expressions are
    written anew above: they cost the square of a hostile line's length, or take in the quotes around the token.
    """
    # imported here: it pulls in requests, and the rules are needed only where records are read
    from detect_secrets.plugins import (
        aws,
        azure_storage_key,
        cloudant,
        discord,
        gitlab_token,
        ibm_cos_hmac,
        mailchimp,
        pypi_token,
        sendgrid,
        slack,
        softlayer,
        square_oauth,
        telegram_token,
        twilio,
    )

    access_key, secret_key = aws.AWSKeyDetector.denylist
    yield Rule(
        "AWS_ACCESS_KEY_ID", ("AKIA", "ASIA", "ABIA", "ACCA", "A3T"), access_key, plausible=access_key_id, tail="A-Z0-9"
    )
    yield Rule("AWS_SECRET_ACCESS_KEY", ("aws",), secret_key, 1, ignore_case=True, tail="", gate=_AWS_GATE)
    for kind, anchors, plugin, plausible, tail in (
        ("AZURE_STORAGE_KEY", ("AccountKey=",), azure_storage_key.AzureStorageKeyDetector, None, ""),
        ("DISCORD_TOKEN", (".",), discord.DiscordBotTokenDetector, three_sorts, _TOKEN),
        ("GITLAB_TOKEN", ("glpat-", "gldt-", "glft-", "glsoat-", "glrt-", "GR1348941", "glcbt-", "glimt-", "glptt-",
                          "glagent-", "gloas-"), gitlab_token.GitLabTokenDetector, None, _TOKEN),
        ("MAILCHIMP_KEY", ("-us",), mailchimp.MailchimpDetector, has_digit, ""),
        ("PYPI_TOKEN", ("pypi-",), pypi_token.PypiTokenDetector, None, _TOKEN),
        ("SENDGRID_KEY", ("SG.",), sendgrid.SendGridDetector, None, _TOKEN),
        ("SLACK_TOKEN", ("xox", "hooks.slack.com", "XOX"), slack.SlackDetector, None, _TOKEN),
        ("SQUARE_SECRET", ("sq0csp-",), square_oauth.SquareOAuthDetector, None, _TOKEN),
        ("TELEGRAM_TOKEN", (":",), telegram_token.TelegramBotTokenDetector, three_sorts, _TOKEN),
        ("TWILIO_KEY", ("AC", "SK"), twilio.TwilioKeyDetector, hex_letters_and_digits, ""),
    ):  # fmt: skip
        for pattern in plugin.denylist:
            yield Rule(kind, anchors, pattern, plausible=plausible, tail=tail)
    for kind, names, plugin, gate in (
        ("CLOUDANT_KEY", ("clou", "cl_", "cl-", "clapi", "clkey", "clpw", "clpa", "cltoken"), cloudant.CloudantDetector,
         r"(?i)cl(?:ou(?:dant)?)?[_-]?(?:api)?(?:key|pw|pass|token)|cloudant\.com"),
        ("IBM_COS_KEY", ("secret",), ibm_cos_hmac.IbmCosHmacDetector, r"(?i)secret[_-]?(?:access)?[_-]?key"
         r"[\"']?\]?[ :=>]+[\"']?[a-f0-9]{48}"),
        ("SOFTLAYER_KEY", ("softlayer", "sl_", "slapi"), softlayer.SoftlayerDetector, ""),
    ):  # fmt: skip
        for pattern in plugin.denylist:
            if pattern.groups == 1:
                once = re.compile(pattern.pattern.replace(_BETWEEN, _BETWEEN_ONCE), pattern.flags)
                yield Rule(kind, names, once, 1, plausible=has_digit, ignore_case=True, tail="", gate=gate)


# --- secrets known by what stands before them ---------------------------------------------------------------------


def _any_of(words: Iterable[str]) -> str:
    """A gate of words; `clave` stands in `enclave`, too, where its rule does not search for it."""
    return f"(?i){'|'.join(map(re.escape, words))}".replace("clave", r"\bclave|[_0-9]clave")


def _context_rules() -> Iterator[Rule]:
    """Secrets known by what stands before them: connection strings, headers, assignments to secret-looking names."""
    for kind, anchors, expression, plausible in CONTEXT_SHAPES:
        pattern = re.compile(expression, re.IGNORECASE | re.MULTILINE)
        gate = _AWS_GATE if anchors == ("aws",) else ""
        yield Rule(kind, anchors, pattern, 1, plausible, anchors != ("://",), whole_word=False, tail="", gate=gate)
    for role in EVERY_ROLE:
        flags = re.MULTILINE | re.ASCII | (0 if role.case else re.IGNORECASE)
        english = role.expression.replace(f"|{FOREIGN}", "").replace(f"|{FOREIGN_KEYS}", "")
        variants = [(english, role.anchors, role.gate)]
        if english != role.expression:
            keys = FOREIGN_KEY_ANCHORS if FOREIGN_KEYS in role.expression else ()
            words = (*FOREIGN_ANCHORS, *keys)
            variants.append((role.expression, words, _any_of(words)))
        for expression, anchors, gate in variants:
            yield Rule(
                role.kind, anchors, re.compile(expression, flags), 1, role.plausible, not role.case,
                whole_word=False, tail="", gate=gate, near_values=role.near_values,
                parts=re.compile(role.parts) if role.parts else None, cells=role.cells,
            )  # fmt: skip
