"""Which checkpoints results need, which a forgotten record is behind, and that nothing of these stays."""

import base64
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from capibara_assets.checkpoints.artifacts import checkpoints_of, open_artifacts
from capibara_assets.checkpoints.encryption.keys import RawKey, given_key
from capibara_assets.checkpoints.retention import RetentionPolicy, plan
from capibara_assets.checkpoints.store.places import open_place
from capibara_assets.checkpoints.store.resealing import encrypt
from capibara_assets.checkpoints.store.slots import create_vault
from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets.datasets.schema import Example
from capibara_assets.errors import InputError
from capibara_assets.lineage.adapters import adapter_trail
from capibara_assets.lineage.ancestors import upstream_key
from capibara_assets.lineage.checkpoint_needs import named_digests, needed
from capibara_assets.lineage.checkpoints import (
    behind,
    has_checkpoints,
    needed_checkpoints,
    purge,
    require_readable,
    serving_checkpoints,
    still_holding,
)
from capibara_assets.lineage.records import Results
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.checkpointed import Checkpointed
from capibara_assets.storage.records import table
from capibara_assets.storage.removal import remove_artifact
from capibara_assets.storage.store import ArtifactStore, Table
from capibara_assets_tests.canary import CANARY, singing
from capibara_assets_tests.lineage.conftest import GROUPS, VOTERS, example

NEEDLES = (f"def {CANARY}_mean(values)",)
RECIPE = {"seed": 42, "voters": [{"name": f"v{i}", "seed": i, "shard": i} for i in range(VOTERS)]}


def weights(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {f"base_model.model.l.lora_{half}.weight": torch.rand(64, 64, generator=generator) for half in "AB"}


def folder_of(path: Path, seed: int, **files: str) -> Path:
    """An adapter in PEFT's format."""
    path.mkdir(parents=True)
    save_file(weights(seed), path / "adapter_model.safetensors", metadata={"format": "pt"})
    (path / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 64}')
    for name, text in files.items():
        (path / f"{name}.md").write_text(text)
    return path


class Graph:
    """A store with datasets, trainings, agreements and promotions of two domains, as assets publish them."""

    def __init__(self, root: Path) -> None:
        self.store = open_artifacts(root / "store", root / "work")
        self.root, self.made = root, dict[tuple[str, str | None], Artifact]()

    @property
    def checkpoints(self) -> CheckpointStore:
        return checkpoints_of(self.store)

    def put(
        self,
        asset: str,
        partition: str | None,
        *inputs: Artifact,
        checkpoints: Mapping[str, Mapping[str, Any]] | None = None,
        **parts: Any,
    ) -> Artifact:
        upstream = {upstream_key(one.name, one.partition): one.digest for one in inputs}
        kept = {
            folder: Checkpointed(about | {"sources": {f"{one.name}[{one.partition}]": one.digest for one in inputs}})
            for folder, about in (checkpoints or {}).items()
        }
        made = self.store.publish(asset, partition, inputs={"upstream": upstream}, checkpoints=kept, **parts)
        self.made[asset, partition] = made
        return made

    def domain(self, domain: str, seed: int, card: str = "a card") -> None:
        rows = [example(f"{domain}-{i}", f"g{i}", "train", [f"{domain}{i}"], domain=domain) for i in range(GROUPS)]
        dataset = self.put("moe_dataset", domain, tables={"examples": Table(Example, table(Example, rows))})
        folder = self.root / f"{domain}-{seed}"
        for number in range(VOTERS):
            voter = folder_of(folder / f"v{number}", seed + number, README=card)
            stated = {"digest": f"weights-{domain}-{number}", "shard": number, "seed": 42, "voter_seed": number}
            (voter / "manifest.json").write_text(json.dumps(stated | {"base_digest": "base"}))
        about = {"step": 8, "dataset_digest": dataset.digest, "recipe": RECIPE}
        adapters = self.put(
            "trained_adapters",
            domain,
            dataset,
            trees={"voters": folder},
            documents={"summary": {"missing": {}}},
            checkpoints={f"voters/v{n}": {"model": f"{domain}/v{n}", **about} for n in range(VOTERS)},
        )
        certificate = {
            "digest": f"certificate-{seed}",
            "voters": [{"name": f"v{n}", "accepted": n > 0} for n in range(VOTERS)],
            "context": {"trained_adapters": adapters.digest},
        }
        self.put(
            "consensus_checkpoint",
            domain,
            adapters,
            dataset,
            trees={"adapter": folder_of(self.root / f"{domain}-{seed}-consensus", seed + 9)},
            documents={"certificate": certificate},
            checkpoints={"adapter": {"model": f"{domain}/consensus", "step": 0, "dataset_digest": dataset.digest}},
        )

    def promote(self, **experts: str | None) -> Artifact:
        serving = {"experts": experts, "merged": None, "router": None}
        return self.put("promoted_model", None, documents={"promotion": {"serving": serving, "domains": {}}})

    def epoch(self, domain: str, step: int, *, seed: int | None = None, **about: Any) -> str:
        """A checkpoint as training saves them; returns its id."""
        about = {"dataset_digest": self.made["moe_dataset", domain].digest, "tags": ("v1", "best"), **about}
        state = weights(100 + step if seed is None else seed)
        return self.checkpoints.save(state, step, f"{domain}/v1", recipe=RECIPE, base_digest="base", **about)

    @property
    def results(self) -> Results:
        return Results(self.store, self.made)


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = Graph(tmp_path_factory.mktemp("graph"))
    graph.domain("python", 1)
    graph.domain("sql", 20)
    return graph


@pytest.fixture
def graph(made_once: Graph, tmp_path: Path) -> Graph:
    """A copy to change."""
    shutil.copytree(made_once.root / "store", tmp_path / "store")
    graph = Graph(tmp_path)
    graph.made = {key: graph.store.open(*key, artifact.digest) for key, artifact in made_once.made.items()}
    return graph


def ids(found: object) -> set[str]:
    return {one.id for one in found}  # type: ignore[attr-defined]


# --- what is needed --------------------------------------------------------------------------------------------------


def test_all_that_artifacts_name_is_needed_and_a_promotion_is_the_first_reason(graph: Graph) -> None:
    loose = graph.epoch("python", 3)
    first = graph.made["consensus_checkpoint", "python"]
    graph.promote(python=first.digest, sql=None)
    graph.domain("python", 50)
    second = graph.made["consensus_checkpoint", "python"]
    latest = graph.promote(python=second.digest, sql=None)
    needed = needed_checkpoints(graph.store)
    assert loose not in needed and len(needed) == 3 * (VOTERS + 1)
    assert needed[first.checkpoints["adapter"]] == "promoted before: python/consensus"
    assert needed[second.checkpoints["adapter"]] == "promoted: python/consensus"
    voter = graph.made["trained_adapters", "python"].checkpoints["voters/v0"]
    assert needed[voter] == f"attested by the certificate of consensus_checkpoint[python] {second.digest[:12]}"
    promotion = latest.document("promotion")
    assert serving_checkpoints(graph.store, promotion) == {"python/consensus": second.checkpoints["adapter"]}


def test_adapters_that_no_certificate_attests_are_needed_by_their_artifact(graph: Graph) -> None:
    dataset = graph.made["moe_dataset", "sql"]
    alone = graph.put(
        "trained_adapters",
        "sql",
        dataset,
        trees={"voters": folder_of(graph.root / "alone" / "v0", 77).parent},
        documents={"summary": {"missing": {}}},
        checkpoints={"voters/v0": {"model": "sql/v0", "step": 1}},
    )
    [identity] = alone.checkpoints.values()
    assert needed_checkpoints(graph.store)[identity] == f"voters/v0 of trained_adapters[sql] {alone.digest[:12]}"


def test_a_store_without_checkpoints_needs_none_and_stays_without(tmp_path: Path) -> None:
    store = open_artifacts(tmp_path)
    store.publish("moe_dataset", "sql", documents={"a": 1})
    assert needed_checkpoints(store) == {} and behind(store, [], {"x"}, NEEDLES) == [] and purge(store, []) == []
    assert still_holding(store, NEEDLES) == [] and not has_checkpoints(store)
    require_readable(store)
    assert not (tmp_path / "checkpoints").exists()


def test_pruning_takes_epochs_and_leaves_what_artifacts_name(graph: Graph) -> None:
    epochs = {graph.epoch("python", step) for step in (2, 4)}
    newest = graph.checkpoints.save(weights(9), 9, "python/v1")
    every = graph.checkpoints.list("python/v1")
    asked = needed(graph.checkpoints, every, named_digests(graph.store))
    going = [one.checkpoint.id for one in plan(every, RetentionPolicy(keep_last=1), asked) if not one.keep]
    assert set(going) == epochs and newest not in going
    named = graph.made["trained_adapters", "python"].checkpoints["voters/v1"]
    assert any("attested by the certificate" in reason for reason in asked[named])


# --- lineage ---------------------------------------------------------------------------------------------------------


def test_a_checkpoints_id_leads_to_what_made_it(graph: Graph) -> None:
    adapters, consensus = graph.made["trained_adapters", "python"], graph.made["consensus_checkpoint", "python"]
    voter = adapter_trail(graph.results, adapters.checkpoints["voters/v2"])
    assert (voter.what, voter.name, voter.artifact) == ("voter", "python/v2", adapters.digest)
    assert voter == adapter_trail(graph.results, "python/v2") == adapter_trail(graph.results, "python/v2@latest")
    agreed = adapter_trail(graph.results, consensus.checkpoints["adapter"][:16])
    assert (agreed.what, agreed.artifact) == ("consensus_checkpoint", consensus.digest)


def test_an_epochs_checkpoint_knows_its_own_part_of_the_data(graph: Graph) -> None:
    epoch, final = adapter_trail(graph.results, graph.epoch("python", 3)), adapter_trail(graph.results, "python/v1")
    assert (epoch.what, epoch.artifact, epoch.current) == ("checkpoint", "", False)
    assert 0 < len(epoch.executions) < GROUPS and epoch.executions == final.executions
    assert [(one.domain, one.state) for one in epoch.datasets] == [("python", "present")]
    assert (epoch.seeds, epoch.base_model) == ((42,), ("base",))
    sources = {"consensus_checkpoint[sql]": graph.made["consensus_checkpoint", "sql"].digest}
    stranger = graph.checkpoints.save(weights(5), 0, "mine", sources=sources)
    assert len(adapter_trail(graph.results, stranger).voters) == VOTERS - 1  # those that were accepted
    unknown = adapter_trail(graph.results, graph.checkpoints.save(weights(6), 0, "mine"))
    assert (unknown.datasets, unknown.voters, unknown.examples) == ((), (), 0)
    with pytest.raises(InputError, match="or a checkpoint's id"):
        adapter_trail(graph.results, "zzzz")


# --- forget ----------------------------------------------------------------------------------------------------------


def forget(graph: Graph, domain: str = "python") -> set[str]:
    dataset = graph.made["moe_dataset", domain]
    found = behind(graph.store, [dataset], {dataset.digest}, NEEDLES)
    assert purge(graph.store, found) == []
    remove_artifact(graph.store, "moe_dataset", domain, dataset.digest)
    return ids(found)


def test_what_was_trained_on_a_removed_dataset_goes_and_published_adapters_stay(graph: Graph) -> None:
    epochs = {graph.epoch("python", step) for step in (2, 4)}
    after = graph.epoch("python", 6, dataset_digest="of another project", parent=sorted(epochs)[0])
    by_source = graph.checkpoints.save(
        weights(7), 0, "mine", sources={"moe_dataset[python]": graph.made["moe_dataset", "python"].digest}
    )
    other = {graph.epoch("sql", 2), graph.checkpoints.save(weights(8), 0, "mine")}
    assert forget(graph) == epochs | {after, by_source}
    left = ids(graph.checkpoints.list())
    assert left == other | set(needed_checkpoints(graph.store))
    for artifact in (graph.made["trained_adapters", "python"], graph.made["consensus_checkpoint", "python"]):
        artifact.verify()
    assert graph.checkpoints.verify() == []


def test_an_interrupted_forget_goes_on_with_what_was_removed_before(graph: Graph) -> None:
    epoch = graph.epoch("python", 2)
    dataset = graph.made["moe_dataset", "python"]
    remove_artifact(graph.store, "moe_dataset", "python", dataset.digest)
    assert ids(behind(graph.store, [], {dataset.digest}, ())) == {epoch}


def test_a_dataset_that_is_there_again_takes_nothing_along(graph: Graph) -> None:
    graph.epoch("python", 2)
    assert behind(graph.store, [], {graph.made["moe_dataset", "python"].digest}, ()) == []


def test_text_of_the_record_goes_to_the_last_byte_also_out_of_packs_that_others_need(graph: Graph) -> None:
    text = {"samples.txt": (NEEDLES[0] + "\n").encode() * 50}
    shared = graph.checkpoints.save(weights(30), 1, "mine", files=text)
    same = graph.checkpoints.save(weights(30), 1, "yours")  # its tensors lie in the other one's pack
    said = graph.checkpoints.save(weights(31), 1, "mine", recipe={"prompt": NEEDLES[0]})
    assert {Path(path).parts[1] for path in singing(graph.root / "store")} == {"packs", "manifests"}
    kept = graph.checkpoints.open(same).state()
    assert forget(graph, "sql") == {shared, said}
    assert singing(graph.root) == []
    assert all(torch.equal(tensor, kept[name]) for name, tensor in graph.checkpoints.open(same).state().items())
    assert graph.checkpoints.verify() == []


def test_what_cannot_be_read_goes_as_well(graph: Graph) -> None:
    before = set((graph.root / "store" / "checkpoints" / "packs").iterdir())
    unreadable = graph.checkpoints.save({}, 1, "mine", files={"samples.txt": b"nothing of it " * 99})
    [pack] = set((graph.root / "store" / "checkpoints" / "packs").iterdir()) - before
    piece = graph.checkpoints.open(unreadable).manifest.files["samples.txt"].pieces[0]
    data = bytearray(pack.read_bytes())
    data[graph.checkpoints.catalog.packs()[pack.stem].pieces[piece].offset + 3] ^= 1
    pack.write_bytes(data)
    assert forget(graph, "sql") == {unreadable} and not pack.exists()


def test_what_a_published_model_holds_is_told_and_not_broken(tmp_path: Path) -> None:
    graph = Graph(tmp_path)
    graph.domain("python", 1, card=f"# {NEEDLES[0]}")
    dataset = graph.made["moe_dataset", "python"]
    assert behind(graph.store, [dataset], {dataset.digest}, NEEDLES) == []
    told = still_holding(graph.store, NEEDLES)
    assert [line.split("@")[0] for line in told] == [f"python/v{number}" for number in range(VOTERS)]
    graph.made["trained_adapters", "python"].verify()


def test_checkpoints_of_a_removed_artifact_go_with_it(graph: Graph) -> None:
    adapters, dataset = graph.made["trained_adapters", "python"], graph.made["moe_dataset", "python"]
    found = behind(graph.store, [adapters, dataset], {adapters.digest, dataset.digest}, ())
    assert ids(found) == set(adapters.checkpoints.values())  # the consensus is published, and stays


def test_after_encryption_artifacts_find_their_checkpoints_by_their_former_ids(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = graph.epoch("python", 2)
    monkeypatch.setenv("CAPIBARA_CHECKPOINT_KEY", base64.b64encode(b"k" * 32).decode())
    key = given_key()
    assert key is not None
    encrypt(graph.store.root / "checkpoints", key)
    sealed = Graph(graph.root)
    sealed.made = {name: sealed.store.open(*name, artifact.digest) for name, artifact in graph.made.items()}
    for artifact in sealed.made.values():
        artifact.verify()
    trail = adapter_trail(sealed.results, graph.made["trained_adapters", "python"].checkpoints["voters/v2"])
    assert trail.name == "python/v2"
    now = {former: one.id for one in sealed.checkpoints.list() for former in one.manifest.aliases}
    assert forget(sealed) == {now[epoch]} and now[epoch] != epoch
    for artifact in sealed.made.values():
        if artifact.checkpoints:
            artifact.verify()


def test_an_encrypted_store_without_its_key_is_said_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: ArtifactStore = open_artifacts(tmp_path)
    create_vault(open_place(store.root / "checkpoints"), RawKey(b"k" * 32, "a test"))
    for name in ("KEY", "KEY_FILE", "KMS_KEY"):
        monkeypatch.delenv(f"CAPIBARA_CHECKPOINT_{name}", raising=False)
    with pytest.raises(InputError, match="is encrypted"):
        require_readable(store)
