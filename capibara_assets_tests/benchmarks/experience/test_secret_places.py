"""The bench of any file of places: what it fills, what it counts, what it refuses."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.experience import secret_places as bench
from benchmarks.experience.secret_places import filled, measure, read_places, redacted, secret_places, value_of
from capibara_assets.errors import InputError

LINE = bench._line


def test_what_is_not_covered_is_named_with_where(tmp_path: Path) -> None:
    path = tmp_path / "places.json"
    places = {
        "secret": [
            {"name": "a password", "template": "export DB_PASSWORD={}", "value": "password"},
            {"name": "no secret", "template": "the colour is {}", "values": ["turquoise"]},
        ],
        "clean": [
            {"name": "a commit", "template": "commit {}", "value": "hex40"},
            {"name": "a secret", "template": 'api_key = "{}"', "value": "random32"},
        ],
    }
    path.write_text(json.dumps(places))
    result = CliRunner().invoke(secret_places, ["--places", str(path), "--values", "3", "--json"])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["secrets"] == 4 and figures["recall"] == 0.75 and figures["touched"] == {"a secret": 3}
    everywhere = ("code", "stdout", "error_value", "traceback", "bullet")
    assert figures["missed"] == {"no secret": dict.fromkeys(everywhere, 1)}
    assert figures["precision"] == 0.5


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"template": "token=", "value": "hex32"}, "the template of 'token=' has no place for a value: write {}"),
        ({"template": "{:a} alone", "value": "hex32"}, "has no place for a value"),
        ({"name": "complete", "template": "token=x", "value": None}, "the secret 'complete' has no value"),
    ],
)
def test_what_could_not_be_missed_is_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        measure({"secret": [entry], "clean": []}, 1, 1)


def test_a_text_that_the_reader_changes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_line", lambda text, carrier: LINE(text[:-1], carrier))
    with pytest.raises(InputError, match="the reader of logs changes 'token is x'"):
        redacted(["token is x"])


def test_half_of_a_value_counts_where_it_is_put_together() -> None:
    (each,) = filled({"template": 'k = "{:a}" + "{:b}"', "values": ["abcdef"]}, 5, Random(0), secret=True)
    assert (each.text, each.secret) == ('k = "abc" + "def"', "def")


def test_half_of_a_line_that_is_left_counts_and_the_marks_of_a_key_do_not() -> None:
    assert bench.is_left("abcdefghijklmnop", "x cdefghij y") and not bench.is_left("abcdefghijklmnop", "x abcdefg y")
    assert bench.is_left("ab12", "is ab12.") and not bench.is_left("ab12", "is ab1.")
    key = value_of("private_key", Random(1))
    first, second = key.splitlines()[:2]
    assert not bench.is_left(key, first) and bench.is_left(key, second[9:41])


def test_the_held_out_half_is_another_and_only_its_totals_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = [read_places(bench.HELD_OUT.with_name(f"{half}.json")) for half in ("held-out", "open")]
    held, known = ({each["template"] for kind in half.values() for each in kind} for half in halves)
    assert len(held) == 908 and not held & known
    missed = [{"name": "no secret", "template": "the colour is {}", "values": ["turquoise"]}]
    monkeypatch.setattr(bench, "read_places", lambda path: {"secret": missed * (path == bench.HELD_OUT), "clean": []})
    result = CliRunner().invoke(secret_places, ["--held-out", "--json"])
    assert json.loads(result.stdout) == {"recall": 0.0, "precision": None, "secrets": 1, "clean": 0, "seed": 1}


def test_two_sources_of_places_are_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(secret_places, ["--held-out", "--places", str(tmp_path)])
    assert isinstance(result.exception, InputError) and "give one of them" in str(result.exception)


@pytest.mark.parametrize(("kind", "begins"), [("jwt", "eyJ"), ("ab_{an:36}-{hex:4}", "ab_")])
def test_tokens_are_drawn_by_their_shape(kind: str, begins: str) -> None:
    value = value_of(kind, Random(1))
    assert value.startswith(begins) and "{" not in value and value != value_of(kind, Random(2))


@pytest.mark.parametrize(
    ("kind", "length"), [("random20", 20), ("hex40", 40), ("base32", 32), ("base64_44", 44), ("uuid", 36)]
)
def test_values_have_the_length_of_their_kind(kind: str, length: int) -> None:
    assert len(value_of(kind, Random(1))) == length


def test_a_kind_or_a_file_that_is_none_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no values of kind 'colour' can be drawn: name password"):
        measure({"secret": [{"template": "{}", "value": "colour"}], "clean": []}, 1, 1)
    for text in ("[", "[]", '{"secret": []}', '{"secret": [{"template": 3}], "clean": []}'):
        (tmp_path / "places.json").write_text(text)
        with pytest.raises(InputError, match="a file of places is JSON: the lists"):
            read_places(tmp_path / "places.json")


def test_passwords_of_all_shapes_are_filled_in_only_where_a_password_stands(tmp_path: Path) -> None:
    drawn = {value_of("passwords", Random(seed)) for seed in range(200)}
    assert all(value and "{" not in value for value in drawn)
    assert any(word in value for value in drawn for word in bench.WORDS) and any(value.islower() for value in drawn)
    assert {sign for value in drawn for sign in value if sign in "!@#%*?+"} == set("!@#%*?+")
    password = {"template": "the colour is {}", "value": "password"}
    token = {"template": "the colour is {}", "value": "hex40"}
    assert bench._of_all_shapes(password) == {**password, "value": "passwords"}
    assert bench._of_all_shapes(token) == token
    path = tmp_path / "places.json"
    path.write_text(json.dumps({"secret": [password, token], "clean": []}))
    told = [json.loads(CliRunner().invoke(secret_places, ["--places", str(path), "--json", *more]).stdout)
            for more in ([], ["--shapes"])]  # fmt: skip
    assert told[0]["secrets"] == told[1]["secrets"] > 0
