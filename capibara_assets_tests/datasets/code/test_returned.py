"""What functions return: literals by their form, and what is computed."""

from collections import Counter

import pytest

from capibara_assets.datasets.code.returned import returned

CODES = {
    "def f(a):\n    if a:\n        return [1, 'x']\n    return -2.5 if a > 1 else a": ["[1,'x']", "-2.5", None],
    "def f(a):\n    result = [1]\n    return result": ["[1]"],
    "def f(a):\n    result = [1]\n    result.append(a)\n    return result": [None],
    "def f(a):\n    return": [],
}
JAVASCRIPT = {
    "function f(a) { if (a) { return [1, 'x']; } return (a > 1 ? -2.5 : a); }": ["[1,'x']", "-2.5", None],
    "const f = (a) => null;": ["null"],
}


@pytest.mark.parametrize("code", CODES)
def test_python(code: str) -> None:
    assert Counter(returned(code, "python")) == Counter(CODES[code])


@pytest.mark.parametrize("code", JAVASCRIPT)
def test_javascript(code: str) -> None:
    assert Counter(returned(code, "javascript")) == Counter(JAVASCRIPT[code])
