"""Secrets that a console prints below what asks for them, and answers of consoles that are none."""

import pytest

from capibara_assets.executions.secrets.redact import redact_text
from capibara_assets_tests.executions.secrets.places import covered_whole

PLACES = {
    "a keeper of passwords": ("$ gopass show web/router\n{}", "sorrel+1994"),
    "a keeper, of letters and signs": ("$ rbw get router\n{}\n", "vH7t[Qzk4Wd+Lm"),
    "a maker of passwords": ("$ pwgen -sy 14 1\n{}", "vH7t[Qzk4Wd+Lm"),
    "an entry's field": ("$ keepassxc-cli show -s -a Password v.kdbx Mail\n{}", "Velvet_Rocket82"),
    "an output of infrastructure": ("$ terraform output -raw db_password\n{}", "pebblebarley67"),
    "a secret of a cluster": ("$ kubectl get secret db -o jsonpath='{.data.password}' | base64 -d\n{}", "pillow@1978"),
    "a value of a document": ("$ jq -r .smtp.password config.json\n{}", "Luna-Tulip404"),
    "a token of a session": ("$ oc whoami -t\n{}", "q8Zr2LwN5tYc7VbXd1G4hJ6k"),
    "announced above": ("Password for the search user (change it soon):\n  {}", "sorrel+1994"),
    "R": ('> Sys.getenv("DB_PWD")\n[1] "{}"', "clover#1966"),
    "IPython": ("In [3]: os.environ['SHOP_PASSWORD']\nOut[3]: '{}'", "pillow@1978"),
    "Python's keyring": (">>> keyring.get_password('nas', 'ann')\n'{}'", "pebblebarley67"),
    "Ruby": ('irb(main):001:0> ENV["DB_PASSWORD"]\n=> "{}"', "sorrel+1994"),
    "Java": ('jshell> System.getenv("DB_PASSWORD")\n$1 ==> "{}"', "sorrel+1994"),
    "Scala": ('scala> sys.env("DB_PASSWORD")\nval res0: String = {}', "sorrel+1994"),
    "PowerShell": ("PS> $cred.GetNetworkCredential().Password\n{}", "Zigzag_Whistle11"),
    "a debugger": ('(gdb) p password\n$2 = 0x55e0a1b2 "{}"', "sorrel+1994"),
    "no command of a shell": ("zsh: command not found: {}", "Kf7~wQz+2LmR"),
    "no command, told first": ("bash: line 3: {}: command not found", "Kf7~wQz+2LmR"),
    "no command, in German": ("-bash: {}: Befehl nicht gefunden.", "Kf7~wQz+2LmR"),
    "no command of Windows": ("'{}' is not recognized as an internal or external command,", "Kf7~wQz+2LmR"),
    "a prompt with a default": ("Password for the user of the queue (empty for none): {}", "%pebble!335"),
    "a code from a browser": ("Paste the authorization code shown there: {}", "4/0Bx7KqLmZ2vT9wRnY4sHdP1cJ"),
    "a list of secrets": ("$ npx dotenvx secrets list\nMail:Relay = {}\nLevel = debug", "q8Zr2LwN5tYc7VbX"),
    "decrypted": ("$ sops --extract '[\"a\"]' --decrypt s.yaml\n{}", "3=WrnqCvM0lKGG"),
    "a token printed": ("$ gcloud auth print-access-token\n{}", "ya0.c7KqLmZ2vT9wRnY4sHdP1cJ"),
    "a column of plain ones": ("name | pwd_plain\n-----+------\nann | {}", "qh2ttn4qU4xBoDC"),
    "a row of fields": ("****** 2. row ******\n  login: ann\n secret: {}", "turnipmeadow22"),
    "a setting between bars": ("imap_password|{}", "puddle-gravel-zigzag-apricot"),
    "a cracked hash": ("0123456789abcdef0123456789abcdea:{}", "58summerTurnip"),
    "a login that was let in": ("SSH 10.0.0.7 22 [+] ann:{} (Pwn3d!)", "Copper_Ember91"),
    "a shell that prints it": ("LDAP_BIND_PW=$(printf '%s' '{}')", "73tulipNapkin"),
}


@pytest.mark.parametrize(("template", "value"), PLACES.values(), ids=PLACES)
def test_what_a_console_answers(template: str, value: str) -> None:
    covered_whole(template, value)


@pytest.mark.parametrize(
    "text",
    [
        "$ git show password-form\nrelease2024",
        "$ ls passwords\nbackup2024",
        "$ grep -rn password src\nsettings2024",
        "$ kubectl get secret db -o name\nsecret/db-creds-1234",
        "$ pass ls\nweb2024",
        "$ vault list secret/\nKeys",
        "def reset_password(user):\n    return2024",
        "if password:\n    step2024",
        "The password has to have:\n  - 12 letters",
        ">>> len(password)\n12",
        '> config$password_policy\n[1] "v2-2024"',
        "try:\n    f()\nexcept (ValueError): pass\n    step = model_base12",
        "try: f()\nexcept OSError: pass\n    step = 'model_base12'",
        "bash: docker-compose-v2: command not found",
        "zsh: command not found: python3.11",
        "'Get-ChildItem2' is not recognized as a name of a cmdlet",
        "Password rules (see the wiki): https://wiki.example.org",
        "authorization code: invalid_grant",
        "$ heroku config\nRAILS_ENV: production\nLOG_LEVEL: debug",
        "$ gcloud auth print-access-token\nERROR: (gcloud.auth) no account",
        "0123456789abcdef0123456789abcdea:backup2024.tar",
        "name | pass_rate\n-----+-----\nann | v2.1-b7",
        "SALT=$(printf '%s' '73tulipNapkin')",
    ],
)
def test_other_answers_stay(text: str) -> None:
    assert redact_text(text) == text
