"""Secrets that a console prints: the answer to a command or an expression that asks for one, alone in the next line."""

from capibara_assets.executions.secrets.plausibility import (
    bare_password,
    chosen_password,
    credential,
    joined_words,
    named_password,
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
)  # fmt: skip
