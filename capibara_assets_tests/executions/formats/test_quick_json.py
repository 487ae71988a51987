"""orjson only counts where it reads what the strict parser does: on damaged texts, and on texts made to mislead it."""

import random
from pathlib import Path

import pytest

from capibara_assets.executions.formats.lines import LineReader
from capibara_assets.executions.formats.quick_json import is_exact, quick_object, quick_texts
from capibara_assets.executions.formats.strict_json import MAX_DEPTH, Fault, parse_object, parse_text
from capibara_assets_tests.executions.mutator import damaged

NESTED = (
    '{"stdout": ["a\\n", "b"], "stderr": []}',
    '{"name": "ValueError", "value": "no: \\"x\\" :", "traceback": "\\u001b[31m---\\u001b[0mTraceback \\\\"}',
    '{"stdout": "42", "stderr": "", "exit_code": 0, "error": null}',
    '{"extra": [1, {"a": 1}], "name": "x"}',
)


def test_a_nested_text_is_what_the_strict_parser_reads_or_left_to_it() -> None:
    chance, taken = random.Random(3), 0
    for _ in range(20_000):
        text = damaged(chance.choice(NESTED).encode(), chance).decode("utf-8", "replace")
        if (found := quick_texts(text)) is not None:
            taken += 1
            assert found == parse_text(text, "logs", "type:execution"), text
    assert taken > 2_000, "hardly a text was quick: the comparison says little"


@pytest.mark.parametrize(
    "text",
    [
        '{"stdout": [], "stdout": []}',
        '{"stdout": ["a"], "stdout" : ["a"]}',
        '{"name": "x", "extra": [1, {"a": 1, "a": 2}]}',
        '{"name": "x", "extra": {"a": "y", "a": "y"}}',
        '{"name\\\\": "x", "name\\\\": "y"}',
        "[]",
        '{"value": NaN}',
    ],
)
def test_what_orjson_may_read_otherwise_is_no_quick_text(text: str) -> None:
    assert quick_texts(text) is None


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        '{"a" : 1, "a": 2}',
        '{"a\\\\" : 1, "a\\\\": 2, "x": "\\" :"}',
        '{"x": {"a": 1, "b": 2, "a": 3}, "y": ":"}',
        '{"a\\"": 1, "a\\"": 2}',
        '{"x": [[{"a": 1, "a": 2}]]}',
        "[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2),
        '{"a": ' + "[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2) + "}",
    ],
)
def test_equal_keys_and_deep_nesting_are_left_to_the_strict_parser(tmp_path: Path, text: str) -> None:
    (tmp_path / "f").write_bytes(text.encode() + b"\n")
    (found,) = LineReader(tmp_path / "f")
    assert quick_object(found.data, found.keys) is None
    with pytest.raises(Fault):
        parse_object(found.data)


def test_numbers_that_came_out_as_large_floats_are_not_sure() -> None:
    written = '{"a": 9223372036854775807, "b": 0.1, "c": 147573952589676412929}'
    quick = quick_object(written.encode(), 3)
    assert quick is not None
    assert is_exact([quick["a"], quick["b"], None, "x", True])
    assert not is_exact([quick["c"]])
