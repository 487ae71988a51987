"""The quality report: each quality told on an example that has it and one that lacks it; shares by kind and source."""

import json
from typing import Any

import pytest

from capibara_assets.datasets.audit.quality import SHARES, quality_report
from capibara_assets.datasets.schema import Example
from capibara_assets.storage.records import table
from capibara_assets_tests.datasets.test_checks import example

GOOD = "def longest(words):\n    return max(words, key=len) if words else None"


def shares(*examples: Example) -> dict[str, Any]:
    return quality_report(table(Example, list(examples)))[-1]


@pytest.mark.parametrize(
    ("answer", "values", "quality", "expected"),
    [
        (GOOD, {"verified": "reexecuted"}, "executed", 1.0),
        (GOOD, {}, "executed", 0.0),
        ("It walks over all words and keeps the longest.", {"kind": "explain"}, "executed", None),
        (GOOD, {"test": "assert longest(['a']) == 'a'"}, "judged", 1.0),
        (GOOD, {}, "judged", 0.0),
        (GOOD, {}, "no_leak", 1.0),
        (f"{GOOD}\n\nassert longest(['a', 'bb']) == 'bb'", {}, "no_leak", 0.0),
        ("6", {"kind": "predict"}, "no_leak", None),
        (GOOD, {"weight": 1.0}, "distinct", 1.0),
        (GOOD, {"weight": 1.693147}, "distinct", 0.0),
        (GOOD, {"derived": "changed input"}, "derived", 1.0),
        (GOOD, {}, "sufficient", 1.0),
        ("def longest(words):\n    return max(words, key=rank)", {}, "sufficient", 0.0),
    ],
)
def test_a_quality(answer: str, values: dict[str, Any], quality: str, expected: float | None) -> None:
    assert shares(example("e", "Write `longest(words)`.", answer, **values))[quality] == expected


@pytest.mark.parametrize(
    ("kind", "language", "prompt", "answer", "expected"),
    [
        ("solve", "python", "Write `longest`.", GOOD, 1.0),
        ("solve", "sql", "List tall trees.", "SELECT name FROM trees WHERE height > 30 ORDER BY name, id", 1.0),
        ("solve", "python", "List trees.", "query = 'SELECT name FROM trees GROUP BY kind'\nrun(query)", 1.0),
        ("solve", "python", "Count them.", "def count(birds):\n    return len(birds)", 1.0),
        ("solve", "python", "Import it.", "import math", 0.0),
        ("solve", "python", "Show it.", "print(41)", 0.0),
        ("repair", "python", f"Fix this.\n\nCode:\n{GOOD}", GOOD + "  # mended", 0.0),
        ("repair", "python", f"Fix this.\n\nCode:\n{GOOD}", GOOD.replace("max", "min"), 1.0),
        ("predict", "python", "Predict.\n\nCode:\nprint('sea')", "sea", 0.0),
        ("predict", "python", "Predict.\n\nCode:\nprint('sea' if len('ab') > 3 else 'land')", "land", 1.0),
        ("predict", "python", "Predict.\n\nCode:\nprint(6 * 7)", "42", 1.0),
        ("explain", "python", f"Explain.\n\nCode:\n{GOOD}", "Function `longest(words)`: returns max words.", 0.0),
        ("explain", "python", f"Explain.\n\nCode:\n{GOOD}", "Picks the word with most letters; nothing for none.", 1.0),
    ],
)
def test_what_the_prompt_shows_already_is_trivial(
    kind: str, language: str, prompt: str, answer: str, expected: float
) -> None:
    assert shares(example("e", prompt, answer, kind=kind, language=language))["non_trivial"] == expected


def test_a_form_that_is_filled_in_is_trivial() -> None:
    names = [f"area{letter}" for letter in "abcdefgh"]
    filled = [
        example(name, f"Explain.\n\nCode:\n{name} = 3", f"Statement {name}, which was seen once and binds a value.",
                kind="explain")
        for name in names
    ]  # fmt: skip
    assert shares(*filled)["non_trivial"] == 0.0
    assert shares(*filled[:4])["non_trivial"] == 1.0


def test_rows_are_by_kind_and_source_and_independent_of_order() -> None:
    examples = [
        example("a", "Write it.", GOOD, source="north", test="x"),
        example("b", "Write it.", GOOD, source="north"),
        example("c", "Write it.", GOOD),
        example("d", "Predict.", "6", kind="predict", source="north"),
    ]
    report = quality_report(table(Example, examples))
    places = [(row["kind"], row["source"], row["examples"]) for row in report]
    assert places == [("predict", "north", 1), ("solve", "north", 2), ("solve", "not stated", 1), ("every", "every", 4)]
    assert report[1]["judged"] == 0.5 and report[0]["judged"] is None and report[-1]["judged"] == 0.333333
    assert all(set(row) == {"kind", "source", "examples", *SHARES} for row in json.loads(json.dumps(report)))
    assert quality_report(table(Example, examples[::-1])) == report
    assert quality_report(table(Example, []))[0]["executed"] is None
