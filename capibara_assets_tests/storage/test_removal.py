"""Removed artifacts: nothing of them stays but a note, whatever interrupts; tombstone documents are only added."""

import json
from pathlib import Path

import pytest
from upath import UPath

from capibara_assets.errors import IntegrityError
from capibara_assets.storage import removal
from capibara_assets.storage.removal import (
    TOMBSTONES,
    add_tombstone,
    finish_removals,
    read_tombstones,
    remove_artifact,
    removed,
)
from capibara_assets.storage.store import Artifact, ArtifactStore, MissingArtifact


@pytest.fixture(params=["disk", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    if request.param == "disk":
        return ArtifactStore(tmp_path / "store")
    return ArtifactStore(UPath(f"memory://{tmp_path.name}/store"), work=tmp_path / "work")


def publish(store: ArtifactStore, text: str, partition: str | None = "sql") -> Artifact:
    return store.publish("moe_dataset", partition, documents={"text": text})


def everything(store: ArtifactStore) -> bytes:
    files = [path for path in store.root.rglob("*") if path.is_file()]
    return b"".join(path.read_bytes() for path in files)


def test_nothing_but_a_note_stays(store: ArtifactStore) -> None:
    gone, stays = publish(store, "canary"), publish(store, "others")
    gone.directory()
    remove_artifact(store, "moe_dataset", "sql", gone.digest)
    assert b"canary" not in everything(store)
    assert not any(b"canary" in path.read_bytes() for path in store.work.rglob("*") if path.is_file())
    with pytest.raises(MissingArtifact):
        store.open("moe_dataset", "sql", gone.digest)
    assert store.latest("moe_dataset", "sql") == stays
    assert [(one.asset, one.partition, one.digest) for one in removed(store)] == [("moe_dataset", "sql", gone.digest)]
    assert removed(store, "e2b_logs") == []
    stays.verify()


def test_a_pointer_to_it_goes_too(store: ArtifactStore) -> None:
    gone = publish(store, "canary", None)
    remove_artifact(store, "moe_dataset", None, gone.digest)
    assert store.latest("moe_dataset", None) is None
    assert store.list("moe_dataset") == []
    remove_artifact(store, "moe_dataset", None, gone.digest)  # once more is no error
    assert [one.partition for one in removed(store)] == [None]


def test_an_interrupted_removal_is_finished(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = publish(store, "canary")
    with monkeypatch.context() as patch:
        patch.setattr(removal, "_delete", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            remove_artifact(store, "moe_dataset", "sql", gone.digest)
    assert b"canary" in everything(store) and store.list("moe_dataset") == []
    assert finish_removals(store) == 1
    assert b"canary" not in everything(store)
    assert finish_removals(store) == 0


def test_what_was_published_again_is_left_alone(store: ArtifactStore) -> None:
    gone = publish(store, "canary")
    remove_artifact(store, "moe_dataset", "sql", gone.digest)
    again = publish(store, "canary")
    assert finish_removals(store) == 0
    again.verify()


def test_tombstones_are_added_and_equal_ones_are_one(store: ArtifactStore) -> None:
    assert read_tombstones(store) == []
    for value in ({"a": 1}, {"b": 2}, {"a": 1}):
        add_tombstone(store, value)
    assert sorted((set(one) & {"a", "b"}).pop() for one in read_tombstones(store)) == ["a", "b"]


@pytest.mark.parametrize("damage", [b"{", b"[]", json.dumps({"schema_version": 9}).encode()])
def test_a_damaged_document_is_an_error_and_not_an_absent_one(store: ArtifactStore, damage: bytes) -> None:
    add_tombstone(store, {"a": 1})
    [path] = [path for path in (store.root / TOMBSTONES).iterdir() if path.name.endswith(".json")]
    path.write_bytes(damage)
    with pytest.raises(IntegrityError, match=path.name):
        read_tombstones(store)
