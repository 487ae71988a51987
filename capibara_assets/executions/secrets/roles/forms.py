"""Secrets known by the form around them: a form's field, a dump, a key set, a list of codes, a phrase.

As in `passwords`, the place holds a secret and nothing else, so that its value needs few statistics.
"""

import re

from capibara_assets.executions.secrets.characters import has_digit
from capibara_assets.executions.secrets.plausibility import (
    chosen_or_made,
    chosen_password,
    column_password,
    credential,
    filled_in,
    random_looking,
    shell_password,
    stated_password,
)
from capibara_assets.executions.secrets.roles.passwords import ENDS, ENDS_ANCHORS
from capibara_assets.executions.secrets.roles.role import CHARS, DRAWN, IS, VALUE, Role

_CONTINUED = re.compile(r"\\\r?\n[ \t]*+")
_COMMON = frozenset(("the", "and", "for", "with", "that", "this", "from", "are", "was", "not", "you", "your", "will"))
_COMMON |= {"que", "los", "las", "una", "por", "con", "para", "del", "des", "les", "une", "dans", "pour", "avec", "der"}
_COMMON |= {"die", "das", "und", "ist", "nicht", "ein", "eine", "che", "per", "non", "uma", "com", "het", "een", "van"}
_CODES = (
    r"(?:(?:recovery|back-?up|scratch|emergency|one-time|rescue|wiederherstellungs|notfall|herstel)[ _-]?"
    r"(?:codes?|keys?)|c[oó]digos? de (?:respaldo|recupera|seguran|backup|emerg)[a-zß-ÿ]*"
    r"|codes? de (?:secours|r[ée]cup[ée]ration)|codici di (?:recupero|backup|emergenza)|kody (?:zapasowe"
    r"|odzyskiwania)"
    r"|резервные коды|коды восстановления|バックアップコード|恢复代码|备用验证码)"
)
_CODES_ANCHORS = (
    *("recovery", "backup", "back-up", "scratch", "emergency", "one-time", "rescue", "wiederherstellungs", "notfall"),
    *("herstel", "digos de", "digo de", "codigo", "codes de", "code de", "codici di", "kody", "коды"),
    *("バックアップ", "恢复代码", "备用验证码"),
)  # fmt: skip
_PHRASE = (
    r"(?:mnemonic|seed[ _-]?(?:phrase|words)|(?:recovery|backup|secret)[ _-](?:phrase|words)"
    r"|(?:frase|phrase)[ _-](?:semilla|semente|seed"
    r"|mn[eé]m[a-zß-ÿ]+|secr[eèé]t[a-z]*|d[ei] (?:recup|r[ée]cup|respaldo|segur)[a-zß-ÿ]*)"
    r"|(?:wiederherstellungs|merk)(?:phrase|w[öo]rter|satz)"
    r"|herstel(?:zin|frase|woorden)|palabras (?:semilla|clave)"
    r"|мнемони[а-я]+ фраза|сид-фраза)"
)
_PHRASE_ANCHORS = (
    *("mnemonic", "phrase", "words", "frase", "wiederherstellungs", "merkwörter", "merksatz", "herstel"),
    *("palabras", "фраза", "merkworter"),
)  # fmt: skip
_CODE_ANCHORS = (
    *("PIN", "asscode", "time code", "erification code", "2FA code", "ecurity code", "nlock code", "larm code"),
    *("oor code", "ate code", "ntry code", "ccess code", "NIP", "eheimzahl", "digo de"),
)  # fmt: skip


def _continued(stretch: str) -> bool:
    """Whether a word of a shell that goes on in the next line is a secret."""
    whole = _CONTINUED.sub("", stretch)
    return chosen_or_made(whole)


def _phrase(stretch: str) -> bool:
    """Whether words are a wallet's: hardly one twice, and none of those that every sentence has."""
    words = re.findall(r"[^\W\d_]+", stretch)
    return len(set(words)) >= len(words) - 2 and not _COMMON & set(words)


def _code(value: str) -> bool:
    """Whether a listed code is filled in: letters with digits, or eight digits and more."""
    plain = re.sub("[ -]", "", value)
    return filled_in(value) and has_digit(plain) and (not plain.isdigit() or len(plain) >= 8) and len(set(plain)) > 3


def _digits(value: str) -> bool:
    return len(set(value)) > 1 and value not in ("1234", "12345", "123456", "12345678")


# Between `password` and its value in a dump: `] => string(12) "`, `: &auth.Secret{"`.
_TYPE = r"(?:string|str|&?\w+\.\w+)[ \t]?[({]\d*\)?[ \t]*+[\"']"
_NEXT_LITERAL = r"[ \t]*+,[ \t]*+[\"'][\w.@-]{1,60}[\"']"
_ITEM = r"[ \t]*+(?:\d{1,2}[.)]|[-*•])?[ \t\"'`]*+"
_CODE = r"[A-Za-z0-9]{4,16}(?:-[A-Za-z0-9]{3,12}){0,5}"
_TOLD_CODE = (
    r"\b(?:PIN(?:[ -][Cc]ode)?|[Pp]asscode|NIP|Geheimzahl"
    r"|(?:[Oo]ne-time|[Vv]erification|2FA|[Ss]ecurity|[Uu]nlock|[Aa]larm|[Dd]oor|[Gg]ate|[Ee]ntry|[Aa]ccess)[ ]code"
    r"|[Cc]ódigo de (?:acceso|seguridad|verificación|desbloqueo|segurança|acesso|verificação))\b"
)
_WRAPPED = r"(?:token|secret|api_?key|password)\"?[ \t]*+[:=][ \t]*+"

FORMS: tuple[Role, ...] = (
    # PHP's var_dump, Go's %#v: the type between name and value
    Role(
        "PASSWORD", ENDS_ANCHORS, rf"{ENDS}[\"']?\]?[ \t]*+(?:=>|:)[ \t]*+\n?[ \t]*+{_TYPE}{VALUE}[\"']",
        chosen_password,
    ),
    # a field of multipart/form-data, behind its headers
    Role(
        "PASSWORD", ENDS_ANCHORS,
        rf"form-data;[^\n]{{0,200}}?name=\\?[\"'][\w.\[\]-]{{0,40}}?{ENDS}\]?\\?[\"'][^\n]{{0,80}}\n"
        rf"(?:[\w-]+:[^\n]{{0,80}}\n){{0,3}}[ \t\r]*\n[ \t]*+{VALUE}",
        chosen_password,
    ),
    # private members of a JSON Web Key, whatever their order
    Role(
        "PRIVATE_KEY", ('"kty"',), r"\{(?=([^{}]{0,2000}\"kty\"[^{}]{0,4000}))", random_looking, gate=r"\"kty\"",
        parts=r"\"(?:d|k|p|q|dp|dq|qi)\"[ \t\n]*:[ \t\n]*\"([A-Za-z0-9_-]{16,2000})\"", case=True,
    ),
    # Java takes passwords as characters
    Role(
        "PASSWORD", (".toCharArray(",), r"[\"']([^\s\"'\\]{8,64})[\"']\.toCharArray\(", chosen_password, case=True,
    ),
    # routers: the kind of the encryption stands between
    Role(
        "PASSWORD", ("password ", "secret ", "key "),
        r"^[^\n]{0,60}\b(?:password|secret|key)[ \t][05789][ \t](?=\S*[A-Za-z])([^\s\"'<>]{8,128})[ \t\r]*$",
        lambda value: chosen_password(value) or has_digit(value),
    ),
    # a table, a database: address, what is read there, user, password; a client: database, user, password, options
    Role(
        "PASSWORD", (":",),
        rf"[\"'][\w.-]{{1,80}}:[\w/]{{2,60}}[\"'](?:{_NEXT_LITERAL}){{1,3}}[ \t]*+,[ \t]*+[\"']{VALUE}[\"']",
        stated_password,
        case=True,
    ),
    Role(
        "PASSWORD", ("new ",),
        rf"\bnew[ \t]++[A-Z][\w.]*\([ \t\n]*[\"'][\w.@-]{{1,60}}[\"']{_NEXT_LITERAL}"
        rf"[ \t]*+,[ \t]*+[\"']{VALUE}[\"'][ \t]*+[,)]",
        stated_password, case=True,
    ),
    # databases that take a passphrase in a statement, and hash one there
    Role(
        "PASSWORD", ("pragma", "crypt(", "attach"),
        r"(?:pragma[ \t]++(?:hex)?(?:re)?key[ \t]*+=[ \t]*+[\"']|\battach[ ][^\n]{1,120}?[ ]key[ ][\"']"
        r"|\b\w{0,20}crypt\([^()\"']{0,60}['])"
        r"([^\s\"']{8,128})[\"']",
        chosen_or_made,
    ),
    # mail and stores: the user and the password, or both encoded
    Role(
        "PASSWORD", ("LOGIN ", "AUTH "),
        r"(?:\bLOGIN[ ]++[\"']?[^\s\"']{1,60}[\"']?[ ]++|\bAUTH[ ](?:(?:PLAIN|LOGIN)[ ])?)[\"']?([^\s\"'<>]{8,120})"
        r"[\"']?[ \t\r]*$",
        lambda value: column_password(value) or credential(value),
        case=True,
    ),
    Role(  # the prompt `Password:`, encoded
        "PASSWORD", ("UGFzc3dvcmQ6",),
        r"UGFzc3dvcmQ6[^\n]{0,4}\n[^\n]{0,20}?(?<![A-Za-z0-9+/])([A-Za-z0-9+/]{8,}={0,2})[ \t\r]*$",
        filled_in, case=True,
    ),
    # what a code of squares says of a network; what two ends share
    Role("PASSWORD", ("WIFI:",), r"\bWIFI:[^\n]{0,200}?\bP:([^;\n]{8,63});", filled_in, case=True),
    Role(
        "PASSWORD", ("PSK", "EAP", "XAUTH"), r":[ \t]*+(?:PSK|EAP|XAUTH)[ \t]++\"([^\"\n]{8,128})\"", filled_in,
        case=True,
    ),
    Role(
        "SECRET", ("otp",), r"otp\b[ \t]++(?:(?:-\w+|secret|key|seed)[:=]?[ \t]++)*[\"']?((?-i:"
        r"[A-Z2-7]{16,128}))(?![\w=])", has_digit,
    ),
    # commands that take it as a word: behind `password`, behind a share
    Role(
        "PASSWORD", ENDS_ANCHORS, rf"^[^\n]{{0,40}}?[$#>][ \t][^\n]{{1,200}}?[ \t]{ENDS}[ \t]{VALUE}(?=[ \t\n]|$)",
        shell_password,
    ),
    Role(
        "PASSWORD", ("net use",), rf"\bnet[ ]use\b[^\n]{{0,20}}?\\\\[^\s]{{2,120}}[ \t]++[\"']?{VALUE}(?=[\"'\s]|$)",
        chosen_password,
    ),
    Role(
        "PASSWORD", ("@//",), r"(?<![\w./-])[A-Za-z]\w{0,40}/([^\s\"'`/:@]{8,64})@//[A-Za-z]", chosen_password,
        case=True,
    ),
    # codes that are listed, or told in a line
    Role(
        "RECOVERY_CODE", _CODES_ANCHORS,
        rf"{_CODES}[^\n]{{0,60}}\n(?:[ \t\r]*\n)?"
        rf"(?=((?:{_ITEM}[A-Za-z0-9-][A-Za-z0-9 \t-]{{5,89}}[\"'`,]*[ \t\r]*+(?:\n|$)){{1,20}}))",
        _code,
        parts=rf"(?m)(?:^{_ITEM}|(?<=[ \t]{{2}})|(?<=\t))([A-Za-z0-9]{{4,16}}(?:[ -][A-Za-z0-9]{{3,12}}){{0,5}})"
        r"(?=[\"'`,]*[ \t\r]*$|[ ]{2}|\t)",
    ),
    Role(
        "RECOVERY_CODE", _CODES_ANCHORS, rf"{_CODES}[\"'\])]*[ \t]*+(?:are|is|=>|:=|=|:)(?=([^\n]{{8,400}}))",
        _code, parts=rf"(?<![A-Za-z0-9-])({_CODE})(?![A-Za-z0-9-])",
    ),
    Role(
        "SEED_PHRASE", _PHRASE_ANCHORS,
        rf"{_PHRASE}[\"'\])\w ]{{0,30}}?(?:=>|:=|=|:|\bis\b|\n)[ \t\n\"'`\d.)]{{0,8}}"
        r"((?:[a-zß-ÿа-я]{3,8}[ ,\n\t\d.)]{1,8}){11,23}[a-zß-ÿа-я]{3,8})(?![a-zß-ÿа-я])",
        _phrase, gate=rf"(?i){_PHRASE}",
    ),
    Role(
        "PIN", _CODE_ANCHORS,
        rf"{_TOLD_CODE}[^\n\d:=]{{0,30}}?(?:\b(?:{IS}|to|auf)\b|[éè:=]|är)[ \t\"'`*]{{0,4}}(\d{{4,8}})(?![\w.:-]*\d)",
        _digits, case=True,
    ),
    Role(
        "PIN", ("pin",),
        r"(?:^|[ \t\"'{,_])pin(?:_?code)?[\"']?(?:[ \t]{2,40}|[ \t]*+[:=][ \t]*+)[\"']?(\d{4,8})(?![\w.:-]*\d)",
        _digits, case=True,
    ),
    # a word of a shell that a backslash continues at the beginning of the next line
    Role(
        "SECRET", ("=",),
        rf"(?:secret|token|passw\w{{0,4}}|_key|pwd)=[\"']?([{CHARS}-]{{6,200}}\\\r?\n[{CHARS}-]{{4,200}})", _continued,
    ),
    Role(  # of YAML between double quotes, where the blanks before it are none of it
        "SECRET", (": \"",),
        rf"(?:secret|token|passw\w{{0,4}}|_key|pwd):[ ]\"([{CHARS}-]{{6,200}}\\\r?\n[ \t]*+[{CHARS}-]{{4,200}}=?)\"",
        _continued,
    ),
    # a value in its type: `Token:(*string)("…")`, `Some("…")`, `SecretStr("…")`
    Role(
        "SECRET", ("token", "secret", "apikey", "api_key", "password"),
        rf"{_WRAPPED}(?:Some|Secret\w*|\(\*?\w+\))?[ \t]?\(\s{{0,40}}\"{VALUE}\"",
        chosen_or_made,
    ),
    # lists of them, and objects of that name
    Role(
        "PASSWORD", (*ENDS_ANCHORS, "secret", "token", "key", "credential"),
        r"(?:passwords?|passwd|pwds?|\bpws?|secrets|(?<![a-z_])tokens|api_?keys|credentials)[\"'\])]{0,2}"
        r"[ \t]*+(?:=>|:=|=|:|\bin\b|\bof\b)"
        r"[ \t]*+(?:\w{1,12}\()?[\[{(](?=([^\]})]{8,600}))",
        chosen_or_made, parts=r"[\"']([^\s\"'\\<>]{6,200})[\"'](?![ \t]*:)",
        gate=rf"(?i)(?:passw|pwds?|pws?|secrets|tokens|keys|credentials)[^\n]*[\[{{(][^\]}})]*{DRAWN}",
    ),
    Role(
        "SECRET", ("secret", "token", "key", "credential", "passw"),
        r"^[ \t-]*+[\"']?[\w.-]{0,30}?(?:secrets|credentials|tokens|passwords|api_?keys|creds)[\"']?[ \t]*+[:=]"
        r"[ \t]*+\{?[ \t\r]*\n"
        r"(?=((?:[ \t]+[^\n]{1,300}(?:\n|$)){1,20}))",
        chosen_or_made, parts=rf"(?m)^[ \t]+[\"']?[\w.-]{{1,60}}[\"']?[ \t]*[:=][ \t]*[\"']?{VALUE}[\"']?,?[ \t\r]*$",
        gate=rf"(?im)(?:secrets|credentials|tokens|passwords|keys|creds)[\"']?[ \t]*[:=][ \t]*\{{?[ \t\r]*\n[ \t]"
        rf"[^\n]*[^}}]*{DRAWN}",
    ),
    # a prefix of what is hashed; what a file of keys is opened with; a query's key
    Role(
        "SECRET", ("sha1", "sha2", "sha5", "md5", "digest"),
        r"(?:sha\d{1,3}|md5|digest)\w{0,12}\((?:[\w.]{1,30},[ ]?)?(?:[\w.]{1,20}\()?[bf]?[\"']("
        r"[^\s\"'\\<>]{8,200})[\"'][ \t)]*[+.]",
        chosen_or_made,
    ),
    Role(
        "PASSWORD", ("private", "pkcs", "keystore", "wallet", "p12", "pfx"),
        r"(?:private_?key|pkcs\w{0,3}|keystore|wallet|p12|pfx)\w{0,24}\([^\n()]{0,120}?,[ ]?[\w=]{0,16}[bf]?"
        r"[\"']([^\s\"'\\<>/]{8,64})[\"']",
        chosen_password,
    ),
    Role(
        "SECRET", ("params", "query"),
        r"(?:params|query)\w{0,12}[\"']?[ \t]*+[:=][ \t]*+(?:dict)?[{(][^{}()\n]{0,160}?[\"']?\b(?:key|app_?id"
        r"|api_?key|auth|code)"
        rf"[\"']?[ \t]*+[:=][ \t]*+[\"']{VALUE}[\"']",
        credential,
    ),
    Role("SECRET", ("seed",), r"\bseed[\"']?[ ]?[:=][ ]?[\"']?((?:0x)?[0-9a-f]{64,128})(?![\w])", filled_in),
)  # fmt: skip
