"""No text of a log makes the search for secrets slow: no expression of a rule costs more than its text's length."""

import random
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from capibara_assets.executions.secrets.rules import find_secrets, provider_rules
from capibara_assets_tests.executions.secrets.pumped import pumped

LENGTH = 1500  # characters
MOST_S = 0.25  # of processor time; a sound expression takes a few milliseconds
EXPRESSIONS = sorted(
    {
        (rule.kind, expression.pattern, expression.flags)
        for rule in provider_rules()
        for expression in (rule.pattern, rule.parts)
        if expression is not None
    }
)


class TooLong(Exception):
    pass


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises TooLong after so many seconds of this process's own time: `re` looks for signals while it matches."""

    def stop(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def slow_text(expression: re.Pattern[str], seed: int, texts: int, pieces: int) -> str | None:
    """A text on which the expression takes too long."""
    for text in pumped(expression, random.Random(seed), LENGTH, texts, pieces):
        try:
            with at_most(MOST_S):
                for _ in expression.finditer(text):
                    pass
        except TooLong:
            return text
    return None


def test_the_search_finds_an_expression_that_is_slow() -> None:
    slow = (r"pass[ \t]*:?[ \t]*=?[ \t]*x", r"auth\w*[\w.]{0,10}[^\n]{0,80}(?=\()", r"(?:a+)+b")
    assert all(slow_text(re.compile(one), 0, 20, 8) is not None for one in slow)


@pytest.mark.parametrize("part", range(8))
def test_no_expression_backtracks_for_long(part: int) -> None:
    slow = [
        (kind, expression, text[:80])
        for kind, expression, flags in EXPRESSIONS[part::8]
        if (text := slow_text(re.compile(expression, flags), part, 6, 8)) is not None
    ]
    assert slow == []


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(16))
def test_no_expression_backtracks_for_long_in_many_draws(seed: int) -> None:
    slow = [
        (kind, expression, text[:80])
        for kind, expression, flags in EXPRESSIONS
        if (text := slow_text(re.compile(expression, flags), seed, 20, 10)) is not None
    ]
    assert slow == []


@pytest.mark.parametrize(
    "text",
    ["auth" + " " * 20_000, "header" + "\t " * 10_000, "authA1" * 4_000, "password" + " " * 20_000, "ipk " * 5_000],
    ids=lambda text: text[:8].strip(),
)
def test_a_name_before_a_long_run_takes_no_time(text: str) -> None:
    started = time.process_time()
    with at_most(20):
        find_secrets(text)
    assert time.process_time() - started < 2
