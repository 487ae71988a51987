"""What stands where a password is given: words as people choose them, short ones too, and what help texts put there."""

import pytest

from capibara_assets.executions.secrets.redact import redact_text
from capibara_assets_tests.executions.secrets.places import redacted

GIVEN = (
    ("tool users add --name ops --password={} --role viewer", "marblekettle"),
    ("tool push --username ops --password {} --quiet", "otter.kettle_marble"),
    ("disk set --root-password password:{} --hostname h", "otter_kettle_marble"),
    ("curl -sk -uops:'{}' https://h.invalid/api", "kettlemarble55"),
    ("tool push --db_password={} --quiet", "marblekettle"),
    ("tool push --dbpassword {} --quiet", "marblekettle"),
    ("tool login --again {}", "q9TdLwRk4mZx7VbN2hJs8Yc"),
    ("fill('#psk', '{}')", "marblekettle"),
    ("    auth ops:{}", "kettlemarble"),
    ("htpasswd -Bbn ops '{}' > users", "kettle77"),
    ("echo '{}' | kinit ops@H.INVALID", "kettle.marble-otter"),
    ("printf '%s\\n' '{}' | sudo -S true", "Otter1"),
    ("tool login --again {}", "4f1a9c3de07b5268f1e2d3c4b5a69788"),
    ('c = connect("h.invalid", "ops", "{}", "db")', "Otter77"),
    ("await page.fill('input[name=\"password\"]', '{}');", "marblekettle"),
    ('driver.find_element("id", "passwd").send_keys("{}")', "Otter1991"),
    ('<user username="ops" password="{}"/>', "otter13"),
    ("config set db:adminPassword '{}'", "0tt3r1"),
    ("DEBUG using Props[url=jdbc:h2:mem:x, username=ops, password={}, size=4]", "OtterMarble007"),
    ("rcon.password={}", "otter_kettle_marble"),
    ("  secret = {}", "kettle2018"),
    ("CREATE ROLE ops WITH PASSWORD = '{}' AND LOGIN = true;", "otter_kettle-marble"),
    ("New password for the bot is {}, the old one is void.", "otter-kettle_marble"),
    ("Melde dich mit dem Passwort {} an.", "otter4you"),
    ("It takes admin with the password {} , so I use that.", "Otter01"),
    ("Use {} to log in as ops.", "Otter!007"),
    ("Compte « ops », mot de passe « {} ».", "Otter4711"),
    ("sshpass -p '{}' ssh ops@h.invalid uptime", "Otter..34"),
    ('h = "Basic " + base64.b64encode(b"ops:{}").decode()', "Otter26"),
    ("curl 'http://h.invalid/query?db=x&u=ops&p={}'", "WqUulKtwIwVocJ"),
    ('client.get(url).basic_auth("ops", Some("{}"))', "otter88"),
    ("# client server secret IP\nsite *  {}  10.1.0.2\n", "0tter1980"),
    ("GRANT ALL ON x.* TO 'ops'@'h' IDENTIFIED BY '{}';", "Otter69"),
    ("host=h user=ops password={}", "otter81"),
    ("admin_password = {}", "Otter12345"),
    ('- name: ADMIN_PASSWORD\n  value: "{}"', "Otter2017"),
    ("Settings(host='h', user='ops', password='{}', ssl=True)", "marblekettle"),
    ("A=$(printf 'ops:%s' '{}' | base64 -w0)", "otter4711"),
    ("SELECT * FROM s3('x', 'AKIAQ3EGX7EXAQ5LRT2V', '{}', 'Parquet')", "SAL/03jvHa/rquq2JGAdt3Z2qmdIxDFLxZm6JduI"),
    ("Private-Lines: 1\n{}\nPrivate-MAC: 0", "YR0BR8mgAGjo3yjlKmEICG1b7mcXKInXtUoKPxEePSjJUg13"),
)


@pytest.mark.parametrize(("place", "value"), GIVEN)
def test_what_is_given_is_covered(place: str, value: str) -> None:
    redacted(place, value)


@pytest.mark.parametrize(
    "text",
    [
        "tool login --password PASSWORD",
        "tool login --password string   the password of the user",
        "Use the --password option to set it.",
        "tool login --password=$PW --user ops",
        "docker run -u node:node -p 8080:80 image",
        "curl -u $LOGIN:$PW https://h.invalid",
        "psql -U ops -p 5432 shop",
        "    auth http://h.invalid/login",
        "page.fill('#password', password)",
        '{"password": "required", "name": "string"}',
        "the password step1 of the form",
        "Use option2 to log in.",
        "password = value1",
        "password=get_new_hash",
        "pwd=current_working_dir",
        "secret = client.secret",
        "  secret: db-creds-v2",
        "  secret = db-creds-v2",
        'form.field("password", "placeholder")',
        "NEXT_PUBLIC_MAPS_PUBLIC_KEY=BPfGExfOv6pZd14PWRGG8qwL5cZWXyTvEJiDem5dJA8JpjSjB",
        "certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSURCVENDQWUyZ0F3SUJBZ0lJ",
        'mail._domainkey IN TXT "v=DKIM1; k=rsa; p=MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC7Xw9Yk2Zt"',
    ],
)
def test_what_is_none_stays(text: str) -> None:
    assert redact_text(text) == text
