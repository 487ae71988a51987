"""Keys as bytes, numbers, parts and words, and what looks like them."""

import random

import pytest

from capibara_assets.executions.secrets.redact import redact_text
from capibara_assets_tests.executions.secrets.places import covered_whole

_CHANCE = random.Random(3)
_NUMBERS = _CHANCE.sample(range(256), 64)
_HEX = [f"{number:02x}" for number in _NUMBERS]
_BASE = "".join(_CHANCE.choices("ABCDEFGHabcdefghij0123456789+/", k=86))
_SEED = "maple orbit velvet canyon tribe lemon anchor fossil gather pencil ribbon zebra"

PLACES = {
    "a part of a key in XML": ("<RSAKeyValue><Modulus>x</Modulus><DP>{}</DP>", _BASE[:60]),
    "as openssl prints it": ("Private-Key: (256 bit)\npriv:\n{}\npub:\n", "    00:" + ":".join(_HEX[:31])),
    "the half that signs": ("cache.example.org-2:{}", _BASE + "=="),
    "bytes of a name": ("signing_key = bytearray([{}])", ", ".join(map(str, _NUMBERS[:32]))),
    "in C": ("static const uint8_t aes_key[16] = {{}};", ", ".join(f"0x{one}" for one in _HEX[:16])),
    "in Go": ("var hmacSecret = []byte{{}}", ", ".join(map(str, _NUMBERS[:24]))),
    "in Rust": ("const SEED: [u8; 32] = [{}];", ", ".join(map(str, _NUMBERS[:32]))),
    "escaped": ('key = b"{}"', "".join(f"\\x{one}" for one in _HEX[:16])),
    "both halves of a pair": ("[{}]", ",".join(map(str, _NUMBERS))),
    "spaced": ("HMAC secret (hex): {}", " ".join(_HEX[:32])),
    "with colons": ("psk = {}", ":".join(_HEX[:16])),
    "a setting that seals": ("SESSION_HMAC={}", "".join(_HEX[:32])),
    "a radio's": ('"S0_Legacy": "{}"', "".join(_HEX[:16]).upper()),
    "a meter's": ("AppSKey: {}", "".join(_HEX[:16])),
    "words announced": ("note these for the ledger: {}", _SEED),
    "words of a variable": ('wallet_words = "{}"', _SEED),
}


@pytest.mark.parametrize(("template", "value"), PLACES.values(), ids=PLACES)
def test_keys_without_a_form_of_their_own(template: str, value: str) -> None:
    covered_whole(template, value)


@pytest.mark.parametrize(
    "text",
    [
        f"<Modulus>{_BASE}</Modulus><Exponent>AQAB</Exponent>",
        "pub:\n    04:" + ":".join(_HEX[:30]),
        f"cache.example.org-2:{_BASE[:43]}=",
        "public_key = bytes([" + ", ".join(map(str, _NUMBERS[:32])) + "])",
        "pixels = [" + ", ".join(map(str, _NUMBERS[:32])) + "]",
        "key_codes = [" + ", ".join(map(str, range(65, 97))) + "]",
        "[" + ",".join(map(str, range(64))) + "]",
        "Subject Key Identifier: " + ":".join(_HEX[:20]),
        "key fingerprint: " + ":".join(_HEX[:16]),
        "FILE_MD5=" + "".join(_HEX[:16]),
        "DevEUI: " + "".join(_HEX[:8]),
        "note on the backup: the nightly job keeps seven copies and then moves them out to tape",
        "words = 'open close read write send fetch parse build test'.split()",
    ],
)
def test_what_looks_like_a_key_stays(text: str) -> None:
    assert redact_text(text) == text
