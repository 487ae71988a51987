"""Connection strings, headers, settings and query parameters with a secret, each with its own expression."""

from collections.abc import Callable

from capibara_assets.executions.secrets.characters import has_digit
from capibara_assets.executions.secrets.plausibility import (
    assigned_secret,
    header_credential,
    line_password,
    password,
    random_looking,
    strong_password,
)

ContextShape = tuple[str, tuple[str, ...], str, Callable[[str], bool]]
#: What may stand before a name at the start of a line.
LINE_START = r"^[ \t]*+(?:export[ \t]++|set[ \t]++)?[\w.-]{0,60}?"
_NAME = (
    r"(?=[acdempstw])"  # each begins with one of these: sorts out most places before the names are tried one by one
    r"(?:secret|token|passw(?:or)?d|passphrase|pwd|credential|(?:api|access|auth|encryption|private|signing|account"
    r"|client|session|master|storage|webhook|subscription|service|app|consumer|deploy|admin)[_-]?key)[\w.-]{0,40}"
)
_PASSWORD_NAME = r"(?:passw(?:or)?d|passphrase|pwd|_pass)[\w.-]{0,20}"
_SECRET_ANCHORS = ("secret", "token", "passw", "passphrase", "pwd", "_pass", "key", "credential")
_PASSWORD_ANCHORS = ("passw", "passphrase", "pwd", "_pass")
_QUOTE = r"\\?[\"']"
_IS = r"\s*(?::\s*\w+\s*)?(?::=|=>|=|:|,)\s*"  # with a type between, as in `KEY: str = "…"`
_SCHEME = r"(?:bearer|basic|token|apikey|api-key|key)\s+"
#: (kind, anchors, expression with the secret in its group, plausibility)
CONTEXT_SHAPES: tuple[ContextShape, ...] = (
    ("PASSWORD", ("://",), r"[a-z][a-z0-9+.-]{1,30}://[^\s:/?#\[\]'\"<>]*:([^\s/'\"<>{}]+)@[^\s'\"]", password),
    ("PASSWORD", _PASSWORD_ANCHORS, r"[;?&]\s*(?:user\s)?(?:password|pwd)\s?=\s?(?![\w.]*[(])"
     r"([^\s\"';&<>{}$\\]{5,})", password),
    ("PASSWORD", ("-u", "--user"), rf"\s(?:-u|--user)(?:\s|=)\s*{_QUOTE}?[\w.@-]+:([^\s\"'\\$]{{6,}})",
     strong_password),
    ("AUTHORIZATION", ("authorization",),
     rf"authorization{_QUOTE}?(?:\s*[\]:=,]+\s*[frb]?{_QUOTE}?|[ \t]+{_QUOTE}){_SCHEME}([A-Za-z0-9._~+/=-]+)",
     header_credential),
    ("AUTHORIZATION", ("authorization", "bearer"),
     rf"(?:authorization{_QUOTE}?\s*[\]:=,]+\s*{_QUOTE}?|bearer\s+)([A-Za-z0-9._~+/=-]{{20,}})", random_looking),
    ("AWS_SECRET_ACCESS_KEY", ("aws",),
     rf"aws[\w.-]{{0,20}}secret[\w.-]{{0,20}}{_QUOTE}?\]?\s*[:=]\s*{_QUOTE}?([0-9A-Za-z/+]{{38,42}})"
     r"(?![0-9A-Za-z/+])", has_digit),
    ("SECRET", _SECRET_ANCHORS, rf"{_NAME}{_QUOTE}?\]?{_IS}[frb]?{_QUOTE}([^\"'\s\\]{{16,}}){_QUOTE}",
     assigned_secret),
    ("PASSWORD", _PASSWORD_ANCHORS, rf"{_PASSWORD_NAME}{_QUOTE}?\]?{_IS}[frb]?{_QUOTE}([^\"'\s\\]{{8,64}}){_QUOTE}",
     strong_password),
    # any other key: `CLOUDFLARE_KEY = "…"`, where the value must look the more random
    ("SECRET", ("_key", "-key"), rf"[a-z0-9][_-]keys?{_QUOTE}?\]?{_IS}[frb]?{_QUOTE}([^\"'\s\\]{{16,}}){_QUOTE}",
     random_looking),
    ("SECRET", ("_key",), rf"{LINE_START}[a-z0-9](?<!public)_key=([^\s\"']{{16,}})", random_looking),
    # env dumps and settings without quotes
    ("SECRET", _SECRET_ANCHORS,
     rf"{LINE_START}{_NAME}=([^\s\"']{{16,}})", assigned_secret),
    ("PASSWORD", _PASSWORD_ANCHORS,
     rf"{LINE_START}{_PASSWORD_NAME}(?:=|:[ \t]++)([^\s\"']{{7,63}}[^\s\"',;(){{}}])$", line_password),
    # query parameters, HTTP headers, YAML
    ("SECRET", _SECRET_ANCHORS,
     rf"(?:{_NAME}{_QUOTE}?\s?[:=]\s?|[?&](?:api_?key|key|sig|signature)=)([A-Za-z0-9_.+/~=%-]{{16,}})"
     r"(?![\w(\[.])", random_looking),
)  # fmt: skip
