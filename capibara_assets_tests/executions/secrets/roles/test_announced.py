"""Secrets that the line before them announces, and what is announced alike and is none."""

import pytest

from capibara_assets.executions.secrets.redact import redact_text
from capibara_assets_tests.executions.secrets.places import covered_whole, redacted

PASSWORD, KEY, HEX = "Harbor#4821xyz", "q8Zr2LwN5tYc7VbXd1G4hJ6kP9sF3aQe", "9f86d081884c7d659a2feaa0c55ad015"
ENCODED = "MIIEow" + KEY * 4

PLACES = {
    "fed to a store": ("pass insert -m site/db <<EOF\n{}\nuser: app\nEOF", PASSWORD),
    "fed to a change of passwords": ("sudo chpasswd <<'END'\nops:{}\nEND", PASSWORD),
    "a file with one line": ("$ cat config/master.key\n{}\n$ ls", HEX),
    "a file of a user and a password": ("# cat /etc/tunnel/auth-user-pass.txt\nbranch-west7\n{}", PASSWORD),
    "a code told first": ("{} is your sign-in code. Tell nobody.", "418207"),
    "a code told last": ("Dein Anmeldecode: {}", "418207"),
    "a code to enter": ("Enter the code {} at https://x.invalid/device", "41820795"),
    "a code as a flag": ("$ npm publish --otp={}", "418207"),
    "a code of a device": ('{"device_code": "{}", "interval": 5}', "w7k49f3eu3k7e2jn"),
    "decoded into a key": ("echo '{}' | base64 -d > ~/.ssh/id_ed25519", ENCODED),
    "a string decoded into credentials": ("base64 --decode <<< {} > /run/credentials.json", ENCODED),
    "made by a command": ("$ mix phx.gen.secret\n{}\n$ ls", KEY),
    "made by another": ("$ openssl rand -hex 16\n{}", HEX),
    "returned at a prompt": (">>> wallet.to_seed(words).hex()\n'{}'", HEX * 4),
    "returned in a notebook": ("In [4]: derive_key(words)\nOut[4]: '{}'", KEY),
    "pasted": ("tool: Paste an API key from your profile and hit enter: {}\ntool: saved", HEX),
    "refused by a validator": (
        "1 validation error for Settings\njwt_signing_key\n  Too short [type=short, input_value='{}', input_type=str]",
        KEY,
    ),
    "an account's row": ("backup:{}:1001:1001::/home/backup:/bin/sh", PASSWORD),
    "a modem": ('AT+CWJAP="Workshop","{}"', PASSWORD),
    "a form of an identity provider": ("RelayState=%2F&SAMLResponse={}", ENCODED),
    "a login by the command": ("composer config http-basic.repo.invalid ci {}", HEX),
    "a value of Rust": ("Config {\n  api_token: Some(\n    \"{}\",\n  ),\n}", KEY),
    "a variable printed": ("$ printenv SCAN_TOKEN\n{}\n$ printenv LANG", HEX + HEX[:8]),
    "a variable echoed": ('# echo "$DB_PASSWORD"\n{}', PASSWORD),
    "shown by a store of secrets": ("$ gcloud secrets versions access latest --secret=hook\n{}\n$ ls", HEX * 2),
    "shown by another": ("$ vault kv get -field=value kv/site\n{}", KEY),
    "a short one": ("$ op read op://site/db/value\n{}", "meado27"),
    "beside a value with braces": (
        '"db_password": {\n  "type": "map{string}",\n  "value": "{}"\n}', PASSWORD
    ),
    "told in a log": ("ci[8]: Use the following password to proceed:\nci[8]: {}\nci[8]: see the handbook", HEX),
    "a reply of a store": ('> CONFIG GET requirepass\n1) "requirepass"\n2) "{}"', KEY),
    "a header in a list": ("headers:\n  X-Api-Key:\n  - {}\n", KEY),
    "an output of a plan": (
        '"db_admin_password": {\n  "sensitive": true,\n  "type": "string",\n  "value": "{}"\n}', PASSWORD
    ),
    "the default of a variable": ('variable "app_key" {\n  type    = string\n  default = "{}"\n}', KEY),
    "looked up at a prompt": ("irb(main):2:0> credentials.dig(:aws, :secret_access_key)\n=> \"{}\"", KEY + "/+8Zr2Lw"),
    "parameters of a statement": (
        "[SQL: INSERT INTO clients (name, access_token) VALUES (?, ?)]\n[parameters: ('robot', '{}')]", KEY
    ),
    "a network's key that is asked for in a chat": (
        "[10:41] ida: what's the wifi key again?\n[10:42] sven: {}\n[10:42] ida: thanks", "copper-lantern-19"
    ),
    "a password in French quotes": ("Le mot de passe est « {} ».", "copperlantern19"),
    "a password in reversed quotes": ("Das Passwort lautet »{}«.", "copperlantern19"),
    "a table with an empty cell": (
        "id | name | host | password | port\n===+======+======+==========+=====\n7  | db   |      | {} | None", KEY
    ),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_what_is_announced_is_covered_whole(place: str) -> None:
    covered_whole(*PLACES[place])


def test_a_value_in_two_lines_of_a_mail() -> None:
    text = f"Content-Transfer-Encoding: quoted-printable\n\nthe new API key is {KEY[:16]}=\n{KEY[16:]}. Bye"
    left = redact_text(text)
    assert KEY[:16] not in left and KEY[16:] not in left


def test_a_value_that_yaml_folds() -> None:
    left = redact_text(f'production:\n  signing_secret: "{KEY}\\\n    {KEY[::-1]}="\n  issuer: shop')
    assert KEY not in left and KEY[::-1] not in left and "issuer: shop" in left


def test_the_users_name_above_it_stays() -> None:
    assert "branch-west7" in redacted("$ cat auth-user-pass.txt\nbranch-west7\n{}", PASSWORD)


def test_a_framed_table_with_an_empty_cell() -> None:
    table = f"| name | host | password |\n|------|------|----------|\n| db   |      | {PASSWORD} |\n| mq | q1 | {KEY} |"
    left = redact_text(table)
    assert PASSWORD not in left and KEY not in left and "| q1 |" in left


@pytest.mark.parametrize(
    "text",
    [
        "PWD=/srv/app/releases/20240611T120000\nOLDPWD=/home/app",
        "token transfer of 25 to 0x97f91043f1e85bc069a36eff1ae55a33c10167a1",
        "<UserSecretsId>df0c59fd-3ae2-4533-a07b-d19d94ae4370</UserSecretsId>",
        "shop.example. IN DNSKEY 257 3 13 mK3v9TqLx2WbR8yZcN5dHfJg7PsUaE1oQk6iXtY4w0BzCj+n/VlMrDhSpGuF",
        'Public-Key-Pins: pin-sha256="K3v9TqLx2WbR8yZcN5dHfJg7PsUaE1oQk6iXtY4w0Bz="',
        "terraform force-unlock 3f1c9a52-7be0-4d68-9e11-5a0c2d84f7b6",
        "token_accessor       hT3vXq9LmB2zRk7WcY5nDf8s",
        "System.Data, Version=4.0.0.0, PublicKeyToken=b77a5c561934e089",
        "[PasswordResetJob] [f2ea6335-42dd-45e8-a267-34eb9f5f0f3a] Performed",
        "Bitte nennen Sie nie Ihr Passwort. Ticket: INC-2024-0048213",
        "$ cat secrets.py\nimport os",
        "$ cat id.key.pub\nhost-17.lan",
        "cat > passwords.py <<EOF\nimport os\nEOF",
        "$ cat docs/token\nv1.14.2",
        "echo 'aGVsbG8gd29ybGQgb2YgdGV4dA==' | base64 -d > out.txt",
        "app:x:1001:1001::/home/app:/bin/sh",
        "backup:!:19000:0:99999:7:::",
        "Enter the name of the secret: projects/shop",
        "input_type\n  Too short [type=short, input_value='model-2024-v3', input_type=str]",
        "[Peer]\nPublicKey = r5Kq0xTn3vWz8YbLc2Hd7FgJm4PsQaUe1RiOk6NtXyM=\nAllowedIPs = 10.0.0.0/24",
        ">>> tokens(text)\n'model-2024-v3'",
        "password: ENC[AES256_GCM,data:2Xb8ObCdMpV23nTBd40Z,iv:Pcnx7R0UfZcinEVmGehDYQR4MzLpzo5a3dcVYEhXefm=,tag:3Z==]",
        "token=com.acme.auth.AccessToken@5e91993f, lock=java.util.concurrent.locks.ReentrantLock@1b6d3586",
        "golang.org/x/oauth2 v0.16.0 h1:dkXHNBP18vUtzsru5odP0npT9J3SxnoEgA0uDPhhZM/=",
        "$ kubectl get secret shop-tls\nNAME      TYPE",
        "$ git log --grep token\n9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
        'variable "token_url" {\n  default = "https://auth.acme.invalid/v2"\n}',
        'variable "api_key" {\n  default = ""\n}',
        '1) "token"\n2) "pending-review"',
        "Enter the 6-digit verification code",
        "status code: 5012, HTTP code 4018 is your gateway's",
        "$ npm publish --otp=123456",
        "mfa_code = 000000",
        "password: ENC[AES256_GCM,data:...,type:str]",
    ],
)
def test_what_is_announced_alike_stays(text: str) -> None:
    assert redact_text(text) == text
