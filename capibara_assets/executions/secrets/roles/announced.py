"""Secrets that what stands before them announces: a file that is printed, a command that shows one, a form.

The value stands alone behind it, mostly in a line of its own.
"""

import re
from collections.abc import Iterator

from capibara_assets.executions.secrets.characters import has_digit
from capibara_assets.executions.secrets.plausibility import (
    bare_password,
    chosen_password,
    credential,
    filled_in,
    network_key,
    numbered_password,
    pieced,
    random_looking,
    stated_or_made,
    told_password,
)
from capibara_assets.executions.secrets.roles.foreign import FOREIGN
from capibara_assets.executions.secrets.roles.passwords import CHOSEN, ENDS_ANCHORS
from capibara_assets.executions.secrets.roles.role import (
    CHARS,
    DRAWN,
    ENGLISH,
    IS,
    MARK,
    MINGLED,
    NOUN_ANCHORS,
    NOUNS,
    VALUE,
    Role,
)

_KEEPS = r"(?:secret|passw|\bpass\b|vault|keyring|credential|\blogin\b)"
_KEPT_IN = (
    r"(?:pass(?:wd|word|phrase)?|secrets?|creds?|credentials?|login|auth|token|cookie|psk|(?<!public)(?<!pub)[._-]?key)"
)
_KEY_FILE = r"(?:id_\w|key|\.pem|\.p12|\.pfx|\.jks|\.env|cred|secret|token|kubeconfig|service-?_?account|netrc|pgpass)"
_NAME = r"[\w.-]{0,40}(?:passw|secret|token|_key|-key|credential)"
_SHOWS = (
    rf"(?:\b(?:printenv|getenv)[ ]{_NAME}|\becho[ ]\"?\$\{{?{_NAME}|\b(?:vault[ ](?:kv[ ]get|read)|consul[ ]kv[ ]get"
    r"|pass[ ]show|op[ ]read|bw[ ]get|chamber[ ]read|keyring[ ]get|gh[ ]auth[ ]token|heroku[ ]config:get"
    r"|(?:doppler|infisical)[ ]secrets[ ]get|gcloud[ ](?:secrets[ ]versions[ ]access|auth[ ]print-\w{2,10}-token)"
    r"|az[ ](?:account[ ]get-access-token|keyvault[ ]secret[ ]show)"
    r"|aws[ ](?:secretsmanager[ ]get-secret-value|ssm[ ]get-parameter)|security[ ]find-\w{7,8}-password)\b)"
)
_SHOWS_ANCHORS = (
    *("printenv ", "getenv ", "echo $", 'echo "$', "kv get", "vault read", "pass show", "op read", "bw get"),
    *("chamber read", "keyring get", "auth token", "config:get", "secrets get", "versions access", "auth print-"),
    *("get-access-token", "secret show", "get-secret-value", "get-parameter", "-password"),
)
#: A code that is sent to log in once, or a number that opens something.
_CODES = (
    r"(?:(?:verification|security|log-?in|sign-?in|one-time|authentication|auth|2fa|mfa|otp|two-factor)"
    r"[ -](?:pass)?(?:code|pin)|(?:best[äa]tigungs|verifizierungs|sicherheits|anmelde|einmal|verificatie)code"
    r"|c[óo]digo[ ]de[ ](?:verificaci[óo]n|seguridad|acceso|verifica[çc][ãa]o)|codice[ ]di[ ](?:verifica|sicurezza)"
    r"|code[ ]de[ ](?:v[ée]rification|s[ée]curit[ée])|\botp)"
)
_CODES_ANCHORS = ("code", "pin", "otp", "código", "codigo", "codice")
_CODE = r"(\d{3}[ -]?\d{3}|\d{4,8}|[A-Z]-\d{6})(?![\w.%-]*\w)"
_NAMED = r"(?:secret|token|passw|api_?key|private_?key|signing_?key)"
_SOFT_BREAK = re.compile(r"=\r?\n")


#: Who speaks: `[10:02] kim: `, `<kim> `, `**Kim:** `, `Q: `.
_SPEAKER = (
    r"[ \t>*-]{0,4}(?:[\[(]?[\d:.,/ TZapm-]{4,24}[\])]?[ ])?(?:<[@\w.-]{1,24}>[ ]|[*_]{0,2}[@\w.-]{1,24}"
    r"(?:[ ][\w.-]{1,24})?(?:[ ][(\[][^\n)\]]{1,24}[)\]])?[*_]{0,2}:[*_]{0,2}[ ])"
)
#: What is said before it.
_LEADS = (
    r"(?:(?:yes|yep|yeah|sure|ok|okay|hi|hey|ja|oui|s[íi]|it'?s|that'?s|it is|its|this is|here(?: it is"
    r"| you go)?|try|use"
    r"|should be|i think|es ist|das ist|c'est|es|voici|aqui|toma)[,:;.]?[ ]){0,4}"
)
_HALF = r"(?:half|part|piece|rest|remainder|teil|hälfte|moitié|partie|mitad|parte|metà|metade|helft|deel)"
_LITERAL_IN_DIFF = re.compile(r"(?<![\w\"'])(?<!, )[\"'`]([^\s\"'`\\<>]{8,400})[\"'`](?![\w\"'])")
_SPEAKS_IN_TEST = re.compile(
    r"secret|(?<!pad_)token(?!iz|s\b|\.text)|passw|passphrase|\bpwd|api[_ -]?key|credential|\bpat\b", re.IGNORECASE
)
_HEADER = re.compile(r"[A-Za-z]+(?:[-_.][A-Za-z]+)+")  # and names of fields, which tests compare more often
_IN_TEST = r"(?:secret|token|passw|passphrase|pwd|api[_ -]?key|credential|\bpat\b)"
_SHOWN = (
    r"(?:assert\w*|expected|received|got|actual|left|right|want|but was|diff)\b[:, (=][^\n]*"
    rf"[\"'`][^\s\"'`]*{CHOSEN}"
)
_NO_SECRET_IN_TEST = re.compile(r"hash|digest|sha\d|md5|\buuid|checksum|encode|commit|\bid\b", re.IGNORECASE)
_OF_A_KEY = (
    r"(?:crypt|sign|\baes\b|aes-|hmac|\bapi\b|private|cipher|webhook|backup|archive|licen[cs]e|wallet"
    r"|master|shared)"
)
_NOT_OF_A_KEY = r"(?![^\n]*(?:public|fingerprint|checksum|digest|key[ _-]?id|\bsha-?\d|thumbprint|commit))"


def _said(value: str) -> bool:
    """Whether what is answered to a question for a password or a key is one."""
    return told_password(value) or stated_or_made(value)


def _half(value: str) -> bool:
    return pieced(value) or _said(value)


def _compared(shown: re.Match[str]) -> Iterator[tuple[int, int]]:
    """Values that a test shows as other than expected, where it is about a secret."""
    text = shown.string
    around = text[max(0, shown.start() - 400) : shown.end() + 200]
    if not _SPEAKS_IN_TEST.search(around) or _NO_SECRET_IN_TEST.search(around):
        return
    for literal in _LITERAL_IN_DIFF.finditer(text, *shown.span(1)):
        if _said(literal.group(1)) and not _HEADER.fullmatch(literal.group(1)):
            yield literal.span(1)


def _kept(value: str) -> bool:
    """Whether what fills a line where a password or a key is kept is one."""
    return bare_password(value) or credential(value)


def _broken(stretch: str) -> bool:
    """Whether a value that a mail's encoding has broken into two lines is a secret."""
    return credential(_SOFT_BREAK.sub("", stretch))


def _code(value: str) -> bool:
    """Whether digits are a code, and neither counted up nor one digit repeated as in an example."""
    digits = "".join(filter(str.isdigit, value))
    return len(set(digits)) > 2 and digits not in "0123456789"


ANNOUNCED: tuple[Role, ...] = (
    # a code of digits, told before or behind what it is for; the flag or the setting of that name
    Role(
        "PASSWORD", _CODES_ANCHORS,
        rf"(?<![\w.-]){_CODE}[ ](?:{IS})[ ](?:your|the|ihr|dein|tu|su|votre|ton|il|seu|uw|je)\b"
        rf"[^\n.]{{0,40}}?{_CODES}",
        _code,
    ),
    Role(
        "PASSWORD", _CODES_ANCHORS,
        rf"{_CODES}[^\n\d:=]{{0,40}}?(?:\b(?:{IS})\b:?|:)[ ]{MARK}{_CODE}", _code,
    ),
    Role(
        "PASSWORD", ("code", "pin"),
        rf"\b(?:enter|use|type)[ ](?:(?:the|this|your)[ ])?(?:code|pin):?[ ]{MARK}{_CODE}", _code,
    ),
    Role(
        "SECRET", ("_code",), rf"\b(?:device|user|auth|authorization)_code[\"'][ ]?:[ ]?[\"']{VALUE}[\"']", credential,
    ),
    Role(
        "PASSWORD", ("otp", "mfa", "2fa", "token-code"),
        r"(?:[ ]--(?:t?otp|mfa|2fa|mfa-code|token-code)[ =]|\b(?:t?otp|mfa|2fa)(?:_?(?:code|token))?[\"']?[ ]?[:=])"
        rf"[ ]?[\"']?{_CODE}",
        _code,
    ),
    # the first line that is fed to what keeps one
    Role(
        "PASSWORD", ("<<",),
        rf"{_KEEPS}[^\n]{{0,160}}?<<[-~]?[ ]?[\"']?\w{{1,20}}[\"']?[^\n]{{0,60}}\n"
        rf"(?:[\w.@-]{{1,40}}:)?{VALUE}[ \t\r]*$",
        _kept,
    ),
    # the line of a file of that name, also behind the user's; not the user's, once the other is known
    Role(
        "PASSWORD", ("cat ", "type "),
        rf"(?:^|[$#>;&|]|\bsudo)[ \t]*+(?:cat|type)[ ][^\n]{{0,120}}?{_KEPT_IN}(?:\.\w{{1,5}})?[ \t\r]*\n"
        rf"(?:[\w.@-]{{1,60}}\r?\n|\w{{1,20}}::)?{VALUE}[ \t\r]*$(?!\n[\x00<])",
        _kept,
    ),
    # decoded into a file of keys
    Role(
        "PRIVATE_KEY", ("base64", "openssl enc"),
        r"(?:echo|printf)[ ]++(?:-\w[ ]++|[\"']?%s[\"']?[ ]++)?[\"']?([A-Za-z0-9+/_-]{16,20000}={0,2})[\"']?"
        rf"[ ]*+\|[ ]*+(?:base64|openssl[ ]enc)[ ]++(?:-[\w-]{{1,12}}[ ]++){{1,3}}>[ ]*+[^\n]{{0,120}}?{_KEY_FILE}",
        filled_in,
    ),
    Role(
        "PRIVATE_KEY", ("<<<",),
        r"\bbase64[ ]++-{1,2}[dD]\w{0,6}[ ]++<<<[ ]*+[\"']?([A-Za-z0-9+/_-]{16,20000}={0,2})[\"']?[ ]*+>"
        rf"[^\n]{{0,120}}?{_KEY_FILE}",
        filled_in,
    ),
    # what a command shows or has made, alone below it
    Role(
        "SECRET", _SHOWS_ANCHORS, rf"{_SHOWS}[^\n|]{{0,160}}\n{VALUE}[ \t\r]*$", _kept,
    ),
    # the reply behind the name that was asked for; an item below it; the value of the object of that name
    Role(
        "PASSWORD", ("1) \"", "3) \"", "5) \"", "7) \""),
        rf"\d\)[ ]\"[\w.-]{{0,40}}(?:pass|auth|secret|token|key)\"\s{{1,4}}\d{{1,3}}\)[ ]\"{VALUE}\"", _kept,
    ),
    Role(
        "PASSWORD", ('"value":',),
        r"[\"'][\w.-]{0,40}(?:password|secret|token|[_-]key)[\"'][ ]?:[ ]?\{\s{0,20}"
        rf"(?:\"\w{{1,20}}\":[^\n]{{0,80}},\s{{0,20}}){{0,4}}\"value\":[ ]?\"{VALUE}\"",
        _kept,
    ),
    # the default of a variable of that name; a line of a log that ends with its announcement
    Role(
        "SECRET", ("variable \"",),
        r"\bvariable[ ]\"[\w.-]{0,40}(?:passw\w{0,4}|secret|token|_key)\"[ ]?\{[^{}]{0,400}?"
        rf"\bdefault[ \t]*+=[ \t]*+\"{VALUE}\"",
        _kept,
    ),
    Role(
        "PASSWORD", ("following password",),
        rf"\bfollowing[ ]password\b[^\n]{{0,80}}:[ \t\r]*\n(?:[ \t\r]*\n)?(?:[^\n]{{1,80}}\]:[ ])?"
        rf"{VALUE}[ \t\r]*$", _kept,
    ),
    # a field that a validator did not take, and its value
    Role(
        "SECRET", ("input_value=",),
        rf"^[ \t]*+[\w.]{{0,60}}?(?:{_NAMED})[\w.]{{0,40}}[ \t\r]*\n[^\n]{{0,200}}?\binput_value=[\"']{VALUE}[\"']",
        _kept,
    ),
    # a row of accounts, with the password itself in place of its hash
    Role(
        "PASSWORD", (":/",),
        r"^[\w.-]{1,40}:([^\s:]{6,64}):\d{1,7}:\d{1,7}:[^:\n]{0,80}:/[^:\n]{0,80}:/", chosen_password,
    ),
    # a network's name and key, for a modem
    Role(
        "PASSWORD", ("at+cw",), r"\bAT\+CW\w{1,12}=\"[^\"\n]{1,64}\",\"([^\"\n]{8,63})\"", network_key,
    ),
    # what a provider of identities says of a user, as a form sends it
    Role(
        "SECRET", ("samlresponse", "samlassertion"),
        r"saml(?:response|assertion)[\"']?(?:=|:[ ]?|[\"'][ ]value=)[\"']?([A-Za-z0-9+/%_-]{40,20000}={0,2})",
        filled_in,
    ),
    # told in a mail that breaks its lines
    Role(
        "SECRET", ("quoted-printable",),
        r"quoted-printable[\s\S]{0,1000}?(?:secret|token|passw\w{0,4}|key)\b[^\n]{0,60}?"
        rf"(?:\b(?:{IS})\b:?|[:=])[ ]{MARK}([{CHARS}-]{{4,76}}=\r?\n[{CHARS}-]{{4,200}})",
        _broken,
    ),
    # answered by one who is asked for it; typed behind a question
    Role(
        "PASSWORD", NOUN_ANCHORS,
        rf"^{_SPEAKER}[^\n]{{0,160}}?{NOUNS}[^\n]{{0,100}}?(?:\n[ \t\r]*)?\n{_SPEAKER}{_LEADS}{MARK}{VALUE}"
        r"[\"'`*.!]{0,3}[ \t\r]*$",
        _said,
        gate=rf"(?im){ENGLISH}[^\n]*\n(?:[ \t\r]*\n)?[^\n]*[:>][*_]*[ ](?:[a-zíé' ,;:.]*[ ])?"
        rf"[^\s]*{CHOSEN}[{CHARS}-]*={{0,2}}[\"'`*.!]*[ \t\r]*$",
    ),
    Role(
        "PASSWORD", NOUN_ANCHORS,
        rf"^{_SPEAKER}[^\n]{{0,160}}?{NOUNS}[^\n]{{0,100}}\?[^\n]{{0,20}}(?:\n[ \t\r]*)?\n{_SPEAKER}"
        rf"[^\n]{{0,80}}?(?:^|[ ]){MARK}{VALUE}(?=[\"'`*.,!;)]*(?:\s|$))",
        lambda value: has_digit(value) and _said(value),
        gate=rf"(?im){ENGLISH}[^\n]*\?[^\n]*\n(?:[ \t\r]*\n)?[^\n]*[:>][*_]*[ ][^\n]*[0-9]",
    ),
    Role(
        "SECRET", NOUN_ANCHORS, rf"{NOUNS}[^\n]{{0,60}}\?[ \t]++{VALUE}[ \t\r]*$", _said,
        gate=rf"(?im){ENGLISH}[^\n]*\?[ \t]+[{CHARS}-]+={{0,2}}[ \t\r]*$",
    ),
    # told in halves
    Role(
        "SECRET", NOUN_ANCHORS,
        rf"^(?=[^\n]{{0,300}}?{_HALF}[^\n]{{3,200}}?{_HALF})[^\n]{{0,160}}?(?:{NOUNS}|\bkey\b)(?=("
        rf"[^\n]{{0,400}}))", _half,
        parts=rf"(?i){_HALF}[^\n]{{0,24}}?(?:\b(?:{IS})\b:?|[:=éè])[ \t]*{MARK}([{CHARS}-]{{5,200}})",
        gate=rf"(?i)(?:{ENGLISH}|key)[^\n]*[ ]{_HALF}[^\n]*{DRAWN}",
    ),
    # a key, told with what it is for
    Role(
        "SECRET", ("key",),
        rf"^(?=[^\n]{{0,200}}?{_OF_A_KEY}[^\n]{{0,200}}[ ])"
        rf"{_NOT_OF_A_KEY}[^\n]{{0,100}}?\bkey\b[^\n:=]{{0,120}}?(?:[:=]|\b"
        rf"(?:{IS})\b:?)"
        rf"[ ]{MARK}{VALUE}[\"'`*.]{{0,3}}[ \t\r]*$",
        lambda value: random_looking(value) and credential(value),
        gate=rf"(?im)key\b[^\n]*[:=a-z][ ][^\n]*{MINGLED}[{CHARS}-]*={{0,2}}[\"'`*.]*[ \t\r]*$",
    ),
    Role(
        "SECRET", ("key", "token", "secret"),
        r"\b(?:use|with|using|via|pass)[ ](?:(?:the|this|our|my)[ ])?(?:[\w-]{1,20}[ ])?(?:key|token|secret|pat)[ ]"
        rf"{MARK}{VALUE}(?=[\"'`*]{{0,3}}[,.;]?[ ][^\n]{{0,80}}(?:\bapi|auth|call|log[ -]?in|request|sign|crypt"
        rf"|connect))",
        credential, gate=rf"(?i)(?:key|token|secret|pat)[ ][^\n ]*{MINGLED}",
    ),
    # what a test shows as other than expected
    Role(
        "SECRET", ("assert", "expected", "received", "got", "actual", "left", "right", "want", "but was", "diff"),
        r"^[^\n]{0,60}?\b(?:assert\w*|expected|received|got|actual|left|right|want|but was|diff)\b[:, (=]("
        r"[^\n]{8,400})",
        filled_in, cells=_compared,
        gate=rf"(?is)(?:{_IN_TEST}.*{_SHOWN}|{_SHOWN}.*{_IN_TEST})",
    ),
    # refused, with what is wrong about it
    Role(
        "SECRET",
        ("401", "403", "unauthori", "forbidden", "expired", "revoked", "invalid", "incorrect", "rejected", "leaked"),
        rf"(?:\b40[13]\b|unauthori[sz]ed|forbidden|expired|revoked|invalid|incorrect|rejected|leaked)"
        rf"[^\n]{{0,60}}?(?<!cache )(?<!primary )"
        rf"\b(?:key|token|secret)(?:[ ]provided)?:?[ ]{MARK}{VALUE}(?=[\"'`.,:;)]*(?:\s|$))",
        credential,
    ),
    Role(
        "SECRET", ("key ", "token "),
        rf"(?<!cache )(?<!primary )\b(?:key|token)[ ]{MARK}{VALUE}[\"'`]?:?[ ](?:(?:is|was|has|has been)[ ])?"
        r"(?:expired|revoked|invalid|leaked|compromised|rejected|not valid|unauthori[sz]ed)\b",
        credential,
        gate=rf"(?i)(?:key|token)[ ][^\n ]*{MINGLED}[^\n ]*[ ][a-z ]*(?:expired|revoked|invalid|leaked"
        rf"|compromised|rejected"
        r"|not valid|unauthori)",
    ),
    # a user and a password as people note them
    Role(
        "PASSWORD", ("admin", "root", "user", "guest", "deploy", "operator", "svc", "service", "postgres"),
        r"(?<![\w./-])(?:admin(?:istrator)?|root|user|guest|deploy|operator|svc\w{0,12}|service|postgres)[ ]?[/,][ ]?"
        rf"{MARK}{VALUE}(?=[\"'`)\].,;]*(?:\s|$))",
        lambda value: value.isalnum() and credential(value),
        gate=rf"(?i)(?:admin(?:istrator)?|root|user|guest|deploy|operator|svc\w*|service|postgres)[ ]?[/,][ ]?"
        rf"(?:[^\sA-Za-z0-9]|<\w+>)*[A-Za-z0-9]*{MINGLED}",
    ),
    Role(
        "PASSWORD",
        ("zugang", "zugriff", "acceso", "accès", "acces", "accesso", "konto", "cuenta", "compte", "account", "login"),
        r"\b(?:zugang|zugriff|acceso|accès|accesso|acesso|konto|cuenta|compte|account|login)\b[^\n:=]{0,40}?:"
        r"[ ][\w.@-]{1,40}[ ]?[/|][ ]?"
        rf"{MARK}{VALUE}(?=[\"'`)\].,;]*(?:\s|$))",
        told_password,
    ),
    # in other languages, without a word for `is`
    Role(
        "PASSWORD", ENDS_ANCHORS,
        rf"(?:\bpasword|{FOREIGN})(?:[ ][^\s\d:=]{{1,20}}){{1,4}}[ ]{MARK}{VALUE}[\"'`*.!]{{0,3}}[ \t\r]*$",
        numbered_password,
    ),
)  # fmt: skip
