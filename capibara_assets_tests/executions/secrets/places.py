"""A secret in a place, for tests of the rules that know the place: a template, and a value for its `{}`."""

from capibara_assets.executions.secrets.prefilter import may_hold_secrets
from capibara_assets.executions.secrets.redact import redact_text


def redacted(template: str, value: str) -> str:
    """The text without the value, which is suspected in a batch of any size and is gone."""
    text = template.replace("{}", value)
    assert may_hold_secrets([text] * 40) == [True] * 40
    left = redact_text(text)
    assert value not in left
    return left


def covered_whole(template: str, value: str) -> None:
    """Asserts that a placeholder stands for the value, and that nothing is found in what is left."""
    left = redacted(template, value)
    assert ":1>" in left
    assert redact_text(left) == left
