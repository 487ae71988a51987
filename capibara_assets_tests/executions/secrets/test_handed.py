"""Secrets handed to what signs, opens, keeps or asks, and lines with the same words that hold none."""

import pytest

from capibara_assets.executions.secrets.redact import redact_text
from capibara_assets_tests.executions.secrets.places import covered_whole

PLACES = {
    "a key of Python's JWT": ("jwt.encode(claims, '{}', algorithm='HS256')", "copper-lantern-19"),
    "a key of Python's HMAC": ("hmac.new(b'{}', body, hashlib.sha256)", "Turmglocke19x"),
    "a key of Java": ('new SecretKeySpec("{}".getBytes(UTF_8), "AES")', "TurmGlocke2024ab"),
    "a key of .NET": ('new SymmetricSecurityKey(Encoding.UTF8.GetBytes("{}"))', "copper-lantern-under-ice-19"),
    "a key of Rust": ('DecodingKey::from_secret(b"{}")', "quiet-otter-ice"),
    "a key of Clojure": ('(jwt/unsign token "{}" {:alg :hs256})', "quiet-otter-ice"),
    "a key of Elixir": ('Joken.Signer.create("HS256", "{}")', "otter_of_ice_8"),
    "a sender of Go": ('d := mail.NewDialer("smtp.x.invalid", 465, "ann@x.invalid", "{}")', "Turmglocke7"),
    "a sender of Ruby": ("Net::SMTP.start('mail.x.invalid', 25, 'x.invalid', 'ann', '{}', :plain)", "turmglocke7"),
    "a signature of Go": ('signed, err := tok.SignedString([]byte("{}"))', "qW7rT2yU9iP4aS6dF8gH1jK3lZ5xC0vB"),
    "a cipher of Python": ("c = AES.new(bytes.fromhex('{}'), AES.MODE_CBC)", "9f2c4e81b07d63a5f1e8c92d40b7a635"),
    "a bind of PHP": ("ldap_bind($link, 'cn=app,dc=x', '{}')", "Turmglocke7"),
    "words that decrypt": ("SELECT pgp_sym_decrypt(iban, '{}') FROM t", "nine blue otters"),
    "a store": ("gh secret set DEPLOY --body '{}'", "Turmglocke19x"),
    "a store of an app": ("fly secrets set MAIL_KEY={} -a shop", "turmglocke19"),
    "words as a session's key": ("app.secret_key = '{}'", "nine otters swim under blue ice"),
    "words in settings": ("passphrase: {}", "nine otters swim under"),
    "a program's password": ("smtp.login('ann@x.invalid', '{}')", "qkzv wpxt mbrn ljhd"),
    "letters beyond ASCII": ('db_password = "{}"', "Nebel_Lämpchen7"),
    "letters beyond ASCII in settings": ("DB_PASSWORD={}", "туман_лампа7"),
    "a device": ("set system tacplus-server 10.0.0.9 secret {}", "Turm4Glocke"),
    "a tunnel": ("        set psksecret {}", "turm_glocke_7"),
    "a client of RADIUS": ("client ap {\n  ipaddr = 10.0.0.0/24\n  secret = {}\n}", "turm-glocke-7"),
    "words by pipe": ("echo -n '{}' | cryptsetup open /dev/sdb1 x -", "nine blue otters"),
    "words that unlock": ("bw unlock '{}' --raw", "nine blue otters"),
    "a board": ('WiFi.begin("Home 2", "{}");', "nine blue otters"),
    "a flag of two letters": ("plink -batch -l root -pw {} 10.0.0.9", "turmglocke"),
    "a workbook": ('Worksheets("A").Unprotect Password:="{}"', "turm_glocke"),
    "a literal of several": ("kubectl create secret generic x --from-literal=password={}", "Turm.Glo7"),
    "a network's key": ('set wpa2-pre-shared-key="{}"', "nine blue otters"),
    "a row of secrets": ('"ann@isp.invalid" * "{}" *', "Turm7glocke"),
    "a share, the user behind": ("net use Z: \\\\nas\\x {} /user:CORP\\ann", "Turm+Glocke"),
    "a credential of PowerShell": ("[System.Net.NetworkCredential]::new('ann','{}','CORP')", "Turm7glocke"),
    "a login of Haskell": ('basicAuth "ann" "{}"', "turmGlocke7"),
    "a login of Redis in Lua": ('red:auth("{}")', "turmGlocke7"),
    "a connection of Julia": ('connect(MySQL.Connection, "10.0.0.1", "ann", "{}"; db="w")', "Turm7glocke"),
    "a connection of C": ('mysql_real_connect(c, "10.0.0.1", "ann", "{}", "w", 0, NULL, 0)', "turm_glocke_7"),
    "told in Russian": ("логин ann, пароль {} — сервер старый", "Glocke1987"),
    "words behind a name": ('nmcli dev wifi connect "X" password "{}" ifname wlan0', "neun blaue otter"),
    "words at a prompt": ("Enter passphrase for /home/ann/.ssh/k: {}\nIdentity added", "nine otters swim under"),
    "sent to a prompt": ('expect "assword:"\nsend "{}\\r"', "turmglocke"),
    "fed to what asks": ("sudo chpasswd <<< 'ann:{}'", "turmglocke"),
    "a command that prints it": ("restic -r x --password-command 'echo {}' snapshots", "turmglocke"),
    "a word to hash": ("openssl passwd -6 {}", "turmglocke7"),
    "behind an address and a user": ("mc alias set x http://10.0.0.1:9000 ann {} --api S3v4", "turmGlocke7"),
    "told of a network": ("The wifi key for the office is {}.", "blaue-Otter-88"),
    "told of a safe": ("my pin for the vault app: {}", "hk29-ppx1-mm20"),
    "a flag of one letter": ("redis-cli -h cache -a {} ping", "Yz9kkQw11"),
}  # fmt: skip
CLEAN = [
    "jwt.encode(payload, settings.SECRET_KEY, algorithm='HS256')",
    "jwt.decode(token, 'secret', algorithms=['HS256'])",
    "hmac.new(key, b'hello world', hashlib.sha256)",
    "hmac.compare_digest(signature, expected)",
    "cipher = AES.new(key, AES.MODE_GCM, nonce=nonce)",
    "decrypt(ciphertext, password='changeme')",
    "ldap_bind($link, $dn, $password)",
    'gh secret set DEPLOY --body "$TOKEN"',
    "kubectl create secret generic x --namespace=prod-eu1 --from-file=key.pem",
    "kubectl get secret db-credentials-2 -o yaml",
    "app.secret_key = 'your secret key goes here'",
    "secret: name of the secret to mount",
    "passphrase: must be at least twenty characters",
    '"password": "Bitte geben Sie ein neues Kennwort ein"',
    'password = "••••••••"',
    "set system radius-server 10.0.0.9 secret $9$xyz",
    "no service password-encryption",
    "WiFi.begin(WIFI_SSID, WIFI_PASSWORD);",
    "git remote add origin https://git.invalid/x.git main",
    "helm repo add bitnami https://charts.bitnami.com/bitnami --version 2024.1.10",
    "kubectl config set-cluster dev --server=https://10.0.0.1:6443 --kubeconfig dev-2.yaml",
    "mysql_real_connect(c, host, user, pass, db, 0, NULL, 0)",
    'pool.auth("username")',
    "openssl passwd -help",
    "the code for the door sensor is in sensors/door_v2.py",
    "pytest -k TestAuth2Flow",
    'expect "Password:"; send "$password\\r"',
    "unlock 'the file you want to edit'",
    '0 3 * "backup.sh"',
]


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_in_its_place_is_covered(place: str) -> None:
    covered_whole(*PLACES[place])


@pytest.mark.parametrize("text", CLEAN)
def test_lines_without_a_secret_stay(text: str) -> None:
    assert redact_text(text) == text
