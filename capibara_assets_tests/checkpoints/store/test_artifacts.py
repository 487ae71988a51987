"""The artifact store with its real checkpoints: every byte of adapters and models comes back, and lies once."""

import base64
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from upath import UPath

from capibara_assets.checkpoints.artifacts import checkpoint_root, checkpoints_of, open_artifacts
from capibara_assets.checkpoints.encryption.keys import given_key
from capibara_assets.checkpoints.store.places import open_place
from capibara_assets.checkpoints.store.slots import create_vault
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.lineage.checkpoints import behind, has_checkpoints, needed_checkpoints, purge
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.checkpointed import Checkpointed
from capibara_assets.storage.digests import tree_digest
from capibara_assets.storage.restored import release
from capibara_assets.storage.store import ArtifactStore
from capibara_assets_tests.storage.test_remote import emulator

__all__ = ["emulator"]


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return open_artifacts(tmp_path / "store", tmp_path / "work")


@pytest.fixture(scope="module")
def model(nano: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in shards, as Transformers writes it, with its tokenizer and a card."""
    folder = tmp_path_factory.mktemp("model")
    loaded = AutoModelForCausalLM.from_pretrained(nano, dtype=torch.bfloat16)
    loaded.save_pretrained(folder, max_shard_size="2MB")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(nano / name, folder / name)
    (folder / "README.md").write_text("# merged\n")
    assert len(list(folder.glob("*.safetensors"))) > 1
    return folder


def adapter(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    (folder / "adapter_config.json").write_text('{\n  "peft_type": "LORA"\n}\n')
    (folder / "curve.json").write_text("[1.0]")
    return folder


def odd_tensors() -> dict[str, torch.Tensor]:
    """What a damaged or unlucky voter may hold: every bit of it is evidence."""
    nan = torch.tensor([0x7FC00001, 0x7F800001, -1], dtype=torch.int32).view(torch.float32)
    names = ("nan", "zero", "none", "scalar", "half")
    values = (nan, torch.tensor([0.0, -0.0]), torch.empty(0, 8), torch.tensor(3.0), torch.randn(8, 8).bfloat16())
    return {f"base_model.model.{name}.lora_A.weight": value for name, value in zip(names, values, strict=True)}


def publish(store: ArtifactStore, folder: Path, **about: object) -> Artifact:
    kept = Checkpointed({"model": "python/v0", "step": 3, **about}, beside=("curve.json",))
    return store.publish("trained_adapters", "python", trees={"voter": folder}, checkpoints={"voter": kept})


def pack_bytes(store: ArtifactStore) -> int:
    return sum(path.stat().st_size for path in (store.root / "checkpoints" / "packs").iterdir())


def test_an_adapter_comes_back_bit_for_bit(store: ArtifactStore, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "v0", odd_tensors())
    artifact = publish(store, folder)
    assert tree_digest(artifact.directory("voter")) == tree_digest(folder)
    artifact.verify()
    again = open_artifacts(tmp_path / "store", tmp_path / "elsewhere").open(
        "trained_adapters", "python", artifact.digest
    )
    assert tree_digest(again.directory("voter")) == tree_digest(folder)
    checkpoint = checkpoints_of(store).open("python/v0@latest")
    assert checkpoint.id == artifact.checkpoints["voter"] and checkpoint.manifest.kind == "adapter"
    assert set(checkpoint.manifest.files) == {"adapter_config.json"}  # a curve is no part of it


def test_a_model_in_shards_comes_back_bit_for_bit_and_loads(store: ArtifactStore, model: Path) -> None:
    kept = {"model": Checkpointed({"model": "merged_checkpoint", "step": 0})}
    artifact = store.publish("merged_checkpoint", None, trees={"model": model}, checkpoints=kept)
    folder = artifact.directory("model")
    assert tree_digest(folder) == tree_digest(model)
    one, other = (AutoModelForCausalLM.from_pretrained(path).state_dict() for path in (folder, model))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_equal_inputs_are_one_checkpoint_whoever_runs_it(store: ArtifactStore, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "v0", odd_tensors())
    first, second = (publish(open_artifacts(tmp_path / name), folder, run=name) for name in ("a", "b"))
    assert first.checkpoints == second.checkpoints
    assert publish(open_artifacts(tmp_path / "c"), folder, step=4).checkpoints != first.checkpoints


def test_what_an_epoch_stored_is_not_stored_again(store: ArtifactStore, tmp_path: Path) -> None:
    tensors = {f"base_model.model.{n}.lora_A.weight": torch.randn(256, 256) for n in range(4)}
    folder = adapter(tmp_path / "v0", tensors)
    checkpoints_of(store).save(load_file(folder / "adapter_model.safetensors"), 3, "python/v0")
    before = pack_bytes(store)
    publish(store, folder)
    assert pack_bytes(store) - before < 2_000  # its config


def test_a_flipped_bit_is_found_by_every_reader_and_named(store: ArtifactStore, tmp_path: Path) -> None:
    artifact = publish(store, adapter(tmp_path / "v0", {"base_model.model.l.lora_A.weight": torch.randn(64, 64)}))
    [pack] = [Path(path.path) for path in (store.root / "checkpoints" / "packs").iterdir()]
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.write_bytes(data)
    release()
    for read in (artifact.verify, lambda: artifact.directory("voter")):
        with pytest.raises(IntegrityError, match=pack.name):
            read()
    assert publish(store, tmp_path / "v0").checkpoints == artifact.checkpoints  # materialized again: mended
    artifact.verify()
    assert checkpoints_of(store).verify() == [] and not pack.exists()


def test_mending_keeps_what_others_need_of_a_damaged_pack(store: ArtifactStore, tmp_path: Path) -> None:
    shared, own = torch.randn(64, 64), torch.randn(64, 64)
    checkpoints_of(store).save({"a.lora_A.weight": shared, "own": own}, 1, "mine")
    [pack] = [Path(path.path) for path in (store.root / "checkpoints" / "packs").iterdir()]
    artifact = publish(store, adapter(tmp_path / "v0", {"base_model.model.l.lora_A.weight": shared}))
    piece = checkpoints_of(store).open("mine").manifest.tensors["a.lora_A.weight"].pieces[0]
    stored = checkpoints_of(store).catalog.packs()[pack.name.removesuffix(".safetensors")].pieces[piece]
    data = bytearray(pack.read_bytes())
    data[stored.offset + stored.stored // 2] ^= 1
    pack.write_bytes(data)
    release()
    with pytest.raises(IntegrityError):
        artifact.verify()
    publish(store, tmp_path / "v0").verify()
    fresh = checkpoints_of(open_artifacts(store.root, store.work))
    assert torch.equal(fresh.open("mine").state()["own"], own) and not pack.exists()
    assert fresh.verify() == []


def test_a_checkpoint_that_is_gone_is_said_with_what_there_is(store: ArtifactStore, tmp_path: Path) -> None:
    artifact = publish(store, adapter(tmp_path / "v0", odd_tensors()))
    checkpoints_of(store).retire(artifact.checkpoints.values())
    with pytest.raises(IntegrityError, match=r"an artifact names checkpoint .*: no checkpoint"):
        artifact.directory("voter")
    assert publish(store, tmp_path / "v0").checkpoints == artifact.checkpoints  # materialized again: it is back
    artifact.verify()


def test_what_is_no_checkpoint_is_refused_and_nothing_is_published(store: ArtifactStore, tmp_path: Path) -> None:
    (tmp_path / "v0").mkdir()
    (tmp_path / "v0" / "notes.txt").write_text("nothing else")
    with pytest.raises(InputError, match="no weights in"):
        publish(store, tmp_path / "v0")
    assert store.list("trained_adapters") == []


def test_an_encrypted_store_is_read_and_written_with_the_key_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPIBARA_CHECKPOINT_KEY", base64.b64encode(b"k" * 32).decode())
    key = given_key()
    assert key is not None
    create_vault(open_place(checkpoint_root(str(tmp_path / "store"))), key)
    store, folder = open_artifacts(tmp_path / "store"), adapter(tmp_path / "v0", odd_tensors())
    artifact = publish(store, folder)
    assert tree_digest(artifact.directory("voter")) == tree_digest(folder)
    held = [path.read_bytes() for path in (tmp_path / "store" / "checkpoints").rglob("*") if path.is_file()]
    assert held and not any(b"lora_A" in data or b"peft_type" in data for data in held)
    monkeypatch.delenv("CAPIBARA_CHECKPOINT_KEY")
    with pytest.raises(InputError, match="is encrypted"):
        open_artifacts(tmp_path / "store").open("trained_adapters", "python", artifact.digest).verify()


def test_opened_without_its_checkpoints_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="opened without its checkpoints"):
        checkpoints_of(ArtifactStore(tmp_path))


@pytest.mark.gcs
def test_on_gs_the_same_digest_the_same_checkpoint_and_the_same_bytes(emulator: str, tmp_path: Path) -> None:
    root = UPath("gs://bucket/assets", token="anon", endpoint_url=emulator)
    remote = open_artifacts(root, tmp_path / "work")
    folder = adapter(tmp_path / "v0", odd_tensors())
    artifact = publish(remote, folder)
    local = publish(open_artifacts(tmp_path / "local"), folder)
    assert (artifact.digest, artifact.checkpoints) == (local.digest, local.checkpoints)
    reader = open_artifacts(root, tmp_path / "elsewhere")
    assert tree_digest(reader.open("trained_adapters", "python", artifact.digest).directory("voter")) == tree_digest(
        folder
    )
    assert [one.manifest.about.model for one in checkpoints_of(reader).list()] == ["python/v0"]
    assert checkpoint_root(reader.root) == "gs://bucket/assets/checkpoints"
    assert has_checkpoints(reader) and list(needed_checkpoints(reader)) == list(artifact.checkpoints.values())
    epoch = checkpoints_of(reader).save({"w": torch.ones(9)}, 1, "python/v0", dataset_digest="d" * 64)
    found = behind(reader, [], {"d" * 64}, ())
    assert [one.id for one in found] == [epoch] and purge(reader, found) == []
    assert [one.id for one in checkpoints_of(reader).list()] == list(artifact.checkpoints.values())
    artifact.verify()


KILLED = """
import os, random, signal, sys, time
from pathlib import Path
from safetensors.numpy import save_file
import capibara_assets.checkpoints.formats.huggingface, capibara_assets.checkpoints.store  # once, not in every victim
import numpy as np
from capibara_assets.checkpoints.artifacts import open_artifacts
from capibara_assets.storage.checkpointed import Checkpointed

root, random = Path(sys.argv[1]), random.Random(7)
hits, whole, victim, deadline = 0, 0, 0, time.monotonic() + 90
while (victim < 12 or hits < 5 or whole < 5) and time.monotonic() < deadline:
    victim += 1
    child = os.fork()
    if child == 0:
        store = open_artifacts(root / "store")
        for n in range(10_000):
            tree = root / f"tree-{victim}-{n}" / "v0"
            tree.mkdir(parents=True)
            weights = np.random.default_rng([victim, n]).random((256, 256))
            save_file({"base_model.model.l.lora_A.weight": weights}, tree / "adapter_model.safetensors")
            (tree / "adapter_config.json").write_text("{}")
            kept = {"voters/v0": Checkpointed({"model": "sql/v0", "step": n})}
            store.publish("trained_adapters", "sql", trees={"voters": tree.parent}, checkpoints=kept)
    time.sleep(random.uniform(0.1, 0.3 + victim / 20))  # longer and longer, for a busy machine
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    hits = len(list((root / "store" / "staging").glob("*")))
    whole = len(list((root / "store" / "artifacts").glob("*/*/*/manifest.json")))
print(victim, hits)
"""


@pytest.mark.extended
def test_a_killed_publisher_leaves_whole_artifacts_whose_checkpoints_are_whole(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[1]) >= 5, "too few kills hit a publisher at work: the test proves nothing"
    store = open_artifacts(tmp_path / "store")
    artifacts = store.list("trained_adapters")
    assert len(artifacts) >= 5
    for artifact in artifacts:
        artifact.verify()
    assert checkpoints_of(store).verify() == []
    named = {identity for artifact in artifacts for identity in artifact.checkpoints.values()}
    assert named <= {one.id for one in checkpoints_of(store).list()}  # one that no artifact names yet does no harm
    checkpoints_of(store).collect(thorough=True)
    for artifact in artifacts:
        artifact.verify()
