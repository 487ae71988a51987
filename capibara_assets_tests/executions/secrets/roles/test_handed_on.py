"""Secrets that a name hands on, that lines below a call hold, that somebody answers, or that a test shows."""

import random

import pytest

from benchmarks.experience.secret_places import value_of
from capibara_assets.executions.secrets.redact import redact_text

PLACES = {
    "an argument of that name": ('x7 = "{}"\nconnect(host="db", password=x7)', "random18"),
    "a header": ('v := "{}"\nrequest.Header.Set("Authorization", "Bearer "+v)', "hex40"),
    "a flag": ("P='{}'\nmysqldump -u app -p\"$P\" shop", "random18"),
    "a variable of the environment": ('val = "{}"\nos.environ["QUANDL_KEY"] = val', "random32"),
    "a call below": ('hmac.new(\n    b"{}",\n    body,\n)', "hex64"),
    "a class below": ('Gateway(\n    "{}",\n)', "random40"),
    "a login below": ('mail.login(\n    "robot@a.invalid",\n    "{}",\n)', "random24"),
    "a file of cookies": ("a.invalid\tTRUE\t/\tTRUE\t1893456000\tPHPSESSID\t{}", "hex32"),
    "a cookie of a browser": ('driver.add_cookie({"name": "sessionid", "value": "{}"})', "hex32"),
    "a trace of calls": ('write(7, "*2\\r\\n$4\\r\\nAUTH\\r\\n$24\\r\\n{}\\r\\n", 50) = 50', "random24"),
    "an answer": ("Q: What is the password of the NAS?\nA: {}", "random14"),
    "an answer of a chat": ("[09:14] Lea: das Passwort vom Drucker?\n[09:15] Jan: {}", "random14"),
    "a key and what it is for": ("- Key for signing the releases (until June): {}", "hex64"),
    "a comparison": ("    def test_token():\nE       AssertionError: assert '{}' == 'x'", "hex32"),
    "a list": ('for pw in ["{}", "letmein"]:\n    attempt("admin", pw)', "random14"),
    "a map": ("secrets:\n  session: {}", "hex64"),
    "a prefix of a digest": ('hashlib.sha256(b"{}" + body).hexdigest()', "random24"),
    "a refused key": ("ERROR 401 for key {}: expired", "hex32"),
    "a key in Slovak": ("- API kľúč je {}", "hex32"),
}
STAY = (
    'x7 = "Gh7kQ2xV9pL0aB3c"\ndraw(host="db", shape=x7)',
    'name = "Gh7kQ2xV9pL0aB3c"\nconnect(password=name)',
    "Q: Which commit is it?\nA: 3f2a9c0d1e4b5a69788796a5b4c3d2e1f0a9b8c7",
    'draw(\n    "Gh7kQ2xV9pL0aB3c",\n)',
    "def test_digest():\nE   AssertionError: assert '3f2a9c0d1e4b5a69788796a5b4c3d2e1' == 'x'",
    "key: Ed25519PrivateKey",
    "versions:\n  session: 3f2a9c0d1e4b5a69788796a5b4c3d2e1",
)


@pytest.mark.parametrize("place", PLACES)
def test_what_is_handed_on_is_covered(place: str) -> None:
    template, kind = PLACES[place]
    for seed in range(3):
        value = value_of(kind, random.Random(seed))
        assert value not in redact_text(template.replace("{}", value))


@pytest.mark.parametrize("text", STAY)
def test_what_is_handed_on_to_others_stays(text: str) -> None:
    assert redact_text(text) == text


def test_halves_that_are_told_or_joined_are_covered() -> None:
    a, b = "Gh7kQ2xV9pL0", "m4Tz8Wc1Rb6Y"
    for text in (
        f"A='{a}'\nB='{b}'\nexport API_TOKEN=\"$A$B\"",
        f"- The first part of the token is {a} and the rest is {b}",
    ):
        assert a not in redact_text(text) and b not in redact_text(text)
