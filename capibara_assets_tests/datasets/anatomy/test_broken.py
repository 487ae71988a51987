"""Answers that do nothing."""

import pytest

from capibara_assets.datasets.anatomy.broken import broken


def test_functions_and_methods_do_nothing() -> None:
    code = "RATE = 2\n\nasync def f(x):\n    return x\n\nclass A:\n    n = 1\n\n"
    code += "    def m(self):\n        return 1\n\ng = lambda x: x"
    scope: dict[str, object] = {}
    exec(broken(code, "python", raising=False), scope)
    made = scope["A"]
    assert isinstance(made, type)
    assert (scope["RATE"], made.m(None), scope["g"](1), made.n) == (2, None, None, 1)  # type: ignore[operator, attr-defined]
    written = "const f = (x) => x + 1;\nfunction g(x) { return [x]; }\nclass A { m() { return 1; } }"
    emptied = "const f = (x) => undefined;\nfunction g(x) {}\nclass A { m() {} }"
    assert broken(written, "javascript", raising=False) == emptied
    assert "throw" in broken(written, "javascript", raising=True)
    scope = {}
    exec(broken(code, "python", raising=True), scope)
    with pytest.raises(RuntimeError):
        scope["A"]().m()  # type: ignore[operator]


def test_without_functions_nothing_is_left() -> None:
    for code, language in (("x = 1", "python"), ("(", "python"), ("let x = 1", "javascript"), ("SELECT 1", "sql")):
        assert broken(code, language, raising=True) == ""
