"""Functions that answer their cases one by one, and sound ones that look alike."""

import pytest

from capibara_assets.datasets.agreement.told_apart import tells_apart
from capibara_assets.datasets.code.cases import Case

SQUARES = [Case("1", "1"), Case("2", "5"), Case("3", "14")]
ROMAN = [Case("1", "'I'"), Case("50", "'L'"), Case("4", "'IV'")]
PAIRS = [Case("5,12", "282.7"), Case("10,15", "880.5")]
FITTED = {
    "ifs": (SQUARES, "javascript", "function f(n) { if (n === 1) return 1; if (2 == n) { return 5; } return 14; }"),
    "a choice": (SQUARES, "javascript", "const f = (n) => n == 1 ? 1 : (n == 2 ? 5 : (n == 3 ? 14 : n + 14));"),
    "a switch": (ROMAN, "javascript", "function f(n) { switch (n) { case 1: return 'I'; case 50: return 'L'; } }"),
    "an object": (ROMAN, "javascript", "const f = (n) => ({ 1: 'I', 50: 'L', 4: 'IV' })[n];"),
    "two at once": (PAIRS, "javascript", "function f(r, h) { if (r == 5 && h == 12) return 282.7; "
                    "if (r == 10 && h == 15) return 880.5; return 0; }"),
    "either": (SQUARES, "javascript", "function f(n) { if (n === 1 || n === 9) return 1; if (n === 3) return 14; }"),
    "python": (SQUARES, "python", "def f(n):\n    if n == 1:\n        return 1\n    return 5 if 2 == n else 14"),
    "a dictionary": (ROMAN, "python", "def f(n):\n    return {1: 'I', 50: 'L'}[n]"),
}  # fmt: skip
SOUND = {
    "first values": ([*SQUARES, Case("4", "30")], "javascript",
                     "function f(n) { if (n === 1) return 1; if (n === 2) return 5; return n * n + f(n - 1); }"),
    "a loop": ([Case("0", "1"), Case("1", "1"), Case("5", "120")], "javascript",
               "function f(n) { if (n === 0) return 1; let p = 1; for (let i = 2; i <= n; i++) p *= i; return p; }"),
    "more is asked": (SQUARES, "javascript",
                      "function f(n) { if (n === 1 && odd(n)) return 1; if (n === 2 && n < 9) return 5; return 14; }"),
    "a table of units": (ROMAN, "javascript", "const f = (n) => ({ m: 1, km: 1000 })[n];"),
    "one answer": (SQUARES, "javascript", "function f(n) { if (n === 1) return 1; return n * (n + 1) * 2; }"),
    "python": (SQUARES, "python", "def f(n):\n    return sum(k * k for k in range(n + 1))"),
}  # fmt: skip


@pytest.mark.parametrize("name", FITTED)
def test_a_branch_for_each_case(name: str) -> None:
    cases, language, code = FITTED[name]
    assert tells_apart(code, language, "Write it.", cases)


@pytest.mark.parametrize("name", SOUND)
def test_sound_functions_have_few_such_branches(name: str) -> None:
    cases, language, code = SOUND[name]
    assert not tells_apart(code, language, "Write it.", cases)


def test_what_the_task_names_may_be_told_apart() -> None:
    feasts = [Case("'Midwinter'", "'soup'"), Case("'Harvest'", "'bread'")]
    code = "const f = (day) => day === 'Midwinter' ? 'soup' : day === 'Harvest' ? 'bread' : null;"
    assert tells_apart(code, "javascript", "What is eaten?", feasts)
    assert not tells_apart(code, "javascript", "At Midwinter there is soup, at Harvest bread.", feasts)
