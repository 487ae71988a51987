"""Secrets by their place behind a user, a verb or a keyword, in all shapes that passwords have, and what stays."""

import random
import string

import pytest

from capibara_assets.executions.secrets.plausibility import chosen_password
from capibara_assets.executions.secrets.redact import redact_text
from capibara_assets_tests.executions.secrets.places import covered_whole

PLACES = {
    "a verb of passwords": ("$ brokerctl change_password ann {}", "turmglocke7"),
    "a verb behind the user's word": ("$ boardctl user set password 2 {}", "Turm7glocke"),
    "a verb behind a colon": ("$ shop user:password ann '{}'", "Turm!7glocke"),
    "a user that is made": ("./admin.py user create ann {} staff", "Turm7glocke"),
    "a flag in front of an argument": ("$ backup -user OWNER -password {} shop.db", "turmglocke7"),
    "a flag in front of the next line": ("pool add --password {} \\\n  --name a", "wqZLKmxbTfGhP"),
    "the letter behind a user's": ("sh 'registry login -u ann -p {}'", "turmglocke7"),
    "a letter alone": ("dnsadmin -a -p {}", "Turm!7glocke"),
    "the dialler": ('rasdial "Office" ann {}', "turmglocke7"),
    "a repository's login": ("poetry config http-basic.shop ann {}", "turmglocke7"),
    "a digest": ("addauth digest ann:{}", "turmglocke7"),
    "a driver of Java": ('driver(uri, Auth.basic("ann", "{}"))', "turmglocke17"),
    "a request of Perl": ("$request->authorization_basic('ann', '{}');", "turmglocke17"),
    "a queue's client": ('client.user_pw_set("sensor", "{}")', "Turm7glocke"),
    "another's password": ("db.changeUserPassword('ann', '{}')", "Turm7glocke"),
    "a connection of DB2": ("CONNECT TO SHOP USER ann USING {}", "turmglocke7"),
    "another server": ("OPENROWSET('PROV', 'srv';'ann';'{}', 'SELECT 1')", "turmglocke7"),
    "a credential": ("CREATE CREDENTIAL c WITH IDENTITY = 'ann', SECRET = '{}'", "turmglocke17"),
    "a link": ("CREATE LINK l CONNECT TO ann IDENTIFIED BY {} USING 'x'", "turmglocke7"),
    "a database's client": ("sqlplus SHOP/{}@db1:1521/X @fix.sql", "turmglocke7"),
    "a router's key": ("key-chain bgp1 key 1 key-string {}", "turmglocke19"),
    "a directory's daemon": ("binddn cn=a,dc=x\nbindpw {}", "turmglocke19"),
    "a stream's settings": ("streamsecretwrite={}", "Turm!7glocke"),
    "a wireless network": ("uci set wireless.net0.key='{}'", "turmglocke7"),
    "no place at all": ("he said {} on the phone", "Turmglocke!4711x"),
    "no place, behind a name": ("Ann:, {} or the other", "Turmglocke!4711x"),
    "no place, in quotes": ("for example `{}`", "Turmglocke2024!"),
    "a domain's user": ("rpcclient -U 'CORP\\ann%{}' dc1", "Turm7glocke"),
}
CLEAN = [
    "ALTER TABLE users ADD COLUMN password_hash VARCHAR(255) NOT NULL;",
    "ALTER TABLE accounts ADD COLUMN token binary(16) NOT NULL, ADD pin numeric(10,2) NULL",
    "ALTER TABLE users ADD pass VARCHAR2(60) DEFAULT NULL;",
    "$ python -u train.py -p profile-2024",
    "$ ctl user create ann staff --quiet",
    "db.changeUserPassword(user, password)",
    "client.user_pw_set(username, password)",
    "CONNECT TO shop USER ann USING ?",
    "key-string must be set before bgp starts",
    "bindpw is read from a file",
    "secretName: shop-tls-2024",
    "SELECT 'a';'b';'c'",
    "docker run -u root -p 8080:80 shop",
    "Auth.basic('ann', 'password')",
    "see Issue#1234 and Room 1234!",
    "the default is Password@123, or Admin@1234",
    "Welcome to Summer2024!",
    "kernel32!CreateFileA, Sheet1!A1, Name%20With%20Blanks, /wiki/Anna%204711",
    "mail Anna@1234.example.org",
    "letters('Nice42Tea@:, Milk@731Cups') gives 'Nice42TeaMilk731Cups'",
    "letters('Nice42Tea#, Milk@731Cups')",
]


@pytest.mark.parametrize("place", PLACES)
def test_what_takes_a_secret_by_its_place_is_covered(place: str) -> None:
    covered_whole(*PLACES[place])


@pytest.mark.parametrize("text", CLEAN)
def test_lines_of_the_same_words_stay(text: str) -> None:
    assert redact_text(text) == text


def generated(shape: str, chance: random.Random) -> str:
    """A password of a shape: `a` for a letter, `x` for a letter or digit, `#` for a sign, else itself."""
    sorts = {"a": string.ascii_letters, "x": string.ascii_letters + string.digits, "#": "!#%^*?+~"}
    return "".join(chance.choice(sorts.get(sign, sign)) for sign in shape)


@pytest.mark.parametrize(
    ("shape", "least"),
    [("x" * 16, 0.99), ("aaaaaa#aaaaaa#", 0.93), ("xxxxx.xxxxx-xxx", 0.88), ("%xxxxxxxxxxxx!", 0.85),
     ("xxxxx-xxxxx_xxx", 0.95), ("#xxxxxxxxxxxxx", 0.8)],
)  # fmt: skip
def test_no_shape_of_generated_passwords_hides_them(shape: str, least: float) -> None:
    chance = random.Random(11)
    drawn = [generated(shape, chance) for _ in range(300)]
    assert sum(map(chosen_password, drawn)) >= least * len(drawn)


@pytest.mark.parametrize(
    "name",
    [
        "getHTTPUrl",
        "Foo#bar",
        "user@Host",
        "Invalid!",
        "Required.",
        "path/To/aFile",
        "%Name%",
        "a=b&c=D",
        "%s!",
        "*args",
    ],
)
def test_names_words_and_templates_are_no_passwords(name: str) -> None:
    assert not chosen_password(name)


COMMANDS = {
    "an account behind a host": ("ejabberdctl register ann chat.example.org {}", "oboe-willow-bramble-ember"),
    "an account of a broker": ("$ emqxctl admins add ann '{}'", "1818Tulipe"),
    "through several programs": ("yes '{}' | head -2 | smbpasswd -s -a ann", "rocket-gadget-coral-tundra"),
    "a pool that is unlocked": ("echo '{}' | zfs load-key tank/home", "igloo-puddle-harbor-lizard"),
    "apart from its format": ("printf 'ann:Realm:%s' '{}' | md5sum", "nMBgLY0jAayFFXKF"),
    "two lines of a file": ("printf '%s\\n%s\\n' ann '{}' > /etc/vpn/auth.txt", "nectar-beacon-hammock"),
    "a line that is appended": ('echo "db.example.org:5432:*:ann:{}" >> ~/.pgpass', "JLQmBDuY4sJzMHuUOe"),
    "a history that is cleaned": ("echo '{}==>REMOVED' >> replace.txt", "HgbvNRlXZZPUrujDRI3J0Wc5"),
    "a digest that lets in": ("evil-winrm -i 10.0.0.7 -u ann -H {}", "bcced7bf6071e6951ec428265036ad26"),
    "what encrypts": ("steghide embed -cf a.jpg -ef b.txt -p {}", "1208Farfalla"),
    "a document": ("qpdf --encrypt '{}' '' 256 -- in.pdf out.pdf", "pillow-puddle-indigo-violin"),
    "a root of CVS": ("cvs -d :pserver:ann:{}@cvs.example.org:/root login", "kPbbDeMfaiHV"),
    "an edit": ("xmlstarlet ed -u '//server/@password' -v '{}' a.xml", "hirondelle.morze751"),
    "a variable of a notebook": ("%env MAIL_PASSWORD={}", "JulmnsoosVXjaogs"),
    "a variable of csh": ("setenv MAIL_PW {}", "Thicket_Coral31"),
}


@pytest.mark.parametrize(("template", "value"), COMMANDS.values(), ids=COMMANDS)
def test_arguments_of_commands(template: str, value: str) -> None:
    covered_whole(template, value)


@pytest.mark.parametrize(
    "text",
    [
        "$ shopctl users add ann --role admin",
        "yes | head -2 | smbpasswd -h",
        "echo 'done' | tee log.txt",
        "printf '%s\\n%s\\n' first second > list.txt",
        "printf 'total:%d' 12",
        "echo 'db.example.org:5432:open' >> hosts.txt",
        "ab -n 100 -H Accept:text/html http://localhost/",
        "steghide info a.jpg",
        "qpdf --check in.pdf",
        ":pserver:anonymous@cvs.example.org:/root",
        "xmlstarlet ed -u '//server/@port' -v '8080' a.xml",
        "%env MAIL_HOST=smtp.example.org",
        "setenv EDITOR vim",
    ],
)
def test_arguments_that_are_no_secrets_stay(text: str) -> None:
    assert redact_text(text) == text
