"""A value between quotes, or to its line's end, ends there, whatever signs it holds; code and templates stay."""

import random
import re

import pytest

from capibara_assets.executions.secrets.levelled import MAY_BE_LEVELLED, levelled, levelled_as_told
from capibara_assets.executions.secrets.prefilter import may_hold_secrets
from capibara_assets.executions.secrets.redact import redact_text
from capibara_assets_tests.executions.secrets.places import redacted

SIGNS = "&()<>|;,{}[]-"
PLACES = (
    "sshpass -p '{}' ssh deploy@10.0.0.4 uptime",
    "redis-cli -h cache -a '{}' PING",
    "echo '{}' | docker login registry.example.com -u ci --password-stdin",
    "echo 'db1:5432:shop:admin:{}' >> ~/.pgpass",
    "7z x backup.7z '-p{}' -oout",
    "export DB_PW='{}'",
    "mosquitto_pub -h broker -u dev -P '{}' -t t -m hi",
    "terraform apply -var='rds_master_password={}'",
    "DB_HOST=db\nDB_PASSWORD={}\nDB_PORT=5432",
    "requirepass {}\nmaxmemory 2gb",
)


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("place", PLACES)
def test_no_sign_ends_a_value_before_its_quotes_do(place: str, sign: str) -> None:
    redacted(place, f"Qzk4Wd7{sign}m3Lc8x4")


@pytest.mark.parametrize(
    "text",
    [
        "parser.add_argument('-p', default='a|b1|C2')",
        'password = f"{user.Name1}:{cfg.Pass2}"',
        'export DB_PASSWORD="$(cat /run/secrets/Db1.txt)"',
        "mysql -u root -p'<PASSWORD1>' shop",
        'password: "{{ vault.Db1Password }}"',
        'header = "Id,UserName,Password,Col1,Col2"',
        "auth = 'Optional<Token2,Int32>'",
        "curl 'https://api.example.com/login?User1=a&Page2=b&next=C3d'",
        "account_range = 'A1:C20,E5:G9'",
        "raise AuthError('E401,Login;Retry2')",
        "session.get(url, params={'q':'Name1,Id2;Sort3'})",
        "for key in model.X509PublicKey):",
        "session=v4; HttpOnly; Max-Age=637",
        "DATABASE=Server=tcp:db.internal,1433;User=app;Encrypt=Yes1No",
    ],
)
def test_code_and_templates_between_quotes_stay(text: str) -> None:
    assert redact_text(text) == text


def test_a_view_is_as_long_as_its_text_and_the_prefilter_tells_of_each() -> None:
    draw = random.Random(1)
    alphabet = "abcXYZ0189" + "&()<>|;,{}[]:=+~_-$\\. '\"`\n"
    texts = ["".join(draw.choices(alphabet, k=60)) for _ in range(3000)]
    texts += [f"login -p '{''.join(draw.choices(alphabet[:-4], k=16))}' x" for _ in range(3000)]
    changed = [text for text in texts if levelled(text) != text]
    assert len(changed) > 10
    assert all(len(levelled(text)) == len(text) for text in changed)
    found = [text for text in changed if redact_text(text) != text]
    suspected = may_hold_secrets([*found, *["x = 1"] * 128])
    assert all(suspected[: len(found)])


@pytest.mark.parametrize(
    ("text", "view"),
    [
        ("rar x -pMañana_24! a.rar", "rar x -pManana^24! a.rar"),
        ("Kennwort: Straßenbahn-1592?", "Kennwort: Straaenbahn-1592?"),
        ("пароль: Зима-2024", "пароль: Aaaa-2024"),
        ("show\nfYL9Tjf5y[QoFpKo3S\n", "show\nfYL9Tjf5y^QoFpKo3S\n"),
        ("  t -P 3mAf(Y4Kx9vcn -n", "  t -P 3mAf^Y4Kx9vcn -n"),
        ("the word is 3mAf(Y4Kx9vcn today", "the word is 3mAf^Y4Kx9vcn today"),
        ("<pw>3mAf;Y4Kx9vcn</pw>", "<pw>3mAf^Y4Kx9vcn</pw>"),
        ("Größe: 12 µm, α=0.05, Zürich-West", "Größe: 12 µm, α=0.05, Zürich-West"),
        ("dbPassword=Foo\nf3Bar(x2Yz)", "dbPassword=Foo\nf3Bar(x2Yz)"),
    ],
)
def test_letters_lines_of_their_own_and_values_in_a_line(text: str, view: str) -> None:
    assert levelled(text) == view
    told = [number for number, pattern in enumerate(MAY_BE_LEVELLED) if re.search(pattern, text, re.MULTILINE)]
    assert levelled_as_told(text, told) == view


def test_the_view_of_the_patterns_that_a_text_holds_is_its_view() -> None:
    draw = random.Random(8)
    alphabet = "abcXYZ0189éß" + "&()<>|;,{}[]:=+~_-$\\. '\"`\n"
    texts = ["".join(draw.choices(alphabet, k=60)) for _ in range(4000)]
    texts += [f"t -p {''.join(draw.choices(alphabet[:-5], k=14))} x\n" for _ in range(3000)]
    texts += [f"is {''.join(draw.choices(alphabet[:-5], k=14))}\n" for _ in range(3000)]
    for text in texts:
        told = [number for number, pattern in enumerate(MAY_BE_LEVELLED) if re.search(pattern, text, re.MULTILINE)]
        assert levelled_as_told(text, told) == levelled(text)


@pytest.mark.parametrize(("value", "asked"), [("total_12b[rows_204", False), ("Total_12b[rows_204", True)])
def test_what_has_no_capital_is_not_asked_for_its_view(value: str, asked: bool) -> None:
    """Half of the lines of code end in letters around digits; a value that is levelled has a capital, too."""
    text = f"plain = 1\nrows = {value}\nplain = 2"
    assert any(re.search(pattern, text) for pattern in MAY_BE_LEVELLED) is asked


def test_every_line_that_ends_in_a_levelled_value_is_told_of() -> None:
    draw = random.Random(4)
    signs, words = "abcdXYZW0123456789&(<|;,:=^-_", ("Abcd", "Tulip", "Harbour", "xY", "ab")
    texts = [f"x = {''.join(draw.choices(signs, k=draw.randint(8, 24)))}\n" for _ in range(3000)]
    texts += [f"pw: {draw.choice(words)}{draw.choice('&(|;,:=<[')}{draw.randint(10, 99999)}Qz)" for _ in range(3000)]
    changed = [text for text in texts if levelled(text) != text]
    assert len(changed) > 1000
    assert [text for text in changed if not any(re.search(p, text, re.MULTILINE) for p in MAY_BE_LEVELLED)] == []
