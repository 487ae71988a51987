"""Secrets in what services exchange, print and read: commands of chats, headers, encoded objects, rows of logins.

The syntax around a value tells that it is one: a verb of a chat's services, a scheme of an authorization, the column
behind a user's name.
"""

import base64
import binascii
import re
from urllib.parse import unquote

from capibara_assets.executions.secrets.characters import has_digit
from capibara_assets.executions.secrets.plausibility import (
    chosen_or_made,
    credential,
    given_password,
    lone_secret,
    scrambled,
    scrambled_or_digest,
    signed_password,
    stated_or_made,
    told_password,
    unmistakable,
)
from capibara_assets.executions.secrets.roles.passwords import ENDING, ENDS, ENDS_ANCHORS
from capibara_assets.executions.secrets.roles.role import CHARS, MINGLED, VALUE, Role
from capibara_assets.executions.secrets.roles.tables import SECRETS_ANCHORS

_END = r"[\"']?[ \t\r]*$"
#: A quote as it stands in a URL, twice encoded, in HTML, in a string of JSON; a colon; blanks.
_ENCODED_QUOTE = r"(?:%(?:25)?2[27]|&(?:quot|apos|#0?3[49]|#x2[27]);|\\{1,4}u002[27]|\\x2[27])"
_ENCODED_COLON = r"(?:%(?:25)?3A|:|=|\\u003A)"
_ENCODED_ANCHORS = (
    *("%22%3a", "%22:", "%27%3a", "%2522%253a", "&quot;:", "&apos;:", "&#34;:", "&#39;:", "&#x22;:", "&#x27;:"),
    *("u0022:", "u0027:", "x22:", "x27:"),
)
_ENCODED_BLANK = r"(?:%(?:25)?20|[+ \t])*"
_TOKENS = r"(?:secret|token|(?:api|access|auth|private)[_-]?key)"
_TOLD_IN_JSON = re.compile(
    rb"\"(?:\w{0,40}(?:passw|secret|api_?key)\w{0,20}|(?:access|refresh|auth|api|id|bot)?_?token)\"\s*+:\s*+\"[^\"]{6}",
    re.IGNORECASE,
)
#: What Windows and its like call the key of a network, which nothing else stands behind.
_KEY_LABEL = (
    r"(?:key content|schlüsselinhalt|contenu de la clé|contenido de la clave|contenuto (?:della )?chiave"
    r"|conteúdo da chave|sleutelinhoud)"
)
_KEY_LABEL_ANCHORS = (
    *("key content", "schlüsselinhalt", "contenu de la", "contenido de la", "contenuto", "conteúdo da"),
    "sleutelinhoud",
)
_NETWORK_KEY = r"(?:wpa2?|wep|wi-?fi|wlan|wireless|network|hotspot|netzwerk)[ _-]?(?:key|schlüssel)"
_NETWORK_KEY_ANCHORS = (
    *(
        f"{of}{gap}key"
        for of in ("wpa", "wpa2", "wep", "wi-fi", "wifi", "wlan", "wireless", "network")
        for gap in ("", *" _-")
    ),
    *("hotspot key", "netzwerkschlüssel"),
)
_PRODUCT_KEY = r"((?:[A-Z0-9]{4,6}-){3,7}[A-Z0-9]{4,6})(?![A-Za-z0-9-])"
_CHAT_SERVICES = ("nickserv", "chanserv", "authserv", "operserv", "cserve", "undernet", "/ns ", "/cs ")
#: A message to one of them, up to the verb.
_TO_SERVICE = (
    r"(?:/(?:msg|m|query|quote|squery|raw)[ ]++(?:(?:privmsg|squery)[ ]++)?|privmsg[ ]++|/)"
    r"(?:\w{2,6}serv|ns|cs|[qx])(?:@[\w.]{1,60})?[ ]++:?"
)
_SCHEME = r"authorization[\"']?[ \t]{0,3}[\]:=,]+[ \t]{0,3}[frb]?[\"']?[A-Za-z][\w.-]{1,30}"
_SCHEME_GATE = rf"(?i)authorization[\"']?[ \t]*[\]:=,]+[^\n]*{MINGLED}"
_HEADERS = (
    r"headers?[\"']?(?:[ \t]*+[:=(]|[ \t])[ \t]*+[\[{(]?\s{0,20}(?=([\"']?[\w-]{2,40}[\"']?[=:][^\n{}\[\]]{8,600}))"
)
_HEADERS_GATE = rf"(?i)headers?[\"']?[ \t]*[:=( \t][ \t]*[\[{{(]?\s*[\"']?[\w-]+[\"']?[=:][^\n]*{MINGLED}"
_TELLING_HEADER = r"(?<![\w-])[\w-]{0,40}(?:key|token|auth|team|secret|license|cred|pass)[\w-]{0,40}+(?<!id)(?<!hash)"
_OTHER_HEADER = "(?<![\\w-])[\\w-]{1,80}+" + "".join(
    f"(?<!{end})" for end in ("id", "hash", "tag", "parent", "state", "256", "md5", "digest", "nonce", "match")
)
_HEADER_IS = r"[\"']?[=:][ ]?[\"']?(?:[A-Za-z]{2,12}(?:%20|[ ]))?"
_PROTOCOL_GAP = r"(?:\"[ ]\"|[ ]:?|(?:\\r\\n|\r?\n)\$\d{1,3}(?:\\r\\n|\r?\n))"
_COMMENT = r"^[ \t]*+(?:#|//|--|;|!|/?\*|rem\b|<!--)[^\n]{0,100}?"
_ASSIGNS = (
    r"[ \t]*+(?:(?:export|set|setx|const|let|var)[ \t]++)?[\"']?[\w.${}%-]{1,60}[\"']?[ \t]*+(?::=|[:=])[ \t]*+[\"']?"
)
_LOGS_IN = r"(?:ssh|log(?:ged)?[ -]?(?:in|on)|sign[ -]?in|credentials?|creds)"
#: Public halves of pairs of keys: of Twilio, Alibaba, Tencent, Google's storage, DigitalOcean's, Razorpay.
_PAIRED = (
    r"(?:AC|SK)[0-9a-f]{32}|LTAI[A-Za-z0-9]{12,20}|AKID[A-Za-z0-9]{20,36}|GOOG[0-9A-Z]{16,60}|DO00[A-Z0-9]{12,20}"
    r"|rzp_(?:live|test)_[A-Za-z0-9]{10,20}"
)
_PAIRED_ANCHORS = tuple(
    f"{quote}{beginning}" for quote in "\"'" for beginning in ("AC", "SK", "LTAI", "AKID", "GOOG", "DO00", "rzp_")
)


def _row(value: str) -> bool:
    """Whether a value behind a user's name, in a row or a login, is a password, and no path or tag of an image."""
    return told_password(value) or credential(value)


def _unencoded(value: str) -> bool:
    return chosen_or_made(unquote(unquote(value)))


def _tells_a_secret(value: str) -> bool:
    """Whether a value is an object in base64 that has a member for a secret."""
    try:
        told = base64.urlsafe_b64decode(value.rstrip("=") + "=" * (-len(value.rstrip("=")) % 4))
    except (ValueError, binascii.Error):
        return False
    return _TOLD_IN_JSON.search(told) is not None


def _product_key(value: str) -> bool:
    return has_digit(value) and value != value.lower() and len(set(value)) >= 8


SERVICES: tuple[Role, ...] = (
    # chats: what their services are told, what makes an operator, what a game's server is told
    Role(
        "PASSWORD", _CHAT_SERVICES,
        rf"{_TO_SERVICE}(?:identify|id|ghost|recover|release|regain|group|auth|login|set[ ]++pass\w*)[ ]++"
        rf"(?:[#\w\[\]|^`-]{{1,40}}[ ]++)?{VALUE}{_END}",
        given_password,
    ),
    Role(
        "PASSWORD", _CHAT_SERVICES, rf"{_TO_SERVICE}register[ ]++(?:#\S{{1,40}}[ ]++)?{VALUE}(?=[ \n]|$)",
        given_password,
    ),
    Role(
        "PASSWORD", ("/oper ", "/login ", "/register ", "/auth "),
        rf"(?:^|[\s>:\"'`])/(?:oper[ ]++[\w-]{{1,30}}|login|register|auth)[ ]++(?!HTTP/){VALUE}(?=[ \"'`\n]|$)",
        told_password,
    ),
    # what a server of a protocol is told: alone or behind a user's name, also as a trace of calls shows it
    Role(
        "PASSWORD", ("AUTH", "PASS"),
        rf"(?<![\w-])(?:AUTH|PASS){_PROTOCOL_GAP}(?:(?:default|[\w.-]{{1,30}}){_PROTOCOL_GAP})?{VALUE}"
        r"(?=\\[rn]|[\"' \t\r]*$|\"[,) ]|[.]{1,2}$)",
        _row, case=True,
        gate=rf"(?:AUTH|PASS){_PROTOCOL_GAP}(?:[\w.-]*{_PROTOCOL_GAP})?[{CHARS}-]{{5}}",
    ),
    # any scheme of an authorization: a value, or parameters
    Role(
        "AUTHORIZATION", ("authorization",), rf"{_SCHEME}[ =](?:[\w.@!-]{{1,60}}[=:][\"']?)?{VALUE}",
        scrambled_or_digest, gate=_SCHEME_GATE,
    ),
    Role(
        "AUTHORIZATION", ("authorization",), rf"{_SCHEME}[ ](?=([\w-]{{1,40}}=[^\n]{{8,400}}))", scrambled_or_digest,
        gate=_SCHEME_GATE, parts=rf"[\w-]=[\"']?{VALUE}",
    ),
    # headers in a list or an object: of names that tell and of others
    Role(
        "SECRET", ("header",), _HEADERS, scrambled_or_digest, gate=_HEADERS_GATE,
        parts=rf"(?i){_TELLING_HEADER}{_HEADER_IS}{VALUE}",
    ),
    Role(
        "SECRET", ("header",), _HEADERS, unmistakable, gate=_HEADERS_GATE,
        parts=rf"(?i){_OTHER_HEADER}{_HEADER_IS}{VALUE}",
    ),
    Role(
        "SECRET", ("-H",), rf"(?:^|[ ])-H[ ]?[\"']{_OTHER_HEADER}:[ ]?{VALUE}(?=[\"'])", unmistakable, case=True,
    ),
    # an object in a URL, in a page or in a string of another, with its quotes encoded; a query in a query
    Role(
        "PASSWORD", _ENCODED_ANCHORS,
        rf"(?:{ENDING}|pass|{_TOKENS})\d?{_ENCODED_QUOTE}{_ENCODED_BLANK}{_ENCODED_COLON}{_ENCODED_BLANK}"
        rf"{_ENCODED_QUOTE}((?:(?!{_ENCODED_QUOTE})[^\s\"'<>]){{8,400}})(?={_ENCODED_QUOTE})",
        _unencoded,
    ),
    Role(
        "PASSWORD", ENDS_ANCHORS,
        rf"(?:{ENDING}|pass)\d?%(?:25)?3D((?:(?!%(?:25)?26)[A-Za-z0-9_.~%!*-]){{8,400}})"
        r"(?=%(?:25)?26|[\s\"'&#<>]|$)",
        _unencoded,
    ),
    Role(
        "SECRET", ("eyJ",), r"(?<![\w.+/-])(eyJ[A-Za-z0-9+/_-]{20,4000}={0,2})(?![\w.+/-])", _tells_a_secret,
        case=True,
    ),
    # keys of networks and of licences as systems list them; hashes of their accounts
    Role(
        "PASSWORD", _KEY_LABEL_ANCHORS, rf"{_KEY_LABEL}[ \t\x80-\uffff]{{0,30}}[:=][ \t]{{0,8}}(\S{{8,63}})[ \t\r]*$",
        given_password,
    ),
    Role(
        "PASSWORD", _NETWORK_KEY_ANCHORS,
        rf"\b{_NETWORK_KEY}[\"']?[ \t]{{0,30}}[:=][ \t]{{0,8}}[\"']?{VALUE}{_END}",
        _row,
    ),
    Role(
        "RECOVERY_CODE", ("numerical password", "recovery key", "recovery password", "bitlocker"),
        r"(?<![\d-])((?:\d{6}-){7}\d{6})(?![\d-])",
        has_digit,
    ),
    Role(
        "SECRET", ("/ipk", "product", "licen", "serial", "activation", "registration"),
        rf"(?:\b(?:product|licen[cs]e|serial|activation|registration)\b[^\n\d:=]{{0,40}}?(?:[:=]|\bis\b|(?<=key"
        rf"|ial)[ ])|_key[\"']?[ ]?[:=]|/ipk)[ \t]*+"
        rf"[\"'`]?(?-i:{_PRODUCT_KEY})",
        _product_key,
    ),
    Role(
        "PASSWORD_HASH", (":::", "NTLM"),
        r"(?:^[^\s:]{1,80}:\d{3,10}:[0-9A-Fa-f]{32}:|\bNTLM[ \t]*+[:=][ \t]*+)([0-9A-Fa-f]{32})(?![0-9A-Za-z])",
        has_digit, case=True,
    ),
    # what a command printed that makes a key (what makes the public half of it last is none), a file of one
    Role(
        "PRIVATE_KEY", ("genkey", "genpsk", "keygen", "key:gen", "gen-key", "gen_key", "generate-key", "nk -gen"),
        r"^[^\n]{0,60}?[$#>%][ ](?![^\n]*\bpub)[^\n]{0,120}?"
        rf"(?:gen(?:erate)?[-_ ]?(?:key|psk)|keygen|key:gen\w*|nk -gen)[^\n]*\n(?:base64:)?{VALUE}[ \t\r]*$",
        lone_secret,
    ),
    Role(
        "PRIVATE_KEY", ("minisign", "signify"),
        r"comment:[^\n]{0,80}secret key[^\n]{0,40}\n([A-Za-z0-9+/]{40,400}={0,2})",
        has_digit,
    ),
    Role(
        "PRIVATE_KEY", ("nkey", "stellar", "nk -gen"),
        r"(?<![A-Za-z0-9])((?-i:S[A-Z2-7]{55,57}))(?![A-Za-z0-9])",
        has_digit,
    ),
    # a comment that says what is assigned below it
    Role(
        "PASSWORD", ENDS_ANCHORS,
        rf"{_COMMENT}{ENDS}(?:[ \t](?:of|for|to|on|in)[ ][\w .-]{{1,40}})?[ \t.:!*/>\r-]*\n"
        rf"{_ASSIGNS}{VALUE}[\"']?[ \t;,\r]*$",
        lone_secret,
    ),
    Role(
        "SECRET", SECRETS_ANCHORS, rf"{_COMMENT}\b{_TOKENS}\b[^\n]{{0,60}}\n{_ASSIGNS}{VALUE}[\"']?[ \t;,\r]*$",
        scrambled,
    ),
    # rows of logins: a host with a user and a password behind it, a user with a service and an address, a proxy
    Role(
        "PASSWORD", (":",),
        rf"^\[[\w-]{{1,60}}\.[\w.-]{{2,60}}\](?::\w{{1,10}})?[ \t]++[\"']?[\w.@+-]{{1,80}}:("
        rf"[^\s\"'<>]{{8,200}}){_END}",
        _row, case=True,
    ),
    Role(
        "PASSWORD", (":",),
        rf"^[\w*-]*[.@][\w.*-]{{2,80}}(?::\d{{2,5}})?[ \t]++[\"']?(?!git@)[\w.+-]{{1,60}}@[\w-]+\.[\w.-]{{2,60}}:"
        rf"([^\s\"'<>/]{{8,200}}){_END}",
        _row, case=True,
    ),
    Role(
        "PASSWORD", (":",),
        rf"^[\w-]+\.[\w.-]{{2,80}}:\d{{2,5}}[ \t]++[\"']?[A-Za-z][\w.+-]{{0,40}}:([^\s\"'<>/:]{{8,200}}){_END}",
        stated_or_made, case=True,
    ),
    Role(
        "PASSWORD", ("://",),
        r"^https?://[^\s\"'<>]{3,160}[ \t]++[\"']?[\w.@-]{1,60}[\"']?[ \t]++[\"']?"
        rf"{VALUE}{_END}",
        lambda value: signed_password(value) or scrambled(value),
    ),
    Role(
        "PASSWORD", ("pptpd", "l2tp", "chap-secrets", "pap-secrets"),
        r"^[\"']?[\w.@\\-]{1,60}[\"']?[ \t]++(?:\*|[\"']?[\w.-]{1,60}[\"']?)[ \t]++[\"']?([^\s\"']{8,128})"
        r"[\"']?[ \t]++"
        r"[\"']?(?:\*|\d{1,3}(?:\.\d{1,3}){3})[\"']?[ \t\r]*$",
        _row,
    ),
    Role(  # of a pool of connections
        "PASSWORD", ('" "',), r"^\"[\w.@-]{1,60}\"[ ]\"([^\s\"]{8,128})\"[ \t\r]*$",
        lambda value: signed_password(value) or scrambled(value), case=True,
    ),
    Role(  # of OpenVPN: a user's name, the password below it
        "PASSWORD", ("<auth-user-pass>",), r"<auth-user-pass>[ \t]*+\r?\n[^\n]{1,80}\n[ \t]*+(\S{6,200})[ \t\r]*$",
        given_password,
    ),
    Role(  # a file of two members, as Kaggle's
        "SECRET", ("username",),
        rf"\{{\s*+[\"']username[\"']\s*+:\s*+[\"'][\w.@-]{{1,80}}[\"']\s*+,\s*+[\"']key[\"']\s*+:\s*+[\"']{VALUE}",
        lambda value: has_digit(value) and len(value) >= 16,
    ),
    Role(
        "PASSWORD", ("socks4", "socks5"),
        rf"^socks[45]h?[ \t]++[\w.-]{{3,80}}[ \t]++\d{{2,5}}[ \t]++[\w.@-]{{1,60}}[ \t]++{VALUE}[ \t\r]*$",
        chosen_or_made,
    ),
    Role(
        "AWS_SECRET_ACCESS_KEY", ("AKIA", "ASIA"),
        r"(?:AKIA|ASIA)[A-Z0-9]{16}(?::|[\"'],[ ]?[\"'])([A-Za-z0-9/+]{38,42})(?![A-Za-z0-9/+])",
        has_digit, case=True,
    ),
    # behind the public half of a provider's pair of keys, in a call
    Role(
        "SECRET", _PAIRED_ANCHORS, rf"[\"'](?:{_PAIRED})[\"'][ ]?,\s{{0,20}}[\"']{VALUE}(?=[\"'])", scrambled_or_digest,
        case=True,
    ),
    # told behind the user's name, with whatever between
    Role(
        "PASSWORD", ("ssh", "log in", "login", "logged in", "sign in", "connect", "credential", "creds"),
        rf"\b{_LOGS_IN}\b[^\n/|]{{0,60}}?(?:\b(?:with|as|use|using|mit|als|is|are|ist|est|es)|[:=])[ \t]"
        rf"[\w.@-]{{1,40}}"
        rf"(?:[ ]?[|/:][ ]?|,[ ]|[ ](?:and|und|et|y|with|mit)[ ](?:the[ ])?){VALUE}(?=[.,;)!\"'`*]*(?:\s|$|<))",
        lone_secret,
    ),
    Role(
        "PASSWORD", (" p: ", "l/p:", "u/p:"),
        r"\b(?:(?:u|user|login)[ ]?[:=][ ]?[\w.@-]{1,40}[,;/|]?[ ]p[:=][ ]?"
        rf"|[lu]/p[ ]?[:=][ ]?[\w.@-]{{1,40}}[ ]?[/:,][ ]?){VALUE}(?=[.,;)!]*(?:\s|$))",
        told_password,
    ),
)  # fmt: skip
