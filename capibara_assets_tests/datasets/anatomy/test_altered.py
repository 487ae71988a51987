"""Tests with other expected values: what is changed in them, and what is not."""

import pytest

from capibara_assets.datasets.anatomy.altered import altered, reaches_beyond


@pytest.mark.parametrize(
    ("test", "other"),
    [
        ("assert f(2) == 4", "assert f(2) == [4, 'altered']"),
        ("assert [1, -2] == f((1, 2)), 'the list'", "assert [[1, -2], 'altered'] == f((1, 2)), 'the list'"),
        ("assert f(True) is None", "assert f(True) is [None, 'altered']"),
        ("if f(2) != 4:\n    raise ValueError('no')", "if f(2) != [4, 'altered']:\n    raise ValueError('no')"),
        ("self.assertEqual(f(2), {'a': 1})", "self.assertEqual(f(2), [{'a': 1}, 'altered'])"),
        ("assert not f(2) == 5", ""),
        ("assert f(2)", ""),
        ("assert abs(f(2) - 4) < 1e-6", ""),
        ("assertTrue(f(2), 'it is true')", ""),
        ("if __name__ == '__main__':\n    assert f(2)", ""),
        ("if n == 2:\n    n += 1", ""),
        ("assert f(", ""),
    ],
)
def test_python(test: str, other: str):
    assert altered(test, "python") == other


@pytest.mark.parametrize(
    ("test", "other"),
    [
        ("assert.strictEqual(f(2), 4, 'four');", "assert.strictEqual(f(2), [4, 'altered'], 'four');"),
        ("assert.deepStrictEqual(f(), [1, {a: -1}]);", "assert.deepStrictEqual(f(), [[1, {a: -1}], 'altered']);"),
        ("assert(f(2) === 4, 'four');", "assert(f(2) === [4, 'altered'], 'four');"),
        ("console.assert(f('x') == null);", "console.assert(f('x') == [null, 'altered']);"),
        ("expect(f(2)).toBe(4);", "expect(f(2)).toBe([4, 'altered']);"),
        ("if (f(2) !== 4) { throw new Error('no'); }", "if (f(2) !== [4, 'altered']) { throw new Error('no'); }"),
        ("assert(!(f(2) === 5));", ""),
        ("assert.ok(f(2), 'it is true');", ""),
        ("if (f(2) === 4) { n += 1; }", ""),
        ("assert.strictEqual(f(2), g(2));", ""),
        ("assert.strictEqual(f(2), {", ""),
    ],
)
def test_javascript(test: str, other: str):
    assert altered(test, "javascript") == other


def test_sql_has_no_such_tests():
    assert altered("SELECT 1 = 1", "sql") == ""


def test_only_what_names_something_to_defeat_tests_by_is_tried():
    assert not reaches_beyond("def double(x):\n    return [y * 2 for y in x]")
    assert not reaches_beyond("const double = xs => xs.map(x => x * 2);")
    assert reaches_beyond("class Any:\n    def __eq__(self, other):\n        return True")
    assert reaches_beyond("f = () => ({ valueOf() { return 4; } })")
