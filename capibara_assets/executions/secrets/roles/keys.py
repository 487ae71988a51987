"""Keys as bytes, numbers, parts and words: what is no word of a shell and no token is told by its length and name."""

import re
from itertools import pairwise

from capibara_assets.executions.secrets.plausibility import filled_in
from capibara_assets.executions.secrets.roles.role import Role

_NUMBER = re.compile(r"0x[0-9a-f]{1,2}|\d{1,3}|[0-9a-f]{2}", re.IGNORECASE)
_KEY_LENGTHS = frozenset((16, 20, 24, 32, 48, 64))
_NO_KEY = r"(?![\w \t-]{0,40}(?:public|fingerprint|identifier|digest|\bid\b|sha|md5|code|hash|sum\b))"
_HOLDS = (
    r"(?:key|secret|seed|entropy|priv(?:ate)?|passphrase|psk|hmac|aes)(?<!public_key)(?<!pub_key)(?<!publickey)"
    r"(?<!pubkey)(?<!public key)"
)
_OF_KEYS = ("key", "secret", "seed", "entropy", "priv", "passphrase", "psk", "hmac", "aes")
_BYTE = r"(?:0x[0-9a-f]{1,2}|\d{1,3})"
_LIST = rf"{_BYTE}(?:\s{{0,8}},\s{{0,8}}{_BYTE}){{15,127}}"
#: What stands between a name and its bytes: a type, a size, a call: `[32] = {`, ` = bytes([`, `: [u8; 32] = [`.
_TO_BYTES = r"[\w\"'\])]{0,24}(?:[\[][^\]\n]{0,12}\])?(?:[ ]?:[ ]?[^=\n\d]{0,12}[^=\n]{0,12})?[ ]?(?::=|=>|=|:)[ ]?"
_TO_BYTES += r"[\w.!&:\[\] ]{0,32}[(]?[\[{(]{1,2}\s{0,12}"
_HEX_NAMES = (
    # keys of radios, meters and cards
    r"s[02]_(?:legacy|authenticated|unauthenticated|access_?control)(?:_?lr)?|(?:gen|lora)?_?(?:app|nwk|fnwk|snwk|net"
    r"|join|link|device|gw|root)_?s?_?(?:int|enc)?_?s?_?key|network_?key|irk|ltk|csrk|opc|pskc|cak|pmk|kek|dek|cek|zmk"
    # settings of what seals or signs
    r"|(?:[a-z][a-z0-9]{0,24}[_-]){1,3}(?:aes|hmac|seal|cipher|crypt|encryption|signing|blowfish|chacha)(?:128|192|256)?"
)
_PEM_FIELD = r"(?:priv|privateExponent|prime[12]|exponent[12]|coefficient)"
_WORDS = r"(?:[a-z]{3,8}[ ,]{1,2}){11,23}[a-z]{3,8}"
_KEEPS = (
    r"(?:words?|write|wrote|written|note|seed|wallet|phrase|mnemonic|recover\w*|restore|backup|ledger|trezor|paper)"
)
#: Words of sentences, which no list of words for keys has.
_FUNCTION_WORDS = (
    "the and for are was but not had has his her its our out from with were have been who whom which would could"
    " because through does did may might shall your their them these those why while him"
)
_SENTENCE = frozenset(_FUNCTION_WORDS.split())
_ENDINGS = ("s", "ed", "ing", "ly")


def _bytes(stretch: str) -> bool:
    """Whether numbers are the bytes of a key: as many as keys have, and neither counted up nor drawn as a picture."""
    found = _NUMBER.findall(stretch)
    hexadecimal = "," not in stretch or "0x" in stretch.lower()
    numbers = [int(one, 16 if hexadecimal else 10) for one in found]
    if len(numbers) not in _KEY_LENGTHS or max(numbers) > 255:
        return False
    steps = sorted(abs(a - b) for a, b in pairwise(numbers))
    return len(set(numbers)) >= 0.7 * len(numbers) and max(numbers) > 127 and steps[len(steps) // 2] >= 30


def _pair(stretch: str) -> bool:
    return len(_NUMBER.findall(stretch)) == 64 and _bytes(stretch)


def _words(stretch: str) -> bool:
    """Whether words are drawn from a list for keys, and no sentence."""
    words = re.findall("[a-z]+", stretch)
    bent = sum(word.endswith(_ENDINGS) for word in words)
    whole = len(words) % 3 == 0 and len(set(words)) >= len(words) - 1
    return whole and not _SENTENCE & set(words) and 3 * bent <= len(words)


KEYS: tuple[Role, ...] = (
    # the parts of a private key as XML has them, and as openssl prints them
    Role(
        "PRIVATE_KEY", ("<d>", "<p>", "<q>", "<dp>", "<dq>", "<inverseq>"),
        r"<(?:D|P|Q|DP|DQ|InverseQ)>\s{0,20}([A-Za-z0-9+/][A-Za-z0-9+/\s]{20,1400}={0,2})\s{0,20}</", filled_in,
        gate=r"(?i)<(?:D|P|Q|DP|DQ|InverseQ)>\s*[A-Za-z0-9+/]",
    ),
    Role(
        "PRIVATE_KEY", ("priv", "prime", "exponent", "coefficient"),
        rf"^[ \t]*+{_PEM_FIELD}:[ \t\r]*\n((?:[ \t]{{1,12}}(?:[0-9a-f]{{2}}:){{1,32}}(?:[0-9a-f]{{2}})?[ \t\r]*\n?)"
        r"{1,80})",
        filled_in, gate=rf"(?im){_PEM_FIELD}:[ \t\r]*\n[ \t]+[0-9a-f]{{2}}:",
    ),
    # the half that signs, of a pair whose other half is half as long
    Role(
        "PRIVATE_KEY", ("==",), r"(?<![\w./+-])(?!sha)[\w.-]{2,60}-\d{1,2}:([A-Za-z0-9+/]{86}==)(?![A-Za-z0-9+/=])",
        filled_in, gate=r"-[0-9]{1,2}:[A-Za-z0-9+/]{86}==",
    ),
    # bytes in a list: under the name of a key; alone, the two halves of a pair
    Role(
        "PRIVATE_KEY", _OF_KEYS, rf"{_HOLDS}{_NO_KEY}{_TO_BYTES}({_LIST})(?=\s{{0,8}},?\s{{0,8}}[\]}})])", _bytes,
        gate=rf"(?i)(?:{'|'.join(_OF_KEYS)})[^\n]*[\[{{(]\s*{_BYTE}\s*,\s*{_BYTE}\s*,\s*{_BYTE}\s*,\s*{_BYTE}\s*,",
    ),
    Role(
        "PRIVATE_KEY", ("[",), r"^[ \t]*+\[(\d{1,3}(?:,[ ]?\d{1,3}){63})\][ \t\r]*$", _pair,
        gate=r"(?m)^[ \t]*\[[0-9]{1,3}(?:,[ ]?[0-9]{1,3}){40}",
    ),
    Role(
        "PRIVATE_KEY", _OF_KEYS,
        rf"{_HOLDS}{_NO_KEY}\w{{0,20}}[ ]?(?:\([\w ,-]{{1,20}}\))?[ ]?[:=][ ]{{0,4}}[\"']?"
        r"([0-9a-f]{2}(?:[ ][0-9a-f]{2}){15,63}|[0-9a-f]{2}(?::[0-9a-f]{2}){15,63}|[0-9a-f]{2}(?:-[0-9a-f]{2}){15,63})"
        r"(?![\w:-])",
        _bytes,
        gate=rf"(?i)(?:{'|'.join(_OF_KEYS)})[^\n]*[:=][ ]*[\"']?(?:[0-9a-f]{{2}}[ :-]){{8}}",
    ),
    Role(
        "PRIVATE_KEY", _OF_KEYS,
        rf"{_HOLDS}{_NO_KEY}{_TO_BYTES[:_TO_BYTES.index('[ ]?(?::=')]}[ ]?(?::=|=>|=|:)[ ]?[\w.!(]{{0,20}}[\"']"
        r"((?:\\x[0-9a-f]{2}){16,64})(?=[\"'])",
        lambda value: _bytes(value.replace("\\x", " ")),
        gate=rf"(?i)(?:{'|'.join(_OF_KEYS)})[^\n]*[\"'](?:\\x[0-9a-f]{{2}}){{8}}",
    ),
    # digits of a key's length, under the names that radios, cards and ciphers give to keys
    Role(
        "PRIVATE_KEY", (*_OF_KEYS, "s0_", "s2_", "irk", "ltk", "csrk", "opc", "pskc", "cak", "pmk", "kek", "dek", "cek",
                        "zmk", "seal", "cipher", "crypt", "signing", "blowfish", "chacha"),
        rf"(?<![A-Za-z0-9])(?:{_HEX_NAMES})[\"'\])]{{0,2}}[ \t]{{0,4}}(?:=>|:=|=|:)[ \t]{{0,4}}[\"']?(?:0x)?"
        r"((?:[0-9a-f]{32}){1,2}|[0-9a-f]{48}|[0-9a-f]{128})(?![\w-])",
        filled_in,
        gate=rf"(?i)(?:{_HEX_NAMES})[\"'\])]{{0,2}}[ \t]*(?:=>|:=|=|:)[ \t]*[\"']?(?:0x)?[0-9a-f]{{32}}",
    ),
    # words of a list for keys, announced, or as a literal
    Role(
        "SEED_PHRASE", ("word", "writ", "wrote", "note", "seed", "wallet", "phrase", "mnemonic", "recover", "restore",
                        "backup", "ledger", "trezor", "paper"),
        rf"(?<![A-Za-z]){_KEEPS}\b[^\n\"':=]{{0,60}}[:=][ ]?\(?[\"'`“]?({_WORDS})"
        r"(?=[\"'`”.]{0,2}(?:[ \t\r]*$|[\"'`”),;]|\.\w))",
        _words,
        gate=rf"(?i){_KEEPS}[^\n]*[:=][ ]?\(?[\"'`“]?(?-i:(?:[a-z]{{3,8}}[ ,]{{1,2}}){{11}})",
    ),
)  # fmt: skip
