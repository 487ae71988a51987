"""What a program shows that ended well: a failure or not."""

import polars as pl
import pytest

from capibara_assets.executions.patterns.shown_failures import MAY_SHOW, shows_failure

COMMENTED = "print(f(2))  # 4\nprint(f(3))  # expected: 9"


@pytest.mark.parametrize(
    ("code", "output", "fails"),
    [
        ("run()", "FAIL: area(2)", True),
        ("run()", "FAILED (failures=1)", True),
        ("run()", "[ true, false ]", True),
        ("run()", "[True, True]", False),
        ("run()", "not ok 2 - twice", True),
        ("run()", "ok 1\nok 2", False),
        ("run()", "Assertion failed: area(2)", True),
        ("run()", "12 passed, 0 failed", False),
        ("run()", "got: 4 | expected: 5", True),
        ("run()", "got: 'a b' | expected: a b", False),
        ("run()", "Expected 12, but got 8.", True),
        ("run()", "expected [1, 2]  got [1,2]", False),
        ("run()", "(2, 3) | should be [2, 3]", True),
        ("run()", "[2, 3] | should be [2,3]", False),
        ("run()", "size 35 want 35", False),
        ("run()", "size 3 want 35", True),
        ("run()", "WRONG [3] [4]", True),
        ("run()", "extra: [] missing: []", False),
        ("run()", "extra: [] missing: [2]", True),
        (COMMENTED, "4\n9", False),
        (COMMENTED, "4\n6", True),
        (COMMENTED, "4\n6\nmore", False),  # which line belongs to which?
        ("print(f(2))  # twice\nprint(1)", "4\n1", False),
        ("console.log(f([1]));  // => [ 2 ]", "[2]", False),
        ("console.log(f([1]));  // => [ 2 ]", "[1]", True),
    ],
)
def test_a_failure_is_shown(code: str, output: str, fails: bool) -> None:
    assert shows_failure(code, output) is fails
    rows = pl.DataFrame({"code": [code], "stdout": [output], "stderr": [""], "result_text": [""]})
    assert not fails or rows.filter(MAY_SHOW).height == 1, "it is looked at"
