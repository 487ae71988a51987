"""The store on object stores: gs:// through an emulator, conditional creation through fsspec's memory file system."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from upath import UPath

from capibara_assets.errors import IntegrityError
from capibara_assets.storage.store import ArtifactStore, Table
from capibara_assets_tests.storage.gcs import gcs_emulator
from capibara_assets_tests.storage.test_records import row
from capibara_assets_tests.storage.test_store import frame


@pytest.fixture(scope="module")
def emulator() -> Iterator[str]:
    with gcs_emulator() as url:
        yield url


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree" / "v0").mkdir(parents=True)
    (tmp_path / "tree" / "v0" / "adapter.bin").write_bytes(os.urandom(300_000))
    (tmp_path / "tree" / "time.log").write_text("10:00")
    return tmp_path / "tree"


def publish(store: ArtifactStore, tree: Path) -> str:
    artifact = store.publish(
        "trained_adapters",
        "sql",
        tables={"rows": Table(type(row()), frame())},
        documents={"summary": {"loss": 1.5}},
        trees={"out": tree},
        volatile=("*.log",),
    )
    artifact.verify()
    return artifact.digest


@pytest.mark.gcs
def test_gs_round_trip_with_the_same_digest_as_on_disk(emulator: str, tree: Path, tmp_path: Path) -> None:
    root = UPath("gs://bucket/store", token="anon", endpoint_url=emulator)
    remote = ArtifactStore(root, work=tmp_path / "work")
    assert remote.latest("trained_adapters", "sql") is None
    digest = publish(remote, tree)
    assert digest == publish(ArtifactStore(tmp_path / "local"), tree)

    reader = ArtifactStore(root, work=tmp_path / "elsewhere")
    artifact = reader.latest("trained_adapters", "sql")
    assert artifact is not None and artifact.digest == digest
    assert artifact.frame("rows").equals(frame())
    assert artifact.document("summary") == {"loss": 1.5}
    local = artifact.directory("out")
    assert (local / "v0/adapter.bin").read_bytes() == (tree / "v0/adapter.bin").read_bytes()
    assert [found.digest for found in reader.list("trained_adapters")] == [digest]

    (local / "v0/adapter.bin").write_bytes(b"a damaged download is fetched again")
    assert (artifact.directory("out") / "v0/adapter.bin").read_bytes() == (tree / "v0/adapter.bin").read_bytes()
    (artifact.path / "summary.json").write_bytes(b"{}")
    with pytest.raises(IntegrityError, match=r"summary\.json"):
        artifact.verify()
    assert publish(remote, tree) == digest  # repaired


def test_the_first_manifest_wins_and_its_files_are_not_mixed_with_the_second_writers(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = UPath(f"memory://{tmp_path.name}/store")
    first, second = (ArtifactStore(root, work=tmp_path / name) for name in ("a", "b"))
    publish(first, tree)
    (tree / "time.log").write_text("11:00")  # volatile: the same content, other bytes
    # the second writer looked before the first had published, so it only loses at the manifest
    looks = iter([False, True])
    monkeypatch.setattr(second, "_intact", lambda *_: next(looks))
    digest = publish(second, tree)
    assert next(looks, None) is None
    artifact = first.open("trained_adapters", "sql", digest)
    assert (artifact.directory("out") / "time.log").read_text() == "10:00"
    artifact.verify()
