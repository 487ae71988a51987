"""Digests of JSON, files and folders, and files that are replaced in one step."""

import hashlib
import json
from pathlib import Path

import pytest

from capibara_assets.storage.digests import canonical_json, combine, sha256_bytes, sha256_file, tree_digest
from capibara_assets.storage.jsonfiles import write_json_atomic


def test_canonical_json_depends_on_the_value_alone() -> None:
    assert canonical_json({"b": 1, "a": [1.5, None, "é\ud800"]}) == b'{"a":[1.5,null,"\\u00e9\\ud800"],"b":1}\n'
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json({"a": float("nan")})


def test_known_digests(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"abc" * 1_000_000)
    assert sha256_bytes(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_file(file) == hashlib.sha256(file.read_bytes()).hexdigest()
    assert combine({"b": "2", "a": "1"}) == sha256_bytes(b'{"a":"1","b":"2"}\n')


def test_tree_digest_sees_names_and_bytes_not_times(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "file").write_text("x")
    assert tree_digest(tmp_path / "one") == tree_digest(tmp_path / "two")
    (tmp_path / "two" / "sub" / "file").rename(tmp_path / "two" / "file")
    assert tree_digest(tmp_path / "one") != tree_digest(tmp_path / "two")
    (tmp_path / "one" / "lost").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError, match="leads nowhere"):
        tree_digest(tmp_path / "one")


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state.json"
    write_json_atomic(path, {"n": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json_atomic(path, {"n": float("inf")})
    assert json.loads(path.read_text()) == {"n": 1}
    assert [file.name for file in path.parent.iterdir()] == ["state.json"]
