"""Tests with other expected values: what is changed in them, and what is not."""

import pytest

from capibara_assets.datasets.anatomy.altered import altered

PYTHON = {
    "assert f(2) == 4": "assert f(2) == [4, 'altered']",
    "assert [1, -2] == f((1, 2)), 'the list'": "assert [1, -2] == [f((1, 2)), 'altered'], 'the list'",
    "assert f(True) is None": "assert f(True) is [None, 'altered']",
    "assert f(2) == 4 and f(3) == want": "assert f(2) == [4, 'altered'] and f(3) == [want, 'altered']",
    "for x, want in cases:\n    assert f(x) == want": "for x, want in cases:\n    assert f(x) == [want, 'altered']",
    "assert all((f(x) == y for x, y in cases))": "assert all((f(x) == [y, 'altered'] for x, y in cases))",
    "if f(2) != 4:\n    raise ValueError('no')": "if f(2) != [4, 'altered']:\n    raise ValueError('no')",
    "if not f(2) == 4:\n    raise ValueError()": "if not f(2) == [4, 'altered']:\n    raise ValueError()",
    "self.assertEqual(f(2), {'a': 1})": "self.assertEqual(f(2), [{'a': 1}, 'altered'])",
    "assert math.isclose(f(2), 4.1)": "assert math.isclose(f(2), [4.1, 'altered'])",
    # other values would pass
    "assert not f(2) == 5": "",
    "assert f(2) != 5": "",
    "assert f(2)": "",
    "assert len([x for x in f(2) if x == 3]) < 2": "",
    "assert abs(f(2) - 4) < 1e-6": "",
    "assertTrue(f(2), 'it is true')": "",
    "if __name__ == '__main__':\n    assert f(2)": "",
    "if n == 2:\n    n += 1": "",
    "assert f(": "",
}
JAVASCRIPT = {
    "assert.strictEqual(f(2), 4, 'four');": "assert.strictEqual(f(2), [4, 'altered'], 'four');",
    "assert.deepStrictEqual(f(), [1, {a: -1}]);": "assert.deepStrictEqual(f(), [[1, {a: -1}], 'altered']);",
    "assert(f(2) === 4, 'four');": "assert(f(2) === [4, 'altered'], 'four');",
    "console.assert((f('x') == null) && g === h);": (
        "console.assert((f('x') == [null, 'altered']) && g === [h, 'altered']);"
    ),
    "assert(cases.every(([x, y]) => f(x) === y));": "assert(cases.every(([x, y]) => f(x) === [y, 'altered']));",
    "expect(f(2)).toBe(4);": "expect(f(2)).toBe([4, 'altered']);",
    "if (f(2) !== 4) { throw new Error('no'); }": "if (f(2) !== [4, 'altered']) { throw new Error('no'); }",
    "if (!(f(2) === 4)) throw 'no';": "if (!(f(2) === [4, 'altered'])) throw 'no';",
    "assert.equal(f(2), g(3) === 4);": "assert.equal(f(2), [g(3) === 4, 'altered']);",
    # other values would pass
    "assert(!(f(2) === 5));": "",
    "assert.ok(f(2), 'it is true');": "",
    "assert(f(2).filter(x => x === 3).length < 2);": "",
    "if (f(2) === 4) { n += 1; }": "",
    "assert.strictEqual(f(2), {": "",
}


@pytest.mark.parametrize("test", PYTHON)
def test_python(test: str):
    assert altered(test, "python") == PYTHON[test]


@pytest.mark.parametrize("test", JAVASCRIPT)
def test_javascript(test: str):
    assert altered(test, "javascript") == JAVASCRIPT[test]


def test_sql_has_no_such_tests():
    assert altered("SELECT 1 = 1", "sql") == ""
