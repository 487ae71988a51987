"""Answers that hold their tests, and sound ones that look alike."""

from collections.abc import Sequence

import pytest

from capibara_assets.datasets.agreement.hardcoded import is_hardcoded, is_spelled_out
from capibara_assets.datasets.code.cases import Case, cases
from capibara_assets.datasets.code.returned import returned

TOLL = [Case("12", "3"), Case("40", "9"), Case("75", "4")]
DISH = [Case("'Midwinter',9", "'soup'"), Case("'Harvest',17", "'bread'")]
FEASTS = "At Midwinter there is soup, at Harvest bread."
FITTED = {
    "branches": (TOLL, "if n == 12:\n    return 3\nelif 40 == n:\n    return 9\nreturn 4"),
    "remainders": (TOLL, "if (n % 12 == 0) return 3;\nif (n % 40 === 0) { return 9 }\nreturn 4;"),
    "choices": (TOLL, "return n == 12 ? 3 : n == 40 ? 9 : n == 75 ? 4 : 0;"),
    "a table": (TOLL, "return {12: 3, 40: 9, 75: 4}.get(n)"),
    "cases": (DISH, "switch (day) {\n  case 9: return 'soup';\n  case 17: return 'bread';\n}"),
    "texts": (
        [Case("'abba'", "true"), Case("'otto'", "true"), Case("'hut'", "false")],
        "return True if text == 'abba' or text == 'otto' else False",
    ),
    "results": ([Case("12", "311"), Case("40", "977")], "return 311 if n < 40 else 977 if n >= 40 else 12"),
}
SOUND = {
    "a table of more": (
        DISH,
        "",
        "return {'Midwinter': 'soup', 'Harvest': 'bread', 'Thaw': 'fish', 'May': 'pie'}[feast]",
    ),
    "what the task names": (
        DISH,
        FEASTS,
        "if feast == 'Midwinter': return 'soup'\nif feast == 'Harvest': return 'bread'",
    ),
    "a truth table": (
        [Case("0,1", "1"), Case("1,0", "1"), Case("1,1", "0")],
        "",
        "if a == 0 and b == 1:\n    return 1\nreturn 1 if a == 1 and b == 0 else 0",
    ),
    "first terms": (
        [Case("1", "1"), Case("7", "13"), Case("9", "34")],
        "",
        "if n == 1 or n == 2:\n    return 1\nreturn asked(n - 1) + asked(n - 2)",
    ),
    "one limit": (TOLL, "", "if n == 12:\n    return 3\nreturn n // 8 - 5"),
}


def judged(cases: Sequence[Case], prose: str, code: str) -> bool:
    examples = "".join(f"> asked({case.arguments})\n{case.expected}\n" for case in cases)
    return is_hardcoded(code, "asked", f"{prose}\n{examples}", cases)


@pytest.mark.parametrize("kind", FITTED)
def test_a_branch_or_a_result_for_each_case_is_seen(kind: str) -> None:
    cases, code = FITTED[kind]
    assert judged(cases, "Write it.", code)


@pytest.mark.parametrize("kind", SOUND)
def test_constants_of_the_task_are_not_taken_for_its_tests(kind: str) -> None:
    assert not judged(*SOUND[kind])


def test_what_is_made_of_its_cases_is_so_whatever_others_give() -> None:
    table = "function luckyNum(n) { var all = [1, 3, 7, 9, 13]; return all.slice(0, n); }"
    lucky = cases("> luckyNum(3)\n[1, 3, 7]\n> luckyNum(5)\n[1, 3, 7, 9, 13]")
    assert is_spelled_out(table, returned(table, "javascript"), "", lucky)
    sieve = "function luckyNum(n) { return sieve(1, 3, 7).slice(0, n); }"
    assert not is_spelled_out(sieve, returned(sieve, "javascript"), "", lucky)
    keith = cases("> f(14)\ntrue\n> f(12)\nfalse\n> f(197)\ntrue")
    chosen = (
        "function f(x) { if (x === 14) { return true; } else if (x === 12) { return false; } "
        "else if (x === 197) { return true; } return false; }"
    )
    assert is_spelled_out(chosen, returned(chosen, "javascript"), "", keith)
    assert not is_spelled_out(chosen, returned(chosen, "javascript"), "Tell 12, 14 and 197 apart.", keith)
    counted = chosen.replace("return true", "return g(x)")
    assert not is_spelled_out(counted, returned(counted, "javascript"), "", keith)
