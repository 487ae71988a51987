"""Random values behind words that speak of a secret, in forms that no rule knows, and those that are none."""

import pytest

from capibara_assets.executions.secrets.redact import redact_text
from capibara_assets_tests.executions.secrets.places import covered_whole

PASSWORD, KEY, HEX = "Harbor#4821xyz", "q8Zr2LwN5tYc7VbXd1G4hJ6kP9sF3aQe", "9f86d081884c7d659a2feaa0c55ad015"
BASE32 = "KRS7QX2MPD4WUZ5HN3VYBT6ELCJA2GFO"

PLACES = {
    "an option of a value": ("AccessToken(\n  Some(\n    '{}',\n  ),\n)", KEY),
    "an item of a list": ("headers:\n  X-Tracker-Api-Key:\n    - {}\nuri: /v3/issues", KEY),
    "below a sentence": ("Copy the deploy token now, you will not see it again.\n\n    {}\n", KEY),
    "below a sentence that names a site": ("Your license key for tools.invalid:\n> {}\n", HEX),
    "the last column of a table": (
        "$ store keys list --account logs\nName    Rights  Value\n------  ------  -----\nfirst   FULL    {}", KEY
    ),
    "a value of its own name": ('"webhook_secret_v2": {\n  "sensitive": true,\n  "value": "{}"\n}', KEY),
    "an attribute in camel case": ('<machine validation="HMACSHA256" validationKey="{}" />', HEX * 2),
    "a section named after it": ("[LongTermKey]\nKey={}\nEncSize=16", HEX),
    "typed into an authenticator": ("Can't scan it? Type this setup key by hand:\n{}\n[ Next ]", BASE32),
    "a statement of a database": ("sqlite> PRAGMA key = \"x'{}'\";\nok", HEX * 2),
    "an argument of another option": ("store put --name /shop/hmac --type SecureString \\\n    --value '{}'", KEY),
    "below a wizard's sentence": ("wallet master seed (hex), keep it offline:\n{}", HEX * 2),
    "a password in a debugger": ('(gdb) p conn->passwd\n$2 = 0x5581e8 "{}"', PASSWORD),
    "a password in a trace": ('write(4, "[sudo] password for lena: ", 26) = 26\nread(4, "{}\\n", 1023) = 15', PASSWORD),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_a_value_behind_such_a_word_is_covered_whole(place: str) -> None:
    covered_whole(*PLACES[place])


@pytest.mark.parametrize(
    "text",
    [
        f"$ git log --grep secret\n{HEX}1b2c3d4e",
        f"$ docker run -e APP_SECRET=$S app\n{HEX * 2}",
        f'{{"secrets": [], "nextPageToken": "{KEY}"}}',
        f"POST /v1/password-resets HTTP/1.1\nIdempotency-Key: {KEY}",
        f"GET /ws/tokens HTTP/1.1\nSec-WebSocket-Key: {KEY[:22]}==",
        f'<input type="password">\n<div data-sitekey="{KEY}"></div>',
        f'{{"_index": "audit-api-tokens", "_id": "{KEY}"}}',
        f"SPEC CHECKSUMS:\n  SecretsManager: {HEX}a1b2c3d4",
        f'"name": "Secret Garden",\n"uri": "player:track:{KEY[:22]}"',
        f"rotated the token in commit {HEX}a1b2c3d4",
        f'{{"password_hint": "pet", "etag": "{KEY}"}}',
        f"secret rotated, request id: {KEY}",
        "Transfer(token=0x82162157060364a0d1ba345b402b1908a7fc76d2, value=15)",
        "public static final int password = 0x7f0a3bee;",
        f"Public key: {KEY}",
        f'SMTP_TOKEN="op://Mail/{KEY[:26]}/credential"',
        "class=TokenCleanupJob jid=3cd76f34bf6ae710796f72a4 elapsed=0.812",
        "Task send_password_notice[60ed743d-5821-4122-abab-5fdb33a8b849] received",
        'USDX_TOKEN = "0x27da315c236dcf6836e3e783ee697c37039da74e"',
    ],
)
def test_what_other_words_or_names_say_is_none_stays(text: str) -> None:
    assert redact_text(text) == text


def test_a_value_far_behind_the_word_stays() -> None:
    text = "the token is rotated\n" + "a line between\n" * 5 + f"'{KEY}'"
    assert redact_text(text) == text
