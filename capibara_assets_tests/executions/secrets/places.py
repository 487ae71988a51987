"""What a test of a place asserts, whatever the place."""

from capibara_assets.executions.secrets.redact import redact_text

HELD: list[str] = []
"""Texts of the running module in which a value was found: the prefilter looks at all at once (`conftest.py`)."""


def redacted(template: str, value: str) -> str:
    """The text without the value, which is gone; the prefilter has to suspect it too."""
    return left_of(template.replace("{}", value), value)


def left_of(text: str, value: str) -> str:
    """The same, where the value stands in the text already."""
    left = redact_text(text)
    assert value not in left, text
    HELD.append(text)
    return left


def covered_whole(template: str, value: str) -> None:
    """Asserts that a placeholder stands for the value, and that nothing is found in what is left."""
    left = redacted(template, value)
    assert ":1>" in left
    assert redact_text(left) == left
