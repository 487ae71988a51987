"""Folders that are kept as checkpoints: the digest is the same, the bytes lie elsewhere, and every one comes back."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage import restored
from capibara_assets.storage.checkpointed import Checkpointed
from capibara_assets.storage.digests import canonical_json, combine, sha256_bytes, tree_digest, tree_files
from capibara_assets.storage.manifest import WITH_CHECKPOINTS
from capibara_assets.storage.removal import remove_artifact
from capibara_assets.storage.restored import evict, hold, release
from capibara_assets.storage.store import Artifact, ArtifactStore


class Copies:
    """Checkpoints as plain copies of their folders."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.puts = 0

    def put(self, folder: Path, about: Mapping[str, Any]) -> str:
        self.puts += 1
        name = combine({"files": tree_digest(folder), "about": sha256_bytes(canonical_json(dict(about)))})
        shutil.rmtree(self.root / name, ignore_errors=True)
        for relative, path in tree_files(folder).items():
            (self.root / name / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, self.root / name / relative)
        return name

    def mend(self, folder: Path, about: Mapping[str, Any]) -> str:
        return self.put(folder, about)

    def restore(self, checkpoint: str, folder: Path) -> None:
        if not (self.root / checkpoint).is_dir():
            raise IntegrityError(f"no checkpoint {checkpoint}")
        shutil.copytree(self.root / checkpoint, folder)


@pytest.fixture(params=["disk", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    kept = Copies(tmp_path / "checkpoints")
    if request.param == "disk":
        return ArtifactStore(tmp_path / "store", checkpoints=kept)
    return ArtifactStore(UPath(f"memory://{tmp_path.name}/store"), work=tmp_path / "work", checkpoints=kept)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("v0", "v1"):
        folder = tmp_path / "tree" / name
        (folder / "deep").mkdir(parents=True)
        (folder / "weights.bin").write_bytes(name.encode() * 50_000)
        (folder / "deep" / "config.json").write_text("{}")
        (folder / "curve.json").write_text(f'["{name}"]')
        (folder / "events.jsonl").write_text("10:00 started\n")
    return tmp_path / "tree"


BESIDE = ("*.jsonl", "curve.json")


def publish(store: ArtifactStore, tree: Path, *, kept: bool = True, **about: Any) -> Artifact:
    stated = {f"voters/{name}": Checkpointed({"model": name, **about}, BESIDE) for name in ("v0", "v1")}
    return store.publish(
        "trained_adapters",
        "sql",
        trees={"voters": tree},
        documents={"summary": {"finished": 2}},
        volatile=("voters/*/events.jsonl",),
        checkpoints=stated if kept else None,
    )


def held(store: ArtifactStore) -> list[str]:
    """Files of the artifacts themselves."""
    return sorted(path.name for path in (store.root / "artifacts").rglob("*") if path.is_file())


def test_the_digest_is_that_of_the_files_wherever_they_lie(store: ArtifactStore, tree: Path, tmp_path: Path) -> None:
    plain = publish(ArtifactStore(tmp_path / "plain"), tree, kept=False)
    artifact = publish(store, tree)
    assert artifact.digest == plain.digest and artifact.manifest.files == plain.manifest.files
    assert (plain.manifest.schema_version, artifact.manifest.schema_version) == (1, WITH_CHECKPOINTS)
    assert b"checkpoints" not in plain.manifest.to_json()
    stays = ["curve.json", "curve.json", "events.jsonl", "events.jsonl", "summary.json"]
    assert held(store) == sorted([*stays, "latest.json", "manifest.json"])
    assert list(artifact.checkpoints) == ["voters/v0", "voters/v1"]
    assert all((tmp_path / "checkpoints" / name / "weights.bin").is_file() for name in artifact.checkpoints.values())
    assert publish(store, tree) == artifact and store.latest("trained_adapters", "sql") == artifact


def test_every_byte_comes_back_whether_asked_for_as_a_folder_or_a_file(store: ArtifactStore, tree: Path) -> None:
    artifact = publish(store, tree)
    assert tree_digest(artifact.directory("voters")) == tree_digest(tree)
    assert tree_digest(artifact.directory() / "voters") == tree_digest(tree)
    assert tree_digest(artifact.directory("voters/v1")) == tree_digest(tree / "v1")
    assert artifact.read_bytes("voters/v0/weights.bin") == (tree / "v0" / "weights.bin").read_bytes()
    assert artifact.has("voters/v0/weights.bin") and artifact.document("summary") == {"finished": 2}
    artifact.verify()


def test_what_lies_in_the_artifact_needs_no_checkpoints(store: ArtifactStore, tree: Path) -> None:
    artifact = publish(store, tree)
    store.checkpoints = None
    again = store.open("trained_adapters", "sql", artifact.digest)
    assert again.read_bytes("voters/v0/curve.json") == b'["v0"]' and again.document("summary") == {"finished": 2}
    with pytest.raises(InputError, match=r"voters/v0 of trained_adapters .* opened without its checkpoints"):
        again.directory("voters")
    with pytest.raises(InputError, match="has no checkpoint store to go to"):
        publish(store, tree / "..", learning_rate=1.0)


def test_an_artifact_of_before_is_read_and_kept_as_it_is(store: ArtifactStore, tree: Path) -> None:
    before = publish(store, tree, kept=False)
    assert publish(store, tree) == before and not before.checkpoints
    assert tree_digest(store.open("trained_adapters", "sql", before.digest).directory("voters")) == tree_digest(tree)
    assert store.checkpoints is not None and store.checkpoints.puts == 0  # type: ignore[attr-defined]


def test_a_damaged_checkpoint_is_named_and_publishing_again_repairs_it(
    store: ArtifactStore, tree: Path, tmp_path: Path
) -> None:
    artifact = publish(store, tree)
    weights = tmp_path / "checkpoints" / artifact.checkpoints["voters/v1"] / "weights.bin"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    for read in (artifact.verify, artifact.directory, lambda: artifact.read_bytes("voters/v1/weights.bin")):
        with pytest.raises(IntegrityError, match=r"voters/v1 .* restores weights\.bin with other bytes"):
            read()
    publish(store, tree).verify()


def test_a_copy_that_was_tampered_with_is_brought_back_again(store: ArtifactStore, tree: Path) -> None:
    artifact = publish(store, tree)
    copy = artifact.directory("voters") / "v0" / "weights.bin"
    copy.write_bytes(b"!")
    assert tree_digest(artifact.directory("voters")) == tree_digest(tree)


def test_a_format_that_loses_a_byte_publishes_nothing(
    store: ArtifactStore, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lossy(checkpoint: str, folder: Path) -> None:
        shutil.copytree(tmp_path / "checkpoints" / checkpoint, folder)
        (folder / "deep" / "config.json").write_text("{ }")

    monkeypatch.setattr(store.checkpoints, "restore", lossy)
    with pytest.raises(IntegrityError, match=r"restores voters/v0/deep/config\.json with other bytes: nothing was"):
        publish(store, tree)
    assert store.list("trained_adapters") == [] and store.latest("trained_adapters", "sql") is None


def test_nothing_of_a_removed_artifact_stays_in_a_copy(store: ArtifactStore, tree: Path) -> None:
    artifact = publish(store, tree)
    folder = artifact.directory("voters")
    remove_artifact(store, "trained_adapters", "sql", artifact.digest)
    assert not folder.exists()


def test_a_copy_lasts_as_long_as_the_process_uses_it(store: ArtifactStore, tree: Path) -> None:
    folder = publish(store, tree).directory("voters")
    assert store.sweep() == 0 and folder.is_dir()
    assert (store.work / "restored").stat().st_mode & 0o777 == 0o700
    release()
    assert not folder.exists() and list((store.work / "restored").glob("*/*/*")) == []
    assert tree_digest(publish(store, tree).directory("voters")) == tree_digest(tree)


USER = """
import sys
from pathlib import Path
from capibara_assets.storage.restored import hold
(hold(Path(sys.argv[1])) / "copy").write_text("copy")
print("holding", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("killed", [False, True])
def test_copies_of_other_processes_are_left_alone_until_these_end(tmp_path: Path, killed: bool) -> None:
    folder, shared = tmp_path / "asset" / "sql" / "0", tmp_path / "asset" / "sql" / "1"
    users = [
        subprocess.Popen(
            [sys.executable, "-c", USER, str(one)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for one in (folder, shared)
    ]
    for user in users:
        assert user.stdout is not None and user.stdout.readline() == "holding\n"
    hold(shared)
    assert evict(tmp_path) == 0 and (folder / "copy").is_file()
    for user in users:
        if killed:
            user.send_signal(signal.SIGKILL)
        user.communicate("\n" if not killed else None, timeout=300)
    assert folder.exists() is killed  # who ends by itself cleans up
    assert evict(tmp_path) == int(killed) and not folder.exists()
    assert (shared / "copy").is_file()
    release()
    assert not shared.exists()


def test_a_removal_that_was_killed_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "asset" / "sql" / "0"
    folder.mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(restored.shutil, "rmtree", lambda *_, **__: None)
        evict(tmp_path)
    assert [path.name.startswith(".gone-") for path in folder.parent.iterdir()] == [True]
    assert evict(tmp_path) == 1 and list(folder.parent.iterdir()) == []
