"""Secrets beside a user's name, a header's or a kind's, and in remarks: what stands near says what the value is."""

import re

from capibara_assets.executions.secrets.characters import at_random, has_digit, jumbled
from capibara_assets.executions.secrets.plausibility import (
    bare_password,
    chosen_or_made,
    chosen_password,
    credential,
    filled_in,
    named_password,
    numbered_password,
    worded_password,
)
from capibara_assets.executions.secrets.roles.passwords import CHOSEN, ENDING, ENDS, ENDS_ANCHORS
from capibara_assets.executions.secrets.roles.role import CHARS, IS, MARK, MINGLED, VALUE, Role

#: Accounts that systems have from the beginning, after which no image of a container is named.
_ACCOUNTS = "admin|administrator|root|sa|sysadmin|superuser|operator|manager|guest|demo|pi|service|deploy|svc"
_HOLDS_LOGIN = r"(?:creds?|credentials?|auth|log_?in|user_?pass|basic)"
_TYPES = (
    r"(?:enter|type|paste|input|key in|tippe|eingeben|gib|saisi\w{1,6}|tape[rz]?|introdu\w{2,6}|escrib\w{1,3}"
    r"|digit\w{1,3}|inseri\w{1,5}|voer|typ)"
)
_NETWORK = r"(?:wi-?fi|wlan|wpa2?|wireless|network|netzwerk|r[ée]seau|red|rete|rede|netwerk|hotspot)"
_NETWORK_KEY = (
    r"(?:key|schl(?:ü|ue)ssel|passwor[dt]|passphrase|kennwort|wachtwoord|clave|contraseña|senha|chiave|chave|sleutel"
    r"|cl[ée]|mot de passe|psk)"
)
_NETWORK_KEY_ANCHORS = (
    *("key", "schlüssel", "schluessel", "passw", "passphrase", "kennwort", "wachtwoord", "clave", "contrase"),
    *("senha", "chiave", "chave", "sleutel", "clé", "cle", "mot de passe", "psk"),
)
_PRIVATE = (
    r"(?:nsec|sk|seed|entropy|(?:secret|priv(?:ate)?|signing|spend|view|wallet|master|encryption|session|aes|hmac|shared)"
    r"(?:[ _-]?(?:key|seed))?|privkey|seckey)"
)
_OF_A_HEADER = r"(?:key|token|auth\w{0,10}|secret)"
_REMARK = r"(?:#|//|--|<!--|/\*|;)[ ]?"

#: A value of any signs, up to a blank or a quote, without the full stop of its sentence.
_ANY_SIGNS = r"([^\s\"'`<>「」\x1c-\x1f]{6,63}[^\s\"'`<>「」.,;:!?)\x1c-\x1f])"
_AFTER = r"(?=[.,;:!?)\"'`*」]{0,3}(?:\s|$))"
_USER = r"[\"'`*]{0,2}[\w.@\\-]{1,40}[\"'`*]{0,2}"
#: A sign that joins no names, with capitals or digits on both sides: what the gate asks for, too.
_SPRINKLED = r"[A-Z0-9][^\s]*[^A-Za-z0-9\s._/-][^\s]*[A-Z0-9]"
_OPENS = r"(?:opens?|unlocks?|decrypts?|unzips?|logs?[ ]in|signs?[ ]in|(?:locked|protected|encrypted))"
_HEADS = r"(?:credentials|creds|log-?ins?|zugangsdaten|identifiants|credenciales)"


def _told(value: str) -> bool:
    """Whether what is told is a password: chosen, of words that signs join, or of signs at random."""
    return numbered_password(value) or worded_password(value) or _sprinkled(value)


def _sprinkled(value: str) -> bool:
    """Whether signs stand among the letters and digits of a value as by chance."""
    mixed = has_digit(value) and value not in (value.lower(), value.upper()) and at_random(value)
    told = re.search(_SPRINKLED, value) is not None and (jumbled(value) or mixed)
    return told and "://" not in value and not value.startswith("ENC[") and named_password(value)


def _digits(value: str) -> bool:
    return len(set(value)) > 4


def _noted(value: str) -> bool:
    """Whether a word behind `pass` in a remark is a password, and no argument that is passed."""
    return bare_password(value) and not (value.isidentifier() and value == value.lower())


BESIDE: tuple[Role, ...] = (
    # an account and its password, in brackets, in a sentence, in a variable for both
    Role(
        "PASSWORD", tuple(f"{account}:" for account in _ACCOUNTS.split("|")),
        rf"(?<![\w./@-])(?<!chown )(?:{_ACCOUNTS}):{MARK}{VALUE}(?=[.,;)\]\"'`*]*(?:\s|$))",
        bare_password, gate=rf"(?i)(?:{_ACCOUNTS}):[^\s]*{CHOSEN}",
    ),
    Role(
        "PASSWORD", ("cred", "auth", "login", "log_in", "userpass", "user_pass", "basic"),
        rf"{_HOLDS_LOGIN}[\"']?[ ]?=[ ]?[\"']?[\w.@-]{{1,40}}:{VALUE}(?=[\"'\s;,)]|$)",
        bare_password, gate=rf"(?i){_HOLDS_LOGIN}[\"']?[ ]?=[ ]?[\"']?[A-Za-z0-9_.@-]+:[^\s]*{CHOSEN}",
    ),
    Role(
        "PASSWORD", ("login ", "log in "),
        rf"\blog ?in[ ](?:(?:(?:as|with|is)[ ])?[\w.@-]{{1,40}}[ ](?:with|and|/)[ ]|(?:{_ACCOUNTS})/)"
        rf"{MARK}{VALUE}(?=[.,;)!\"'`*]*(?:\s|$))",
        lambda value: has_digit(value) and bare_password(value),
    ),
    # what a provider of infrastructure made, under the kind of the object
    Role(
        "PASSWORD", ENDS_ANCHORS,
        rf"[\"'][\w.-]{{0,40}}?{ENDS}[\"'][^\n]{{0,200}}?\b(?:result|plain_?text)[\"']?[ ]?[:=][ ]?"
        r"[\"']([^\s\"'\\<>]{6,64})[\"']",
        chosen_password,
    ),
    # in front of the header's name
    Role(
        "SECRET", ("key", "token", "auth", "secret"),
        rf"[\"']{VALUE}[\"'],[ ]?(?:\w{{1,24}}:[ ]?)?[\"'](?-i:[A-Z])[\w-]{{0,40}}{_OF_A_HEADER}[\"']",
        credential,
        gate=rf"(?i)[\"'][{CHARS}-]*{MINGLED}[{CHARS}-]*={{0,2}}[\"'],[ ]?"
        rf"(?:\w{{1,24}}:[ ]?)?[\"'][A-Za-z][A-Za-z0-9_-]*{_OF_A_HEADER}[\"']",
    ),
    # in a remark; typed where it is asked for
    Role(
        "PASSWORD", ENDS_ANCHORS,
        rf"{_REMARK}(?:[\w@.-]{{1,20}}[ ]){{0,3}}?{ENDS}[ ]{MARK}{VALUE}(?=[.,;)\"'`]*(?:\s|$))",
        _noted, gate=rf"(?i){_REMARK}[^\n]*(?:{ENDING}|pass)\d?[ ][^\s]*{CHOSEN}",
    ),
    Role(
        "PASSWORD", (*ENDS_ANCHORS, "prompt", "asked"),
        rf"\b{_TYPES}[ ]{MARK}{VALUE}{MARK}[ ](?:at|when|if|in|into|on|bei|wenn|als|quand|si|cuando|quando|bij)\b"
        rf"[^\n]{{0,40}}?(?:{ENDS}|\bprompt|\basked)",
        numbered_password, gate=rf"(?i){_TYPES}[ ][^\s]*{CHOSEN}[^\n]*(?:{ENDING}|pass|prompt|asked)",
    ),
    # a network's key of digits alone, as routers have it printed on them
    Role(
        "PASSWORD", _NETWORK_KEY_ANCHORS,
        rf"\b(?:{_NETWORK}[ _-]?(?:\w{{1,12}}[ _-]?)?{_NETWORK_KEY}|{_NETWORK_KEY}[ ](?:\w{{1,5}}[ ]){{0,2}}{_NETWORK})"
        rf"[^\n:=\d]{{0,24}}(?:[:=]|\b(?:{IS})\b)[ \t]{{0,8}}{MARK}"
        r"(\d{8,20}|(?:\d{4}[ -]){2,4}\d{4})(?![\w-])",
        _digits,
    ),
    # keys, with how they are written
    Role(
        "PRIVATE_KEY", ("(hex", "(raw", "(base", "(b64", "_hex", "-hex", " hex"),
        rf"(?<![A-Za-z]){_PRIVATE}[ _-]?\(?(?:hex|raw|base64|b64|base58)\)?[\"']?[ ]?[:=][ ]?[\"']?"
        r"((?:0x)?[0-9a-f]{32,128}|[A-Za-z0-9+/]{32,128}={0,2})(?![\w+/=])",
        filled_in,
    ),
    # what nodes of a cluster share
    Role(
        "SECRET", ("cookie ", "_cookie="),
        rf"(?:[ ]-{{1,2}}(?:set)?cookie[ ]|_cookie=)[\"']?{VALUE}(?=[\"'\s]|$)", chosen_or_made,
    ),
    # of any signs, behind the word in a sentence
    Role(
        "PASSWORD", ENDS_ANCHORS,
        rf"{ENDS}[^\n\"'`]{{0,60}}?(?:[ ]|[は：][ ]?)[\"'`*“「]{{0,3}}{_ANY_SIGNS}{_AFTER}", _sprinkled,
        gate=rf"(?i)(?:{ENDING}|pass)\d?(?:[^A-Za-z0-9_.\n-][^\n]*)?[ :：`\"'*][^\s]*(?-i:{_SPRINKLED})",
    ),
    # who logs in with it, what opens with it, whose it is
    Role(
        "PASSWORD", ("log in as", "log on as", "login as", "sign in as", "sign on as", "logged in as"),
        rf"\b(?:log|sign|logged)[ -]?(?:in|on)[ ]as[ ]{_USER}[ ](?:with|using|and|/)[ ](?:(?:the"
        rf"[ ])?(?:pass\w{{0,6}}|pw)[ ])?"
        rf"{MARK}{_ANY_SIGNS}{_AFTER}",
        _told, gate=r"(?i)(?:log|sign|logged)[ -]?(?:in|on)[ ]as[ ]",
    ),
    Role(
        "PASSWORD", ("open", "unlock", "decrypt", "unzip", "in with", "in by", "locked", "protected", "encrypted"),
        rf"\b{_OPENS}[ ](?:it[ ])?(?:with|by|using)[ ]{MARK}{_ANY_SIGNS}{_AFTER}",
        lambda value: (has_digit(value) and not value.islower() and numbered_password(value)) or _sprinkled(value),
        gate=rf"(?i){_OPENS}[ ](?:it[ ])?(?:with|by|using)[ ][^\s]*[0-9]",
    ),
    Role(
        "PASSWORD", tuple(_ACCOUNTS.split("|")),
        rf"\b(?:{_ACCOUNTS})[ ](?:on|at|for|of)[ ](?:the[ ])?[\w -]{{1,40}}?(?:[ ](?:is|was)|:)[ ]"
        rf"{MARK}{_ANY_SIGNS}{_AFTER}",
        lambda value: has_digit(value) and _told(value),
        gate=rf"(?i)(?:{_ACCOUNTS})[ ](?:on|at|for|of)[ ][^\n]*(?:[ ](?:is|was)|:)[ ][^\s]*[0-9]",
    ),
    Role(
        "PASSWORD", ("credential", "creds", "login", "zugangsdaten", "identifiants", "credenciales"),
        rf"{_HEADS}[,:][ ](?:are[ ])?(?:{_ACCOUNTS})[ ]?(?:and|with|/|,|:)[ ]?{MARK}{_ANY_SIGNS}{_AFTER}", _told,
        gate=rf"(?i){_HEADS}[,:][ ](?:are[ ])?(?:{_ACCOUNTS})",
    ),
    Role(
        "PASSWORD", ("user", "login"),
        rf"\b(?:user(?:name)?|login)[ :=]{{1,2}}{_USER}[,;][ ](?:pass(?:word)?|pwd|pw)[ :=]{{1,2}}"
        rf"{MARK}{_ANY_SIGNS}{_AFTER}",
        _told, gate=r"(?i)(?:user(?:name)?|login)[ :=][^\n]*[,;][ ](?:pass|pwd|pw)",
    ),
    # below the heading and the user
    Role(
        "PASSWORD", ("credential", "creds", "login", "log-in", "zugangsdaten", "identifiants", "credenciales"),
        rf"{_HEADS}(?:</\w{{1,10}}>)?[:*_#= \t]{{0,6}}\r?\n(?:[ \t]*\r?\n)?[\w.@-]{{1,40}}[ \t]*"
        rf"\r?\n([^\s\"'`<>]{{6,64}})[ \t\r]*$",
        lambda value: (has_digit(value) and chosen_password(value)) or _sprinkled(value),
        gate=rf"(?im){_HEADS}(?:</[a-z0-9_]+>)?[:*_#= \t]*\r?\n(?:[ \t]*\r?\n)?[A-Za-z0-9_.@-]+[ \t]*\r?\n[^\s]{{6}}",
    ),
    # asked and told: a hint how it is spelt, an answer to a question, a code of digits
    Role(
        "PASSWORD", ("one word", "lower case", "lowercase", "no spaces", "all caps", "without spaces"),
        rf"(?:^|[\s\"'`(]){_ANY_SIGNS},[ ](?:all[ ])?(?:one[ ]word|lower[ ]?case|no[ ]spaces|all"
        rf"[ ]caps|without[ ]spaces)",
        lambda value: has_digit(value) and _told(value),
        gate=r"(?i)[0-9][^\s]*,[ ](?:all[ ])?(?:one[ ]word|lower[ ]?case|no[ ]spaces|all[ ]caps|without[ ]spaces)",
    ),
    Role(
        "PASSWORD", ("security question", "secret question", "sicherheitsfrage", "pregunta de seguridad"),
        r"(?:(?:security|secret)[ ]question|sicherheitsfrage|pregunta[ ]de[ ]seguridad)[^\n]{0,100}?"
        rf"(?:answer|antwort|respuesta)[ ]?(?:is|:|=)[ ]{MARK}{_ANY_SIGNS}{_AFTER}",
        named_password,
    ),
    Role(
        "PASSWORD", ENDS_ANCHORS,
        rf"{ENDS}[^\n?]{{0,60}}\?[ ](?:[–—-][ ])?{MARK}{_ANY_SIGNS}"
        rf"{_AFTER}", lambda value: has_digit(value) and _told(value),
        gate=rf"(?i)(?:{ENDING}|pass)[^\n]*\?[ ][^\n]*[0-9]",
    ),
    Role(
        "PIN", ("code ",),
        r"\b(?:alarm|door|gate|safe|garage|locker|lockbox|keypad|entry|gym|shed)[ ]code[ ](\d{4,8})(?![\w.:-]*\d)",
        lambda value: len(set(value)) > 2,
    ),
)  # fmt: skip
