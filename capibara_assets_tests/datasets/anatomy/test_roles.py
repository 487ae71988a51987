"""Solution, test and demonstration told apart by the flow of values, whatever the names are."""

# ruff: noqa: E501

import pytest

from capibara_assets.datasets.anatomy.dissect import dissect

SLUG = 'def slug(title):\n    return "-".join(title.lower().split())'
PAD = "function pad(text, size) {\n  return text.padStart(size, '0');\n}"

PYTHON_TESTS = {
    "assertions": 'assert slug("A b") == "a-b"\nassert slug("") == ""',
    "a table in a loop": 'ROWS = [("A b", "a-b")]\nfor given, want in ROWS:\n    got = slug(given)\n    if got != want:\n        raise SystemExit(f"{got} for {given}")',
    "a harness that is given the function": 'def trial(f):\n    assert f("A b") == "a-b"\n\ntrial(slug)',
    "another name of it": 'candidate = slug\nassert candidate("A b") == "a-b"',
    "a comparison of its own": 'def alike(a, b):\n    return type(a) is type(b) and a == b\n\nassert alike(slug("A b"), "a-b")',
    "a comparison that raises": 'def want(found, expected):\n    if found != expected:\n        raise AssertionError(found)\n\nwant(slug("A b"), "a-b")',
    "reports": 'def report(name, ok):\n    print(name, "PASS" if ok else "FAIL")\n\nreport("two words", slug("A b") == "a-b")',
    "a comparison printed": 'print(slug("A b") == "a-b")',
    "counted failures": 'failures = 0\nif slug("A b") != "a-b":\n    failures += 1\nprint("all fine" if not failures else "broken")',
    "a case of unittest": 'import unittest\n\nclass Slugs(unittest.TestCase):\n    def test_words(self):\n        self.assertEqual(slug("A b"), "a-b")',
    "functions for pytest": 'import pytest\n\ndef test_number():\n    with pytest.raises(AttributeError):\n        slug(3)',
    "an error that has to come": 'try:\n    slug(3)\nexcept AttributeError:\n    print("ok")\nelse:\n    raise RuntimeError("no error")',
    "a guard of the script": 'if __name__ == "__main__":\n    assert slug("A b") == "a-b"',
    "cases in a list": 'CASES = []\n\ndef case(f):\n    CASES.append(f)\n    return f\n\n@case\ndef words():\n    assert slug("A b") == "a-b"\n\nfor each in CASES:\n    each()',
}  # fmt: skip

JAVASCRIPT_TESTS = {
    "console.assert": "console.assert(pad('7', 3) === '007');",
    "node:assert": "const assert = require('node:assert');\nassert.strictEqual(pad('7', 3), '007');",
    "throw": "for (const [text, want] of [['7', '007']]) {\n  if (pad(text, 3) !== want) throw new Error(text);\n}",
    "a chain of its own": "const expect = (found) => ({\n  toBe(want) { if (found !== want) throw new Error(found); },\n});\nexpect(pad('7', 3)).toBe('007');",
    "a runner of its own": "function it(name, body) {\n  body();\n  console.log(name);\n}\nit('pads', () => { if (pad('7', 3) !== '007') throw new Error('pad'); });",
    "an inlined comparison": "const like = (a, b) => isList(a) ? a.every((x, i) => like(x, b[i])) : a === b;\nconst isList = (a) => Array.isArray(a);\nif (!like([pad('7', 3)], ['007'])) throw new Error('pad');",
    "reports": "const report = (name, ok) => console.log(ok ? 'ok' : 'not ok', name);\nreport('seven', pad('7', 3) === '007');\nconsole.log('done');",
    "asynchronous": "(async () => {\n  const found = await pad('7', 3);\n  if (found !== '007') throw new Error(found);\n})();",
}  # fmt: skip


@pytest.mark.parametrize("name", PYTHON_TESTS)
def test_what_judges_a_python_function_is_no_part_of_it(name: str) -> None:
    found = dissect(f"{SLUG}\n\n{PYTHON_TESTS[name]}", "python")
    assert (found.body, found.definitions) == (SLUG, SLUG)
    assert found.test.startswith(PYTHON_TESTS[name])
    found = dissect(f"{PYTHON_TESTS[name].partition('if __name__')[0]}\n\n{SLUG}", "python")
    assert found.definitions == SLUG, "a test may stand before"


@pytest.mark.parametrize("name", JAVASCRIPT_TESTS)
def test_what_judges_a_javascript_function_is_no_part_of_it(name: str) -> None:
    found = dissect(f"{PAD}\n{JAVASCRIPT_TESTS[name]}", "javascript")
    assert (found.body, found.test) == (PAD, JAVASCRIPT_TESTS[name])


@pytest.mark.parametrize(
    "code",
    [
        "def check_sorted(xs):\n    return xs == sorted(xs)\n\n~assert check_sorted([1, 2])",
        "def is_equal(a, b):\n    return abs(a - b) < 1e-9\n\n~assert is_equal(0.1 + 0.2, 0.3)",
        "def assert_even(n):\n    assert n % 2 == 0\n\n~assert_even(2)",
        "def verify(n):\n    if n < 0:\n        raise ValueError(n)\n\ndef root(n):\n    verify(n)\n    return n ** 0.5\n\n~assert root(4) == 2",
        "def encode(text):\n    return text[::-1]\n\ndef decode(text):\n    return text[::-1]\n\n~assert decode(encode('ab')) == 'ab'",
        "RATES = {'usd': 2}\n\ndef convert(amount, unit):\n    return amount * RATES[unit]\n\n~CASES = [(1, 2)]\nfor a, b in CASES:\n    assert convert(a, 'usd') == b",
        "class Shelf:\n    def __init__(self):\n        self.books = []\n\n    def add(self, book):\n        self.books.append(book)\n\n~shelf = Shelf()\nshelf.add('x')\nassert shelf.books == ['x']",
        "from functools import wraps\n\ndef twice(f):\n    @wraps(f)\n    def inner(*args):\n        return f(f(*args))\n    return inner\n\n~def half(n):\n    return n // 2\n\nassert twice(half)(8) == 2",
    ],
)  # fmt: skip
def test_names_decide_nothing(code: str) -> None:
    solution, test = (part.strip("\n") for part in code.split("~"))
    found = dissect(code.replace("~", ""), "python")
    assert (found.definitions, found.remainder) == (solution, test)


def test_a_demonstration_stays_in_the_body_alone() -> None:
    shown = 'for title in ("A b", "C d"):\n    print(slug(title))'
    found = dissect(f"{SLUG}\n\n{shown}", "python")
    assert (found.definitions, found.body, found.test) == (SLUG, f"{SLUG}\n\n{shown}", "")
    assert found.remainder == shown
    empty = "def check(f):\n    pass"
    assert dissect(f"{SLUG}\n\n{empty}", "python").definitions == SLUG


def test_a_sample_of_a_decorator_belongs_to_the_test() -> None:
    twice = "def twice(f):\n    def both():\n        return f() + f()\n    return both"
    sample = "calls = 0\n\n@twice\ndef one():\n    global calls\n    calls += 1\n    return 1\n\n"
    found = dissect(f"{twice}\n\n{sample}assert one() == 2 and calls == 2", "python")
    assert found.definitions == twice
    assert "def one" in found.test
    asked = "@twice\ndef add(n):\n    return n + 1"
    assert asked in dissect(f"{twice}\n\n{asked}\n\nassert add(1)", "python").definitions, "it may be what was asked"


def test_a_method_added_to_a_class_of_the_session_is_added() -> None:
    method = "def low(self):\n    return min(self.items)\n\nStore.low = low"
    found = dissect(f"{method}\nstore.add(3)\nassert store.low() == 3", "python")
    assert (found.definitions, found.test) == (method, "store.add(3)\nassert store.low() == 3")


def test_what_a_session_is_set_to_before_a_test_belongs_to_the_test() -> None:
    listed = "def listed():\n    return sorted(events)"
    found = dissect(f"{listed}\n\nevents[:] = [3, 1]\nassert listed() == [1, 3]", "python")
    assert (found.body, found.test) == (listed, "events[:] = [3, 1]\nassert listed() == [1, 3]")
    kept = f"{listed}\n\nevents[:] = [3, 1]"
    assert dissect(kept, "python").body == kept


def test_a_loop_over_what_a_demonstration_made_is_one() -> None:
    wait = "function wait(f, set) {\n  return () => set(f);\n}"
    shown = "const queue = new Set();\nwait(() => console.log(1), (f) => queue.add(f))();\nfor (const f of queue) f();"
    assert dissect(f"{wait}\n{shown}", "javascript").definitions == wait


def test_an_assert_of_an_earlier_cell_asserts() -> None:
    found = dissect(f"{PAD}\nassert(pad('7', 3) === '007');\nassert.ok(pad('', 1));", "javascript")
    assert found.definitions == PAD
    own = "const assert = (x) => x + 1;\nconsole.log(assert(2));"
    assert dissect(own, "javascript").definitions == own.split("\n")[0]


def test_statements_of_one_line_are_cut_between_them() -> None:
    found = dissect("def inc(x): return x + 1\n\na = inc(1); assert a == 2  # two", "python")
    assert (found.body, found.test) == ("def inc(x): return x + 1", "a = inc(1); assert a == 2  # two")


def test_tests_that_nothing_runs_are_run() -> None:
    found = dissect(f"{SLUG}\n\ndef test_words():\n    assert slug('A b') == 'a-b'", "python")
    assert found.test.endswith("\n\ntest_words()")
    found = dissect(f"{SLUG}\n\n{PYTHON_TESTS['a case of unittest']}", "python")
    scope: dict[str, object] = {"__name__": "cell"}
    with pytest.raises(AssertionError):
        exec(f"slug = len\n{found.test}", scope)
    exec(f"{SLUG}\n{found.test}", scope)


def test_the_value_that_a_cell_ends_with_is_shown_after_the_test_again() -> None:
    found = dissect("total = sum([1, 2])\nassert total == 3\ntotal", "python")
    assert (found.body, found.test) == ("total = sum([1, 2])\ntotal", "assert total == 3\ntotal")


@pytest.mark.parametrize(
    ("language", "solution", "test"),
    [
        (
            "sql",
            "CREATE TABLE a(n INT);\nINSERT INTO a VALUES (2);\nCREATE VIEW s AS SELECT SUM(n) AS n FROM a;",
            "SELECT CASE WHEN n = 2 THEN 'PASS' ELSE 'FAIL' END FROM s;",
        ),
        ("sql", "CREATE TABLE a(n INT);\nSELECT COUNT(*) > 1 FROM a;", ""),
        ("bash", 'twice() {\n  echo "$1$1"\n}', '[ "$(twice a)" = "aa" ] || exit 1'),
        ("bash", "unique() { sort | uniq; }", "printf 'a\\na\\n' > in\ndiff <(unique < in) want && echo ok"),
        ("bash", 'keep() {\n  [ -f "$1" ] || return 1\n  cp "$1" "$1.bak"\n}', ""),
    ],
)
def test_sql_and_shell(language: str, solution: str, test: str) -> None:
    found = dissect(f"{solution}\n{test}", language)
    assert (found.definitions, found.test) == (solution, test)
