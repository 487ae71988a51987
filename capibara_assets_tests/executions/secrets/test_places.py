"""Secrets told by who takes them, and sentences, files and code with the same words that hold none."""

import pytest

from capibara_assets.executions.secrets.prefilter import may_hold_secrets
from capibara_assets.executions.secrets.redact import redact_text

WORDS = "copper lantern harbor violet anchor meadow puzzle silent orbit tunnel window jacket"
HEX = "9f2c4e81b07d63a5f1e8c92d40b7a6358e1f0c7db29a4635f8d1e07c2b94a6f3"
PLACES = {
    "words of a chat": ("Passwort: {}", "Nebel_Lampe"),
    "words in YAML": ("db:\n  user: app\n  password: {}\n  port: 5432", "quiet.otter.under.ice"),
    "words in an env file": ("SMTP_PASSWORD={}", "Nebel-Lampe"),
    "words in a list": ("- **Password:** `{}`", "Nebel.Lampe"),
    "words in INI": ("[mail]\npassword = {}", "Copper~Lantern"),
    "words and a number in INI": ("[mail]\npassword = {}", "Copper.Lantern7"),
    "words told": ("The wifi password is {}, tell nobody", "quiet-otter-ice"),
    "words told in French": ("Le mot de passe est {}.", "Brume_Lampe"),
    "words told in Spanish": ("la contraseña es {}", "Niebla.Farol"),
    "changed to": ("I just reset the admin password to {} for now", "quiet.otter.ice"),
    "changed to, in German": ("Ich habe das Passwort auf {} geändert", "Nebel_Lampe"),
    "changed to, in Spanish": ("he cambiado la contraseña a {} ayer", "niebla.farol.verde"),
    "a prompt for an address": ("Password for 'https://ann@git.invalid': {}", "quiet-otter-ice"),
    "a prompt for a key": ("Enter passphrase for key '/home/ann/.ssh/id_ed25519': {}", "quiet-otter-ice"),
    "a prompt of sudo": ("[sudo] password for ann: {}", "Nebel_Lampe"),
    "a prompt in German": ("Passwort für ann@host.invalid:22: {}", "Nebel_Lampe"),
    "a value below": ("Password of user ann was reset.\nNew value: {}", "k2Qv*7Lr+9Tm"),
    "a password below": ("Reset the admin password?\nGenerated password: {}", "quiet.otter.ice9"),
    "a spoken passphrase": ('her passphrase for the vault is "{}"', "nine otters under blue ice"),
    "a spoken passphrase, quoted otherwise": ("the passphrase of the backup: “{}”", "nine otters under ice"),
    "a variable with blanks": ("BORG_PASSPHRASE='{}' borg list", "otters & blue ice"),
    "a network with blanks": ('  wpa_psk="{}"', "neun blaue Fähren"),
    "braces of ODBC": ('"Driver={X};Server=db;UID=app;PWD={{}}"'.replace("{{}}", "{" + "{}" + "}"), "ot;ter!9}}x"),
    "a default of Rust": ('let p = env::var("DB_PASSWORD")\n        .unwrap_or("{}".into());', "copper_lantern_19"),
    "a default of JavaScript": ("const p = process.env.DB_PASSWORD ?? '{}'", "copper_lantern_19"),
    "a default of Python": ("p = os.environ.get('DB_PASSWORD') or '{}'", "copper_lantern_19"),
    "a default of Ruby": ('p = ENV["DB_PASSWORD"] || "{}"', "copper_lantern_19"),
    "a default of Kotlin": ('val p = System.getenv("DB_PASSWORD") ?: "{}"', "copper_lantern_19"),
    "a default of Scala": ('sys.env.get("DB_PASSWORD").getOrElse("{}")', "copper_lantern_19"),
    "a default of Go": ('cmp.Or(os.Getenv("DB_PASSWORD"), "{}")', "copper_lantern_19"),
    "outputs": ('{"db_password": {"sensitive": true, "type": "string", "value": "{}"}}', "k2Qv#M-*#+tf1MAOm1"),
    "a default of Terraform": ('variable "db_password" {\n  type = string\n  default = "{}"\n}', "copper-lantern-19"),
    "a secret of an object": ('client_secret: { description: "of the app", value: "{}" }', "q8Zr2LwN5tYc7VbXd1G4hJ6k"),
    "a pair, value first": ('{"value": "{}", "name": "DB_PASSWORD"}', "copper-lantern-19"),
    "an entry": ('<add key="MailGatewayKey"\n     value="{}" />', "ad3880f4180101bbb9b5b22b"),
    "an entry of Java": ('<property name="geoKey" value="{}"/>', "q8Zr2LwN5tYc7VbXd1G4hJ6k"),
    "a secret of a cluster": ("kind: Secret\nmetadata:\n  name: x\nstringData:\n  hmac: {}\n", HEX),
    "the data of a secret": ("kind: Secret\ntype: Opaque\ndata:\n  pepper: {}\n", "azJRdio3THIrOVRtYXg1Yg=="),
    "users and passwords": ('echo "deploy:{}" | sudo chpasswd', "Turm-Glocke"),
    "a password by pipe": ("echo {} | passwd --stdin ann", "turmglocke"),
    "sudo": ("echo '{}' | sudo -S apt update", "turmglocke"),
    "a mount": ("echo '{}' | sshfs -o password_stdin ann@10.0.0.2:/d /mnt", "Nebel.Lampe"),
    "a share, the user first": ("net use Z: \\\\nas\\x /user:CORP\\ann {}", "Turm.Glocke"),
    "a community": ("snmpwalk -v2c -c {} 10.0.0.3 system", "noc_Readers"),
    "a community of a router": ("snmp-server community {} RO", "Lese_Mich"),
    "a community of a daemon": ("rocommunity {} 10.0.0.0/8", "noc_Readers"),
    "a property of Java": ("mvn verify -Dsonar.login={}", HEX[:40]),
    "user, password": ("lftp -u web,{} ftp.invalid", "Nebel.Lampe12"),
    "attached to its flag": ("mysql -u app -p{} shop", "Nebel.Lampe7"),
    "alone at the end": ("machine ftp.invalid login ann password {}", "Nebel.Lampe9"),
    "a file of two lines": ("cat > /etc/vpn/auth.txt <<EOF\nann\n{}\nEOF", "Nebel.Lampe"),
    "a user / a password": ("ssh to 10.4.4.4 with root / {} and look", "Turm*Glocke"),
    "a user / a password, told": ("log in as ann / {}", "quiet.otter.ice"),
    "a session of small letters": ("Cookie: lang=de; sessionid={}; theme=dark", "bhstpvjwv28zqix5t97bihi0xtaiktn7"),
    "a cookie of a library": ('requests.get(u, cookies={"connect.sid": "{}"})', "bhstpvjwv28zqix5t97bihi0xtaiktn7"),
    "a set cookie": ("Set-Cookie: PHPSESSID={}; path=/; HttpOnly", "o1f5kq2m7v9b3c8x4z6n0a5s1d"),
    "a wallet of a network": ('accounts: ["0x{}"]', HEX),
    "a wallet in code": ('new ethers.Wallet("0x{}", provider)', HEX),
    "an address of a node": ("url: 'https://mainnet.infura.io/v3/{}',", HEX[:32]),
    "an address of a node of two parts": ("wss://eth-sepolia.g.alchemy.com/v2/{}", "qwtudcxjaFpX-6qnNDbG9P5RszmxKNbm"),
    "a name in French": ("# ftp\nmdp={}", "GareDuNord1974"),
    "a name in Portuguese": ("palavra_passe: {}", "Nevoa.Farol9"),
    "listed codes below a blank line": ("Recovery codes:\n\n  1. {}\n  2. 51d05-65104\n", "00542-b6420"),
    "codes in columns": ("Deine Backup-Codes (je einmal):\n9524 1242    {}\n4485 7911    8933 9442", "9826 7459"),
    "codes in Spanish": ("Códigos de respaldo:\n{}\n4485-7911", "9826-7459"),
    "codes in French": ("Vos codes de secours :\n- {}\n- k2m4-99xq", "k4t9-x2mv"),
    "a wallet in Spanish": ("frase semilla: {}", "abeja codo faro lino rueda tigre nube cofre pinza dorso gallo búho"),
    "a wallet in French": ("Phrase de récupération : {}", WORDS),
    "a wallet in German": ("Wiederherstellungsphrase: {}", WORDS),
    "a PIN in Spanish": ("El PIN de la alarma es {}.", "90417"),
    "a PIN in German": ("Die PIN lautet {}", "90417"),
    "the code of a door": ("The door code is {}", "90417"),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_what_stands_in_the_place_is_covered_whole(place: str) -> None:
    template, value = PLACES[place]
    text = template.replace("{}", value)
    assert may_hold_secrets([text] * 40) == [True] * 40
    redacted = redact_text(text)
    assert value not in redacted and ":1>" in redacted
    assert redact_text(redacted) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "password: config.mail.smtp.key",
        "password = Settings.Default",
        "password: Not_Required",
        "the password is case-sensitive and never-expires",
        "the password is checked in user.service.login",
        "password: Optional[str] = None",
        "reset the password to continue",
        "changed the password field to a text-only input",
        "Password for 'https://git.invalid': <PASSWORD:1>",
        "Password for the account: see the wiki",
        'passphrase: "must not be empty or too short"',
        'the passphrase for it is "too short"',
        "DB_PASSWORD='enter your password here'",
        'conn = f"Driver=x;UID={user};PWD={password1}"',
        'p = os.environ.get("DB_PASSWORD") or "changeme"',
        'p = os.environ["DB_PASSWORD"]\nname = "copper_lantern_19"',
        '{"password": {"type": "string", "minLength": 8, "description": "value of the field"}}',
        '{"value": "copper-lantern-19", "name": "colour"}',
        '<add key="CacheKey" value="ad3880f4180101bbb9b5b22b" />',
        "kind: Secret\nmetadata:\n  name: x\nstringData:\n  username: ann\n  host: db.internal\n",
        "kind: ConfigMap\ndata:\n  icon: azJRdio3THIrOVRtYXg1Yg==\n",
        'echo "$USER:$PASS" | chpasswd',
        "echo password | sudo -S ls",
        "net use Z: \\\\nas\\x /user:CORP\\ann",
        "snmpwalk -v2c -c public 10.0.0.3 system",
        "snmp-server community public RO",
        "mvn verify -Dmaven.key=plain -Dskip.login=true",
        "ssh -u web,db host",
        "cat > notes.txt <<EOF\nann\nlanterns\nEOF",
        "connect with tcp / http-over-tls and look",
        "Cookie: lang=de; theme=dark; session_length=long",
        'accounts: ["0x52908400098527886E0F7030069857D2E4169EE7"]',
        f"accounts of the block {HEX}",
        f"https://registry.invalid/v2/{HEX[:32]}",
        'PASSWORD_HASHER = "django.contrib.auth.hashers.Argon2PasswordHasher"',
        '<img alt="key" src="data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAABAAAAAQV2Bschfqcq55rUmBYUqeFUKrMz">',
        "Backup keys:\n\n  1. users\n  2. orders\n",
        "Codes de secours :\nimprimez les\n",
        "La frase semilla es una lista de palabras que los usuarios guardan para una copia con otra",
        "el PIN tiene 4 dígitos",
        "The exit code is 90417",
    ],
)
def test_what_only_looks_like_it_stays(text: str) -> None:
    assert redact_text(text) == text
