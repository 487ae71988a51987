"""Secrets beside an account, a header's name or a kind, and in remarks; and what stands in such places otherwise."""

import pytest

from capibara_assets.executions.secrets.redact import redact_text
from capibara_assets_tests.executions.secrets.places import covered_whole

HEX = "9f2c4e81b07d63a5f1e8c92d40b7a6358e1f0c7db29a4635f8d1e07c2b94a6f3"
PLACES = {
    "an account in brackets": ("The router (admin:{}) is in the cellar", "sorrel+1994"),
    "an account in a sentence": ("Grafana has admin:{} on port 3000", "pebblebarley67"),
    "an account and a stroke": ("login admin/{}", "sorrel+1994"),
    "an account, told": ("log in as ann with {}.", "Velvet_Rocket82"),
    "a variable of both": ("withEnv(['NEXUS_CRED=ci:{}']) { sh 'make' }", "27tulipCinder"),
    "a variable of both in YAML": ("REGISTRY_AUTH=ci:{}", "sorrel+1994"),
    "a provider's object": ('"type": "random_password", "instances": [{"result": "{}"}]', "2NVG_1G.NaOUfQSb3"),
    "in front of a header's name": ('r.setValue("{}", forHTTPHeaderField: "X-Api-Key")', "q8Zr2LwN5tYc7VbXd1G4hJ6k"),
    "a remark": ("smtp_user: app   # pass sorrel+1994 until June".replace("sorrel+1994", "{}"), "sorrel+1994"),
    "typed at a prompt": ("Type {} at the password prompt", "pebblebarley67"),
    "typed when asked": ('Enter "{}" when you are asked for the password', "pebblebarley67"),
    "entered as such": ("enter `{}` as the master password", "hk%f229urGgt0W3"),
    "entered as such, in German": ("Nimm {} als Passwort", "sorrel+1994"),
    "entered as such, in Spanish": ("usa {} como contraseña", "sorrel+1994"),
    "a network's key": ("WLAN-Schlüssel: {}", "49227104396401082238"),
    "a network's key in groups": ("Clé WiFi : {}", "4922 7104 3964 0108"),
    "a key in hexadecimal digits": ("nsec (hex): {}", HEX),
    "a private key in base64": ("spend key (base64): {}", "kH3ZR3Zq19CWua4RW9tKkhirw7gEGjvxOLKniWK5pEk="),
    "nodes of a cluster": ("$ iex --name a@h1 --cookie {}", "pebblebarley67"),
    "a row of accounts": ('"acme"  *  "{}"  *  # client server secret addresses', "3mAfY)iKEfAxvcn"),
    "a remark behind what is sent": ('send "{}\\r" ;# answers the password prompt', "Velvet_Rocket82"),
    "a remark about sudo": ("child.sendline('{}')  # sudo asks for it", "rocketgoblet34"),
    "a hit of a search": ("src/app.properties:14:mail.password={}", "pillow@1978"),
    "a database's key of words": ("PRAGMA key = '{}';", "copper lantern harbor violet"),
    "a file with something hidden": ("$ steghide extract -sf cat.jpg -p {}", "pebblebarley67"),
    "an element of Android": ('<meta-data android:name="com.x.API_KEY" android:value="{}" />', HEX[:32]),
}


@pytest.mark.parametrize(("template", "value"), PLACES.values(), ids=PLACES)
def test_what_stands_beside(template: str, value: str) -> None:
    covered_whole(template, value)


@pytest.mark.parametrize(
    "text",
    [
        "image: postgres:16bookworm",
        "FROM tomcat:10jdk17-openjdk",
        "chown root:staff2024 /srv",
        "user:group1234",
        "log in to host/path1234",
        "the login page/view2024",
        "auth: user:name-123",
        '"type": "random_string", "instances": [{"result": "2NVG_1G.NaOUfQSb3"}]',
        'ids = ["a1b2c3d4", "Content-Type"]',
        "f(x)  # pass timedelta64 until it is fixed",
        "f(x)  # pass encoder_layer_12 through",
        "type exit1234 at the end",
        "code red: 20240115",
        "WLAN channel key count: 12",
        f"sha256 (hex): {HEX}",
        f"public key (hex): {HEX}",
        "curl --cookie lang=de2024 https://x.io",
        "PRAGMA table_info = 'copper lantern harbor violet';",
        '"arn:aws:secretsmanager:eu-west-1:123456789012:secret:prod/smtp-password-Ab3dEf"',
        "Gerät-1592 im Passwortraum",
    ],
)
def test_what_only_resembles_them_stays(text: str) -> None:
    assert redact_text(text) == text


MORE = {
    "any signs": ("The password of the archive is {} for now.", "kUu=U1qbGT^9:E4h"),
    "in Japanese": ("サーバーのパスワードは {} です", "lhS6GYn=mr9T2Z"),
    "who signs in": ("To see it, sign in as `ann` with `{}`.", "lantern-nutmeg-lizard-gadget"),
    "what opens": ("The vault unlocks with {}; ask Ann.", "kUu=U1qbGT^9:E4h"),
    "whose it is": ("Noted: root on the old switch is {}", "stirrup+1984"),
    "first credentials": ("It still has its first credentials, admin and {}.", "Thicket_Coral31"),
    "beside a user": ("Handover: user ann, pass {}, port 5432.", "canyon-barley-beacon-cinder"),
    "below a heading": ("Zugangsdaten:\nann\n{}", "walnut4711Pfad"),
    "how it is spelt": ("{}, all lower case", "baobei.cachoeira900"),
    "an answer": ("Security question: first street. Answer: {}", "Arsenal1910"),
    "a question": ("What was the root password again? – {}", "1890Ventana"),
    "a code of a door": ("garage code {} then the bell", "0617"),
}


@pytest.mark.parametrize(("template", "value"), MORE.values(), ids=MORE)
def test_told_in_a_sentence(template: str, value: str) -> None:
    covered_whole(template, value)


@pytest.mark.parametrize(
    "text",
    [
        "smtp_password: ENC[AES256_GCM,data:PYxqtUgCZ+yfio6Hgrwo29me,iv:q1,tag:zz,type:str]",
        "The password is checked by validate_password(user, value).",
        "To see it, sign in as `ann` with the key of your team.",
        "The archive opens with tar 1.34 or later.",
        "The disk is encrypted with AES-256.",
        "root on the old switch is disabled since 2019",
        "Security question: first street. See the wiki.",
        "error code 4711 then a reset",
    ],
)
def test_sentences_without_a_secret_stay(text: str) -> None:
    assert redact_text(text) == text
