"""Secrets told by the form around them, and what has the same form and is none."""

import pytest

from capibara_assets.executions.secrets.redact import redact_text
from capibara_assets_tests.executions.secrets.places import covered_whole

PLACES = {
    "var_dump": ('array(1) {\n  ["db_password"]=>\n  string(14) "{}"\n}', "Harbor#4821xyz"),
    "a struct of Go": ('mail.Options{Host: "mx", Password: mail.Secret{"{}"}}', "Harbor#4821xyz"),
    "a form": (
        'Content-Disposition: form-data; name="new_password"\nContent-Type: text/plain\n\n{}\n--b--', "Harbor#4821xyz"
    ),
    "a JSON Web Key, private part first": (
        '{"d": "{}", "kty": "EC", "crv": "P-256"}', "r5Kq0xTn3vWz8YbLc2Hd7FgJm4PsQaUe1RiOk6NtXyM"
    ),
    "characters in Java": ('store.setKeyEntry("a", key, "{}".toCharArray(), chain);', "Harbor#4821xyz"),
    "a router": ("username ops password 0 {}", "copper-lantern-19"),
    "a remote table": ("SELECT * FROM postgresql('pg1:5432', 'shop', 'items', 'ro', '{}')", "Harbor#4821xyz"),
    "a client by position": ("const db = new Knexish('shop', 'app', '{}', { dialect: 'mysql' });", "Harbor#4821xyz"),
    "an encrypted database": ("PRAGMA rekey = '{}';", "copper-lantern-19"),
    "a hash made in a statement": ("UPDATE users SET pw = crypt('{}', gen_salt('bf')) WHERE id = 7;", "Harbor#4821xyz"),
    "a word behind its name": ("$ wifi-tool join Bench password {} hidden yes", "copper-lantern-19"),
    "a share": ("C:\\> net use X: \\\\files\\team {} /user:ops", "Harbor#4821xyz"),
    "listed codes": ("Your backup codes:\n- {}\n- 77ab12cd90\nKeep them.", "k4t9-x2mv-88qp"),
    "codes in a line": ("recovery codes: {}, 77ab-12cd-90ef", "k4t9-x2mv-88qp"),
    "a wallet": (
        "seed phrase: {}", "copper lantern harbor violet anchor meadow puzzle silent orbit tunnel window jacket"
    ),
    "a PIN": ("The PIN of the rack is {}.", "730518"),
    "pieces": ("db_password = 'Harb' + \n    'or#48' + '21xyz'", "or#48"),
    "a word that goes on": ("API_TOKEN={}\\\nq8Zr2LwN5tYc7VbX\nmake", "d1G4hJ6kP9sF3aQe0U"),
    "a login to a mail server": ('a3 LOGIN "ops@mail.invalid" "{}"', "lantern.over.copper"),
    "an encoded prompt": ("S: 334 UGFzc3dvcmQ6\nC: {}", "Y29wcGVyLWxhbnRlcm4="),
    "a wireless network": ("WIFI:S:Bench;T:WPA;P:{};;", "lantern.over.copper"),
    "a shared key": ('%any : EAP "{}"', "copper lantern"),
    "a seed of codes": ("$ totp -b {}", "GEZDGNBVGY3TQOJQ"),
    "a numbered wallet": (
        "Recovery phrase:\n{}", "1. copper 2. lantern 3. harbor 4. violet 5. anchor 6. meadow 7. puzzle 8. silent"
        " 9. orbit 10. tunnel 11. window 12. jacket"
    ),
    "a PIN in a list": ("lock       front\npin        730518", "730518"),
    "a value in its type": ('Config { token: Some("{}") }', "d1G4hJ6kP9sF3aQe0Uq8Zr2LwN5t"),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_what_stands_in_the_form_is_covered_whole(place: str) -> None:
    covered_whole(*PLACES[place])


@pytest.mark.parametrize(
    "text",
    [
        'array(1) {\n  ["name"]=>\n  string(11) "Harbor-4821"\n}',
        '{"kty": "EC", "x": "r5Kq0xTn3vWz8YbLc2Hd7FgJm4PsQaUe1RiOk6NtXyM", "kid": "2024"}',
        "new Product('p-1', 'Widget', 'sku-12345')",
        "rows = table('db:items', 'name', 'colour', 'model-3-x')",
        "The seed phrase is made of words that you write down and then keep for as long as your wallet",
        "GPIO PIN 13 is high; PIN: 4444",
        "Backup codes:\nprint them\nand keep them safe",
        "label = 'pass' + 'word' + suffix",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIr5Kq0xTn3vWz8YbLc2Hd7FgJm4PsQaUe1RiOk6NtX ops@host",
        "[Peer]\nPublicKey = r5Kq0xTn3vWz8YbLc2Hd7FgJm4PsQaUe1RiOk6NtXyM=",
        "ED25519 key fingerprint is SHA256:r5Kq0xTn3vWz8YbLc2Hd7FgJm4PsQaUe1RiOk6NtXyM.",
    ],
)
def test_what_only_looks_like_it_stays(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize(
    "text", ["device fingerprint, token: {}", "fingerprint of the host; api_key = '{}'", "sk-proxy login --token {}"]
)
def test_a_word_of_public_keys_nearby_hides_no_secret(text: str) -> None:
    value = "q8Zr2LwN5tYc7VbXd1G4hJ6kP9sF3aQe"
    assert value not in redact_text(text.format(value))
