"""Tests whether a candidate value is a real secret: random characters, not a word, path, name or placeholder."""

import re

from capibara_assets.executions.secrets.characters import (
    HEX,
    SIGNED,
    at_random,
    changes,
    entropy,
    has_digit,
    hexadecimal,
    improbable,
    in_words,
    jumbled,
    letters_at_random,
    long_mingled,
    mingled,
    scattered_capitals,
    three_sorts,
    wordy,
)

_PLACEHOLDER = re.compile(
    r"your|example|placeholder|x{4}|\*{3}|change[-_.]?me(?!\W?\d+[a-z])|dummy|insert|replace|todo|redacted|\Aenc\[|\A[a-z]+:\Z",
    re.IGNORECASE,
)
_BLANK = re.compile(r"(.)\1{5}|your[-_]", re.IGNORECASE)
_BASES = frozenset("ACGTUN")
_WORDS = "password passwd pass pwd secret user username postgres mysql root admin test guest token changeme key"
_ACCESS_WORDS = frozenset(_WORDS.split())
_UUID_DASHES = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_SIGNS = frozenset("!@#%^$*?")
_DIGITS = re.compile(r"[0-9]+")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
#: Two words and a number, as people choose them: attributes and hosts hardly end so.
_DOTTED_CHOICE = re.compile(r"[a-z]{3,}\.[a-z]{3,}\d{2,4}")
#: E-mail addresses, versions, percent-encoded text (four digits behind a sign are a password's); formats of printf.
_NOT_ALONE = re.compile(
    r"@[\w-]+\.[A-Za-z]{2,}|@v?\d+\.|#\w+\.\w|%(?:20(?!\d\d)|2[A-Fa-f]|3[A-Fa-f]|5[BDEbde]|7[BDbd])"
)
_FORMAT = re.compile(r"%\d{0,2}(?:\.\d+)?[sdifgxeru](?![A-Za-z0-9])")
_PACKAGED = re.compile(r"[a-z_]+(?:\.[a-z_]\w*)+\.[A-Z]\w*")  # a class in its packages
_LISTED = re.compile(r"[a-z_]+(?:\|[a-z_]+[:\w,]*)+")  # rules of a form: required|string|min:8
_NUMBERED_THING = re.compile(r"[A-Za-z_]+[#%]\d+")  # issue#1234
#: What a value refers to: variables, templates, files, versions.
_REFERENCE = re.compile(r"\$[\w{(]|[{}/\\]|<%|\.[A-Za-z]{1,5}$|\d\.\d|=[^=]")
#: Three words, as people are told to choose them.
_WORDS_JOINED = re.compile(r"[A-Za-z]{3,}(?:[-+][A-Za-z]{3,}){2,}")
#: Letters with two signs or more, one of which stands among them and joins no names.
_LETTERS_SIGNED = re.compile(
    r"(?=.*[A-Za-z][!@#%^*?+~][A-Za-z])(?=(?:[A-Za-z]*[^A-Za-z]){2})[A-Za-z]+[A-Za-z!@#%^*?+~=_.-]*"
)
_NUMBERED = re.compile(r"[A-Za-z][a-z]+(?:[A-Z][a-z]+)*\d{2,6}")
_WORDS_NUMBERED = re.compile(r"[a-z]{3,}(?:_[a-z]{3,})+_?\d{2,4}")
_ALGORITHM = re.compile(
    r"(?:^|[^A-Za-z])(?:sha|md|aes|base|utf|rs|hs|oauth|argon|pbkdf|bcrypt|s?crypt)[-_]?\d", re.IGNORECASE
)
_TELLTALES = ("password", "passwd", "passphrase", "secret", "username", "sample", "test", "demo", "token")
#: Words joined by a sign, each with a capital, or three and more by the same sign.
_TITLED = r"[A-Z][a-z]{2,}(?:[._*~!+-][A-Z][a-z]{2,})+"
_TITLED_NUMBERED = re.compile(rf"{_TITLED}[._*~!+-]?[0-9]{{1,4}}")
_JOINED_WORDS = re.compile(rf"{_TITLED}|[a-z]{{3,}}([-+.~*])[a-z]{{2,}}(?:\1[a-z]{{2,}})*\1[a-z]{{3,}}")
_SIGNED_WORDS = re.compile(r"[a-z]{3,}(?:[-_.+~*][a-z]{3,}){2,}")
# words of code, of messages, ends of hosts and of files
_PLAIN_WORDS = (
    "above account and any app args ask auth base based basic bearer below body case cfg change changed "
    "class client cloud com conf config configs confirm context controller credentials css csv ctx current "
    "data default dev disabled each edu empty enabled encrypted end env environ error event example exe "
    "expired factor false field fields first for form from generated get github gov hash hidden html http "
    "https info ini input inputs internal invalid item json key lan last local locals locked log login "
    "long manager missing model models module multi must net never new none not null obj object old one "
    "only optional options opts org output outputs over param params pem per plain policy process props "
    "protected read repeat req request required reset result row same secrets see self sensitive server "
    "service session set settings short sql ssl state step steps stored str string strong tcp text the "
    "this time tls toml true two txt type types unknown update updated use user users utf valid value "
    "values var vars via view weak with write xml yaml yml you your"
)
NO_PASSPHRASE = frozenset(_PLAIN_WORDS.split())
#: What help texts and messages put where a password stands, besides.
_SAID_WORDS = (
    "argument arguments are autocomplete bad can correct email file files flag forgot forgotten generate given hashed "
    "hashing hunter if in instead is label mail matches may mypass nil number on option or parameter phone prompt "
    "provided random should somepass stdin submit title to undefined was when where which will without wrong"
)
_SAID = NO_PASSPHRASE | frozenset(_SAID_WORDS.split())
#: A name with digits and `$` for letters, and a year: P4$c4l.1985.
_RESPELT = re.compile(r"[A-Z](?=[A-Za-z]*[0-9$@])[A-Za-z0-9$@]{3,11}[.+_*#!-](?:19|20)\d\d")
_DIGEST = re.compile(r"[0-9a-f]{32,}")
#: Public keys as PEM begins them; the integrity of a resource.
_PUBLIC_KEYS = (
    *("MIGfMA0GCSq", "MIIBIjANBgkq", "MFkwEwYHKoZI", "MCowBQYDK2Vw"),
    *("sha256-", "sha384-", "sha512-"),
)
_STAMP = re.compile(r"(?:19|20)\d{6}[T_]?\d{4,9}Z?")
_IDENTITY = re.compile(r"(?:[a-z_]\w*\.)+[A-Z][\w$]*@[0-9a-f]{4,8},?")
_ADDRESS = re.compile(r"0x(?:[0-9a-fA-F]{1,16}|[0-9a-fA-F]{40})")
_STORED = re.compile(r"(?:op|vault|ssm|secretsmanager|gcpsm|azkv|bws?)://", re.IGNORECASE)  # where a secret is kept
_RECIPIENT = re.compile(r"age1[a-z0-9]{58}")  # a public key of age
#: A member of an object of the program, which TypeScript may say is there: process.env.S3_KEY!
_MEMBER = re.compile(
    r"(?:process|import|this|self|config|env|settings|cfg|opt(?:ion)?s?|props|ctx|context|window|global\w*|Deno|Bun)"
    r"(?:[!?]*\.[A-Za-z_$]\w*)+[!?]*"
)
_PRODUCT = re.compile(r"[A-Za-z]{3,}/v?\d+(?:\.\d+)+")  # AppleWebKit/537.36
_SIZED = re.compile(r"(?:[A-Z]+|[a-z]+)2?\(\d{1,5}(?:,\d{1,2})?\)")  # a column's type: VARCHAR(255)
_MOMENT = re.compile(r"(?:19|20)\d\d-\d\d-\d\d[T_ ]\d\d[:.]?\d\d(?:[:.]?\d\d(?:[.,-]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?")
_BLANK_UUID = re.compile(r"0{8}-.*|(.)\1{7}-.*")


def token(value: str) -> bool:
    """Whether the value behind a known prefix is a token: a digit or both cases, and not one character repeated."""
    return filled_in(value) and (has_digit(value) or (value != value.lower() and value != value.upper()))


def filled_in(value: str) -> bool:
    """Whether a key is filled in, unlike the `hf_xxxxxxxx` and `key-your-key-here` of documentation."""
    return not _BLANK.search(value)


def access_key_id(value: str) -> bool:
    """Whether capitals and digits are an id of AWS, filled in, and no piece of a genome."""
    return filled_in(value) and not _BASES.issuperset(value)


def provider_example(value: str) -> bool:
    """Whether a key is the example of a provider's documentation: AKIAIOSFODNN7EXAMPLE."""
    return _PLACEHOLDER.search(value) is not None


def random_looking(value: str) -> bool:
    """Whether a value has a long run of random letters and digits, judged by character classes and entropy."""
    longest = max(re.split(r"[-_./:=+%~]", value), key=len)
    if len(longest) < 8 or wordy(value) or _UUID_DASHES.fullmatch(value) or _STAMP.fullmatch(longest):
        return False
    if _ADDRESS.fullmatch(value):
        return False
    if set(longest) <= HEX and len(longest) >= 24:
        return has_digit(longest) and entropy(longest) >= 2.8
    classes = sum(any(test(c) for c in value) for test in (str.isupper, str.islower, str.isdigit))
    mixed = has_digit(value) and any(c.isalpha() for c in value) and (classes == 3 or len(longest) >= 24)
    return (mixed or (len(longest) >= 20 and scattered_capitals(longest))) and entropy(value) >= 3.5


def assigned_secret(value: str) -> bool:
    """Whether a literal assigned to a secret-looking name is a secret: no placeholder, path, model name or sentence."""
    if len(value) < 16 or wordy(value) or _PLACEHOLDER.search(value) or value[0] in "<{$%" or ">=" in value:
        return False
    if _public(value):
        return False
    longest = max(re.split(r"[-_./:]", value), key=len)
    if value[0] in "/." and not (len(longest) >= 20 and has_digit(longest) and longest != longest.lower()):
        return False  # a path
    if len(longest) < 12 and not (scattered_capitals(value) and has_digit(value)):
        return False
    if not (has_digit(longest) and any(c.isalpha() for c in longest)) and not scattered_capitals(value):
        return False
    return entropy(value) >= (2.8 if set(longest) <= HEX else 3.3)


def password(value: str) -> bool:
    """Whether the password of a connection string is real: neither a template nor a word of documentation."""
    return (
        len(value) > 3
        and value.lower() not in _ACCESS_WORDS
        and value[0] not in "<{$["
        and not value.startswith(("%s", "%d", "%("))
        and not _PLACEHOLDER.search(value)
    )


def strong_password(value: str) -> bool:
    """Whether a password mixes three kinds of characters; `password1` is documentation."""
    if not password(value) or entropy(value) < 2.7 or value.startswith(("./", "../", "~/", "\\")) or "://" in value:
        return False
    if (value[0] == "/" and value.count("/") > 1) or _LISTED.fullmatch(value):
        return False
    if _PACKAGED.fullmatch(value):
        return False
    signs = sum(not c.isalnum() for c in value)
    sorts = (any(map(str.islower, value)), any(map(str.isupper, value)), has_digit(value), signs > 0)
    return sum(sorts) >= 3 and any(c.isalpha() for c in value) and signs <= len(value) / 2


def line_password(value: str) -> bool:
    """As `strong_password`, where the name of a type or variable may stand: `OAuth2PasswordBearer`."""
    return strong_password(value) and (stated_password(value) or not value.isidentifier())


def signed_password(value: str) -> bool:
    """Whether a value is a password of letters of both cases, digits and a sign that names do not hold."""
    if not 8 <= len(value) <= 64 or not SIGNED.search(value) or not three_sorts(value):
        return False
    if _NOT_ALONE.search(value) or _FORMAT.search(value):
        return False
    if _NUMBERED_THING.fullmatch(value) or _MEMBER.fullmatch(value):
        return False
    if value[0] in "./~$%<{-" or "/" in value or "=" in value.rstrip("=") or not value.isascii():
        return False
    if "".join(filter(str.isalpha, value)).lower() in _ACCESS_WORDS:
        return False  # Password@1 is documentation
    signs = sum(c in _SIGNS for c in value)
    return 1 <= signs <= len(value) / 3 and not _PLACEHOLDER.search(value) and entropy(value) >= 2.7


def stated_password(value: str) -> bool:
    """Whether a value is a password given that its place holds nothing else: neither a reference, a name nor a word.

    So it may be of words and a number, as people choose them: no statistics tell it from a title.
    """
    if not three_sorts(value) or not _chosen(value):
        return False
    return not (value.isidentifier() and (wordy(value) or not mingled(value)))  # OAuth2Client, Release2024


def chosen_password(value: str) -> bool:
    """As `stated_password`, of a literal or a word of a shell, which names no variable: two sorts of signs will do."""
    told = has_digit(value) or _WORDS_JOINED.fullmatch(value) is not None or letters_at_random(value)
    told = told or (len(value) >= 10 and value != value.lower() and _LETTERS_SIGNED.fullmatch(value) is not None)
    return told and _chosen(value.replace(".", "-") if _DOTTED_CHOICE.fullmatch(value) else value)


def told_password(value: str) -> bool:
    """As `chosen_password`, where no code stands: words joined by full stops name nothing there."""
    named = _REFERENCE.search(value) is not None and not _RESPELT.fullmatch(value)
    return chosen_password(value.replace(".", "-")) and not named


def numbered_password(value: str) -> bool:
    """As `told_password`, with a digit or a sign between mixed letters: words alone may be the sentence's."""
    signed = value != value.lower() and re.search(r"[A-Za-z][!@#%^*?][A-Za-z]", value) is not None
    return (has_digit(value) or signed) and told_password(value)


def column_password(value: str) -> bool:
    """As `told_password`, in the column of passwords: a name of a file neither stands there."""
    return chosen_password(value.replace(".", "-"))


def shell_password(value: str) -> bool:
    """As `chosen_password`, of a word of a shell: a name with a full stop that begins with a capital is no host."""
    return chosen_password(value) or (value[:1].isupper() and told_password(value))


def worded_password(value: str) -> bool:
    """As `told_password`, or of words alone (`joined_words`)."""
    return told_password(value) or joined_words(value)


def joined_words(value: str) -> bool:
    """Whether a value is words that signs join, none of which is one of code or of messages."""
    words = re.findall("[a-z]+", value.lower())
    joined = 8 <= len(value) <= 64 and _JOINED_WORDS.fullmatch(value) is not None and not _PLACEHOLDER.search(value)
    return joined and not NO_PASSPHRASE & set(words) and not any(word in "".join(words) for word in _TELLTALES)


def given_password(value: str) -> bool:
    """Whether what a program takes for a password is one, and does not refer to one."""
    spelt = "".join(filter(str.isalnum, value)).lower()
    if len(spelt) < 4 or value[0] in "<{$%[(-/~" or "$(" in value or "${" in value or _PLACEHOLDER.search(value):
        return False
    return spelt not in _ACCESS_WORDS and not any(word in spelt for word in _TELLTALES)


def network_key(value: str) -> bool:
    """Whether a value is the key of a wireless network: of eight signs or more, with blanks, too."""
    return len(value) >= 8 and given_password(value.replace(" ", ""))


def named_password(value: str) -> bool:
    """As `given_password`, where a help text or a message may stand as well: a word of theirs is none."""
    return given_password(value) and value.lower() not in _SAID


def signed_words(value: str) -> bool:
    """Whether a value is three words or more that any signs join, none of which is one of code or of messages."""
    return _SIGNED_WORDS.fullmatch(value) is not None and joined_words(re.sub(r"[_.+~*]", "-", value))


def lone_secret(value: str) -> bool:
    """Whether a value that is alone on a line, below one that announces it, is a secret; ids are digests there."""
    password = stated_password(value.replace(".", "-")) or letters_at_random(value)
    return password or (credential(value) and not hexadecimal(value, 40))


def bare_password(value: str) -> bool:
    """As `chosen_password`, where a name in code could stand as well: no name ends in a number of several digits."""
    numbered = _NUMBERED.fullmatch(value) or (_WORDS_NUMBERED.fullmatch(value) and not _SAID & set(value.split("_")))
    a_name = value.isidentifier() and not numbered and ("_" in value or not mingled(value))
    return (
        stated_password(value)
        or (chosen_password(value) and not a_name and not _DOTTED.fullmatch(value))
        or (_TITLED_NUMBERED.fullmatch(value) is not None and told_password(value))
    )


def _chosen(value: str) -> bool:
    if len(value) < 8 and not _short(value):
        return False
    if not 6 <= len(value) <= 64 or entropy(value) < 1.75 or _NOT_ALONE.search(value) or not value.isascii():
        return False
    refers = (_REFERENCE.search, _DOTTED.fullmatch, _LISTED.fullmatch, _FORMAT.search)
    random = jumbled(value) or at_random(value)
    if value[0] in "<{$([" or (value[0] in "%/.~*-" and not random):
        return False
    if any(p(value) for p in refers) and not random and not _RESPELT.fullmatch(value):
        return False
    spelt = "".join(filter(str.isalpha, value)).lower()
    if not spelt or _public(value) or _PLACEHOLDER.search(value) or _ALGORITHM.search(value) or hexadecimal(value, 32):
        return False
    return not any(word in spelt for word in _TELLTALES)


def _short(value: str) -> bool:
    """Whether six or seven signs are a word and a number of two digits or more, or mix them: no `step1`, no `arg12`."""
    word = "".join(filter(str.isalpha, value)).lower()
    digits = sum(map(str.isdigit, value))
    enough = len(word) >= 3 and digits >= 1 and (digits > 1 or mingled(value))
    return enough and word not in _SAID and word not in _ACCESS_WORDS


def alternating(value: str) -> bool:
    """Whether a value alternates between capitals, small letters and digits, though it is shorter than tokens are."""
    if scrambled_or_digest(value):
        return True
    sound = 8 <= len(value) < 16 and value.isalnum() and stated_password(value)
    return sound and changes(value) >= 0.4 and len(_DIGITS.findall(value)) >= 2


def scrambled(value: str) -> bool:
    """Whether small letters, capitals and digits alternate as by chance: in names they come in words."""
    if (
        not 16 <= len(value) <= 400
        or not long_mingled(value)
        or wordy(value)
        or _PLACEHOLDER.search(value)
        or value[0] in ".~$%"
    ):
        return False
    letters = "".join(filter(str.isalnum, value))
    longest = max(re.split(r"[-_.=%~!@#^$*?]", value), key=len)
    if _DIGEST.fullmatch(longest):
        return False  # the capitals are those of the name before a digest: Linux-pip-2d03…
    if len(longest) < (20 if _DOTTED.fullmatch(value) else 12) or (value[0] == "/" and "." in value):
        return False
    return (
        changes(letters if "+" in longest or "/" in longest else longest) >= 0.36
        and (three_sorts(value) or scattered_capitals(value))
        and entropy(value) >= 3.3
    )


def _public(value: str) -> bool:
    """Whether a value is made to be told: a public key, an address, an object, a version, a moment, a type."""
    known = (
        _ADDRESS.fullmatch,
        _STORED.match,
        _PRODUCT.fullmatch,
        _RECIPIENT.fullmatch,
        _MEMBER.fullmatch,
        _MOMENT.fullmatch,
        _SIZED.fullmatch,
    )
    return value.startswith(_PUBLIC_KEYS) or any(shape(value) for shape in known) or _identity(value)


def _identity(value: str) -> bool:
    """Whether a value is an object as Java prints it, by its class and its hash."""
    return "@" in value and _IDENTITY.fullmatch(value) is not None


def unmistakable(value: str) -> bool:
    """Whether a value is a secret by its characters alone, wherever it is said that there is one."""
    return not _public(value) and (signed_password(value) or scrambled(value))


def scrambled_or_digest(value: str) -> bool:
    """Whether a value is a secret, or would be an identifier or a digest were it not used to log in."""
    digest = hexadecimal(value, 32) or _UUID_DASHES.fullmatch(value) is not None
    return unmistakable(value) or (digest and long_mingled(value) and not _BLANK_UUID.fullmatch(value))


def credential(value: str) -> bool:
    """Whether a value is a secret given that its name says so: random, but neither a path, a name nor an address."""
    if unmistakable(value):
        return True
    if not mingled(value) or not _names_nothing(value):
        return False
    if hexadecimal(value, 16) or _UUID_DASHES.fullmatch(value):
        return not _BLANK_UUID.fullmatch(value)
    # base32 has few digits among its capitals; digits of names end them
    least = 0.1 if value == value.upper() else 0.25
    if changes("".join(filter(str.isalnum, value))) < least and in_words(value) > 0.3:
        return False
    several = len(_DIGITS.findall(value)) >= 2 or in_words(value) <= 0.3
    jumble = value.isalnum() and len(value) >= 10 and several and not wordy(value) and entropy(value) >= 2.9
    return jumble or assigned_secret(value)


def named_credential(value: str) -> bool:
    """As `credential`, of letters at random too: for rules whose gates ask for `AT_RANDOM`."""
    return credential(value) or (improbable(value) and _names_nothing(value))


def _names_nothing(value: str) -> bool:
    """Whether a value is no public example, path, variable, address or placeholder."""
    named = value[0] in "<{$%/.~*-" or "://" in value
    return not (named or _PLACEHOLDER.search(value) or _public(value))


def chosen_or_made(value: str) -> bool:
    """Whether a value is a password that somebody chose, or a credential that a program made."""
    return chosen_password(value) or credential(value)


def stated_or_made(value: str) -> bool:
    """Whether a value that is said to be a secret is a password, or a credential that a program made."""
    return stated_password(value) or credential(value)


def pieced(value: str) -> bool:
    """Whether a literal is a piece of a random value, which is too short to have a random value's statistics."""
    signs = sum(not c.isalnum() for c in value)
    if not mingled(value):  # what the gate of pieces asks for; else 12:30 would be one
        return False
    random = signs <= len(value) / 3 and has_digit(value) and changes(value) * len(value) >= 2
    return random and len(set(value)) >= min(5, len(value)) and value[0] not in "<{$%/.~" and filled_in(value)


def header_credential(value: str) -> bool:
    """Whether the value behind `Bearer` or `Basic` is a credential: no placeholder and no plain word."""
    mixed = has_digit(value) or (value != value.lower() and value != value.upper())
    return len(value) >= 12 and mixed and not _PLACEHOLDER.search(value) and entropy(value) >= 2.5
