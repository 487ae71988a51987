"""A user's JSON files: what is wrong with one is said with its name."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import capibara_assets
from capibara_assets.errors import InputError
from capibara_assets.storage.jsonfiles import (
    parse_json,
    read_json,
    read_object,
    strict_json,
    sync_folder,
    user_json,
    write_bytes_atomic,
    write_durable,
)


def test_values_and_objects_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('[1, "\u00e9"]', "utf-8")
    assert read_json(file) == [1, "\u00e9"]
    file.write_text('{"a": {}}')
    assert read_object(file) == {"a": {}}
    for text, encoding in (('{"\u00e9": {"\u00e9": 1}}', "utf-8-sig"), ('{"\u00e9": {"\u00e9": 1}}', "utf-16")):
        file.write_text(text, encoding)
        assert read_json(file) == {"\u00e9": {"\u00e9": 1}}, encoding
    assert user_json(r'["\ud83d\ude42", Infinity]', "it") == ["\U0001f642", float("inf")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "is not JSON: "),
        (b"\xff\xfe\xff", "is not JSON: "),
        (b"[]", r": expected a plan, found list"),
        (b'{"a": {"b": 1, "b": 2}}', "is ambiguous: 'b' is there twice in one object"),
        (rb'{"a": "\uD800"}', r"is not Unicode text: it has '\\ud800', half of a character"),
        (b"[" * 100_000, "is nested too deeply to be read"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=f"a.json{said}" if said.startswith(":") else f"a.json {said}"):
        read_object(file, "a plan")


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*none\.json: No such file"):
        read_json(tmp_path / "none.json")
    with pytest.raises(InputError, match=r"cannot read .*: Is a directory"):
        read_json(tmp_path)


@pytest.mark.parametrize("write", [write_durable, write_bytes_atomic])
def test_an_error_of_a_sync_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, bytes], None]
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*a\.json'"):
        write(tmp_path / "a.json", b"{}")
    with pytest.raises(OSError, match="No space left on device"):
        sync_folder(tmp_path)


@pytest.mark.parametrize("text", [b"9007199254740991", b"-9007199254740991", b"1.7e308", b"1e-400", b"[0, -0.0, 1]"])
def test_numbers_that_all_readers_have_are_read_strictly(text: bytes) -> None:
    assert strict_json(text) == parse_json(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            b"9007199254740992",
            "a whole number has 16 digits, the largest that all readers have is 9,007,199,254,740,991",
        ),
        (b"-9007199254740992", "a whole number has 16 digits"),
        (b"1" + b"0" * 400, "a whole number has 401 digits"),
        (b"1" + b"0" * 100_000, "a whole number has 100001 digits"),
        (b"1e999", "the number 1e999 is larger than any that all readers have"),
        (b"NaN", "NaN is no JSON number"),
    ],
)
def test_numbers_that_readers_take_for_others_are_refused_strictly(tmp_path: Path, text: bytes, said: str) -> None:
    (tmp_path / "a.json").write_bytes(b'{"deep": [' + text + b"]}")
    with pytest.raises(InputError, match=said):
        read_json(tmp_path / "a.json", strict=True)


def test_what_is_nested_more_deeply_than_is_read_is_no_json() -> None:
    assert parse_json('{"a": [1]}') == {"a": [1]}
    with pytest.raises(ValueError, match="it is nested too deeply to be read"):
        parse_json(b'{"a":' * 100_000)


def test_what_lies_in_a_store_is_parsed_with_a_bound_of_its_depth() -> None:
    """`json.loads` raises RecursionError, which no caller expects."""
    root = Path(capibara_assets.__file__).parent
    folders = ("storage", "lineage", "checkpoints/store", "evaluation/serving", "evaluation/routing", "cli/graph")
    bare = {
        file.relative_to(root).as_posix()
        for folder in folders
        for file in (root / folder).rglob("*.py")
        if "json.loads(" in file.read_text("utf-8")
    }
    # the bounded functions themselves; a header of a few hundred bytes; values that this process wrote to its own cache
    assert bare == {"storage/jsonfiles.py", "checkpoints/store/packs.py", "storage/kept.py"}
