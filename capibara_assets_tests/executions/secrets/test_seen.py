"""A value that was redacted once is found wherever it stands, by keyed digests that hold no value."""

import json

import polars as pl
import pytest

from capibara_assets.executions.secrets.gate import held_back
from capibara_assets.executions.secrets.seen import SeenSecrets, kept_parts, seen_rows

KEY = b"a key"
VALUE = "kT9x2LmQ8vR4wZ7p"
OTHER = "q8Zw3Jt5Lr7Hy.Vx2NdPq"


@pytest.fixture
def seen() -> SeenSecrets:
    return SeenSecrets.of(seen_rows([(VALUE, "API_KEY"), (OTHER, "SECRET")], KEY), KEY)


@pytest.mark.parametrize(
    "text",
    [
        VALUE,
        f"Use {VALUE}.",
        f"password={VALUE}&next=1",
        f"https://me:{VALUE}@host/path",
        f'{{"a": "x\\n{VALUE}\\n"}}',
        json.dumps(f"é\n{VALUE}\t"),
        f"(`{VALUE}`)",
        f"a/{VALUE}/b",
        f"header.{VALUE}.signature",
    ],
)
def test_found_where_it_stands_between_others(seen: SeenSecrets, text: str) -> None:
    (secret,) = seen.find(text)
    assert text[secret.start : secret.end] == VALUE and secret.kind == "API_KEY"
    assert VALUE not in seen.replaced(text) and "<API_KEY:0>" in seen.replaced(text)
    assert seen.holding(pl.Series([text, None, "nothing of it"])).to_list() == [True, False, False]


def test_two_values_in_one_run_are_both_replaced(seen: SeenSecrets) -> None:
    assert seen.replaced(f"{VALUE}:{OTHER}@{VALUE}") == "<API_KEY:0>:<SECRET:0>@<API_KEY:0>"


@pytest.mark.parametrize("text", [f"x{VALUE}", VALUE[:-1], VALUE.lower(), "kT9x2LmQ8vR4wZ7q", "", "word " * 20])
def test_nothing_else_is(seen: SeenSecrets, text: str) -> None:
    assert seen.find(text) == [] and seen.replaced(text) == text and not seen.holding(pl.Series([text]))[0]


@pytest.mark.parametrize(
    "value",
    [
        "AKIA" + "Q3RZT7MXC9LWVB4K",  # twenty capitals and digits
        "x7kq2wz9vjb4hn8rt3pf",  # base 36
        "JBSWY3DPK5XXE3DFQZ7T",  # base 32
    ],
)
def test_keys_of_letters_of_one_case_are_kept(value: str) -> None:
    assert list(kept_parts(value)) == [value]
    seen = SeenSecrets.of(seen_rows([(value, "SECRET")], KEY), KEY)
    assert seen.replaced(f'{{"key": "{value}"}}') == '{"key": "<SECRET:0>"}'


@pytest.mark.parametrize("value", ["python3-requests2-client", "HARBOUR2OBAN3PIERS", "AKIA" + "IOSFODNN7EXAMPLE"])
def test_names_with_digits_and_examples_of_documentation_are_not(value: str) -> None:
    assert list(kept_parts(value)) == []


@pytest.mark.parametrize(
    "value",
    ["postgres", "correct-horse-battery", "compute_average", "s3cret!", "a" * 40, "0f" * 20, "1b2c" * 16, "two words"],
)
def test_words_short_values_and_digests_of_content_are_secrets_of_their_session_alone(value: str) -> None:
    assert list(kept_parts(value)) == []


def test_the_table_holds_no_value_and_another_key_finds_none(seen: SeenSecrets) -> None:
    rows = seen_rows([(f"-----BEGIN KEY-----\n{VALUE}\n-----END", "PRIVATE_KEY"), (VALUE, "API_KEY")], KEY)
    assert rows.height == 1
    assert VALUE.encode() not in b"".join(rows["digest"]) and len(rows["digest"][0]) == 16
    assert SeenSecrets.of(rows, b"another").find(VALUE) == []


def test_nothing_is_known_where_nothing_was_redacted() -> None:
    nothing = SeenSecrets()
    assert not nothing and nothing.find(VALUE) == [] and not nothing.holding(pl.Series([VALUE, None])).any()


def test_the_gate_names_place_and_kind_and_no_value(seen: SeenSecrets) -> None:
    table = pl.DataFrame(
        {"bullet_id": ["b-1", "b-2"], "content": ["fine", f"Log in with {VALUE}"], "tags": [["a"], [OTHER]]}
    )
    found = held_back({"bullets": table}, {"report": {"deep": [{VALUE: 1}]}}, seen)
    assert found == [
        "bullets: content of 1 row(s), such as bullet_id b-2, holds API_KEY",
        "bullets: tags of 1 row(s), such as bullet_id b-2, holds SECRET",
        "report: it holds API_KEY",
    ]
    assert held_back({"bullets": table.head(1)}, {"report": {}}, seen) == []
