"""A checkpoint is needed where a certificate or a promoted model names it, or the adapter that it holds."""

from pathlib import Path
from typing import Any

import pytest
import torch

from capibara_assets.checkpoints.formats import read
from capibara_assets.checkpoints.inspect.verify import adapter_digest
from capibara_assets.checkpoints.store.checkpoint import Checkpoint
from capibara_assets.checkpoints.store.manifest import About
from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets.lineage.checkpoint_needs import named_digests, needed
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.storage.store import ArtifactStore

CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "base_model_name_or_path": "b"}


def write(folder: Path, seed: int) -> Path:
    generator = torch.Generator().manual_seed(seed)
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    tensors = {
        f"{name}A.weight": torch.randn(2, 6, generator=generator),
        f"{name}B.weight": torch.randn(6, 2, generator=generator),
    }
    write_adapter(LoraAdapter(CONFIG, tensors), folder)
    return folder


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints")


@pytest.fixture
def artifacts(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "artifacts")


def save(store: CheckpointStore, folder: Path, step: int, **about: Any) -> Checkpoint:
    return store.write(read(folder), About(model="python/v0", step=step, **about))


def certify(artifacts: ArtifactStore, voter: str, result: str) -> str:
    certificate = {
        "digest": "c" * 64,
        "base_digest": "b" * 64,
        "context": {"trained_adapters": "a" * 64},
        "voters": [{"name": "v0", "digest": voter}, {"name": "v1", "digest": None}],
        "result": {"digest": result},
    }
    return artifacts.publish("consensus_checkpoint", "python", documents={"certificate": certificate}).digest


def test_an_adapter_is_found_by_the_digest_of_its_files(
    store: CheckpointStore, artifacts: ArtifactStore, tmp_path: Path
) -> None:
    attested, other, result = (write(tmp_path / str(seed), seed) for seed in range(3))
    saved = [save(store, folder, step) for step, folder in enumerate((attested, other, result))]
    digest = certify(artifacts, adapter_digest(attested), adapter_digest(result))
    found = needed(store, saved, named_digests(artifacts))
    where = f"the certificate of consensus_checkpoint[python] {digest[:12]} names it"
    assert found == {saved[0].id: [f"{where} (voters v0 digest)"], saved[2].id: [f"{where} (result digest)"]}


def test_a_checkpoint_is_found_by_its_id_and_by_what_it_says_it_is(
    store: CheckpointStore, artifacts: ArtifactStore
) -> None:
    one = store.open(store.save({"w": torch.ones(2)}, 1, "m"))
    two = store.open(store.save({"w": torch.ones(3)}, 2, "m", sources={"adapter": "d" * 64}))
    three = store.open(store.save({"w": torch.ones(4)}, 3, "m"))
    certify(artifacts, "d" * 64, "e" * 64)
    promotion = {
        "serving": {"experts": {}, "merged": None, "router": None},
        "domains": {"python": {"checkpoint": one.id, "note": "not a digest"}},
    }
    promoted = artifacts.publish("promoted_model", None, documents={"promotion": promotion})
    found = needed(store, [one, two, three], named_digests(artifacts))
    assert found[one.id] == [f"promoted_model {promoted.digest[:12]} names it (promotion domains python checkpoint)"]
    assert found.keys() == {one.id, two.id}


def test_what_it_was_made_from_does_not_count_as_named(store: CheckpointStore, artifacts: ArtifactStore) -> None:
    """Every checkpoint of a training has the artifact that a certificate's context names among its sources."""
    source = {"trained_adapters[python]": "a" * 64, "base": "b" * 64, "certificate": "c" * 64}
    one = store.open(store.save({"w": torch.ones(2)}, 1, "m", sources=source))
    certify(artifacts, "d" * 64, "e" * 64)
    assert needed(store, [one], named_digests(artifacts)) == {}


def test_a_damaged_adapter_is_kept_where_anything_is_certified(
    store: CheckpointStore, artifacts: ArtifactStore, tmp_path: Path
) -> None:
    saved = save(store, write(tmp_path / "adapter", 1), 1)
    for pack in (tmp_path / "checkpoints" / "packs").iterdir():
        pack.chmod(0o644)
        data = bytearray(pack.read_bytes())
        data[600] ^= 1
        pack.write_bytes(data)
    fresh = CheckpointStore(tmp_path / "checkpoints")
    assert needed(fresh, [saved], named_digests(artifacts)) == {}  # nothing is certified: it need not be read
    certify(artifacts, "d" * 64, "e" * 64)
    (reason,) = needed(fresh, [fresh.open(saved.id)], named_digests(artifacts))[saved.id]
    assert reason.startswith("whether a certificate names it cannot be told: ") and "damaged" in reason
