"""Cases are read alike in every language, and from every place where code or prose states one."""

import pytest

from capibara_assets.datasets.code.cases import Case, cases

FORMS = [
    "assert scale([1, 2], None) == {'a': True}",
    "assert {'a': True} == scale((1, 2), None), 'message'",
    "self.assertEqual(scale([1, 2], x=None), dict({'a': True}))",
    "given = [1, 2]\nresult = scale(given, None)\nassert result == {'a': True}",
    ">>> scale([1, 2], None)\n{'a': True}\n",
    'def scale(xs, y):\n    """Scale.\n\n    scale([1, 2.0], None) returns {"a": True}\n    """\n    return xs',
    "const want = {a: true};\nlet got = scale([1, 2], null);\nif (!same(got, want)) throw new Error('no')",
    "expect(scale([1, 2], undefined)).to.deep.equal({'a': true});",
    "console.assert(\n  JSON.stringify(scale([1, 2], null)) ===\n    JSON.stringify({ a: true })\n)",
    "// scale([1, 2], null) => {a: true}",
]


@pytest.mark.parametrize("text", FORMS)
def test_a_case_in_each_form(text: str) -> None:
    assert cases(text) == {Case("[1,2],null", "['a':true]")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("assert even(4)\nassert not even(5)", {Case("4", "true"), Case("5", "false")}),
        ("assert abs(mean([1, 2]) - 3.0/2.0) < 1e-6", {Case("[1,2]", "1.5")}),
        ("assert f(-0.0) == -1", {Case("0", "-1")}),
        ("total = f(3) + 2 == 4\nprint(f(3))\nf(x) == 2\nf() == 1", set()),
        ("it doesn't say f(1) of anything, (unclosed [ {", set()),
    ],
)
def test_what_is_a_case(text: str, expected: set[Case]) -> None:
    assert cases(text) == expected
