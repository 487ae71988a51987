from capibara_assets.datasets.code.edits import edits


def said(failing: str, fixed: str, language: str = "python") -> list[str]:
    return [edit.sentence() for edit in edits(failing, fixed, language) or []]


def test_names_comments_brackets_and_formatting_are_no_change() -> None:
    before = 'def f(a):\n    """Old."""\n    return [ x+1 for x in (a) ]  # all'
    assert edits(before, "def f(b):\n  return [y + 1\n    for y in b]", "python") == []
    assert edits("const f = (a) => a + 1;", "const f = (b) =>\n  b + 1", "javascript") == []
    assert edits("select A from T", "SELECT a FROM t;", "sql") == []


def test_a_change_beside_brackets_and_new_names_is_the_only_one_named() -> None:
    failing = "def f(a, b):\n    if (a > b):\n        return (a)\n    return b"
    fixed = "def f(x, y):\n    if x >= y:\n        return x\n    return y"
    assert said(failing, fixed) == ["In `if a > b:` the operator `>` has to be `>=`."]


def test_every_sort_of_change() -> None:
    assert said("x = 1", "x = 2") == ["In `x = 1` the constant `1` has to be `2`."]
    assert said("def f(n):\n    n + 1", "def f(n):\n    return n + 1") == [
        "`return` is missing: `return n + 1` is right."
    ]
    assert said("x = sorted(y, z)", "x = sorted(y)") == ["`, z` in `x = sorted(y, z)` is too much."]
    moved = said("for x in y:\n    a(x)\n    b(x)", "for x in y:\n    a(x)\nb(x)")
    assert moved == ["The line `b(x)` has to stand in another block."]
    assert said("SELECT NOW()", "SELECT datetime('now')", "sql") == [
        "In `SELECT NOW()` `NOW()` has to be `datetime('now')`."
    ]


def test_code_that_does_not_parse_is_compared_by_its_words() -> None:
    assert said("f(1", "f(1)") == ["`)` is missing: `f(1)` is right."]
