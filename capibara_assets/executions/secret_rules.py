"""What a secret looks like: detect-secrets' provider rules, and those it lacks.

Each rule has anchors, substrings of which a text must hold one before the rule's expression is tried: scanning for a
substring is two orders of magnitude cheaper than matching expressions, and nearly every text holds none.
"""

import base64
import binascii
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

_TOKEN = "A-Za-z0-9_-"


@dataclass(frozen=True, slots=True)
class Secret:
    """A stretch of text that must not be kept."""

    start: int
    end: int
    kind: str  # names the placeholder, never the value


@dataclass(frozen=True)
class Rule:
    """One shape. `group` holds the secret; `plausible` may still reject it; `ignore_case` is about the anchors.

    A match must not start inside a word, and is stretched over `tail` characters that follow it: keys are pasted with
    a character too many as often as with one too few, and half a key in the log is a leak all the same.
    """

    kind: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    group: int = 0
    plausible: Callable[[str], bool] | None = None
    ignore_case: bool = False
    whole_word: bool = True
    tail: str = "A-Za-z0-9"


def find_secrets(text: str, names_in_code: str | None = None, rules: Sequence[Rule] | None = None) -> list[Secret]:
    """Secrets in `text`, left to right, not overlapping.

    Args:
        names_in_code: for the output of a program: the program. Where it names a secret-looking variable
            (`print(os.environ["AWS_SECRET_ACCESS_KEY"])`), a high-entropy token standing alone in the output is one.
        rules: those of `rules_for` a larger text that holds this one; None tries all.
    """
    found: list[Secret] = []
    inside: list[Secret] = []
    for rule in rules_for(text, rules):
        for secret in _matches(rule, text):
            (inside if rule.whole_word and _inside_word(text, secret.start) else found).append(secret)
    # inside a word, yet right behind another secret: two keys without a gap
    ends = {secret.end for secret in found}
    while touching := [secret for secret in inside if secret.start in ends]:
        found += touching
        inside = [secret for secret in inside if secret.start not in ends]
        ends |= {secret.end for secret in touching}
    if names_in_code is not None and (name := _secret_name(names_in_code)):
        found += _bare_tokens(text, name)
    return _without_overlaps(found)


def rules_for(text: str, rules: Sequence[Rule] | None = None) -> list[Rule]:
    """The rules (of `rules`, or of all) that have an anchor in `text`; no other can match in it or in a part of it."""
    candidates = provider_rules() if rules is None else rules
    lowered = text.lower() if any(rule.ignore_case for rule in candidates) else ""
    return [rule for rule in candidates if _has_anchor(rule.anchors, lowered if rule.ignore_case else text)]


def _has_anchor(anchors: tuple[str, ...], text: str) -> bool:
    for anchor in anchors:  # noqa: SIM110 - a loop is three times as fast as any() with a generator, and this is hot
        if anchor in text:
            return True
    return False


def entropy(text: str) -> float:
    """Shannon entropy in bits per character."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values()) if text else 0.0


def _matches(rule: Rule, text: str) -> Iterator[Secret]:
    stretch = re.compile(f"[{rule.tail}]*") if rule.tail else None
    for match in rule.pattern.finditer(text):
        start, end = match.span(rule.group)
        if stretch is not None and (more := stretch.match(text, end)):
            end = more.end()
        if rule.plausible is None or rule.plausible(text[start:end]):
            yield Secret(start, end, rule.kind)


def _inside_word(text: str, start: int) -> bool:
    """Whether a letter or digit precedes; an escape such as the \\n of a string literal is no part of the word."""
    if start == 0 or not (text[start - 1].isalnum() and text[start - 1].isascii()):
        return False
    return not (start >= 2 and text[start - 2] == "\\" and text[start - 1] in "nrtbf")


def _without_overlaps(found: list[Secret]) -> list[Secret]:
    """The earliest, of those the longest; a kind that comes first in the rules wins a draw (sorting is stable)."""
    kept: list[Secret] = []
    for secret in sorted(found, key=lambda s: (s.start, -s.end)):
        if not kept or secret.start >= kept[-1].end:
            kept.append(secret)
        elif secret.end > kept[-1].end:  # two shapes that share characters: both go
            kept[-1] = Secret(kept[-1].start, secret.end, kept[-1].kind)
    return kept


# --- names of variables -------------------------------------------------------------------------------------------

_SECRET_NAME = re.compile(r"\b[A-Z][A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:_ID|_VALUE)?\b")
_BARE = re.compile(r"(?:^|(?<=[\s=:]))[\"']?([A-Za-z0-9+/_-]{20,}={0,2})[\"']?$", re.MULTILINE)
_NAME_ANCHORS = ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL")


def _secret_name(code: str) -> str | None:
    if not any(anchor in code for anchor in _NAME_ANCHORS):
        return None
    match = _SECRET_NAME.search(code)
    return match.group() if match else None


def _bare_tokens(text: str, name: str) -> Iterator[Secret]:
    kind = "AWS_SECRET_ACCESS_KEY" if name == "AWS_SECRET_ACCESS_KEY" else "SECRET"
    for match in _BARE.finditer(text):
        if _random_looking(match.group(1)):
            yield Secret(match.start(1), match.end(1), kind)


# --- plausibility -------------------------------------------------------------------------------------------------

_PLACEHOLDER = re.compile(
    r"your|example|placeholder|x{4}|\*{3}|changeme|dummy|insert|replace|todo|redacted", re.IGNORECASE
)
_ACCESS_NAMES = "password passwd pass pwd secret user username postgres mysql root admin test guest token changeme key"
_ACCESS_WORDS = frozenset(_ACCESS_NAMES.split())


def _random_looking(value: str) -> bool:
    """A long run of mixed letters and digits with high entropy, in two of upper, lower and digit at least."""
    longest = max(re.split(r"[-_./:=+]", value), key=len)
    classes = sum(any(test(c) for c in value) for test in (str.isupper, str.islower, str.isdigit))
    mixed = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return mixed and (classes == 3 or len(longest) >= 24) and len(longest) >= 8 and entropy(value) >= 3.5


def _assigned_secret(value: str) -> bool:
    """A literal that is assigned to a secret-looking name and no placeholder, path, model name or sentence."""
    if len(value) < 16 or _PLACEHOLDER.search(value) or value[0] in "<{$%/.":
        return False
    longest = max(re.split(r"[-_./:]", value), key=len)
    if len(longest) < 12 or not (any(c.isdigit() for c in longest) and any(c.isalpha() for c in longest)):
        return False
    return entropy(value) >= 3.3


def _password(value: str) -> bool:
    """The password of a connection string: not a template, not a word of documentation."""
    return (
        value.lower() not in _ACCESS_WORDS
        and not _PLACEHOLDER.search(value)
        and value[0] not in "<{$%["
        and len(value) > 3
    )


def _header_credential(value: str) -> bool:
    return len(value) >= 12 and not _PLACEHOLDER.search(value) and any(c.isdigit() for c in value)


def _json_web_token(value: str) -> bool:
    """The first part decodes to a JSON object with an algorithm or a type."""
    head = value.split(".")[0]
    try:
        header = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (ValueError, binascii.Error):
        return False
    return isinstance(header, dict) and bool({"alg", "typ", "enc"} & header.keys())


def _has_digit(value: str) -> bool:
    return any(c.isdigit() for c in value)


def _mixed_case_and_digits(value: str) -> bool:
    return _has_digit(value) and value != value.lower() and value != value.upper()


def _hex_letters_and_digits(value: str) -> bool:
    return _has_digit(value) and any(c.isalpha() for c in value[2:]) and entropy(value[2:]) > 2.5


# --- the rules ----------------------------------------------------------------------------------------------------

#: Shapes that detect-secrets 1.5 lacks or matches only in part: (kind, anchors, expression).
_EXTRA: tuple[tuple[str, tuple[str, ...], str], ...] = (
    # E2B: e2b_ and 40 hex digits; a digit short or long is a badly pasted key, not another thing
    ("E2B_API_KEY", ("e2b_",), r"e2b_[0-9a-f]{32,48}"),
    ("E2B_ACCESS_TOKEN", ("sk_e2b_",), r"sk_e2b_[0-9a-f]{32,48}"),
    # model vendors
    ("ANTHROPIC_API_KEY", ("sk-ant-",), r"sk-ant-[a-z]{2,12}\d{2}-[A-Za-z0-9_-]{20,}"),
    ("OPENAI_API_KEY", ("sk-proj-", "sk-svcacct-", "sk-admin-"), r"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,}"),
    ("OPENAI_API_KEY", ("sk-",), r"sk-[A-Za-z0-9]{46,52}"),
    ("OPENAI_API_KEY", ("T3BlbkFJ",), r"sk-[A-Za-z0-9_-]{0,200}T3BlbkFJ[A-Za-z0-9_-]{16,}"),
    ("OPENROUTER_API_KEY", ("sk-or-",), r"sk-or-v1-[0-9a-f]{56,66}"),
    ("HF_TOKEN", ("hf_", "api_org_"), r"(?:hf|api_org)_[A-Za-z0-9]{32,38}"),
    ("GOOGLE_API_KEY", ("AIza",), r"AIza[A-Za-z0-9_-]{33,37}"),
    ("GOOGLE_OAUTH", ("GOCSPX-", "ya29."), r"GOCSPX-[A-Za-z0-9_-]{20,}|ya29\.[A-Za-z0-9_-]{20,}"),
    ("GROQ_API_KEY", ("gsk_",), r"gsk_[A-Za-z0-9]{48,56}"),
    ("XAI_API_KEY", ("xai-",), r"xai-[A-Za-z0-9]{70,90}"),
    ("REPLICATE_API_TOKEN", ("r8_",), r"r8_[A-Za-z0-9]{36,42}"),
    ("PERPLEXITY_API_KEY", ("pplx-",), r"pplx-[A-Za-z0-9]{40,60}"),
    ("PINECONE_API_KEY", ("pcsk_",), r"pcsk_[A-Za-z0-9_]{40,}"),
    ("LANGSMITH_API_KEY", ("lsv2_",), r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    ("TAVILY_API_KEY", ("tvly-",), r"tvly-[A-Za-z0-9-]{28,}"),
    # code hosts, registries, clouds and services
    ("GITHUB_TOKEN", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{22,255}"),
    ("GITHUB_TOKEN", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{34,38}"),
    ("NPM_TOKEN", ("npm_",), r"npm_[A-Za-z0-9]{34,38}"),
    ("NPM_TOKEN", (":_authToken=",), r"(?<=:_authToken=)[^\s\"']{8,}"),
    ("ARTIFACTORY_TOKEN", ("AKC",), r"AKC[A-Za-z0-9]{30,}"),
    ("DOCKER_TOKEN", ("dckr_",), r"dckr_[a-z]{3,4}_[A-Za-z0-9_-]{25,}"),
    ("AWS_SESSION_TOKEN", ("FwoG", "IQoJ"), r"(?:FwoG|IQoJ)[A-Za-z0-9+/=]{100,}"),
    ("DIGITALOCEAN_TOKEN", ("do",), r"do[opr]_v1_[a-f0-9]{60,66}"),
    ("DATABRICKS_TOKEN", ("dapi",), r"dapi[a-f0-9]{30,34}(?:-\d)?"),
    ("DAYTONA_API_KEY", ("dtn_",), r"dtn_[a-f0-9]{60,68}"),
    ("SUPABASE_TOKEN", ("sbp_", "sb_secret_"), r"(?:sbp_[a-f0-9]{38,42}|sb_secret_[A-Za-z0-9_-]{20,})"),
    ("LINEAR_API_KEY", ("lin_api_",), r"lin_api_[A-Za-z0-9]{38,42}"),
    ("NOTION_TOKEN", ("ntn_", "secret_"), r"(?:ntn_|secret_)[A-Za-z0-9]{42,50}"),
    ("SHOPIFY_TOKEN", ("shp",), r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{30,34}"),
    ("VAULT_TOKEN", ("hvs.", "hvb."), r"hv[sb]\.[A-Za-z0-9_-]{24,}"),
    ("STRIPE_KEY", ("sk_live_", "rk_live_", "sk_test_", "rk_test_", "whsec_"),
     r"(?:[rs]k_(?:live|test)_[0-9a-zA-Z]{16,}|whsec_[A-Za-z0-9+/=]{24,})"),
    ("SLACK_TOKEN", ("xox", "xapp-"), r"(?:xox[abcdeporst]|xapp)-[A-Za-z0-9][A-Za-z0-9-]{18,}"),
    ("DISCORD_WEBHOOK", ("discord",), r"https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/\d+/[A-Za-z0-9_-]{40,}"),
    ("AGE_SECRET_KEY", ("AGE-SECRET-KEY-",), r"AGE-SECRET-KEY-1[0-9A-Z]{50,60}"),
)  # fmt: skip


@cache
def provider_rules() -> tuple[Rule, ...]:
    """All rules, those with a telling prefix first."""
    return (*_block_rules(), *_extra_rules(), *_detect_secrets_rules(), *_context_rules())


def _block_rules() -> Iterator[Rule]:
    # the block with its body; detect-secrets reports the header line alone. A body without an end goes too.
    pem = (
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:(?!-----BEGIN)[\s\S]){0,16000}?-----END [A-Z0-9 ]*-----|[A-Za-z0-9+/=\s\\]*)"
    )
    putty = r"PuTTY-User-Key-File-[23](?:(?!PuTTY-User)[\s\S]){0,16000}?(?:Private-MAC: [0-9a-f]+|$)"
    yield Rule("PRIVATE_KEY", ("PRIVATE KEY",), re.compile(pem), whole_word=False, tail="")
    yield Rule("PRIVATE_KEY", ("PuTTY-User-Key-File",), re.compile(putty), whole_word=False, tail="")


def _extra_rules() -> Iterator[Rule]:
    for kind, anchors, expression in _EXTRA:
        yield Rule(
            kind, anchors, re.compile(expression), plausible=_has_digit if kind != "HF_TOKEN" else None, tail=_TOKEN
        )
    # one start per word, or a long word of "eyJeyJ..." costs the square of its length
    jwt = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*){0,3}"
    yield Rule("JWT", ("eyJ",), re.compile(jwt), plausible=_json_web_token, tail="=")


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
        "AWS_ACCESS_KEY_ID", ("AKIA", "ASIA", "ABIA", "ACCA", "A3T"), access_key, plausible=_has_digit, tail="A-Z0-9"
    )
    yield Rule("AWS_SECRET_ACCESS_KEY", ("aws",), secret_key, 1, ignore_case=True, tail="")
    for kind, anchors, plugin, plausible, tail in (
        ("AZURE_STORAGE_KEY", ("AccountKey=",), azure_storage_key.AzureStorageKeyDetector, None, ""),
        ("DISCORD_TOKEN", (".",), discord.DiscordBotTokenDetector, _mixed_case_and_digits, _TOKEN),
        ("GITLAB_TOKEN", ("glpat-", "gldt-", "glft-", "glsoat-", "glrt-", "GR1348941", "glcbt-", "glimt-", "glptt-",
                          "glagent-", "gloas-"), gitlab_token.GitLabTokenDetector, None, _TOKEN),
        ("MAILCHIMP_KEY", ("-us",), mailchimp.MailchimpDetector, _has_digit, ""),
        ("PYPI_TOKEN", ("pypi-",), pypi_token.PypiTokenDetector, None, _TOKEN),
        ("SENDGRID_KEY", ("SG.",), sendgrid.SendGridDetector, None, _TOKEN),
        ("SLACK_TOKEN", ("xox", "hooks.slack.com", "XOX"), slack.SlackDetector, None, _TOKEN),
        ("SQUARE_SECRET", ("sq0csp-",), square_oauth.SquareOAuthDetector, None, _TOKEN),
        ("TELEGRAM_TOKEN", (":",), telegram_token.TelegramBotTokenDetector, _mixed_case_and_digits, _TOKEN),
        ("TWILIO_KEY", ("AC", "SK"), twilio.TwilioKeyDetector, _hex_letters_and_digits, ""),
    ):  # fmt: skip
        for pattern in plugin.denylist:
            yield Rule(kind, anchors, pattern, plausible=plausible, tail=tail)
    for kind, anchors, plugin in (
        ("CLOUDANT_KEY", ("cl",), cloudant.CloudantDetector),
        ("IBM_COS_KEY", ("secret",), ibm_cos_hmac.IbmCosHmacDetector),
        ("SOFTLAYER_KEY", ("softlayer", "sl_", "slapi"), softlayer.SoftlayerDetector),
    ):
        for pattern in plugin.denylist:
            if pattern.groups == 1:
                yield Rule(kind, anchors, pattern, 1, plausible=_has_digit, ignore_case=True, tail="")


def _context_rules() -> Iterator[Rule]:
    """Secrets known by what stands before them."""
    name = (
        r"(?:secret|token|passw(?:or)?d|passphrase|pwd|(?:api|access|auth|encryption)[_-]?key|credential)[\w.-]{0,40}"
    )
    anchors = ("secret", "token", "passw", "passphrase", "pwd", "key", "credential")
    connection = r"[a-z][a-z0-9+.-]{1,30}://[^\s:/?#\[\]@'\"<>]*:([^\s/'\"@<>{}]+)@[^\s'\"]"
    header = r"authorization[\"']?\s*[\]:=,]+\s*[frb]?[\"']?(?:bearer|basic|token|apikey)\s+([A-Za-z0-9._~+/=-]+)"
    yield Rule(
        "PASSWORD", ("://",), re.compile(connection, re.IGNORECASE), 1, plausible=_password, whole_word=False, tail=""
    )
    yield Rule("AUTHORIZATION", ("authorization",), re.compile(header, re.IGNORECASE), 1, plausible=_header_credential,
               ignore_case=True, tail="")  # fmt: skip
    aws = r"aws[\w.-]{0,20}secret[\w.-]{0,20}[\"']?\]?\s*[:=]\s*[\"']?([0-9A-Za-z/+]{38,42})(?![0-9A-Za-z/+])"
    yield Rule("AWS_SECRET_ACCESS_KEY", ("aws",), re.compile(aws, re.IGNORECASE), 1, ignore_case=True, tail="")
    quoted = rf"{name}[\"']?\]?\s*(?::\s*\w+\s*)?(?::=|=>|=|:|,)\s*[frb]?[\"']([^\"'\s]{{16,}})[\"']"
    yield Rule(
        "SECRET", anchors, re.compile(quoted, re.IGNORECASE), 1, plausible=_assigned_secret, ignore_case=True, tail=""
    )
    environment = rf"^[ \t]*(?:export[ \t]+|set[ \t]+)?[\w.-]{{0,60}}?{name}=([^\s\"']{{16,}})"
    yield Rule("SECRET", anchors, re.compile(environment, re.IGNORECASE | re.MULTILINE), 1, plausible=_assigned_secret,
               ignore_case=True, tail="")  # fmt: skip
