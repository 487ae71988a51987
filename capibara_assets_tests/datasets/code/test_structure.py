"""Structural identity: what counts as the same program."""

import time

import pytest

from capibara_assets.datasets.code.one_line import in_one_line
from capibara_assets.datasets.code.structure import (
    shingles,
    structural_key,
    tokens,
    without_comments,
    without_trailing_spaces,
)

SUM = 'def total(xs):\n    """Adds."""\n    result = 0\n    for x in xs:\n        result += x\n    return result\n'
SUM_AGAIN = "def f(xs):  # sums up\n  r = 0\n  for x in xs:\n    r += x\n\n  return r"


@pytest.mark.parametrize(
    ("left", "right", "language"),
    [
        (SUM, SUM_AGAIN, "python"),
        ("const f = (a, b) => { return a + b; };", "// adds\nconst add = (x, y) => {\n  return x + y\n}", "javascript"),
        ("SELECT Name FROM t -- all\n;", "select name\nfrom T", "sql"),
        ("echo  hi # x", "echo hi", "bash"),
    ],
)
def test_names_comments_and_spacing_do_not_matter(left: str, right: str, language: str) -> None:
    assert structural_key(left, language) == structural_key(right, language)


@pytest.mark.parametrize(
    ("left", "right", "language"),
    [
        (SUM, SUM.replace("+=", "-="), "python"),
        (SUM, SUM.replace("0", "1"), "python"),
        ("print(len(x))", "print(sum(x))", "python"),  # names from elsewhere are no local names
        ("class A:\n    def area(self): return 1", "class A:\n    def volume(self): return 1", "python"),
        ("f(a => a + 1)", "f(a => a + 2)", "javascript"),
        ("x.map(a => a)", "x.filter(a => a)", "javascript"),
        ("select 'A'", "select 'a'", "sql"),
    ],
)
def test_what_changes_the_result_does(left: str, right: str, language: str) -> None:
    assert structural_key(left, language) != structural_key(right, language)


def test_languages_are_apart() -> None:
    assert structural_key("x", "python") != structural_key("x", "javascript")


def test_code_that_does_not_parse_goes_by_its_tokens() -> None:
    assert structural_key("def f(:\n  1  # a", "python") == structural_key("def f(:\n 1", "python")


def test_tokens_keep_strings_whole_and_drop_comments() -> None:
    assert tokens('x = "# no comment" # comment', "python") == ["x", "=", '"# no comment"']
    assert without_comments('x = "# no" # yes', "python") == 'x = "# no" '


def test_shingles() -> None:
    assert len(shingles(list("abcdefg"), 5)) == 3
    assert shingles(["a", "b"], 5) == frozenset({"a\x00b"})
    assert shingles([], 5) == frozenset()


@pytest.mark.parametrize("blank", [" ", "\t", "\n", " \n", "  x"])
def test_long_blanks_cost_linear_time(blank: str) -> None:
    code = f"x = 1{blank * (60_000 // len(blank))}\ny = 2"
    began = time.process_time()
    for language in ("python", "javascript", "sql"):
        without_trailing_spaces(without_comments(code, language), language)
    in_one_line(code)
    assert time.process_time() - began < 2  # a search from each blank anew takes a minute
