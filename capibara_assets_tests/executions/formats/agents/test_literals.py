"""Values as Python writes them are parsed; what is none, or would cost too much, is None and warns of nothing."""

import warnings
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.literals import literal


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'output': 'a\\nb', 'error': None}", {"output": "a\nb", "error": None}),
        (" [{'id': 'call_1'}]\n", [{"id": "call_1"}]),
        ("{'output': 'cut", None),
        ("{'output': array([1])}", None),
        ("{[]: 1}", None),
        ("'\\d'", "\\d"),
        ("'\0'", None),
        ("(" * 5000, None),
        ("'" + "x" * 300_000 + "'", None),
    ],
)
def test_what_a_repr_shows(text: str, value: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert literal(text) == value
