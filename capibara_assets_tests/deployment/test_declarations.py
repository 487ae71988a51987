"""Declared files: what is misspelt, doubled, missing or of another kind is refused, with the file and the key."""

from pathlib import Path
from typing import Literal

import pytest

from capibara_assets.deployment.declarations import Declared, read_declared, read_mapping
from capibara_assets.errors import InputError


class Inner(Declared):
    rank: int = 8


class Outer(Declared):
    seed: int
    inner: Inner = Inner()


def written(folder: Path, text: str | bytes) -> Path:
    file = folder / "choice.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: true", "seed is true, expected a value that is no truth value"),
        ("seed: 1\ninner: {rank: false}", "rank is false, expected a value that is no truth value"),
        ("seed: 1\nsedd: 2", "unknown key 'sedd': did you mean 'seed'"),
        ("seed: 1\nzzz: 2", "unknown key 'zzz': known: seed, inner"),
        ("seed: 1\ninner: {rnak: 2}", "inner: .*unknown key 'rnak': did you mean 'rank'"),
        ("seed: 1\nseed: 2", "line 1, column 1: key 'seed' is given twice"),
        ("seed: 1\ninner: {rank: 2, rank: 3}", "key 'rank' is given twice"),
        ("inner: {}", "seed: is missing"),
        ("seed: fast", "seed: should be a valid integer, unable to parse string as an integer, not 'fast'$"),
        ("extends: choice", "extends itself"),
        ("[1, 2]", "expected a mapping of keys to values, found a list"),
        ("a: [", "is not YAML"),
        (b"\xff\xfe\x00", "is not YAML"),
        ("[" * 3000, "is not YAML"),
        ("[" * 100_000 + "]" * 100_000, "is not YAML: lists and mappings are nested too deep"),
        ("seed: " + "9" * 5000, "is not YAML: a value that is not of its type: Exceeds the limit"),
        ("seed: !!bool maybe", "is not YAML: a value that is not of its type: 'maybe'"),
        ("seed: 2001-13-99", "is not YAML: .*month must be in 1..12"),
        ("seed: !!python/object/apply:os.getcwd []", "is not YAML"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_declared(written(tmp_path, text), Outer)
    said = str(caught.value)
    assert "choice.yaml" in said and "pydantic" not in said and "\n" not in said


def test_a_long_value_is_cut(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not 'a{50,60} …$"):
        read_declared(written(tmp_path, f"seed: {'a' * 5000}"), Outer)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*gone\.yaml: No such file"):
        read_declared(tmp_path / "gone.yaml", Outer)


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"seed: .*; inner\.rank: "):
        read_declared(written(tmp_path, "seed: a\ninner: {rank: b}"), Outer)


def test_a_file_that_extends_another_says_what_differs(tmp_path: Path) -> None:
    (tmp_path / "whole.yaml").write_text("seed: 1\ninner: {rank: 4, alpha: 8}\nnames: [a]")
    own = written(tmp_path, "extends: whole\ninner: {rank: 2}\nnames: [b]")
    assert read_mapping(own) == {"seed": 1, "inner": {"rank": 2, "alpha": 8}, "names": ["b"]}


def test_an_empty_file_is_an_empty_mapping(tmp_path: Path) -> None:
    assert read_mapping(written(tmp_path, "# nothing\n")) == {}


class Switched(Declared):
    switch: bool
    rest: dict[str, int | bool] | None = None
    either: Literal["auto", True] = "auto"
    factor: float | None = None


def test_truth_values_are_taken_where_a_field_has_some(tmp_path: Path) -> None:
    text = "switch: true\nrest: {a: false}\neither: true\nfactor: 1"
    assert read_declared(written(tmp_path, text), Switched).either is True
    with pytest.raises(InputError, match="factor is true"):
        read_declared(written(tmp_path, text.replace("factor: 1", "factor: true")), Switched)
