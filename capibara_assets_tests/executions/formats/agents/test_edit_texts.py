from typing import Any

import pytest

from capibara_assets.executions.formats.agents.edit_texts import replacement, replacements


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"old_string": "a\n", "new_string": "b\nc"}, "-a\n+b\n+c"),
        ({"oldText": "a", "newText": ""}, "-a"),
        ({"TargetContent": "", "ReplacementContent": "b"}, "+b"),
        ({"old_string": "a", "new_string": "b", "replace_all": True}, "replace all:\n-a\n+b"),
        ({"old_string": "a", "new_string": "b", "replace_all": False}, "-a\n+b"),
        ({"new_str": "b"}, None),
        ({"old_str": "a"}, None),
        ({"content": "b"}, None),
        ("a", None),
    ],
)
def test_what_is_replaced_stands_before_what_replaces_it(arguments: Any, text: str | None) -> None:
    assert replacement(arguments) == text


def test_one_of_both_is_enough_where_that_is_so_and_steps_follow_each_other() -> None:
    assert replacement({"new_str": "b"}, insists=False) == "+b"
    assert list(replacements([{"old_str": "a", "new_str": "b"}, {"x": 1}, 3])) == ["-a\n+b"]
    assert list(replacements("none")) == []
