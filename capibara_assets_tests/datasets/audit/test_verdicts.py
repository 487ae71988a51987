"""Verdict files: kept when the audit runs again, matched by id and by text, and clear about a damaged line."""

import json
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.datasets.audit.verdicts import (
    audited,
    keep_verdicts,
    read_verdicts,
    text_digest,
    verdicts_digest,
)
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets_tests.datasets.test_checks import example

PYTHON = Domain.PYTHON


def line(name: str, verdict: str | None = None, **values: Any) -> dict[str, Any]:
    known = {"example_id": name, "domain": "python", "kind": "solve", "digest": text_digest(messages(name))}
    return known | {"verdict": verdict, "reason": None} | values


def messages(name: str) -> str:
    return example(name, f"Write {name}.").messages


def write(path: Path, *lines: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return str(path)


def dropped(path: str, *clusters: list[str]) -> dict[str, str]:
    return dict(audited([[(name, messages(name)) for name in one] for one in clusters], PYTHON, [path]).dropped)


def test_verdicts_stay_when_the_sample_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    rows = [example(name, f"Write {name}.").model_dump() for name in "abc"]
    assert [one.example_id for one in keep_verdicts(path, rows)] == ["a", "b", "c"]
    lines = [json.loads(each) for each in path.read_text().splitlines()]
    assert [sorted(each) for each in lines] == [["digest", "domain", "example_id", "kind", "reason", "verdict"]] * 3
    assert lines[0]["verdict"] is None
    write(path, lines[0] | {"verdict": "drop", "reason": "no  task"}, lines[1] | {"verdict": "keep"}, lines[2])
    again = keep_verdicts(path, [rows[1], example("new", "Write new.").model_dump()])
    assert [(one.example_id, one.verdict) for one in again] == [("a", "drop"), ("b", "keep"), ("new", None)]
    before = path.read_text()
    renamed = rows[1] | {"example_id": "other-id"}  # the same text under another id was judged already
    keep_verdicts(path, [renamed, example("new", "Write new.").model_dump()])
    assert path.read_text() == before


def test_what_was_dropped_is_known_by_its_id_and_by_its_text(tmp_path: Path) -> None:
    path = write(tmp_path / "v.jsonl", line("a", "drop", reason="boring"), line("b", "keep"), line("c"))
    assert dropped(path, ["a"], ["b"], ["c"], ["d"]) == {"a": "dropped by audit: boring"}
    made_again = [[("new-id", messages("a"))], [("a", messages("changed"))]]
    assert set(audited(made_again, PYTHON, [path]).dropped) == {"new-id", "a"}
    unstated = write(tmp_path / "u.jsonl", line("a", "drop"))
    assert dropped(unstated, ["a"]) == {"a": "dropped by audit: no reason stated"}


def test_a_near_duplicate_does_not_take_its_place(tmp_path: Path) -> None:
    path = write(tmp_path / "v.jsonl", line("a", "drop"), line("kept", "keep"))
    assert set(dropped(path, ["near", "a"], ["far", "b"])) == {"near"}
    assert dropped(path, ["kept", "a"]) == {}


def test_an_id_decides_before_a_text(tmp_path: Path) -> None:
    """A repair stands in `debug` and in its language's domain with one text: each keeps a verdict of its own."""
    both = [line("of-debug", "keep", digest="d" * 32), line("of-python", "drop", digest="d" * 32)]
    path = write(tmp_path / "v.jsonl", *both)
    assert dropped(path, ["of-debug"], ["of-python"]) == {"of-python": "dropped by audit: no reason stated"}


def test_figures_count_by_reason_and_what_has_no_example(tmp_path: Path) -> None:
    lines = [line("a", "drop", reason="boring"), line("gone", "drop"), line("sql", "drop", domain="sql")]
    path = write(tmp_path / "v.jsonl", *lines)
    figures = audited([[("a", messages("a"))]], PYTHON, [path]).figures
    assert figures == {"dropped": 1, "by_reason": {"dropped by audit: boring": 1}, "without_example": 1}
    assert audited([], PYTHON, []).figures["dropped"] == 0


def test_the_digest_is_of_what_is_decided(tmp_path: Path) -> None:
    one = verdicts_digest([write(tmp_path / "one.jsonl", line("a", "drop"), line("b"))])
    assert verdicts_digest([write(tmp_path / "two.jsonl", line("c"), line("a", "drop"))]) == one
    assert verdicts_digest([write(tmp_path / "two.jsonl", line("a", "drop", reason="why"))]) != one
    assert verdicts_digest([]) == verdicts_digest([write(tmp_path / "none.jsonl", line("a"))]) != one


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        ("{", r"v\.jsonl:2 is not JSON"),
        ("[]", r"v\.jsonl:2 is no object"),
        (json.dumps(line("b", "Drop")), r'v\.jsonl:2: verdict is "Drop": "keep", "drop" or null'),
        (json.dumps(line("b", "drop", reason=3)), r"v\.jsonl:2: reason is 3: a text or null"),
        (json.dumps(line("b", example_id=None)), r"v\.jsonl:2: example_id is missing or no text"),
        (json.dumps(line("b", domain="poetry")), r"v\.jsonl:2: domain is 'poetry': one of python"),
        (json.dumps(line("a", "keep")), r"example a is 'drop' at .*v\.jsonl:1 and 'keep' at .*v\.jsonl:2"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, damaged: str, said: str) -> None:
    path = tmp_path / "v.jsonl"
    path.write_text(json.dumps(line("a", "drop")) + "\n" + damaged + "\n")
    with pytest.raises(InputError, match=said):
        read_verdicts([path])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no verdict file at .*absent\.jsonl: correct --audit"):
        verdicts_digest([str(tmp_path / "absent.jsonl")])
