"""Secrets in commands of chats, headers, encoded objects, rows of logins, lists of keys; and their look-alikes."""

import base64

import pytest

from capibara_assets.executions.secrets.redact import redact_text
from capibara_assets_tests.executions.secrets.places import covered_whole

HEX = "4b7d0c92e8a1f6357c20d94be1a8f653"
UUID = "7c1e0b94-5d2f-4a83-b6c7-91f0e2d3a845"
RANDOM = "w3KdPq8ZtVn5RbLx2HsYc7Jm"
SHORT = "tRk4mZx7VbN2qa"
WORDS = "meadow-lantern-27"
OBJECT = base64.b64encode(b'{"user": "ops", "password": "Meadow#2719abc"}').decode().rstrip("=")
PLACES = {
    "a chat's service": ("/msg NickServ IDENTIFY {}", "meadowlamp"),
    "a chat's service, with the name": ("PRIVMSG NickServ :IDENTIFY ops {}", WORDS),
    "a chat's service, short": ("/ns identify {}", SHORT),
    "a chat's service, as a command": ("/nickserv ghost ops {}", WORDS),
    "registered at a service": ("/msg NickServ REGISTER {} ops@mail.invalid", WORDS),
    "a channel's service": ("/msg ChanServ IDENTIFY #ops {}", WORDS),
    "a network's bot": ("/msg Q@CServe.chat.invalid AUTH ops {}", WORDS),
    "an operator": ("/oper ops {}", WORDS),
    "a game's server": ("[12:04] <ops> /login {}", WORDS),
    "a scheme of its own": ("curl -H 'Authorization: Collector {}' -d '{\"a\": 1}' https://h.invalid", UUID),
    "a scheme in code": ('headers = {"Authorization": "GenieKey {}"}', UUID),
    "a scheme with a name": ("Authorization: HostAPIToken=root@pam!ci={}", UUID),
    "a scheme with a number": ("Authorization: Desk-oauthtoken 1000.{}", HEX),
    "parameters of a scheme": ('Authorization: Player Client="tv", Device="a", Token="{}"', HEX),
    "a pair of a scheme": ("Authorization: sso-key ops:{}", RANDOM),
    "a list of headers": ('TRACE_EXPORTER_HEADERS="x-board-team={},x-board-dataset=web"', RANDOM),
    "a list of headers, last": ("TRACE_HEADERS=x-dataset=web,x-access-token={}", HEX),
    "a list of headers, encoded": ('EXTRA_HEADERS="Authorization=Basic%20{}"', RANDOM),
    "an object of headers": ('headers: { "x-board-team": "{}" }', RANDOM),
    "an option for a header": ("curl -s -H 'x-board: {}' https://h.invalid", RANDOM),
    "an object in a URL": ("GET /in?q=%7B%22user%22%3A%22ops%22%2C%22password%22%3A%22{}%22%7D", RANDOM),
    "an object in a URL with a blank": ("?q=%7b%22db_password%22%3a%20%22{}%22%7d", WORDS),
    "an object in a URL, twice": ("?q=%257B%2522api_key%2522%253A%2522{}%2522%257D", RANDOM),
    "an object in a page": ("<div data-x='{&quot;password&quot;:&quot;{}&quot;}'>", WORDS),
    "an object in a string": ('"{\\u0022password\\u0022:\\u0022{}\\u0022}"', WORDS),
    "a query in a query": ("?next=%2Fin%3Fpassword%3D{}%26lang%3Dde", RANDOM),
    "an object in base64": ("GET /in?state={} HTTP/1.1", OBJECT),
    "a network's key": ("    Security key    : Present\n    Key Content     : {}", "meadowlamp"),
    "a network's key in German": ("    Schlüsselinhalt       : {}", SHORT),
    "a network's key in French": ("    Contenu de la clé     : {}", SHORT),
    "a network's key, told": ("WPA key: {}", WORDS),
    "a drive's recovery": ("Numerical Password:\n  {}", "-".join(f"{n * 7919 % 1000000:06}" for n in range(19, 27))),
    "a licence": ("slmgr /ipk {}", "W3KDP-Q8ZTV-N5RBL-X2HSY-C7JM4"),
    "a licence, listed": ("Product Key   : {}", "W3KDP-Q8ZTV-N5RBL-X2HSY-C7JM4"),
    "an account's hash": ("Ops:1001:aad3b435b51404eeaad3b435b51404ee:{}:::", HEX),
    "a key that is printed": ("$ wg genkey\n{}", "w3KdPq8ZtVn5RbLx2HsYc7JmAw3KdPq8ZtVn5RbLx2E="),
    "an identity": ("# public key: age1qqqq\nAGE-SECRET-KEY-1{}", "W3KDPQ8ZTVN5RSLX2HSYC7JM" * 2 + "AW3KDPQ8ZT"),
    "a signing key": ("untrusted comment: minisign secret key\n{}", "RWRTY0Iy" + RANDOM * 2),
    "a seed": ("nkey seed\n{}", "SU" + "AW3KDPQ6ZTVN5RBLX2HSYC7JM" * 2 + "ABCDEF"),
    "below a comment": ("# password of the monitor\n$USER7$={}", RANDOM),
    "below a comment in code": ("// mail password\nconst M1 = '{}';", SHORT),
    "a token below a comment": ("# token of the bot\nBOT={}", RANDOM),
    "a row of a pool's users": ('"ops" "{}"', RANDOM),
    "behind a client's public half": ("const c = require('sms')('AC4b7d0c92e8a1f6357c20d94be1a8f653', '{}');", HEX),
    "behind a store's public half": ('auth = oss2.Auth("LTAI5tKdPq8ZtVn5RbLx", "{}")', RANDOM),
    "a relay": ("[smtp.relay.invalid]:587   post@mail.invalid:{}", RANDOM),
    "a relay, plain": ("smtp.relay.invalid ops@mail.invalid:{}", WORDS),
    "a relay with a port": ("relay.invalid:587 ops:{}", SHORT),
    "a sender": ("ops@mail.invalid   post@relay.invalid:{}", WORDS),
    "a dial-in": ("ops pptpd {} *", WORDS),
    "a proxy": ("10.4.7.9:8080:ops:{}", WORDS),
    "a login in a block": ("<auth-user-pass>\nops\n{}\n</auth-user-pass>", WORDS),
    "a file of a name and a key": ('{"username": "ops", "key": "{}"}', HEX),
    "a chain of proxies": ("socks5 10.4.7.9 1080 ops {}", WORDS),
    "a store": ("bucket:AKIA" + "Q3EGZ7YTPLM2XWVU:{}", "w3KdPq8ZtVn5RbLx2HsYc7Jm+w3KdPq8ZtVn5RbL"),
    "told with a slash": ("ann: the new login for the box is root / {} , please change it", SHORT),
    "a row behind an address": ("https://x.invalid/dav ann {}", "Lantern@3544FAo"),
    "a row of a pool": ('"ann" "{}"', "Lantern@3544FAo"),
    "told with a bar": ("creds: root | {}", WORDS),
    "told with a comma": ("login: root, {}", SHORT),
    "told with and": ("log in with root and {}.", SHORT),
    "told in letters": ("u: root p: {}", WORDS),
    "told in two letters": ("l/p: root/{}", WORDS),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_what_stands_in_the_place_is_covered_whole(place: str) -> None:
    covered_whole(*PLACES[place])


@pytest.mark.parametrize(
    "text",
    [
        "/msg NickServ IDENTIFY <password>",
        "NickServ: identify to use this nick, then /msg NickServ HELP IDENTIFY",
        "POST /login HTTP/1.1",
        "curl -X POST http://h.invalid/login -d @body.json",
        "router.get('/auth callback')",
        "Authorization: Basic <credentials>",
        "Authorization: Bearer ${TOKEN}",
        "'Authorization': 'Splunk ' + token",
        "Authorization: required for every request",
        "headers = {'User-Agent': 'Mozilla/5.0', 'Accept': 'application/json'}",
        f"headers: traceparent=00-{HEX}-00f067aa0ba902b7-01,x-request-id={UUID}",
        f"-H 'x-request-id: {UUID}' -H 'x-trace-id: {RANDOM}'",
        "?q=%7B%22password%22%3A%22required%22%2C%22name%22%3A%22ops-team-27%22%7D",
        "?q=%7B%22name%22%3A%22meadow-lantern-27%22%7D",
        "?next=%2Fin%3Fpage%3Dmeadow-lantern-27",
        "GET /in?state=" + base64.b64encode(b'{"page": 3, "sort": "name", "filter": "open"}').decode(),
        "    Security key           : Present\n    Key Content            : Absent",
        "Network key: none",
        "Product key: XXXXX-XXXXX-XXXXX-XXXXX-XXXXX",
        "ops:1001:1001:::",
        "# public key: age1w3kdpq8ztvn5rblx2hsyc7jmaw3kdpq8ztvn5rblx2hsyc7jmqw3kdp",
        "$ wg genkey | tee a | wg pubkey\nw3KdPq8ZtVn5RbLx2HsYc7JmAw3KdPq8ZtVn5RbLx2E=",
        "untrusted comment: minisign public key\nRWRTY0Iy" + RANDOM * 2,
        "seed = 42\nnp.random.seed(SEED)",
        "# the password policy\nminimum = meadow-lantern-27",
        "# check the password\nok = verify2(user, given)",
        "# password\nfield = PasswordField2",
        "example.invalid  registry:v2-slim-bookworm",
        "git.invalid git@hub.invalid:acme/meadow-lantern-27",
        "10.4.7.9:8080:80:80",
        "* main pptpd-branch 4b7d0c9 *",
        "log in as root / admin",
        '"appid" "440"\n"name" "Meadow Lantern"',
        "f('SKU', 'meadow-lantern-27')",
        "the login is email / phone",
        "connect to api/v2Users9/list or read/write2disk",
        "login: success, see run-2024-07",
        "user: 7 p: 0.05",
        "cache key: value",
        '{"username": "ops", "key": "value"}',
        "<auth-user-pass>\n/etc/vpn/login.txt",
    ],
)  # fmt: skip
def test_what_only_looks_like_it_stays(text: str) -> None:
    assert redact_text(text) == text
