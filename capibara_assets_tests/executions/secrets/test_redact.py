"""Secrets go, everything else stays: known answers, real logs, hostile text."""

import ast
import json
import random
import string
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from capibara_assets.errors import InputError
from capibara_assets.executions.formats.envelope_reader import Recorded, read_line
from capibara_assets.executions.ingest.ingest import Ingest, ingest, ledger_name
from capibara_assets.executions.secrets import redact
from capibara_assets.executions.secrets.redact import (
    TEXT_LIMIT,
    keyed_digest,
    quarantine_text,
    redact_sessions,
    redact_text,
    redaction_report,
)
from capibara_assets.executions.secrets.rules import find_secrets
from capibara_assets_tests.executions.conftest import NOW, envelope, executed, recorded

FIELDS = ("code", "task", "stdout", "stderr", "result_text", "error_value", "traceback")
HEX = "0123456789abcdef"


def made(alphabet: str, length: int, seed: int = 7) -> str:
    """A made-up value; joined at run time, so that no scanner takes this file for a leak."""
    return "".join(random.Random(seed).choices(alphabet, k=length))


ALNUM = string.ascii_letters + string.digits
TOKENS = {
    "E2B_API_KEY": "e2b" + "_" + made(HEX, 40),
    "ANTHROPIC_API_KEY": "sk-" + "ant-api03-" + made(ALNUM, 90),
    "OPENAI_API_KEY": "sk-" + "proj-" + made(ALNUM, 60),
    "HF_TOKEN": "hf" + "_" + made(string.ascii_letters, 34),
    "GOOGLE_API_KEY": "AI" + "za" + made(ALNUM, 35),
    "GITHUB_TOKEN": "gh" + "p_" + made(ALNUM, 36),
    "AWS_ACCESS_KEY_ID": "AK" + "IA" + made(string.ascii_uppercase + "234567", 16),
    "SLACK_TOKEN": "xox" + "b-123456789012-123456789012-" + made(ALNUM, 24),
    "STRIPE_KEY": "sk" + "_live_" + made(ALNUM, 24),
    "SENDGRID_KEY": "S" + "G." + made(ALNUM, 22) + "." + made(ALNUM, 43),
    "GITLAB_TOKEN": "gl" + "pat-" + made(ALNUM, 20),
    "PYPI_TOKEN": "pypi" + "-AgEIcHlwaS5vcmc" + made(ALNUM, 80),
    "NPM_TOKEN": "npm" + "_" + made(ALNUM, 36),
    "TELEGRAM_TOKEN": "123456789" + ":" + made(ALNUM, 35),
    "AZURE_STORAGE_KEY": "Account" + "Key=" + made(ALNUM, 86) + "==",
    "GROQ_API_KEY": "gs" + "k_" + made(ALNUM, 52),
    "JWT": "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxIn0." + made(ALNUM, 43),
}


@pytest.fixture(scope="module")
def seeded(
    shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Recorded], dict[str, Recorded], list[dict[str, str]]]:
    """The shared list of made-up secrets: records before and after redaction, and what must be gone."""
    out = tmp_path_factory.mktemp("secrets")
    script = shared_data / "experience" / "make_fake_secrets.py"
    subprocess.run([sys.executable, str(script), str(out)], check=True)
    lines = (out / "fake_secrets.jsonl").read_bytes().splitlines()
    before = [read_line(data, NOW) for data in lines if data.strip()]
    after = [read_line(data, NOW) for data in lines if data.strip()]
    sessions: dict[str, list[Recorded]] = defaultdict(list)
    for record in after:
        sessions[record.sandbox_id].append(record)
    for session in sessions.values():
        redact_sessions([session])
    expected = [json.loads(row) for row in (out / "expected.jsonl").read_text().splitlines()]
    return {r.execution_id: r for r in before}, {r.execution_id: r for r in after}, expected


def text_of(record: Recorded) -> str:
    return "\n".join(getattr(record, name) or "" for name in FIELDS)


def test_every_expected_secret_is_gone_from_every_field(
    seeded: tuple[dict[str, Recorded], dict[str, Recorded], list[dict[str, str]]],
) -> None:
    before, after, expected = seeded
    assert len(expected) == 36
    for row in expected:
        value = row["value"]
        assert value in text_of(before[row["execution_id"]])  # the test sees what it is to miss
        assert value not in text_of(after[row["execution_id"]]), row["execution_id"]
        for start in range(0, len(value) - 12, 12):
            if row["kind"] != "DATABASE_URL":  # of which the password alone is secret
                assert value[start : start + 12] not in text_of(after[row["execution_id"]]), row["execution_id"]


def test_what_only_looks_like_a_secret_stays(
    seeded: tuple[dict[str, Recorded], dict[str, Recorded], list[dict[str, str]]],
) -> None:
    before, after, _ = seeded
    harmless = [name for name in before if name.startswith("no-secret-")]
    assert len(harmless) == 7
    assert all(before[name] == after[name] for name in harmless)


def test_the_real_logs_raise_no_false_alarm(real: Ingest) -> None:
    assert int(real.executions["secrets"].sum()) == 0


@pytest.mark.parametrize("kind", TOKENS)
def test_each_provider_in_code_and_output(kind: str) -> None:
    value = TOKENS[kind]
    for text in (
        f'key = "{value}"',
        f"{value}\n",
        f"login failed for {value}.",
        f"{{'k': '{value}'}}",
        f"a:\\n{value}",
    ):
        redacted = redact_text(text)
        assert value not in redacted, text
        assert f"<{kind}:1>" in redacted, text


@pytest.mark.parametrize("extra", ["", "0", "00", None])
def test_a_key_pasted_a_digit_short_or_long_is_a_key(extra: str | None) -> None:
    value = TOKENS["E2B_API_KEY"][:-1] if extra is None else TOKENS["E2B_API_KEY"] + extra
    assert redact_text(f"E2B_API_KEY = '{value}'") == "E2B_API_KEY = '<E2B_API_KEY:1>'"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "postgresql://app:s3cr3t-pa55@db.example.com:5432/app",
            "postgresql://app:<PASSWORD:1>@db.example.com:5432/app",
        ),
        ("mongodb+srv://u:p4ssw0rd1@c0.example.net/x", "mongodb+srv://u:<PASSWORD:1>@c0.example.net/x"),
        ("SECRET_KEY = '" + made(HEX, 64) + "'", "SECRET_KEY = '<SECRET:1>'"),
        ("SECRET_KEY: str = '" + made(HEX, 64) + "'", "SECRET_KEY: str = '<SECRET:1>'"),
        ("export WANDB_API_KEY=" + made(HEX, 40), "export WANDB_API_KEY=<SECRET:1>"),
        (
            "headers = {'Authorization': 'Bearer " + made(ALNUM, 30) + "'}",
            "headers = {'Authorization': 'Bearer <AUTHORIZATION:1>'}",
        ),
        ("-----BEGIN EC PRIVATE " + "KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\nrest", "<PRIVATE_KEY:1>\nrest"),
        ("x = '-----BEGIN PRIVATE " + "KEY-----\\nAAAA'", "x = '<PRIVATE_KEY:1>'"),
    ],
)
def test_secrets_known_by_their_context(text: str, expected: str) -> None:
    assert redact_text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://postgres:postgres@localhost/db",
        "postgresql://{user}:{password}@{host}/db",
        "password = getpass.getpass()",
        "api_key = 'YOUR_API_KEY_GOES_RIGHT_HERE'",
        "api_key = os.environ['OPENAI_API_KEY']",
        "headers = {'Authorization': f'Bearer {token}'}",
        "tokenizer_model = 'claude-3-opus-20240229'",
        "pad_token = '<|end_of_text|>'",
        "uuid = '00000000-0000-4000-8000-000000000000'",
        "sha = '" + made(HEX, 64) + "'",
        "mail('user@example.com')",
        "AKIA = 'prefix only'",
        "https://example.com/a/b?token=abc",
        "nl -ba core/serializers/xml_serializer.py | sed -n '148,164p'",
        "cat lib/hmac.rb | grep -n 'to_dict2'",
        "   453\t        pass\n   457\t        raise Http404_2",
        "AATAA\nACCAGCCAGCCGGAAGGGCCGAGCGCAGAAGTGG",
        '{"gpt-tokenizer": "^2.1.2",\n    "i18next": "^23.7.16"}',
    ],
)
def test_no_false_alarm(text: str) -> None:
    assert redact_text(text) == text


def session() -> list[Recorded]:
    first, second = TOKENS["E2B_API_KEY"], "e2b" + "_" + made(HEX, 40, seed=8)
    return [
        recorded(
            f"a = '{first}'",
            execution_id="b",
            timestamp="2026-10-05T00:00:00Z",
            execution=executed(stdout=f"{second}\n{first}\n"),
        ),
        recorded(f"b = '{second}'", execution_id="a", timestamp="2026-10-05T00:00:01Z"),
    ]


def test_placeholders_are_numbered_by_time_whatever_the_order() -> None:
    forward, backward = session(), session()[::-1]
    assert redact_sessions([forward]) == [[3, 1]]
    assert redact_sessions([backward]) == [[1, 3]]
    assert forward == backward[::-1]
    assert forward[0].code == "a = '<E2B_API_KEY:1>'"
    assert forward[0].stdout == "<E2B_API_KEY:2>\n<E2B_API_KEY:1>\n"
    assert forward[1].code == "b = '<E2B_API_KEY:2>'"


def test_a_value_known_from_one_execution_goes_from_all_of_the_sandbox() -> None:
    value = made(ALNUM, 40)
    records = [
        recorded(f"AWS_SECRET_ACCESS_KEY = '{value}'", execution_id="a"),
        recorded(
            "connect()",
            execution_id="b",
            execution=executed(error=("Error", f"denied: {value}!", f"Error: denied: {value}!")),
        ),
    ]
    redact_sessions([records])
    assert records[1].error_value == "denied: <AWS_SECRET_ACCESS_KEY:1>!"


def test_a_secret_split_over_chunks_is_one() -> None:
    value = TOKENS["GITHUB_TOKEN"]
    logs = {"stdout": [value[:15], value[15:] + "\n"], "stderr": []}
    record = recorded(execution={"results": [], "logs": logs})
    redact_sessions([[record]])
    assert record.stdout == "<GITHUB_TOKEN:1>\n"


def test_code_that_parsed_still_parses() -> None:
    for code in (
        f"key = {TOKENS['E2B_API_KEY']}",
        f"{TOKENS['GITHUB_TOKEN']} = 1",
        f'f("{TOKENS["JWT"]}", b"{TOKENS["HF_TOKEN"]}")',
    ):
        record = recorded(code)
        redact_sessions([[record]])
        ast.parse(record.code)
        assert not any(value in record.code for value in TOKENS.values())


@given(
    st.lists(
        st.sampled_from(
            [*TOKENS.values(), "\n", " = ", '"', "x", "password='", "AKIA", "e2b_", "-----BEGIN PRIVATE " + "KEY-----"]
        ),
        max_size=12,
    )
)
@example([TOKENS["E2B_API_KEY"], "\n", TOKENS["GITLAB_TOKEN"], TOKENS["E2B_API_KEY"]])
def test_redacting_twice_changes_nothing_more(parts: list[str]) -> None:
    once = redact_text("".join(parts))
    assert redact_text(once) == once


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(TOKENS)), st.text(alphabet=" \n,;()'\"", min_size=1, max_size=4)),
        min_size=1,
        max_size=5,
    )
)
def test_no_seeded_token_survives(pairs: list[tuple[str, str]]) -> None:
    redacted = redact_text("".join(TOKENS[name] + gap for name, gap in pairs))
    assert not any(TOKENS[name] in redacted for name, _ in pairs)


@pytest.mark.parametrize(
    "unit",
    [
        *("eyJ", "sk-", "secret_", 'key="', "x://a:b", "-----BEGIN PRIVATE " + "KEY-----", "aws secret", "1", "a" * 50),
        *("123456-", "0-", "AIzaA1", "pa--", "AKIA" + "Q7W3E5R8T1Y2U4I6", "0123456789abcdef" * 2 + "-us1"),
    ],
)
def test_hostile_text_costs_linear_time(unit: str) -> None:
    def seconds(length: int) -> float:
        started = time.process_time()
        find_secrets(unit * (length // len(unit)) + "T3BlbkFJ")
        return time.process_time() - started

    # four times as long is what quadratic time would take; a neighbour on the same core costs processor time, too
    assert any(seconds(30_000) < 3 * seconds(15_000) + 0.025 for _ in range(3))


def test_quarantined_text_is_redacted_before_it_is_cut() -> None:
    value = TOKENS["E2B_API_KEY"].encode()
    for offset in range(-len(value), 5, 12):
        text = quarantine_text(b"." * (TEXT_LIMIT + offset) + value + b" \xff" * 100)
        assert len(text.encode()) <= TEXT_LIMIT
        assert value[:12].decode() not in text


@pytest.mark.parametrize("length", [300 << 10, 8 << 20])
def test_of_a_long_damaged_text_a_head_is_searched(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    value, searched = TOKENS["E2B_API_KEY"], list[int]()
    found = redact.find_secrets
    monkeypatch.setattr(redact, "find_secrets", lambda text, **more: searched.append(len(text)) or found(text, **more))
    text = f"a {value} " + "x y " * (TEXT_LIMIT // 4) + f" {value}"
    kept = quarantine_text(text.encode().ljust(length))
    assert kept.startswith("a <E2B_API_KEY:1> x y x y ") and len(kept) == TEXT_LIMIT
    assert sum(searched) <= 300 << 10
    # a shorter one is searched whole: what only its end shows to be a secret is replaced at its beginning, too
    password = made(ALNUM, 20)
    assert password not in quarantine_text(f"{password} {'x y ' * 30_000} password='{password}'".encode())


def test_no_part_of_a_key_that_the_head_cuts_is_kept() -> None:
    key = "-----BEGIN RSA PRIVATE " + "KEY-----\nProc-Type: 4,ENCRYPTED\n\n" + "Qm9keQ4" * 400 + "\n"
    whole = key + "-----END RSA PRIVATE " + "KEY-----\n"
    for shift in range(0, len(whole), 97):  # so many keys that less is kept than the limit
        text = quarantine_text((" " * shift + whole * 100).encode())
        assert "Qm9keQ4" not in text and text.count("<PRIVATE_KEY") > 60


def test_known_values_in_one_text_are_replaced_wherever_they_stand() -> None:
    values = [made(ALNUM, 20, seed) for seed in range(40)]
    text = " ".join(values) + "".join(f"\npassword = '{value}'" for value in values)
    plain = redact_text(text)
    assert not any(value in plain for value in values) and plain.count("<") == 80


def test_the_digest_depends_on_the_deployments_key(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = keyed_digest(b"line")
    monkeypatch.setenv("CAPIBARA_DIGEST_KEY", "other")
    assert keyed_digest(b"line") != plain
    assert keyed_digest(b"line") == keyed_digest(b"line")


def test_the_report_counts_by_kind_and_cannot_hold_a_secret(ingest_lines: Callable[..., Ingest]) -> None:
    first, second = TOKENS["E2B_API_KEY"], TOKENS["GITHUB_TOKEN"]
    ingest = ingest_lines(
        envelope(f"a = '{first}'", execution_id="a", execution=executed(stdout=f"{first}\n{second}\n")),
        envelope(f"b = '{first}'  # <NOT_OURS:1>", execution_id="b", sandbox_id="other"),
        envelope("c = '<NOT_OURS:1>'", execution_id="c"),
    )
    report = redaction_report(ingest.executions)
    assert report.rows() == [("E2B_API_KEY", 3, 2, 2), ("GITHUB_TOKEN", 1, 1, 1)]
    assert ingest.summary["secrets_by_kind"] == {
        "E2B_API_KEY": {"places": 3, "values": 2, "sandboxes": 2},
        "GITHUB_TOKEN": {"places": 1, "values": 1, "sandboxes": 1},
    }
    everything = json.dumps([ingest.executions.write_json(), ingest.summary, report.write_json()])
    assert first[:12] not in everything and second[:12] not in everything


PERSONAL = "mail ada@example.com from 203.0.113.77 or 2001:db9::8a2e:370:7334"


@pytest.mark.parametrize(
    ("also", "expected"),
    [
        ((), PERSONAL),
        (("email",), "mail <EMAIL:1> from 203.0.113.77 or 2001:db9::8a2e:370:7334"),
        (("ip",), "mail ada@example.com from <IP:1> or <IP:2>"),
        (("email", "ip"), "mail <EMAIL:1> from <IP:1> or <IP:2>"),
    ],
)
def test_personal_data_goes_where_it_is_asked_for(also: tuple[str, ...], expected: str) -> None:
    for copies in (1, 100):  # looked at one by one, and behind the gate
        records = [recorded(f"print({PERSONAL!r})", execution_id=f"{i:03}") for i in range(copies)]
        redact_sessions([records], also)
        assert {record.code for record in records} == {f"print({expected!r})"}


@pytest.mark.parametrize(
    "text", ["version 1.2.3.4.5", "127.0.0.1", "0.0.0.0", "x[::2]", "a::b", "12:30:45", "@decorator.name", "999.1.1.1"]
)
def test_what_only_looks_personal_stays(text: str) -> None:
    record = recorded(text, language="text")
    redact_sessions([[record]], ("email", "ip"))
    assert record.code == text


def test_an_unknown_sort_of_personal_data_is_refused() -> None:
    with pytest.raises(InputError, match="phone"):
        redact_sessions([[recorded()]], ("phone",))


def test_a_deployment_may_redact_personal_data_too(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(json.dumps(envelope("mail('ada@example.com')")) + "\n")
    for also, code in (((), "mail('ada@example.com')"), (("email",), "mail('<EMAIL:1>')")):
        ledger = tmp_path / ".ledgers" / ledger_name(tmp_path, also)
        with ingest(tmp_path, now=NOW, ledger=ledger, also=also) as tables:
            assert tables.load().executions["code"].to_list() == [code]
    with pytest.raises(InputError, match="phone"), ingest(tmp_path, now=NOW, also=("phone",)):
        pass
