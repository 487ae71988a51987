"""Whatever a Python expression matches in a text, its pattern over bytes matches, too."""

import hashlib
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import hyperscan
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from capibara_assets.executions.secrets.byte_patterns import VERSION, byte_pattern, folded

LETTERS = "aAiIkKsS zé É9_\nß密ıſ\u212aİñÑς-"
CLASSES = [
    r"\w",
    r"\W",
    r"\d",
    r"\s",
    r"\S",
    ".",
    "[a-k]",
    "[^a-k\n]",
    r"[^\s\"']",
    "[şŞé|]",
    "[\x80-\uffff]",
    r"[\w.-]",
]
atoms = st.sampled_from(LETTERS.replace(" ", "").replace("\n", "")).map(re.escape) | st.sampled_from(CLASSES)
bounds = st.sampled_from(["", "?", "*", "+", "*?", "{2}", "{1,3}", "{0,40}", "++", "*+"])


def repeated(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.builds("(?:{}|{})".format, inner, inner) | st.builds("(?i:{})".format, inner)
    around = st.sampled_from([r"\b", "(?<=a)", "(?<!s)", "(?=[a-z])", "^", "$", "(?>ab?)"])
    return st.lists(st.builds("(?:{}){}".format, inner | groups, bounds) | around, min_size=1, max_size=4).map("".join)


expressions = st.recursive(atoms, repeated, max_leaves=8)


def found(expression: str, flags: int, text: str) -> bool:
    database, hits = hyperscan.Database(), []
    database.compile(
        expressions=[byte_pattern(expression, flags).encode()], ids=[0], flags=hyperscan.HS_FLAG_SINGLEMATCH
    )
    for each in {text, folded(text)}:
        database.scan(each.encode(), lambda *hit: hits.append(hit))
    return bool(hits)


@contextmanager
def soon(seconds: float = 0.5) -> Iterator[None]:
    """Give up an example whose expression Python tries in exponentially many ways; its engine lets signals through."""

    def give_up(*_: object) -> None:
        raise TimeoutError

    former = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    except TimeoutError:
        reject()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, former)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(expressions, st.sampled_from([0, re.IGNORECASE, re.MULTILINE, re.DOTALL | re.IGNORECASE]), st.data())
def test_what_an_expression_matches_its_pattern_matches(expression: str, flags: int, data: st.DataObject) -> None:
    compiled = re.compile(expression, flags)
    with soon():
        text = data.draw(st.from_regex(compiled, alphabet=LETTERS) | st.text(LETTERS))
        match = compiled.search(text)
    if match is not None and match.group():  # an empty match is found everywhere: not an expression that tells
        try:
            assert found(expression, flags, text)
        except hyperscan.CompilerError:
            pass  # it could match nothing, or ends a line within: no rule does
        except hyperscan.error as refused:
            assert "empty buffer" in str(refused) or "anchors" in str(refused), refused


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("^[^a]{2}$", "éé"),
        (r"x\Wy", "x–y"),
        (r"x[^\w]y", "x–y"),
        (r"\bé\b", "é"),
        ("(?i)κωδικός", "ΚΩΔΙΚΌΣ"),
        ("(?i)ı", "I"),
        ("(?i)[\x80-\uffff]k", "ı\u212a"),
        (r"(a|é)\1", "éé"),
        ("(?s)a.b", "a\nb"),
        ("[^éx]a", "ia"),
        (r"(?a)a[^\s]b", "a\x1cb"),
        (r"(?a)a\Sb", "a\x1cb"),
        (r"a\sb", "a\x1cb"),
        ("(?i)aß", "aẞ"),
        ("(?i)aσb", "aςb"),
        ("(?i)aω", "a\u2126"),
        ("(?i)aå", "a\u212b"),
        ("(?i)κωδ", "ϰωδ"),
    ],
)
def test_letters_beyond_ascii(expression: str, text: str) -> None:
    assert re.search(expression, text) and found(expression, 0, text)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (r"(?<=session=)[0-9a-z]{8}", "no session=, only deadbeef01"),
        (r"(?<=session=)[0-9a-z]{8}|key-\d", "no session=, only deadbeef01"),
        (r"\bpin\b", "spinning"),
        (r"[A-Z]{4}\d{20}", "ABCD1234"),
        ("密码", "密林"),
        (r"[|│]x", "┃x"),
    ],
)
def test_a_pattern_is_not_much_wider(expression: str, text: str) -> None:
    assert not found(expression, 0, text)


def test_a_change_of_what_is_written_raises_the_version() -> None:
    around = [r"\b", "(?<=a)", "(?<!s)", "(?=[a-z])", "^", "$", "(?>ab?)", r"(a)b\1"]
    repeated = [
        f"(?:{one}|k){bound}x" for one in CLASSES for bound in ("", "?", "*", "+?", "{2}", "{1,3}", "{0,40}", "++")
    ]
    listed = [*repeated, *(f"s{one}x" for one in around)]
    written = [byte_pattern(one, flags) for one in listed for flags in (0, re.IGNORECASE, re.MULTILINE | re.DOTALL)]
    assert (VERSION, hashlib.sha256("\0".join(written).encode()).hexdigest()[:16]) == (1, "34a80dcba1208c7b")
