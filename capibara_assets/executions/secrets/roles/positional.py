"""Secrets by their place alone (behind a user, a verb or a keyword), and passwords by nothing but their shape."""

from capibara_assets.executions.secrets.characters import has_digit, jumbled
from capibara_assets.executions.secrets.plausibility import (
    bare_password,
    chosen_password,
    credential,
    filled_in,
    joined_words,
    named_password,
    shell_password,
    signed_password,
    signed_words,
    stated_password,
)
from capibara_assets.executions.secrets.roles.arguments import WORD
from capibara_assets.executions.secrets.roles.role import SIGNED, VALUE, Role

_LITERAL = r"[\"']([^\s\"'`\\<>]{6,64})[\"']"
_USER = r"[\w.@\\-]{1,60}"
_END = r"(?=[\"']?[ \t\r]*(?:$|[|;&>)\"']|\\[\r\n]|-{1,2}\w))"
_VERB = r"(?:passw(?:or)?d|passphrase)"
_DEVICE = (
    "key-string|plaintext-key|irreversible-cipher|ascii-text|auth-pass|psksecret|cachemgr_passwd|bind-?pwd?|rootpw"
    "|sharedsecret|requirepass|masterauth|authentication-key"
)
_DEVICE_ANCHORS = (*(word for word in _DEVICE.split("|") if "?" not in word), "bindpw", "bind-pw")

#: What makes or changes an account, with its name and its password behind it.
_ACCOUNTS = r"(?:users?|admins?|accounts?|members?|operators?|jaas|subscribers?|mailbox)[:_ -]"
_ACCOUNTS += r"(?:add|create|new|useradd|adduser|register|passwd|insert)"
_REGISTERS = r"(?:\w+ctl|prosodyctl|ejabberdctl|doveadm|xmpp\w*)[ ](?:register|adduser|passwd)"
#: Programs that encrypt, whose flag of one letter takes a passphrase.
_ENCRYPTS = (
    r"(?:cc(?:rypt|encrypt|decrypt|at)|aescrypt|mcrypt|steghide|stegseek|outguess|msoffcrypto-tool|veracrypt|tcplay"
    r"|truecrypt|enpass|bcrypt|scrypt|openstego|zpaq|pdftk|pdfcpu|mutool)"
)
_KEEPS_LOGIN = r"[^\s|]{0,80}?(?:login|auth|cred|pass|secret|htdigest|digest)"
_SHELL_NAME = r"\w{0,40}?(?:pass(?:w(?:or)?d|phrase)?|pwd|pw|secret|token|key)"


def _worded(value: str) -> bool:
    """Whether a word of a shell is a password, of words alone, too."""
    return shell_password(value) or joined_words(value) or jumbled(value)


def _literal(value: str) -> bool:
    """Whether a literal that a call takes for a password is one."""
    return named_password(value) and (has_digit(value) or signed_words(value) or chosen_password(value))


def _made(value: str) -> bool:
    """Whether a word behind a keyword is a password or made at random, and no name."""
    return bare_password(value) or credential(value)


POSITIONAL: tuple[Role, ...] = (
    # wherever it stands: a word with a capital, a sign, a number (and letters); that and the sign last, in quotes.
    # In 850 MB of libraries and logs five such words stand; all are passwords. Behind `@:, ` it is a test's noise.
    Role(
        "PASSWORD", ("!", "@", "#", "%", "$", "*", "?"),
        r"(?<![\w%#/.@-])(?<![@#$%&*][:;,] )(?<![@#$%&*][:;,]{2} )"
        r"([A-Z][a-z]{2,15}[!@#%$*?][0-9]{3,8}[A-Za-z]{0,8})(?![\w/.-])",
        signed_password, case=True,
    ),
    Role(
        "PASSWORD", ("!", "@", "#", "%", "$", "*", "?"),
        r"(?<=[\"'`])([A-Z][a-z]{2,15}[0-9]{3,6}[!@#%$*?]{1,2})(?=[\"'`])",
        signed_password, case=True,
    ),
    # a verb of passwords, and whose it is: `change_password root ..`, `user set password 2 ..`, `user:password ..`
    Role(
        "PASSWORD", ("password ", "passwd "),
        rf"(?:\b(?:change|set|reset|update|new|modify)[-_ ]?(?:user[-_ ]?)?|\buser[:_ -](?:set[ ])?){_VERB}[ ]++"
        rf"(?:(?:{_USER}|\d{{1,4}})[ ]++){{0,2}}[\"']?{WORD}{_END}",
        shell_password,
    ),
    # behind the flag of a password, in front of an argument that is no flag
    Role(
        "PASSWORD", ("password ", "passwd ", "passphrase ", "pwd ", "_pw "),
        rf"(?:(?:^|[\s\"'])-{{1,2}}[\w-]{{0,30}}?(?:passw(?:or)?d|passphrase|pwd)|\b(?:input|user|owner)_pw)[ ]{{1,3}}"
        rf"[\"']?{WORD}(?=[\"']?[ ]\w)",
        shell_password,
    ),
    # the flag of one letter behind that of a user
    Role(
        "PASSWORD", (" -p ", " -w "),
        rf"[ ](?:-[nuUl]|--user(?:name)?|--login)[ =]?[\"']?{_USER}(?<!\.py)(?<!\.js)(?<!\.sh)[\"']?[ ]++"
        rf"(?:-\w[ ][\w./:-]{{1,60}}[ ]++){{0,2}}"
        rf"-[pPwW][ ]++[\"']?{WORD}{_END}",
        bare_password,
    ),
    Role(
        "PASSWORD", (" -p ", " -w ", " -a "), rf"[ ]-[pPwWa][ ]++[\"']?{WORD}{_END}",
        signed_password, gate=rf"(?i)[ ]-[pwa][ ]+[\"']?[^\s\"'`\\<>]*{SIGNED}",
    ),
    # a user and the password in front of a database
    Role(
        "PASSWORD", ("sqlplus", "rman", "expdp", "impdp", "connect "),
        r"\b(?:sqlplus|rman|expdp|impdp|connect)\b[^\n@]{0,60}?[ ][\w$]{1,40}/[\"']?([^\s\"'/@]{6,64})[\"']?@",
        _literal,
    ),
    # commands whose argument is one
    Role(
        "PASSWORD", ("rasdial", "obscure ", "http-basic", "addauth", "radclient", "setairportnetwork", "key s:"),
        rf"(?:\brasdial[ ]++(?:\"[^\"\n]{{1,60}}\"|\S{{1,60}})[ ]++{_USER}[ ]++|\brclone[ ]obscure[ ]++"
        rf"|\bhttp-basic[\w.-]{{0,40}}[ ]++{_USER}[ ]++|\baddauth[ ]++digest[ ]++{_USER}:"
        rf"|-setairportnetwork[ ]\S{{1,20}}[ ]++(?:\"[^\"\n]{{1,60}}\"|\S{{1,60}})[ ]++|\bkey[ ]s:"
        rf"|\bradclient[ ][^\n]{{0,80}}?[ ](?:auth|acct)[ ]++)[\"']?{WORD}",
        named_password,
    ),
    Role(
        "PASSWORD", ("user ", "user:", "user_"), rf"\buser[:_ -](?:add|create|new)[ ]++{_USER}[ ]++[\"']?{WORD}",
        shell_password,
    ),
    # what logs in with a user and a password
    Role(
        "PASSWORD", ("basic(", "pw_set(", "pw_auth(", "passw"),
        rf"(?:\.basic|_basic|\w{{0,20}}pw_(?:set|auth)|(?:set|change|update|reset)\w{{1,12}}?_?passw\w{{0,8}})\("
        rf"[ ]?[\"']{_USER}[\"'],[ ]?{_LITERAL}",
        _literal,
    ),
    # SQL: another server, a database, a credential
    Role(
        "PASSWORD", ("using ",), rf"\bconnect[ ]to[ ]\S{{1,60}}[ ]user[ ]\S{{1,60}}[ ]using[ ]++[\"']?{WORD}",
        named_password,
    ),
    Role("PASSWORD", ("';'",), rf"'[^'\n]{{1,80}}'[ ]?;[ ]?'[^'\n]{{1,60}}'[ ]?;[ ]?{_LITERAL}", _literal),
    Role("SECRET", ("secret",), rf"\bsecret[ ]?=[ ]?{_LITERAL}", chosen_password),
    Role("SECRET", ("secret",), rf"^[ \t]*\w{{0,20}}secret\w{{0,12}}(?:[ ]?=|:)[ ]?{VALUE}[ \t\r]*$", stated_password),
    Role("PASSWORD", ("identified by",), rf"\bidentified[ ]by[ ]++{WORD}(?=[ \t\r]*(?:$|;)|[ ]\w)", shell_password),
    # lines of devices and daemons: a word that says it, and what it says
    Role(
        "PASSWORD", _DEVICE_ANCHORS,
        rf"(?:^|[\s/#'\"])(?:{_DEVICE})[ \t]++(?:\w{{1,24}}[ \t]++)?[\"']?{VALUE}(?=[\"';/ \t\r]|$)", _made,
    ),
    Role(
        "PASSWORD", (".key='", '.key="'), rf"(?:wireless|wifi|wlan|psk)[^\n]{{0,60}}\.key={_LITERAL}", named_password,
    ),
    # a domain's user and the password behind it, as Samba's programs take them
    Role(
        "PASSWORD", (" -u ", " --user"),
        r"[ ](?:-U|--user(?:name)?)[ =]?[\"'](?:[\w.-]{1,30}[\\/])?[\w.-]{1,40}%([^\s\"']{6,64})[\"']",
        named_password,
    ),
    # behind the user's name, and a host's, for what makes an account
    Role(
        "PASSWORD", ("user", "admin", "account", "member", "operator", "jaas",
         "subscriber", "mailbox", "register", "passwd"),
        rf"\b(?:{_ACCOUNTS}|{_REGISTERS})[ ]++(?:{_USER}[ ]++){{1,2}}[\"']?([^\s\"'`<>|;-][^\s\"'`<>|;]{{5,64}})"
        r"(?=[\"']?(?:[ \t\r]|$))",
        _worded,
    ),
    # piped through several programs; told to printf apart from its format
    Role(
        "PASSWORD", ("echo ", "printf ", "yes "),
        rf"\b(?:echo|printf|yes)[ ]++(?:-\w[ ]++|[\"']%s(?:\\n)?[\"'][ ]++){{0,2}}[\"']?{WORD}[\"']?[ ]*+\|"
        r"(?:[^\n|]{0,40}\|){0,2}[^\n|]{0,80}?(?:passw|load-key|luks|geli|bioctl|crypt|unlock|kinit|register|--stdin)",
        _worded, gate=r"(?i)(?:echo|printf|yes)[ ][^\n|]*\|[^\n]*(?:passw|load-key|luks|geli|bioctl|crypt|unlock|kinit"
        r"|register|--stdin)",
    ),
    Role(
        "PASSWORD", ("printf ",),
        rf"\bprintf[ ]++[\"'](?:[\w.@-]{{1,40}}:(?:[\w. -]{{1,40}}:)?|[\w.@-]{{1,40}}\\n)%s(?:\\n)?[\"'][ ]++[\"']?"
        rf"{WORD}[\"']?(?=[ )]*(?:[|>)]|$))",
        named_password,
    ),
    Role(
        "PASSWORD", ("printf ",),
        rf"\bprintf[ ]++[\"']%s(?:\\n|:)%s(?:\\n)?[\"'][ ]++[\"']?{_USER}[\"']?[ ]++[\"']?{WORD}"
        rf"(?=[\"']?[ ]*>{{1,2}}[ ]*{_KEEPS_LOGIN}|[\"']?[ ]*\))",
        named_password,
    ),
    # a line of a file of logins that a command appends; what a history is cleaned of
    Role(
        "PASSWORD", ("echo ", "printf "),
        r"\b(?:echo|printf)[ ]++[\"'][\w.*-]{1,80}:(?:\d{2,5}|\*):[\w.*-]{1,60}:[\w.@-]{1,60}:([^\s\"':]{6,64})"
        r"(?:\\n)?[\"']",
        named_password,
    ),
    Role("SECRET", ("==>",), r"(?:^|[\"'\s])(?![=#/])([^\s\"'=]{8,200}={0,2})==>", _made),
    # digests that let in like a password
    Role(
        "PASSWORD_HASH", (" -h", "/pth:", "/ntlm:", "/rc4:", "nt-hash"),
        r"(?:[ ]-hashes[ =]|[ ]-H[ ]|/(?:pth|ntlm|rc4):|--pw-nt-hash[ ])[\"']?((?:[0-9a-f]{32})?:?[0-9a-f]{32})(?!\w)",
        filled_in,
    ),
    # a passphrase of what encrypts
    Role(
        "PASSWORD", ("crypt", "ccat", "steg", "outguess", "tcplay", "zpaq", "pdf", "mutool", "enpass"),
        rf"\b{_ENCRYPTS}\b[^\n|;]{{0,80}}?[ ]-{{1,2}}(?:[kKpP]|sf[ ]\S{{1,60}}[ ]-p|pass\w{{0,8}}|key|opw|upw)"
        rf"[ =]?[\"']?{WORD}",
        _worded,
    ),
    Role(
        "PASSWORD", ("-encrypt ",), rf"\b(?:qpdf|mutool|pdf\w+)[ ][^\n|;]{{0,80}}?--encrypt[ ]++[\"']?{WORD}", _worded,
    ),
    Role(
        "PASSWORD", ("server:", "ext:"), r":[psgk]?(?:server|ext):[\w.@-]{1,40}:([^\s@:/\"']{6,64})@", named_password,
    ),
    # an edit of the place that holds it; a variable of a shell or a notebook
    Role(
        "PASSWORD", ("pass", "pwd", "secret", "token"),
        rf"[ ]-u[ ]++[\"'][^\n]{{0,120}}?(?:passw\w{{0,3}}|pwd|secret|token)[\"'][ ]++-v[ ]++[\"']?{WORD}", _worded,
    ),
    Role(
        "PASSWORD", ("set_env ", "%env ", "setenv ", "setx ", "set -"),
        rf"(?:^%(?:set_)?env|\bsetenv|\bsetx|\bset[ ]-[xgUL]{{1,4}})[ ]++{_SHELL_NAME}[ =]++[\"']?{WORD}"
        r"(?=[\"']?[ \t]*+(?:$|[;&/]))",
        named_password,
    ),
)  # fmt: skip
