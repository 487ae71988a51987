"""Answers that hold a test of what they do, and demands on parameters, which are none."""

import pytest

from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.worth.own_tests import HOLDS_TEST, holds_test, javascript_holds_test
from capibara_assets_tests.datasets.worth.test_worth import candidate, unworthy

TESTS = [
    "with client() as c:\n    r = c.get('/a')\n    assert r.status_code == 200",
    "def run():\n    r = get('/a')\n    assert r == 3\nrun()",
    "def run(url):\n    assert get(url) == 3",
    "import pytest\nwith pytest.raises(ValueError):\n    f(-1)",
    "with self.assertRaises(KeyError):\n    f('a')",
    "import unittest\nclass Cases(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(f(1), 2)",
    "def stop():\n    raise AssertionError('should not be called')",
    "class Shop:\n    def price(self):\n        total = compute()\n        assert total == 3",
]
SOUND = [
    "def f(n):\n    assert n > 0, 'n'\n    return n",
    "def f(n):\n    assert isinstance(n, int) and n in (1, 2)\n    return n",
    "class Shop:\n    def __init__(self, rate):\n        assert 0 < rate < 1\n        self.rate = rate",
    "class Shop:\n    def price(self):\n        assert self.rate > 0\n        return self.rate",
    "def f(n):\n    assert json is not None, 'install it'\n    return json.dumps(n)",
    "with open('a') as file:\n    print(file.read())",
    "def f(n):\n    if n < 0:\n        raise ValueError(n)\n    return n",
    "def broken(:",
]


@pytest.mark.parametrize("code", TESTS)
def test_an_expectation_in_the_middle_of_code_is_a_test(code: str) -> None:
    assert holds_test(code, shown=True)


@pytest.mark.parametrize("code", SOUND)
def test_what_code_demands_of_its_parameters_is_none(code: str) -> None:
    assert not holds_test(code, shown=True)


def test_doctests_that_the_prompt_shows_are_none_of_the_answers() -> None:
    code = 'def f(n):\n    """Double it.\n\n    >>> f(2)\n    4\n    """\n    return 2 * n'
    assert holds_test(code, shown=False) and not holds_test(code, shown=True)


def test_a_test_is_an_answer_where_it_is_asked_for() -> None:
    code = f"def total(xs):\n    return sum(x for x in xs if x)\n\n{TESTS[1]}"
    for task, why in (("Write the total.", HOLDS_TEST), ("Write a test of the total.", None)):
        asked = prompts.solve("python", task, "def total(xs)", [], [])
        assert unworthy(candidate("solve", code, asked)) == why


@pytest.mark.parametrize(
    ("code", "holds"),
    [
        ("const check = () => { for (const s of all) console.assert(decode(encode(s)) === s); }", True),
        ("function f(a) { assert.equal(g(a), 3); return a; }", True),
        ("const run = () => expect(f(2)).toBe(4);", True),
        ("const r = f(2);\nif (r.a !== 4) throw new Error('expected 4');", True),
        ("function f(a) {\n  if (a < 0) throw new Error('below 0');\n  return a;\n}", False),
        ("// assert(f(2))\nconst f = (a) => a * 2;", False),
        ("const f = (a) => this.assert(a) && unexpect(a);", False),
    ],
)
def test_javascript_that_asserts(code: str, holds: bool) -> None:
    assert javascript_holds_test(code) is holds
