"""Assertions that a prompt states become part of the test of its answer."""

import pytest

from capibara_assets.datasets.anatomy.stated import documented_test, stated_assertions, with_stated

CODE = "def toll(axles):\n    return axles * 3"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Give the toll.\n  assert toll(2) == 6", ["assert toll(2) == 6"]),
        ("Error: Failed Test Case: assert toll(2)==6 Please try again.", ["assert toll(2) == 6"]),
        ("AssertionError: assert set(toll([2])) == {6}, 'no'", ["assert set(toll([2])) == {6}, 'no'"]),
        ("assert that the toll is right", []),
        ("assert toll(n) == 6", []),  # of a name that the text does not bind
        ("assert toll(2) ≈ 6", []),  # no part of an assertion is one
        ("AssertionError: assert 3 == 6", []),
    ],
)
def test_assertions_are_found_in_prose(text: str, found: list[str]) -> None:
    assert list(stated_assertions(text)) == found


def test_a_test_gains_what_it_lacks() -> None:
    said = "assert toll(2) == 6\nassert toll(4) == 12\nassert other(1) == 1"
    assert with_stated("res = toll(2)\nassert res == 6", CODE, "python", said) == (
        "res = toll(2)\nassert res == 6\n\nassert toll(4) == 12"
    )
    assert with_stated("", CODE, "python", "Give the toll.") == ""


def test_the_shown_test_judges_when_the_recorded_cell_tests_otherwise() -> None:
    shown = "assert toll(2, 3) == 6"
    assert with_stated("assert toll(2) == 6", CODE, "python", "", shown).endswith(shown)
    assert with_stated(shown, CODE, "python", "", shown) == shown
    foreign = "assert toll(client) == 6"
    assert with_stated("assert toll(2) == 6", CODE, "python", "", foreign) == "assert toll(2) == 6"


@pytest.mark.parametrize(
    ("shown", "passes", "fails"),
    [
        ("30", "30", "33"),
        ("30 .", "30", "33"),
        ("[(1, 2), (3, 4), ...]", "[(1, 2), (3, 4), (5, 6)]", "[(1, 2)]"),
        ("(1, 2, ...)", "(1, 2, 9)", "(2, 1, 9)"),
        ("3.14", "3.14159", "3.2"),
        ("'a.b'", "'a.b'", "'a'"),
        ("[0.33, 0.67]", "[1 / 3, 2 / 3]", None),  # rounded inside of a list: not compared
        ("<Pot at 0x7f>", "object()", None),
    ],
)
def test_what_a_docstring_shows_is_compared(shown: str, passes: str, fails: str | None) -> None:
    test = documented_test(f"Give it.\n\n>>> f(2)\n{shown}\n")
    exec(f"def f(x):\n    return {passes}\n{test}", {})
    assert bool(test) is (fails is not None)
    if fails is not None:
        with pytest.raises(AssertionError):
            exec(f"def f(x):\n    return {fails}\n{test}", {})
        exec(f"def g(x):\n    return 1\n{test}", {})  # a name that is not told: nothing is compared
