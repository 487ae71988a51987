"""Assertions taken apart: what is asked of the answer's process, and what never gets there."""

import ast
import contextlib
import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capibara_assets.datasets.assertions import assertions_javascript, assertions_python
from capibara_assets.datasets.assertions.assertions import (
    Observed,
    claims_suffice,
    first_failing,
    reports_in,
    unreported,
)
from capibara_assets.datasets.assertions.plain_values import REPORTER, NotPlain, decoded, holds_unknown


def ran(code: str, before: str = "") -> str:
    """What code prints, run here: these tests are ours."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(f"{before}\n{code}", {"__name__": "tests"})
    return out.getvalue()


def verdict(tests: str, reference: str, answer: str) -> str | None:
    """The first assertion that an answer fails; None when it passes them all."""
    names, asked = assertions_python.names_given(reference), assertions_python.classes_given(reference)
    taken = assertions_python.observed(tests, names, classes=asked)
    assert taken.why_not is None
    known, _ = reports_in(ran(taken.trusted, reference))
    assert first_failing(taken.assertions, known, known) is None, "the reference passes"
    assert (not taken.apart) or reports_in(ran(taken.apart))[0].items() <= known.items(), "no answer has a part in it"
    given, _ = reports_in(ran(taken.code, answer))
    return first_failing(taken.assertions, given, known)


RIGHT, WRONG = "def f(x):\n    return x * 2", "def f(x):\n    return x * 2 + (x > 1)"
TESTS = [
    "assert f(2) == 4",
    "assert f(2) == 4, 'twice'",
    "assert 4 == f(2)",
    "assert f(1) == 2 and f(2) == 4",
    "assert not f(2) != 4",
    "assert 3 < f(2) < 5",
    "assert f(2) in (4, 6)",
    "assert f(2) - 4 == 0",
    "assert abs(f(2) - 4.0) < 1e-9",
    "import math\nassert math.isclose(f(2), 8 / 2)",
    "assert [f(x) for x in range(3)] == [0, 2, 4]",
    "assert str(f(2)) == '4'",
    "expected = [2, 4]\nassert [f(1), f(2)] == expected",
    "for x, y in [(1, 2), (2, 4)]:\n    assert f(x) == y",
    "for x in range(3):\n    assert f(x) == 2 * x",
    "cases = [(1, 2), (2, 4)]\nfor x, y in cases:\n    assert f(x) == y",
    "for x, y in [(1, 2), (2, 4)]:\n    if f(x) != y:\n        raise ValueError(x)",
    "if abs(f(2) - 4) > 1e-6:\n    raise ValueError('f')",
    "def check(x=2, want=4):\n    assert f(x) == want\n\ncheck()\ncheck(3, 6)",
    "import random\nrandom.seed(3)\nx = random.randrange(5, 9)\nassert f(x) == 2 * x",
    "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(2) == 4\n\ncheck(f)",
    "y = f(2)\nassert y == 4",
    "def test_f():\n    assert f(2) == 4",
    "assert isinstance(f(2), int)\nassert f(2) == 4",
    "try:\n    f(None)\nexcept TypeError:\n    pass\nelse:\n    assert False\nassert f(2) == 4",
]


@pytest.mark.parametrize("tests", TESTS)
def test_right_answers_pass_and_wrong_ones_fail(tests: str) -> None:
    assert verdict(tests, RIGHT, RIGHT) is None
    assert verdict(tests, RIGHT, WRONG) is not None


@pytest.mark.parametrize("tests", TESTS)
def test_a_program_that_claims_truths_does_not_pass(tests: str) -> None:
    taken = assertions_python.observed(tests, {"f"})
    known, _ = reports_in(ran(taken.trusted, RIGHT))
    assert not claims_suffice(taken.assertions, known)


@settings(max_examples=20)
@given(st.integers(10**6, 10**9))
def test_what_is_expected_never_gets_there(secret: int) -> None:
    for tests in (
        f"assert f(2) == {secret}",
        f"wanted = {secret}\nassert f(2) == wanted",
        f"def check(candidate):\n    assert candidate(2) == {secret}\ncheck(f)",
        f"for x, y in [(2, {secret})]:\n    assert f(x) == y",
        f"assert abs(f(2) - {secret}) < 1",
        f"wanted = [{secret}]\nother = wanted + [1]\nassert f(2) == other",
        f"try:\n    assert f(2) == {secret} if False else True\nfinally:\n    pass",
    ):
        taken = assertions_python.observed(tests, {"f"})
        assert taken.why_not is not None or str(secret) not in taken.code


@pytest.mark.parametrize(
    "tests",
    [
        "while x:\n    assert f(x)",
        "with open('x') as file:\n    assert f(file) == 2",
        "for x in f(3):\n    assert x == 1",
        "class T:\n    def test(self):\n        assert f(1) == 2",
        "def check(c):\n    if c(1):\n        return\n    assert c(1) == 2\ncheck(f)",
        "assert (",
    ],
)
def test_what_cannot_be_taken_apart_is_said(tests: str) -> None:
    assert assertions_python.observed(tests, {"f"}).why_not


def test_truths_alone_prove_nothing() -> None:
    for tests, proves in (
        ("assert f(2)", False),
        ("assert f(2)\nassert not f(3)", True),
        ("assert f(1) is True", False),
    ):
        taken = assertions_python.observed(tests, {"f"})
        assert claims_suffice(taken.assertions, {}) is not proves


def test_names_of_the_answer_are_never_assumed() -> None:
    """An answer may define `abs` or `sum`: both sides are asked for."""
    taken = assertions_python.observed("assert abs(-2) == 2", {"abs"})
    assert "abs(-2)" in taken.code
    assert verdict("assert abs(-2) == 2", "def abs(x):\n    return -x if x < 0 else x", "def abs(x):\n    return x")


@pytest.mark.parametrize(
    ("tests", "answer"),
    [
        ("assert abs(f(2) - 4) < 1e-9", "def abs(x): return 0\ndef f(x): return x"),
        ("assert sorted(g([3, 1])) == sorted([1, 2])", "def sorted(x): return 0\ndef g(x): return x"),
        ("assert not abs(f(2) - 4) > 1e-9", "def f(x): return float('nan')"),
        ("if abs(f(2) - 4) > 1e-9:\n    raise ValueError()", "def f(x): return complex('nan')"),
    ],
)
def test_neither_a_name_of_python_nor_what_is_no_number_passes(tests: str, answer: str) -> None:
    assert verdict(tests, f"{RIGHT}\ndef g(x): return [2, 1]\ndef abs(x): pass\ndef sorted(x): pass", answer)


def test_what_functions_of_the_tests_change_is_asked_of_the_answer() -> None:
    tests = "calls = []\ndef once():\n    calls.append(1)\nf(once)\nassert len(calls) == 2"
    twice = "def f(run):\n    run()\n    run()"
    assert verdict(tests, twice, twice) is None
    assert verdict(tests, twice, "def f(run):\n    run()") == "assert len(calls) == 2"
    within = tests.replace("def once", "@f\ndef once").replace("\nf(once)", "")
    assert verdict(within, twice, twice) is None


def test_a_value_with_an_equality_of_its_own_does_not_leave_its_process() -> None:
    key = "class Key(str):\n    def __eq__(self, other): return True\n    __hash__ = str.__hash__\n"
    taken = assertions_python.observed("assert Key('a') == 'b'\nassert len(Key('a')) == 1", {"Key"}, (), {"Key"})
    reports, _ = reports_in(ran(taken.code, key))
    assert unreported(reports) == {0}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)


SHOW = compile(REPORTER + "_capibara_report('0g0', value)", "reporter", "exec")


@given(VALUES)
def test_plain_values_come_through(value: Any) -> None:
    scope: dict[str, Any] = {"value": value}
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(SHOW, scope)
    found, rest = reports_in(out.getvalue())
    assert found == {"0g0": value}
    assert type(found["0g0"]) is type(value)
    assert rest == ""


def reported(expression: str, before: str = "") -> Any:
    return reports_in(ran(f"{REPORTER}\n_capibara_report('0g0', {expression})", before))[0]["0g0"]


def test_values_of_other_types_are_told_from_their_text_or_not_at_all() -> None:
    assert reported("numpy.float64(1.5)", "import numpy") == 1.5
    assert reported("collections.Counter('aab')", "import collections") == {"a": 2, "b": 1}
    assert reported("{3, 1, 2}") == {1, 2, 3}
    date = "import datetime"
    assert reported("datetime.date(2026, 1, 2)", date) == reported("datetime.date(2026, 1, 2)", date)
    assert reported("datetime.date(2026, 1, 2)", date) != reported("datetime.date(2026, 1, 3)", date)
    assert holds_unknown(reported("[object()]"))
    lie = "class Same(int):\n    def __eq__(self, other): return True\n    __hash__ = None"
    assert reported("Same(3)", lie) == 3
    assert reported("Same(3)", lie) != 4


def test_an_object_of_the_answers_own_class_fits_no_value() -> None:
    taken = assertions_python.observed("assert f(2) != 4", {"f"})
    given, _ = reports_in(ran(taken.code, "f = lambda x: object()"))
    assert first_failing(taken.assertions, given, {}) is not None


@pytest.mark.parametrize(
    "text",
    ["", "nothing", "[]", '["q", 1]', '["i", "1e9"]', '["i", 5]', '["s", 1]', '["S", [["l", []]]]', '["f", "x"]',
     '["i", "' + "9" * 5000 + '"]', "[" * 100_000, '{"l": 1}', '["d", [1]]', '["y", "zz"]'],
)  # fmt: skip
def test_forged_reports_are_refused(text: str) -> None:
    with pytest.raises(NotPlain):
        decoded(text)


def test_two_reports_of_one_place_are_refused() -> None:
    one = f"\x1e0g0 {json.dumps(['b', True])}\x1f\n"
    assert reports_in(f"before{one}after") == ({"0g0": True}, "beforeafter")
    with pytest.raises(NotPlain, match="two reports"):
        reports_in(one + one)


FLOAT = "class Z(float):\n    def __sub__(self, other): return 0.0\n    __rsub__ = __abs__ = __sub__\n"
LYING = {
    "arithmetic with a function of the tests": (
        "def ref(x):\n    return x * 2 + k\nk = 0\nfor i in range(5):\n    assert abs(f(i) - ref(i)) < 1e-6",
        FLOAT + "def f(x): return Z(1)",
    ),
    "arithmetic of two values of its own": ("assert f(3) - f(1) == 4", FLOAT + "def f(x): return Z(x)"),
    "no number at all": (
        "def ref(x):\n    import math\n    return x * 2\nassert abs(f(3) - ref(3)) < 1e-6",
        "class Z:\n    def __sub__(self, other): return 0.0\ndef f(x): return Z()",
    ),
    "text": (
        "assert f(2) + f(2) == 8 and str(f(2)) == '4'",
        "class Z(int):\n    def __str__(self): return '4'\n    def __add__(self, o): return 8\ndef f(x): return Z(1)",
    ),
    "within a list, twice": (
        "assert [a - b for a, b in zip([f(2), f(3)], [4, 6])] == [0, 0]",
        FLOAT + "def f(x): return Z(1)",
    ),
    "a variable": ("y = f(2)\nassert abs(y - f(2) + 0) + y == 4", FLOAT + "def f(x): return Z(4.5)"),
    "a class that says it is of a module": (
        "y = f(3) - f(1)\nassert f(3) - f(1) == 4",
        FLOAT + "Z.__module__ = 'collections'\ndef f(x): return Z(1)",
    ),
}
LISTS = {
    "length": "assert len(g(3)) == 3",
    "members": "assert 0 in g(3)",
    "truth": "assert bool(g(3)) is True and len(g(0)) == 0",
    "nested": "assert len(g(1, 3)[0]) == 3",
    "a method": "assert g(3).count(0) == 3",
}


@pytest.mark.parametrize(("tests", "answer"), LYING.values(), ids=LYING)
def test_no_special_method_of_the_answer_decides(tests: str, answer: str) -> None:
    assert verdict(tests, RIGHT, RIGHT) is None
    try:
        assert verdict(tests, RIGHT, answer) is not None
    except TypeError as error:  # of the run: the answer fails by an error
        assert "a class that is not asked for: Z" in str(error)


@pytest.mark.parametrize("tests", LISTS.values(), ids=LISTS)
def test_a_list_is_what_it_holds(tests: str) -> None:
    right = "def g(n, deep=0): return [[0] * deep for _ in range(n)] if deep else [0] * n"
    lying = """class Z(list):
    n = 0
    def __len__(self): return self.n
    def __contains__(self, one): return True
    def __bool__(self): return self.n > 0
    def count(self, one): return self.n
def g(n, deep=0):
    z = Z(); z.n = deep or n
    return [z] if deep else z"""
    assert verdict(tests, right, right) is None
    assert verdict(tests, right, lying) is not None
    assert (
        verdict(tests, right, right.replace("def g", "class L(list): pass\ndef g").replace("[0] * n", "L([0] * n)"))
        is None
    )


@pytest.mark.parametrize(
    ("tests", "reference"),
    [
        ("assert len(Bag([1, 2])) == 2 and Bag([1]) + Bag([2]) == Bag([1, 2])",
         "class Bag(list):\n    def __add__(self, o): return Bag([*self, *o])"),
        ("p = at(1)\nassert p.x == 1 and at(1).y - at(0).y == 1",
         "from collections import namedtuple\nPoint = namedtuple('Point', 'x y')\ndef at(n): return Point(n, n)"),
        ("assert dict(g()) == {'a': 1} and g().most_common(1)[0][1] == 1",
         "from collections import Counter\ndef g(): return Counter('a')"),
        ("q = g()\nassert q.pop() == 2 and q.pop() == 1 and len(q) == 0", "def g(): return [1, 2]"),
        ("assert list(g()) == [1] and next(g()) == 1 and callable(g)", "def g(): yield 1"),
        ("class T(int):\n    pass\nassert g(T(3)) + 1 == 4 and g.__name__ == 'g'", "def g(x): return x"),
        ("try:\n    g()\nexcept ValueError as e:\n    error = e\nassert str(error) == 'no'",
         "class Mine(ValueError): pass\ndef g(): raise Mine('no')"),
    ],
)  # fmt: skip
def test_classes_that_are_asked_for_and_those_of_modules_keep_what_they_do(tests: str, reference: str) -> None:
    assert verdict(tests, reference, reference) is None


def test_what_an_answer_does_to_a_value_of_the_tests_is_looked_at() -> None:
    tests, right = "data = [3, 1]\nf(data)\nassert data == [1, 3]", "def f(x): x.sort()"
    assert verdict(tests, right, right) is None
    assert verdict(tests, right, "def f(x): pass") == "assert data == [1, 3]"
    assert verdict("import math\n" + tests + "\nassert math.pi > 3", right, right) is None


def test_an_error_raised_where_nothing_can_be_taken_apart_stays() -> None:
    taken = assertions_python.observed(
        "for x in f(3):\n    if x != 1:\n        raise ValueError(x)\nassert f(3) == 1", {"f"}
    )
    assert taken.why_not is None
    assert "    raise _capibara_builtins.ValueError" in taken.code
    assert [each.source for each in taken.assertions] == ["assert f(3) == 1"]


def test_code_that_was_taken_apart_still_parses() -> None:
    for tests in TESTS:
        taken = assertions_python.observed(tests, {"f"})
        ast.parse(taken.code)
        ast.parse(taken.trusted)
        assert not any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(taken.code)))


def javascript(tests: str) -> Observed:
    return assertions_javascript.observed(tests, {"f"})


@pytest.mark.parametrize(
    "tests",
    [
        "const assert = require('assert');\nassert.strictEqual(f(2), 77123);",
        "assert.deepStrictEqual([...f(2)], [77123]);",
        "console.assert(f(2) === 77123, 'twice');",
        "assert(!(f(2) === 77123));",
        "const testF = () => {\n  console.assert(f(2) === 77123);\n};\ntestF();",
        "if (f(2) !== 77123) throw new Error('f');",
        "function testF() { if (!(f(2) === 77123)) { throw new Error('f'); } }\ntestF();",
        "const assert = require('assert');\nconst want = [77123];\nconst all = [...want, 1];\n"
        "assert.deepStrictEqual(f(2), all);",
    ],
)
def test_javascript_is_asked_for_values_alone(tests: str) -> None:
    taken = javascript(tests)
    assert taken.why_not is None
    assert len(taken.assertions) == 1
    assert "f(2)" in taken.code
    assert "77123" not in taken.code
    assert "77123" in taken.trusted
    assert "77123" in taken.apart
    assert "f(2)" not in taken.apart


def test_a_constant_that_an_answer_gets_is_asked_of_it() -> None:
    taken = javascript("const xs = [77123];\nf(xs);\nassert.deepStrictEqual(xs, [1]);")
    assert "report('0g0', xs" in taken.code
    assert "xs" not in taken.apart.rpartition("}")[2]


def test_javascript_that_asserts_within_a_statement_is_said() -> None:
    assert javascript("for (const x of [1]) { assert.strictEqual(f(x), 1); }").why_not
    assert javascript("assert.rejects(f());").why_not
