"""Passwords as languages, dumps and consoles write them, and what is written so and is none."""

import pytest

from capibara_assets.executions.secrets.redact import redact_text
from capibara_assets_tests.executions.secrets.places import covered_whole

WORDS, MIXED = "copper-lantern-19", "Gh7kQ2xV9pL0tR"
PLACES = {
    "a dump of Go": ('(main.Login) {\n User: (string) (len=4) "root",\n Pass: (string) (len=17) "{}"\n}', WORDS),
    "serialised PHP": ('a:1:{s:8:"password";s:17:"{}";}', WORDS),
    "a debugger's struct": ('(gdb) p cfg\n$3 = {user = 0x55d0 "root", password = 0x55e0 "{}"}', WORDS),
    "a debugger's string": ('(gdb) x/s cfg->password\n0x5581c0:\t"{}"', WORDS),
    "a debugger of Python": ("(Pdb) p self.password\n'{}'", WORDS),
    "a binary of Erlang": ('{default_pass, <<"{}">>}', WORDS),
    "quotes of Perl": ("my %conf = (user => q(root), pass => q({}));", WORDS),
    "an array of a shell": ("declare -A PW=([web1]='{}' [web2]=\"$OTHER\")", WORDS),
    "a constant of Basic": ('Const LOGIN_PWD As String = "{}"', WORDS),
    "a constant of COBOL": ('05 WS-DB-PASSWORD PIC X(20) VALUE "{}".', WORDS),
    "a secret of Rust": ('let db_password = Secret::new("{}".to_string());', WORDS),
    "a planned change": ('      ~ password = "old" -> "{}"', WORDS),
    "three quotes": ("admin_password = '''{}'''", WORDS),
    "an object of Jsonnet": ("local db = { user:: 'app', password:: '{}' };", WORDS),
    "a continued property": ("ssl.keystore.password=\\\n    {}", WORDS),
    "CDATA": ("<credentials><login>edi</login><secret><![CDATA[{}]]></secret></credentials>", WORDS),
    "a member of XML-RPC": ("<name>password</name><value><string>{}</string></value>", WORDS),
    "an encoder that does nothing": ('User.withUsername("a").password("{noop}{}").roles("ADMIN")', WORDS),
    "a diff by words": ("DB_PASSWORD=[-{}-]{+$(cat /run/secrets/db)+}", WORDS),
    "one of two": ("const dbPassword = isProd ? '{}' : process.env.DEV_PW;", WORDS),
    "a template's default": ('value: {{ .Values.db.password | default "{}" | quote }}', WORDS),
    "an annotation's default": ('@Value("${ldap.bind.password:{}}")', MIXED),
    "arguments line by line": ('args:\n- "--username"\n- "svc"\n- "--password"\n- "{}"', WORDS),
    "arguments in a list": ('command: ["redis-server", "--requirepass", "{}", "--appendonly", "yes"]', WORDS),
    "a list that is traced": ('execve("/usr/bin/mysql", ["mysql", "-uroot", "-p{}"], 0x7ffd /* 23 vars */) = 0', WORDS),
    "an object of Lombok": ("LoginRequest(username=jsmith, password={}, rememberMe=true)", WORDS),
    "arguments behind a connection string": (
        'cn.Open "Provider=SQLOLEDB;Data Source=SQL02;Initial Catalog=Stock;", "xl_reader", "{}"', WORDS
    ),
    "arguments behind a URL of JDBC": ('DriverManager.getConnection("jdbc:h2:mem:crm", "sa", "{}")', WORDS),
    "a record of C#": ("DbOptions { Host = sql01, User = sa, Password = {}, Timeout = 30 }", WORDS),
    "a comment behind": ('case "production": return "{}"; // db password', WORDS),
    "a comment that says which key it is": (
        "const client = search('7QX2LMB9TD', '{}'); // admin key", "9f86d081884c7d659a2feaa0c55ad015"
    ),
    "pieces that are joined": ('admin_password = join("", ["Gh7kQ2", "{}"])', "xV9pL0tR"),
    "brackets behind": ("fix: hardcode db password ({}) until vault is back", WORDS),
    "brackets with a word": ('- rotate the backup passphrase (currently "{}") by Friday', WORDS),
    "before what it is": ("{} is the password for the backup server", WORDS),
    "quoted before what it is": ("log in as `qa-lead` with `{}` (real prod password)", WORDS),
    "said with an aside": ("so the password, all lower case, is {}, got that?", WORDS),
    "a remote table": ("SELECT * FROM mysql('db1:3306', 'shop', 'orders', 'ro', '{}')", WORDS),
    "a logon": (".LOGON tdprod/etl_user,{};", WORDS),
    "a request with a login": ('xhr.open("POST", "/admin/reload", true, "opsadmin", "{}");', WORDS),
    "twice, as it is asked for": ("printf '%s\\n%s\\n' '{}' '{}' | passwd deploy", WORDS),
    "a key typed by hand": ("Enter this key in your authenticator app: {}", "JBSWY3DPEHPK3PXP"),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_what_is_written_behind_its_name_is_covered_whole(place: str) -> None:
    covered_whole(*PLACES[place])


@pytest.mark.parametrize(
    "text",
    [
        'Pass: (string) (len=8) "required"',
        's:8:"password";s:11:"placeholder";',
        "connect(user=name, password=db_password, host=host1)",
        "Settings(password=self.config.value1)",
        "const pw = given ? 'required' : 'optional';",
        'password: {{ .Values.db.password | default "changeme" }}',
        "@Value(\"${ldap.bind.password:#{null}}\")",
        'parser.add_argument("--password", "-p", help="as in step2")',
        '["--password", "PASSWORD_FILE"]',
        '"a" -u1 "-print0"',
        'x = "step12ab"  # no pass here',
        'sha = "9f86d081884c7d659a2feaa0c55ad015"  # the digest of the file',
        '{"Key": "reports/q1.pdf", "VersionId": "Kx7vP2mQ9rT4wZaB3nL8cD5eF6gH1jSu", "IsLatest": true}',
        'names = ["alpha1", "beta2"]  # bypass',
        "the password (see section 4) is kept in the vault",
        "Python3 is the language",
        "`id_rsa.pub` (no password)",
        "the passwords, both of them, are in the vault",
        "xhr.open('GET', '/api/items', true);",
        "echo 'done' | passwd --stdin",
        "Open your authenticator app: enter the code",
        "<name>password</name><value><string>required</string></value>",
        "password.label=Password:\npassword.confirm=Confirm password:\npassword.reset.title=Reset your password",
        'DriverManager.getConnection("jdbc:h2:mem:crm", user, "required")',
    ],
)  # fmt: skip
def test_what_is_written_so_and_is_none_stays(text: str) -> None:
    assert redact_text(text) == text
