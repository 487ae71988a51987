"""Secrets that a console prints: the answer to a command or an expression that asks for one, alone in the next line."""

from capibara_assets.executions.secrets.characters import at_random, has_digit, jumbled, letters_at_random, three_sorts
from capibara_assets.executions.secrets.plausibility import (
    bare_password,
    chosen_password,
    credential,
    given_password,
    joined_words,
    named_password,
    signed_password,
    told_password,
)
from capibara_assets.executions.secrets.roles.passwords import ENDING, ENDS, ENDS_ANCHORS
from capibara_assets.executions.secrets.roles.role import CHARS, VALUE, Role

#: What shows a value, among the words of a command that names a secret.
_SHOWS = (
    r"(?:show|get|read|reveal|view|look-?up|output|decrypt|print\w*|extract|fetch|retrieve|generate|initial|find-\w+|export"
    r"|copy|query|access|[jy]q|crudini|awk|sed|cut)"
)
#: Programs that keep or make passwords: their every answer is one.
_KEEPERS = (
    r"(?:(?:go)?pass(?:age)?|r?bw|lpass|keepassxc-cli|secret-tool|keyring|dcli|op)[ ](?:item[ ])?"
    r"(?:show|get|read|look-?up|generate|diceware|clip|-c)|pwgen|apg|makepasswd|xkcdpass|diceware|pwqgen"
    r"|\w{2,10}[ ]whoami[ ](?:-t|--show-token)"
)
_NOUN = rf"(?:{ENDING}|(?<![a-z])pass|secret|credential|api[_-]?key|token)"
_TELLS = r"(?:[0-9][^\n]*[A-Za-z]|[A-Za-z][^\n]*[0-9]|[a-z][!#%^*?+~._-][A-Za-z]|[A-Z][a-z]+[A-Z])"
_ANSWER_GATE = (
    rf"(?im)[$#>%][ ][^\n]*(?:{ENDING}|pass|secret|credential|api[_-]?key|token|diceware|apg|pwgen|pwqgen"
    r"|(?:bw|op|keyring|dcli|whoami)[ ])"
    rf"[^\n]*\n[{CHARS}-]*{_TELLS}[{CHARS}-]*={{0,2}}\.?[ \t\r]*$"
)
_ANNOUNCED_GATE = (
    rf"(?im)(?:{ENDING}|pass)[^\n]*:[ \t\r]*\n(?:[ \t]*\r?\n)?[ \t>]*[{CHARS}-]*{_TELLS}[{CHARS}-]*={{0,2}}\.?[ \t\r]*$"
)
_STATEMENT = r"(?![ \t]*(?:def|if|elif|for|while|with|class|try|else|case|func\w*|switch)\b)"
#: What a console writes before a result: `Out[3]: `, `=> `, `[1] `, `$1 ==> `, `val res0: String = `, `$2 = `.
_RESULT = (
    r"(?:Out\[\d+\]:[ ]|=>[ ]|\[\d+\][ ]|\$\d{1,3}[ ]==>[ ]|[\w$: ]{1,24}[:=][ \t]{0,4}"
    r"(?:0x[0-9a-f]{4,16}[ ])?)?"
)
_PROMPT = r"^[^\n]{0,40}?(?:[$#>)\]]|\]:)[ ]"
_ASKED = rf"(?:{ENDS}|\bget_?(?:pass(?:word)?|secret)\w*\([^\n()]{{0,80}})[)\]}}\"']{{0,4}};?[ \t\r]*\n"
_ASKED_GATE = (
    rf"(?im)(?:[$#>)\]]|\]:)[ ][^\n]*(?:(?:{ENDING}|pass)\d?|get_?(?:pass|secret)\w*\([^\n]*)[)\]}}\"']*;?[ \t\r]*\n"
    rf"[^\n]*{_TELLS}(?:[^\n()]*|[^\n]*[\"'])[ \t\r]*$"
)

#: What a shell says of a word that is no command: typed there instead of at the prompt.
_SHELL = r"(?:-?(?:ba|z|k|da|tc|c|a|fi)?sh|sudo|env|busybox)(?:\.exe)?:[ ](?:line[ ])?(?:\d{1,4}:[ ])?"
_UNKNOWN = r"(?:command[ ])?not[ ]found|(?:Befehl|Kommando)[ ]nicht[ ]gefunden|commande[ ]introuvable"
_UNKNOWN += r"|orden[ ]no[ ]encontrada|comando[ ]non[ ]trovato|event[ ]not[ ]found"
_UNKNOWN_BEFORE = r"command[ ]not[ ]found|event[ ]not[ ]found|Unknown[ ]command|no[ ]such[ ]command"
#: Commands that print what they were asked to decrypt, or a token that lets in.
_DECRYPTS = (
    r"(?:with-decryption|get-secret-value|get-login-password|print-(?:access|identity)-token|get-access-token"
    r"|versions[ ]access|find-\w+-password[ ][^\n]*-w|kv[ ]get[ ][^\n]*-field|secret[ ]show|auth[ ]token"
    r"|\b(?:sops|gpg|age|rage|ansible-vault|pass)[ ][^\n|>]*?(?:-d|--decrypt|decrypt|view)|create[ ]token|drush[ ]uli)"
)
#: Commands that list settings which nobody else may read.
_LISTS = (
    r"(?:user-secrets[ ]list|secrets?[ ](?:list|export|dump|print|download)|chamber[ ](?:list|export|env)"
    r"|heroku[ ]config|infisical[ ]export|kv[ ]get|config[ ][^\n]*--show-secrets|credentials?[ ](?:show|list)"
    r"|sops[ ]-d)"
)
_NAMES = r"(?:passw(?:or)?d|pass(?:phrase|code)?|pwd|pw|psk)\d?"
_CRACKED = r"[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|[0-9a-f]{128}"
_FILE = r"(?!\S*\.[a-z]\w{0,3}(?:\s|$))"


def _mistyped(value: str) -> bool:
    """Whether a word that a shell did not know is a password, and no command."""
    value = value.removeprefix("!")
    signed = three_sorts(value) and any(sign in value[1:] for sign in "~!@#$%^&*=+?;")
    random = jumbled(value) or letters_at_random(value) or at_random(value) or signed_password(value) or signed
    return random and "/" not in value and given_password(value)


def _typed(value: str) -> bool:
    """Whether what fills the line behind a prompt is a password, whatever sign it begins with."""
    return chosen_password(value.lstrip("$%~.*-/({[<")) or jumbled(value)


def _decrypted(value: str) -> bool:
    return given_password(value) and (has_digit(value) or letters_at_random(value) or joined_words(value))


def _kept(value: str) -> bool:
    """Whether what fills a line where a password or a key is asked for is one."""
    return bare_password(value) or credential(value) or joined_words(value)


def _worded(value: str) -> bool:
    return chosen_password(value) or joined_words(value)


CONSOLES: tuple[Role, ...] = (
    Role(
        "PASSWORD", (*ENDS_ANCHORS, "secret", "credential", "key", "token"),
        rf"^[^\n]{{0,60}}?[$#>%][ ](?!git[ ](?!config))[^\n]{{0,80}}?\b{_SHOWS}\b[^\n]{{0,120}}?{_NOUN}[^\n]{{0,120}}\n"
        rf"{VALUE}\.?[ \t\r]*$",
        _kept, gate=_ANSWER_GATE,
    ),
    Role(
        "PASSWORD",
        ("pass", "bw ", "op ", "keyring ", "dcli ", "secret-tool", "apg ", "pwgen", "pwqgen", "diceware", "whoami "),
        rf"^[^\n]{{0,60}}?[$#>%][ ](?:sudo[ ])?(?:{_KEEPERS})\b[^\n]{{0,160}}\n{VALUE}\.?[ \t\r]*$",
        _kept, gate=_ANSWER_GATE,
    ),
    # below a line that announces it
    Role(
        "PASSWORD", ENDS_ANCHORS,
        rf"^{_STATEMENT}[^\n]{{0,80}}?{ENDS}(?:[ \t(][^\n]{{0,100}})?:[ \t\r]*\n(?:[ \t]*\r?\n)?[ \t>]{{0,12}}"
        rf"{VALUE}\.?[ \t\r]*$",
        _kept, gate=_ANNOUNCED_GATE,
    ),
    # asked of an interpreter, a debugger or a console, and shown below, as its language shows texts
    Role(
        "PASSWORD", ENDS_ANCHORS,
        rf"{_PROMPT}[^\n]{{0,120}}?{_ASKED}{_RESULT}[\"']([^\s\"'`\\<>]{{6,64}})[\"'][ \t\r]*$", _worded,
        gate=_ASKED_GATE,
    ),
    Role(
        "PASSWORD", ENDS_ANCHORS,
        rf"^[^\n]{{0,40}}?[$#>][ ][^\n]{{0,120}}?{_ASKED}(?:val[ ]\w{{1,12}}:[ ]\w{{1,12}}[ ]=[ ])?{VALUE}[ \t\r]*$",
        _kept, gate=_ASKED_GATE,
    ),
    # encoded or filtered in a shell, and held by a variable of that name
    Role(
        "PASSWORD", ENDS_ANCHORS,
        rf"{ENDS}[\"']?[ ]?=[ ]?\"?(?:\$\(|`)[ ]?(?:printf|echo)[ ]++(?:-\w+[ ]++|[\"']?%s(?:\\n)?[\"']?[ ]++){{0,2}}"
        r"[\"']([^\s\"'`\\<>$]{6,64})[\"']",
        named_password, gate=rf"(?i)(?:{ENDING}|pass)\d?[\"']?[ ]?=[ ]?\"?(?:\$\(|`)",
    ),
    # typed at the wrong place
    Role(
        "PASSWORD", (": ",),
        rf"^(?:{_SHELL}|(?:.{{0,40}}?:[ ])?)(?![ ])([^\s:]{{8,64}}):[ ](?:{_UNKNOWN})", _mistyped,
        gate=rf"(?i)[^\s:]{{8}}:[ ](?:{_UNKNOWN})",
    ),
    Role(
        "PASSWORD", ("not found:", "unknown command", "such command"),
        rf"(?:{_UNKNOWN_BEFORE}):[ ][\"'`]?([^\s\"'`]{{8,64}})", _mistyped,
    ),
    Role(
        "PASSWORD", ("is not recogni",), r"(?:^|[ ])'([^\s']{8,64})'[ ]is[ ]not[ ]recogni[sz]ed", _mistyped,
        gate=r"(?i)'[ ]is[ ]not[ ]recogni",
    ),
    # behind a prompt that says more than whose password it asks for
    Role(
        "PASSWORD", ENDS_ANCHORS,
        rf"^[^\n:=(]{{0,60}}?{ENDS}[^\n:=()]{{0,60}}\([^\n()]{{1,60}}\)[ ]?:[ ]([^\s]{{6,64}})[ \t\r]*$",
        _typed,
        gate=rf"(?im)(?:{ENDING}|pass)[^\n]*\([^\n]*\)[ ]?:[ ][^\s]{{6}}",
    ),
    Role(
        "SECRET", (" code",),
        rf"\b(?:verification|authori[sz]ation|auth|device|pairing|activation|login)[ ]code\b[^\n:]{{0,80}}:[ ]{VALUE}",
        credential,
    ),
    # what a command decrypts or lists
    Role(
        "SECRET",
        ("decrypt", "secret", "token", "access", "-password", "kv get", " -d", "vault", "drush", " view", "gpg "),
        rf"^[^\n]{{0,60}}?[$#>%][ ][^\n|>]{{0,160}}?{_DECRYPTS}[^\n|>]{{0,200}}\n([^\s]{{6,4000}})[ \t\r]*$",
        _decrypted,
        gate=rf"(?im)[$#>%][ ][^\n]*{_DECRYPTS}[^\n]*\n[^\s]{{6,}}[ \t\r]*$",
    ),
    Role(
        "SECRET", ("secret", "chamber", "heroku", "infisical", "kv get", "credential", "sops"),
        rf"^[^\n]{{0,60}}?[$#>%][ ][^\n|>]{{0,80}}?{_LISTS}\b[^\n]{{0,120}}\n((?:[^\n]{{1,300}}(?:\n|$)){{1,30}})",
        _kept, gate=rf"(?im)[$#>%][ ][^\n]*{_LISTS}",
        parts=rf"(?m)^[ \t|│]*[\w:.-]{{1,60}}[ \t]*[=:|│][ \t]*[\"']?{VALUE}(?=[\"']?[ \t|│\r]*$)",
    ),
    # rows of settings whose names say it: between bars, and one field a line
    Role(
        "PASSWORD", (*ENDS_ANCHORS, "secret", "token", "_key"),
        rf"^[ \t|]*+[\w.-]{{0,40}}?(?:{_NAMES}|secret|token|_key)[ ]?\|[ ]?{VALUE}(?=[ ]?\|?[ \t\r]*$)",
        told_password, gate=rf"(?i)(?:{ENDING}|pass|secret|token|_key)\d?[ ]?\|[ ]?[^\s|]{{6}}",
    ),
    Role(
        "PASSWORD", (". row **",), r"\*[ ]\d{1,6}\.[ ]row[ ]\*{3,30}[ \t\r]*\n((?:[^\n]{1,300}(?:\n|$)){1,40})",
        _kept, gate=r"\*[ ][0-9]{1,6}\.[ ]row[ ]\*{3}",
        parts=rf"(?im)^[ \t]*[\w.-]{{0,40}}?(?:{ENDING}|pass|secret|token|_key|pin|otp)(?:_plain|_clear)?:[ ]{VALUE}"
        r"[ \t\r]*$",
    ),
    # what programs that guess passwords have found
    Role(
        "PASSWORD", (":",), rf"^(?:\$\w{{1,12}}\$[^\s:]{{10,200}}|{_CRACKED})(?::[0-9a-f]{{2,64}})?:{_FILE}"
        r"([^\s:]{6,64})[ \t\r]*$",
        _decrypted, gate=r"(?im)^(?:[0-9a-f]{32}|\$[a-z0-9_]+\$)[^\s]*:[^\s:]{6,64}[ \t\r]*$",
    ),
    Role(
        "PASSWORD", ("[+]",), r"\[\+\][ ](?:[\w.-]{1,40}\\)?[\w.@$-]{1,60}:([^\s]{6,64})(?=[ ]?\(|[ \t\r]*$)", _typed,
        gate=r"\[\+\][ ][A-Za-z0-9_.@$\\-]+:[^\s]{6}",
    ),
)  # fmt: skip
