"""The gate lets nearly all real text by, and never a text in which a rule finds something."""

import random
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from unittest.mock import Mock

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from capibara_assets.executions.ingest.ingest import Ingest
from capibara_assets.executions.secrets import prefilter
from capibara_assets.executions.secrets.prefilter import may_hold_secrets, narrowed_rules
from capibara_assets.executions.secrets.roles.foreign import FOREIGN
from capibara_assets.executions.secrets.rules import Rule, find_secrets, provider_rules
from capibara_assets_tests.executions.secrets.pumped import drawn

PIECES = [
    *sorted({anchor for rule in provider_rules() for anchor in rule.anchors}),
    *(' = "', "'", '\\"', ": ", "=", ":", "@", "//", "?", "&", ";", " ", "\n", "\t", "\x1c", "\u00e9", "\u0660", "²"),
    *("password", "API_KEY", "Secret_Key", "client_secret", "Authorization: Bearer ", "--user ", "aws_secret_key"),
    *("postgres://app:", "export ", "-----BEGIN PRIVATE " + "KEY-----", "-us12", "AC", "SK", "123456789:"),
]
LONG = st.builds(
    lambda alphabet, length, seed: "".join(random.Random(seed).choices(alphabet, k=length)),
    st.sampled_from(["0123456789abcdef", "ABCDEFghijkl0123456789", "abcXYZ019_-", "abcXYZ019+/"]),
    st.integers(4, 110),
    st.integers(0, 1 << 30),
)
TEXTS = st.lists(st.sampled_from(PIECES) | LONG | st.text(max_size=4), max_size=10).map("".join)


def gate(texts: list[str]) -> list[bool]:
    """The gate's verdicts, in a batch that is large enough for its passes."""
    return may_hold_secrets(list(islice(cycle([*texts, "print(1)"]), max(len(texts), 128))))[: len(texts)]


def test_a_text_in_which_a_rule_finds_something_is_never_held_back() -> None:
    texts: list[str] = []

    @settings(suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(TEXTS.filter(lambda text: text.isprintable() or "\n" in text or "\x1c" in text), min_size=1))
    def draw(drawn: list[str]) -> None:
        texts.extend(text.encode("utf-8", "replace").decode() for text in drawn)

    draw()  # all first: the gate's passes cost as much for a few
    for text, verdict in zip(texts, gate(texts), strict=True):
        assert verdict or not find_secrets(text, text), text


def matching(rule: Rule, examples: int) -> list[str]:
    """Texts that a rule's expression matches; drawn ones of an expression that is too narrow for Hypothesis."""
    texts: list[str] = []

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.from_regex(rule.pattern))
    def draw(text: str) -> None:
        texts.append(text.encode("utf-8", "replace").decode())

    try:
        draw()
    except Unsatisfiable:
        chance = random.Random(5)
        texts.extend(drawn(rule.pattern, chance) for _ in range(examples))
    return texts


def test_no_rule_matches_what_the_gate_holds_back() -> None:
    """A few texts of each rule, of plain signs; of any signs in `make test-all`."""
    chance = random.Random(5)
    texts = [text for rule in provider_rules() for _ in range(3) if find_secrets(text := drawn(rule.pattern, chance))]
    assert len(texts) > len(provider_rules()), "rules hardly match what is drawn for them"
    assert [text for text, verdict in zip(texts, gate(texts), strict=True) if not verdict] == []


@pytest.mark.parametrize("signs", ["qKzVxWjRfTgBhNdL", "abQRSTxyKLMvw", "aB3", "harbour2027-"])
def test_a_gate_is_found_wherever_its_own_rule_finds_something(signs: str) -> None:
    """Letters at random, capitals in a row, few signs, words and a number; foreign nouns share the English gate."""
    chance = random.Random(11)
    gated = [rule for rule in provider_rules() if rule.gate and FOREIGN not in rule.pattern.pattern]
    drawings = [(rule, drawn(rule.pattern, chance, signs)) for rule in gated for _ in range(40)]
    found = [(rule, text) for rule, text in drawings if find_secrets(text, narrowed=lambda _, rule=rule: [rule])]
    assert len({rule.pattern for rule, _ in found}) > len(gated) / 4
    assert [(rule.pattern.pattern, text) for rule, text in found if not re.search(rule.gate, text)] == []


@pytest.mark.extended
def test_no_rule_matches_what_the_gate_holds_back_of_any_signs() -> None:
    texts = [text for rule in provider_rules() for text in matching(rule, 50)]
    for text, verdict in zip(texts, gate(texts), strict=True):
        assert verdict or not find_secrets(text), text


@pytest.mark.parametrize("lines", [1, 3, 6])
def test_a_piece_many_lines_below_its_name_is_not_held_back(lines: int) -> None:
    plain = '    "harbour"\n' * lines
    text = f'password = (\n{plain}    "Gh7kQ2xV9pL0"\n)'
    assert find_secrets(text) and gate([text]) == [True]


def test_nearly_all_real_text_is_let_by(real: Ingest) -> None:
    texts = real.executions.select(pl.concat_str("code", "stdout", "stderr", separator="\n")).to_series().to_list()
    assert sum(may_hold_secrets(texts)) < 0.02 * len(texts)


def test_few_texts_are_all_examined() -> None:
    assert may_hold_secrets(["x = 1"]) == [True]
    assert may_hold_secrets([]) == []


def test_the_rules_that_a_text_is_narrowed_to_find_what_all_find() -> None:
    gate([])  # compiles
    chance = random.Random(7)
    for rule in provider_rules():
        text = drawn(rule.pattern, chance)
        assert find_secrets(text, text, narrowed_rules()) == find_secrets(text, text), text


NARROW = (
    "<key>secret</key>\n<string>tulip27</string>",
    '<string name="db_password">tulip27</string>',
    '<add key="DbPassword"><value>tulip27</value></add>',
    "Initial admin password:\nTr0ub4dor9Xk=\n",
    "$ cat api_token.txt\nTr0ub4dor9Xk=",
    "user,pass\nbob,tulip2024x",
    "pass,host\ntulip2024x,h1",
    "id,user,db_pass\n1,bob,tulip2024x",
    "host\tdb_pass\nh1\ttulip2024x",
    "id  user  db pass\n1  bob  tulip2024x",
    'conf.db.password\n    ?? "tulip-2024"',
    "getenv password\n || 'tulip2024x'",
    'x = "Tulip\x1c2024x".toCharArray()',
    'password = "Tulip\x1c2024x"',
    "//registry/:_authToken=abc\x1cdefgh9k",
    "please login first\n\n\n\nsignon aB3dE5gH7jK9mN1pQ3",
    'log_on(u, "bob", "Wy7zzzkTq")\nlogin',
    "mytool -k 7kfQRwm4\nsee a1b",
    'Foo("aBcDeFg123HiJk==")',
    "INSERT INTO t (a, κ\u2126δικός) VALUES (1, 'tulip2024x')",
    "clave: tulip2024x",
    "db_clave=tulip2024x",
    'x = {"2clave": "tulip2024x"}',
    'for pw in ["IxiTKDoclgLUpxhKGUlFRVGaotIFYYYq", "AGVshqibWZLkLB"]:',
    "half of the key is hCGFonBmwMQy and the rest is CAplZpa8",
    "secrets:\n  api: IxiTKDoclgLUpxhKGUlFRVGaotIFYYYq\n",
)
"""Found by a reader of the gates: each was too narrow in one place."""


@pytest.mark.parametrize("text", NARROW)
def test_no_gate_is_narrower_than_its_rule(text: str) -> None:
    assert gate([text]) == [True]
    assert find_secrets(text) == find_secrets(text, narrowed=narrowed_rules()) != []


def test_threads_look_at_the_same_time() -> None:
    texts = ['api_key = "Gh7kQ2xV9pL0mN4r"' + "x" * 20_000, "print(1)" * 5_000] * 100
    with ThreadPoolExecutor(4) as pool:
        assert all(verdicts == [True, False] * 100 for verdicts in pool.map(may_hold_secrets, [texts] * 8))


@pytest.mark.parametrize("kept", [b"", b"not an automaton", None], ids=["empty", "damaged", "a folder"])
def test_a_kept_automaton_that_cannot_be_read_is_compiled_anew(
    tmp_path: Path, kept: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefilter, "_KEPT", tmp_path)
    prefilter._database([("abc", 0)])
    (file,) = tmp_path.iterdir()
    file.unlink()
    if kept is None:
        file.mkdir()
    else:
        file.write_bytes(kept)
    hits: list[int] = []
    prefilter._database([("abc", 0)]).scan(b"xabcx", lambda number, *_: hits.append(number))
    assert hits == [0]


def test_an_automaton_is_kept_and_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefilter, "_KEPT", tmp_path / "__pycache__")
    prefilter._database([("abc", 0)])
    (file,) = (tmp_path / "__pycache__").iterdir()
    written = file.stat().st_mtime_ns
    prefilter._database([("abc", 0)])
    assert [path.stat().st_mtime_ns for path in (tmp_path / "__pycache__").iterdir()] == [written]


def test_where_the_code_may_not_be_written_it_is_compiled_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(prefilter, "_KEPT", tmp_path / "file" / "__pycache__")
    hits: list[int] = []
    prefilter._database([("abc", 0)]).scan(b"xabcx", lambda number, *_: hits.append(number))
    assert hits == [0]


def test_a_word_that_holds_a_foreign_one_costs_no_rules() -> None:
    gate([])  # compiles
    assert narrowed_rules()('road("Eshwar Enclave Road")') == []


def test_a_kept_automaton_is_taken_without_writing_its_patterns_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefilter, "_KEPT", tmp_path)
    prefilter._database([("abc", 0)])
    write = Mock(side_effect=prefilter.byte_pattern)
    monkeypatch.setattr(prefilter, "byte_pattern", write)
    prefilter._database([("abc", 0)])
    assert write.call_count == 0
    prefilter._database([("abc", re.IGNORECASE)])  # another one: the flags count
    assert write.call_count == 1
