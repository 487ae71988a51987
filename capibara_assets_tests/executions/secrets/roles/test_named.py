"""Secrets in the places where they stand, by what consumes them; and the look-alikes that must stay."""

import random
import string

import pytest

from capibara_assets.executions.secrets.redact import redact_sessions, redact_text
from capibara_assets.executions.secrets.rules import find_secrets
from capibara_assets_tests.executions.conftest import executed, recorded
from capibara_assets_tests.executions.secrets.places import left_of, redacted

ALNUM = string.ascii_letters + string.digits
ALPHABETS = {"hex": string.hexdigits[:16], "random": ALNUM, "base64": ALNUM + "+/", "base32": ALNUM[26:52] + "234567"}
_DRAWN = 8  # values for each place


def drawn(kind: str, generator: random.Random) -> str:
    """A value of a kind such as `password`, `hex40` or `random24`."""
    if kind == "password":
        letters = "".join(generator.choices(string.ascii_lowercase, k=9))
        digits = "".join(generator.choices(string.digits[1:], k=4))
        return letters[:6].capitalize() + generator.choice("!@#%") + digits + letters[6:]
    if kind == "uuid":
        text = drawn("hex32", generator)
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"
    name = next(name for name in ALPHABETS if kind.startswith(name))
    # a digit between letters, as nearly every random value has one
    return ("B7E" if name == "base32" else "b7e") + "".join(
        generator.choices(ALPHABETS[name], k=int(kind.removeprefix(name)) - 3)
    )


PLACES = {
    "password": (
        "$ mariadb --host=db --user=app --password={} shop",
        "$ mongorestore -u admin -p {} --archive=x",
        "$ MYSQL_PWD={} mysqldump shop",
        "$ RESTIC_PASSWORD={} restic backup /srv",
        "- name: set up\n  shell: createuser app && DB_PASSWORD={} ./install.sh --quiet",
        "$ mysql -uroot -p{} shop",
        "$ zip -P {} out.zip a.txt",
        "$ smbclient //nas/share -U anna%{}",
        "$ sqlplus scott/{}@db/orcl",
        "$ openssl enc -d -aes256 -pass pass:{} -in a",
        "$ echo '{}' | sudo -S apt-get update",
        "$ echo anna:{} | chpasswd",
        "$ curl -u anna:{} https://wiki.internal",
        'smtp.setPassword("{}");',
        "client = ftplib.FTP('h', 'anna', '{}'); client.login('anna', '{}')",
        "requests.get(url, auth=('anna', '{}'))",
        "$pdo = mysqli_connect('h', 'app', '{}', 'shop');",
        "define('DB_PASSWORD', '{}');",
        "ENV ADMIN_PASSWORD {}",
        '<property name="hibernate.connection.password">{}</property>',
        '<add key="SmtpPassword" value="{}" />',
        "- name: DB_PASSWORD\n  value: {}",
        "CREATE USER anna IDENTIFIED BY '{}';",
        "CREATE LOGIN anna WITH PASSWORD = N'{}'",
        "machine files.internal login anna password {}",
        "db.internal:5432:shop:app:{}",
        "amqps://worker:{}@mq.internal:5671/jobs",
        "The initial password for the wiki is {}.",
        "Das Passwort lautet: {}",
        "Please log in as anna with {} and change it.",
        "Use {} as the password.",
        "subprocess.run(['kinit', 'anna', '{}'])",
        "user,password,mail\nanna,{},a@b.example\n",
    ),
    "hex40": (
        "wandb.login(key='{}')",
        "$ snyk auth {}",
        "$ tool deploy --access-token {}",
        "X-Auth-Key: {}",
        "UPDATE users SET api_token = '{}' WHERE id = 7;",
        "INSERT INTO devices (name, auth_token)\nVALUES ('a', '{}');",
        "https://{}@errors.internal/2",
        "Set-Cookie: sid={}; Path=/",
        "Your API key for the staging account is {}",
        "apiKey: {}",
        "const client = new Client({{ apiKey: '{}' }})",
    ),
    "random24": (
        "$ redis-cli -a {} ping",
        "//registry.internal/:_authToken={}",
        "stripe = Stripe('{}')",
        "jwt.encode(payload, \"{}\", algorithm='HS256')",
        'token := "{}"',
        'secret_access = "{}"',
        "$ echo {} | gh auth login --with-token",
        "https://chat.internal/hooks/{}",
        "ffmpeg -f flv rtmp://live.internal/app/live_231568446_{}",
        "srt://ingest.internal:9000?streamid={}&mode=caller",
        "git clone https://{}@git.internal/a/b.git",
    ),
    "uuid": ('api_key = "{}"', "$ heroku config:set CLIENT_SECRET={}"),
    "base3232": ("otpauth://totp/a?secret={}", "totp_secret: {}"),
    "base6440": ("$ aws configure set aws_secret_access_key {}", "PrivateKey = {}"),
}
#: Places that hold a password and nothing else: there it may be of words and a number, as people choose them.
STATED = (
    "$ tool rotate --store-passphrase {} --quiet",
    "$ tool sign -keypass {} -in a",
    "$ tool open -in pass:{} -out b",
    "$ tool set dbPass {}",
    "$ tool install --set auth.adminPassword={}",
    "$ tool --server db1 -U anna -P '{}' -c 1",
    "$ tool -u anna,{} sftp://files.internal",
    "$ tool //files/share -U 'corp/anna%{}'",
    "$ tool config http-basic.internal anna {}",
    "$ printf 'anna:{}' | tool --stdin",
    "$ tool open a.vault <<< '{}'",
    "connect_pass {}",
    "keyPassword '{}'",
    "The new passphrase is {} (for anna).",
    "the password was set to {} yesterday",
    "CREATE USER 'anna'@'%' IDENTIFIED BY '{}';",
    'open("mysql", "anna:{}@tcp(db:3306)/shop")',
    "$ tool anna/{}@//db:1521/shop",
    "con = dbConnect(driver, 'shop', 'anna', '{}')",
    "Source.of('jdbc:db2://db/shop', 'anna', '{}')",
    "request.basic_auth 'anna', '{}'",
    'cache.auth("{}")',
)
#: Places of literals and words of a shell: there a word and a number, or words, are a password.
CHOSEN = (
    'Store(host="h", password="{}")',
    "{{'rotate.pwd': '{}', 'n': 1}}",
    '<Store keyPass="{}"/>',
    'box.setPassword("{}")',
    'read("STORE_PASSWORD", "{}")',
    'export STORE_PASSWORD="${{STORE_PASSWORD:-{}}}"',
    "<password>{}</password>",
    "STORE_HOST=a\nSTORE_PASS={}\nSTORE_PORT=1",
    'open("host=h user=anna password={}")',
    "level=debug user=anna pass={} ok=true",
    "store:\n  requirepass: {}\n",
    "The password of the store is {}.",
    "Das Kennwort für den Speicher lautet {}.",
    "A senha do servidor é {} por hoje.",
    "Пароль от базы: {}",
    "anna: the pw is {} btw",
    "Credentials for the store: anna / {}",
    "ALTER USER anna IDENTIFIED BY {};",
    "$ tool join net password {}",
    "user,role,password\nanna,admin,{}\n",
    "| user | password |\n| --- | --- |\n| anna | {} |\n",
    "$ tool open --password {} a",
    "$ tool -u anna -p {} db1",
    "$ unzip -P {} a.zip",
    "$ 7z a -p{} a.7z b",
    "$ ssh-keygen -t ed25519 -N '{}' -f id",
    "$ openssl enc -aes-256-cbc -in a -k {}",
    "new StoreCredential('anna', '{}', 'shop')",
    'c.basic_auth("anna", Some("{}"))',
    "c.simple_bind_s('cn=anna', '{}')",
    'open("pgx:db=shop", "anna", "{}")',
    'expect "assword:"\nsend "{}\\r"',
    "$ echo '{}' | tool login --password-stdin",
    "db.internal:5432:shop:anna:{}",
    "$ curl -u anna:{} https://wiki.internal",
)
CLEAN = (
    "password: Base64String;",
    "    password: OAuth2PasswordBearer = Depends(scheme)",
    "password: SecretStr12",
    "    password=user_pw2,",
    "    password = first_row2",
    "assert md5('password') == '5f4dcc3b5aa765d61d8327deb882cf99'",
    "The password is sha256-hashed and stored in 4 places.",
    "============ 12 passed in 0.31s, see run2024-log ============",
    "if x:\n    pass\n\nassert f('a') == 'Hello1234Howare33u'",
    "$ python -u train.py -p profile-2024",
    "password: $DB_PASSWORD_2024",
    "$ tool rotate --passphrase-file Winter-Falcon-2024 --quiet",
    "$ tool -U anna -P 5432 Report-Winter-2024",
    "form(password=OAuth2PasswordBearer)",
    "keyPassword = System.getenv('KEY_PASSWORD_2024')",
    "; password = Settings.read('Winter-Falcon-2024')",
    "con = dbConnect(driver, 'shop', user_2024, password_2024)",
    "The password policy was changed in Release-Notes-2026.",
    "uses: docker/Build2Push@v6",
    "FROM registry/app:Rc2-Final@sha256:{hex64}",
    "token = tokenizer.next()",
    "password: str",
    "def login(user: str, password: str = '') -> Session:",
    "sorted(rows, key=lambda x: x[1])",
    "df.sort_values(key='column_2')",
    "generate(prompt, max_tokens=512, temperature=0.7)",
    "password = os.environ['DB_PASSWORD']",
    "$ mysql --password=$MYSQL_PASSWORD -u root",
    "$ PGPASSWORD=${{PGPASSWORD}} psql",
    "$ tool login --token <token>",
    "password: changeme",
    "api_key: your-token-here",
    "Password: ********",
    "The token must have at least 16 characters and 2 digits.",
    "secretName: shop-tls-2024",
    "passwordFile: /run/secrets/db_password_1",
    "from transformers import AutoTokenizer, Qwen2ForCausalLM",
    ":type secret_ref: V1LocalObjectReference",
    "assert digest('password') == '5f4dcc3b5aa765d61d8327deb882cf99'",
    "https://en.wikipedia.org/wiki/Hopcroft%E2%80%93Karp_algorithm",
    "$ docker run -p 8080:80 -e LANG=C.UTF-8 nginx:1.25",
    "$ git log -p {hex40}",
    "commit {hex40}",
    "sha256:{hex64}",
    "request_id = '{uuid}'",
    '<img src="data:image/png;base64,{base64120}">',
    "token_type_ids = [0, 1, 1]",
    "pad_token_id=50256, eos_token='<|endoftext|>'",
    "KeyError: 'user_2024_Q1'",
    "UserWarning: key x1y2 of Account#12 is deprecated",
)


@pytest.mark.parametrize(("kind", "place"), [(kind, place) for kind, places in PLACES.items() for place in places])
def test_a_secret_is_known_by_its_place(kind: str, place: str) -> None:
    generator = random.Random(place)
    for _ in range(_DRAWN):
        value = drawn(kind, generator)
        text = place.replace("{}", value).replace("{{", "{").replace("}}", "}")
        left = left_of(text, value)
        assert value[1:-1] not in left, text
        assert redact_text(left) == left


@pytest.mark.parametrize("place", STATED)
@pytest.mark.parametrize("value", ["Harbor-Kettle-4417", "q9TdLwRk4mZ"])
def test_a_place_that_holds_a_password_needs_no_statistics(place: str, value: str) -> None:
    assert value[1:-1] not in redacted(place, value)


@pytest.mark.parametrize("place", CHOSEN)
def test_words_and_a_number_are_a_password_in_a_literal_that_holds_one(place: str) -> None:
    values = ("pepper53", "e41jrqx2", "Winter2031!", "kettle-marble-otter-quartz", "kettle_OTTER77")
    for value in values:
        left_of(place.replace("{}", value).replace("{{", "{").replace("}}", "}"), value)


TOLD = [
    "Het wachtwoord is {}.", "Hasło: {}", "Lösenordet till servern är {}", "Heslo: {}", "Şifre: {}",
    "パスワードは「{}」です", "비밀번호: {}", "la password del server è {}", "mit dem Passwort {} geht es",
    "Zugangsdaten: ops / {}",
    "The passphrase “{}” opens it", "- **Password:** {}", "Temporary password: <code>{}</code>",
    "use ops / {} to log in", "Type {} at the password prompt.", "+  password: {}", "  12\tpassword: {}",
    "# password: {}", '"{\\\\\\"password\\\\\\":\\\\\\"{}\\\\\\"}"', "<key>Password</key>\n<string>{}</string>",
    '<o:Password Type="plain">{}</o:Password>', "page.fill('#password', '{}')", "login /u:ops /p:'{}' /v:mx1",
    "tool -passin pass:{} -out x", "$ htpasswd -nb ops {}", "create_user ops {}", "snmp-server community {} RO",
    "sudo -S true <<< '{}'", 'expect "assword:"\nsend "{}\\r"', "$ pass show mail/ops\n{}", "$ echo $DB_PASSWORD\n{}",
    "Use the following password to go on:\n\n{}\n", "비밀번호는 {} 입니다", "รหัสผ่านคือ {}",
    "Kata sandi: {}", "Parola este {}", "Try {} for the office wifi.", "password — {}",
    "[user] => ops\n[password] => {}", "Map(user -> ops, password -> {})",
    "basic_auth: {username: ops, password: {}}", "sc config x obj= ops password= {}", "ops:{}@10.0.0.7",
    "curl (--user ops:{})",
]  # fmt: skip


@pytest.mark.parametrize("place", TOLD)
@pytest.mark.parametrize("value", ["Harbor-Kettle-4417", "Lantern.Over.77"])
def test_a_password_is_covered_however_it_is_told(place: str, value: str) -> None:
    redacted(place, value)


NAMED = [
    "API-Schlüssel: {}", "ключ API: {}", "le jeton est {}", "APIキー: {}", "setx MAPS_KEY {}", "C:\\> setx MAPS_KEY {}",
    "aes_key = bytes.fromhex('{}')", "token: |\n  {}\n", "$ gh auth token\n{}", "https://x.invalid/t/{}/stable",
    "a=b&code_verifier={}&c=d", "https://x.invalid/reset-password/{}",
]  # fmt: skip


@pytest.mark.parametrize("place", NAMED)
def test_a_random_value_is_covered_however_it_is_named(place: str) -> None:
    value = "5d1f4a6be29c03f7a8b1c4e6" if "fromhex" in place else "q9TdLwRk4mZx7VbN2hJs8Yc"
    redacted(place, value)


@pytest.mark.parametrize(
    "text",
    [
        "'password' => 'required|string|min:8|confirmed',",
        "passphrase: 'must not be blank'",
        "$ docker run -e DB_PASSWORD=$PW app\n9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "--discovery-token-ca-cert-hash sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "le mot de passe est obligatoire; der Schlüssel ist die Bestellnummer",
        "password = settings.db2.password",
        "Use Django4 with a password",
        "user-agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36",
        "https://x.invalid/t/how-to-reset-2fa-on-k8s-v1-29/4821",
        "ffplay rtmp://localhost/live/front-door-camera",
        "rtsp://cam1.invalid:554/stream1/profile2",
    ],
)
def test_what_is_told_of_a_password_and_is_none_stays(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize("text", CLEAN)
def test_what_only_looks_like_it_stays(text: str) -> None:
    generator = random.Random(text)
    for kind in ("hex40", "hex64", "uuid", "base64120"):
        text = text.replace(f"{{{kind}}}", drawn(kind, generator))
    assert redact_text(text) == text


def test_both_halves_of_a_value_that_is_put_together_go() -> None:
    generator = random.Random(3)
    for _ in range(_DRAWN):
        value = drawn("hex32", generator)
        redacted = redact_text(f'api_token = "{value[:16]}" + "{value[16:]}"')
        assert value[:16] not in redacted and value[16:] not in redacted


def test_a_short_password_goes_from_the_whole_session() -> None:
    value = drawn("password", random.Random(4))[:11]
    records = [
        recorded(f"$ sshpass -p {value} ssh a@b", execution_id="a", language="bash"),
        recorded("ls", execution_id="b", execution=executed(stdout=f"denied: {value}\n")),
    ]
    assert redact_sessions([records]) == [[1, 1]]
    assert records[1].stdout == "denied: <PASSWORD:1>\n"


def test_a_value_named_once_goes_from_the_whole_text() -> None:
    value = drawn("hex40", random.Random(5))
    assert value not in redact_text(f"api_key = '{value}'\nprint('{value}')")


def test_an_escape_of_a_string_is_no_part_of_a_value() -> None:
    assert find_secrets("'\\x12\\x35\\n\\nsession_key\\x18\\x11 \\x01(\\x0b\\x32!.pack.hparams.SessionGroup'") == []
