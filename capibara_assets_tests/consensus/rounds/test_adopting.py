"""A round's result in the artifact store: verified anew, it is the domain's consensus, is served, stays provable."""

import copy
import json
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from capibara_assets.assets.adopted_rounds import adopt_round
from capibara_assets.assets.inputs import latest_digest
from capibara_assets.assets.manual_promotion import ManualPromotion, promote_manually
from capibara_assets.checkpoints.artifacts import open_artifacts
from capibara_assets.cli.checkpoint.consensus import consensus
from capibara_assets.cli.dataset.lineage import lineage
from capibara_assets.cli.serving.export import export
from capibara_assets.consensus.election.keys import read_private_key
from capibara_assets.consensus.rounds.adopting import read_result, taken_result
from capibara_assets.consensus.rounds.closing import SIGNED, close_round
from capibara_assets.consensus.rounds.taking_part import vote_in
from capibara_assets.errors import InputError
from capibara_assets.lineage.adapters import verify_published
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.modeling.files import ADAPTER_WEIGHTS
from capibara_assets.resources import BaseModel
from capibara_assets.storage.digests import sha256_bytes
from capibara_assets.training.voter_manifest import MANIFEST
from capibara_assets_tests.consensus.rounds.conftest import NAMES, Meet, Meeting, after_deadline

DATASET = "b" * 64


@pytest.fixture
def agreed(meet: Meet, tmp_path: Path) -> tuple[Meeting, Path]:
    """A round that two of three voters ended, and the folder that one of them kept."""
    m = meet(seconds=3600)
    trained = tmp_path / "trained"  # as `capibara train` leaves it; the other voter says nothing
    shutil.copytree(m.folders["voter-0"], trained)
    (trained / MANIFEST).write_text(json.dumps({"dataset_digest": DATASET, "further_datasets": {"api": "\x1b[2J"}}))
    (trained / "curve.json").write_text("[]")
    m = replace(m, folders={**m.folders, "voter-0": trained})
    for name in NAMES[:2]:
        m.hand_in(name)
    with ThreadPoolExecutor(2) as pool:
        voting = [
            pool.submit(vote_in, m.box(name), m.examples, copy.deepcopy(m.base), name, m.key_file(name),
                        m.home / f"out-{name}", 120)
            for name in NAMES[:2]
        ]  # fmt: skip
        box, key = after_deadline(m.box("organiser")), read_private_key(m.key_file("organiser"))
        agreement, _ = close_round(box, m.examples, m.base, key, tmp_path / "closed")
        for each in voting:
            each.result(120)
    kept = read_result(tmp_path / "closed", m.terms.digest)
    assert kept.losses() == pytest.approx(agreement.losses, abs=1e-5)  # as the organiser measured them
    return m, m.home / "out-voter-0"


def refuses_another_base_model(m: Meeting, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(m.base.path, other)
    config = other / "config.json"
    config.write_text(config.read_text().replace("{", '{"note": "another",', 1))
    store = open_artifacts(tmp_path / "another-store")
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(InputError, match="its adapter would not fit"):
        adopt_round(instance, store, BaseModel(location=str(other)), read_result(folder, m.terms.digest))
    assert store.names() == []


def taken_over_by_the_command(m: Meeting, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPIBARA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CAPIBARA_BASE_MODEL", str(m.base.path))
    arguments = ["adopt", str(folder), "--round", m.terms.digest]
    first = CliRunner().invoke(consensus, arguments, catch_exceptions=False)
    assert first.exit_code == 0 and "is now consensus_checkpoint[python]" in first.output
    second = CliRunner().invoke(consensus, arguments, catch_exceptions=False)
    assert "was already consensus_checkpoint[python]" in second.output
    told = CliRunner().invoke(lineage, ["adapter", "python/consensus"], catch_exceptions=False).output
    # who accepted it, what they say of their data, and that nothing is known of those who say nothing
    assert f"key {m.terms.keys['voter-0']}: trained, it says, on moe_dataset[python] {DATASET}\n" in told
    assert f"key {m.terms.keys['voter-1']}: its datasets are not known" in told
    assert m.terms.dataset["table"] in told
    proof = CliRunner().invoke(lineage, ["adapter", "python/consensus", "--absent", "x"], catch_exceptions=False)
    assert proof.exit_code == 1 and "cannot be told" in proof.output


def test_a_rounds_result_is_the_domains_consensus_and_is_served(
    agreed: tuple[Meeting, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    m, folder = agreed
    result, store = read_result(folder, m.terms.digest), open_artifacts(tmp_path / "store")
    base = BaseModel(location=str(m.base.path))
    with dg.DagsterInstance.ephemeral() as instance:
        artifact, changed = adopt_round(instance, store, base, result)
        assert changed and artifact.partition == "python"
        assert latest_digest(instance, "consensus_checkpoint", "python") == artifact.digest  # what the next stages read
        move = promote_manually(instance, store, ManualPromotion(slot="python", reason="agreed elsewhere"), print)
        assert move is not None and move.promotion["serving"]["experts"] == {"python": artifact.digest}
        again, changed = adopt_round(instance, store, base, read_result(tmp_path / "closed", m.terms.digest))
        assert again.digest == artifact.digest and not changed  # at each organisation the same data version
    adapter, agreed_on = read_adapter(artifact.directory("adapter")), read_adapter(folder / "adapter")
    assert adapter.tensors.keys() == agreed_on.tensors.keys()
    assert artifact.document("certificate")["context"]["round"] == m.terms.digest
    found = verify_published(store, artifact, m.terms.keys)
    assert found.ok and "result" in found.recomputed  # from the voters' adapters, which the artifact holds
    export(store, str(m.base.path), m.base.path, tmp_path / "served", (), 0)
    card = (tmp_path / "served" / "README.md").read_text("utf-8")
    assert "license: unknown" in card and "The adapters of python are results of rounds between organisations" in card
    refuses_another_base_model(m, folder, tmp_path)
    taken_over_by_the_command(m, folder, tmp_path, monkeypatch)


def _other_round(m: Meeting, folder: Path) -> str:
    return "0" * 64


def _other_adapter(m: Meeting, folder: Path) -> str:
    shutil.copytree(folder / "voters" / "voter-1", folder / "adapter", dirs_exist_ok=True)
    return m.terms.digest


def _other_keys(m: Meeting, folder: Path) -> str:
    file = folder / "round.json"
    file.write_text(file.read_text().replace(m.terms.keys["voter-0"], m.terms.keys["voter-1"]))
    return m.terms.digest


def _without_election(m: Meeting, folder: Path) -> str:
    (folder / "election.json").unlink()
    return m.terms.digest


def _without_a_voter(m: Meeting, folder: Path) -> str:
    shutil.rmtree(folder / "voters" / "voter-1")
    return m.terms.digest


def _nothing(m: Meeting, folder: Path) -> str:
    shutil.rmtree(folder)
    folder.mkdir()
    return m.terms.digest


def _added_to_the_adapter(m: Meeting, folder: Path) -> str:
    (folder / "adapter" / "modeling_added.py").write_text("raise SystemExit")
    return m.terms.digest


def _added_to_a_voters(m: Meeting, folder: Path) -> str:
    (folder / "voters" / "voter-1" / "config.json").write_text("{}")
    return m.terms.digest


def _manifest_changed(m: Meeting, folder: Path) -> str:
    (folder / "voters" / "voter-0" / MANIFEST).write_text(json.dumps({"dataset_digest": "0" * 64}))
    return m.terms.digest


def _manifest_added(m: Meeting, folder: Path) -> str:
    shutil.copy(folder / "voters" / "voter-0" / MANIFEST, folder / "voters" / "voter-1")
    return m.terms.digest


def _signed(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    heads = json.loads((folder / SIGNED).read_text())
    change(heads)
    (folder / SIGNED).write_text(json.dumps(heads))


def _signature_of_another_voter(m: Meeting, folder: Path) -> str:
    _signed(folder, lambda heads: heads.update({"voter-0": heads["voter-1"]}))
    return m.terms.digest


def _signature_changed(m: Meeting, folder: Path) -> str:
    def change(heads: dict[str, Any]) -> None:
        data = (folder / "voters" / "voter-0" / MANIFEST).read_bytes()
        heads["voter-0"]["content"]["files"][MANIFEST] = [len(data), sha256_bytes(data)]

    _manifest_changed(m, folder)
    _signed(folder, change)
    return m.terms.digest


def _signature_that_is_none(m: Meeting, folder: Path) -> str:
    _signed(folder, lambda heads: heads.update({"voter-0": {"content": 1}}))
    return m.terms.digest


def test_an_unsigned_manifest_is_not_published(agreed: tuple[Meeting, Path]) -> None:
    """As earlier versions left it; and a voter's signed one may be left out, by who hands the result on."""
    m, folder = agreed
    names = {file.name for file in read_result(folder, m.terms.digest).voters["voter-0"]}
    assert names == {"adapter_config.json", "adapter_model.safetensors", MANIFEST}
    (folder / SIGNED).unlink()
    assert {file.name for file in read_result(folder, m.terms.digest).voters["voter-0"]} == names - {MANIFEST}
    shutil.copy(m.home / "closed" / SIGNED, folder)
    (folder / "voters" / "voter-0" / MANIFEST).unlink()
    assert {file.name for file in read_result(folder, m.terms.digest).voters["voter-0"]} == names - {MANIFEST}


def test_what_does_not_hold_is_not_taken_over(agreed: tuple[Meeting, Path], tmp_path: Path) -> None:
    m, kept = agreed
    changes: list[Callable[[Meeting, Path], str]] = [
        _other_round, _other_adapter, _other_keys, _without_election, _without_a_voter, _nothing,
        _added_to_the_adapter, _added_to_a_voters, _manifest_changed, _manifest_added, _signature_of_another_voter,
        _signature_changed, _signature_that_is_none,
    ]  # fmt: skip
    for change in changes:
        folder = tmp_path / change.__name__
        shutil.copytree(kept, folder)
        digest = change(m, folder)
        with pytest.raises(InputError):
            read_result(folder, digest)


def test_what_is_put_there_after_the_check_is_not_taken_over(agreed: tuple[Meeting, Path], tmp_path: Path) -> None:
    m, kept = agreed
    folder = tmp_path / "result"
    shutil.copytree(kept, folder)
    before = (kept / "adapter" / ADAPTER_WEIGHTS).read_bytes()
    with taken_result(folder, m.terms.digest) as result:
        (folder / "adapter" / ADAPTER_WEIGHTS).write_bytes(before[::-1])
        assert (result.adapter / ADAPTER_WEIGHTS).read_bytes() == before
    with pytest.raises(InputError, match=re.escape(str(folder))), taken_result(folder, m.terms.digest):
        pass


def test_a_secret_in_what_a_voter_signed_does_not_get_into_the_store(
    agreed: tuple[Meeting, Path], tmp_path: Path
) -> None:
    m, kept = agreed
    store, result = open_artifacts(tmp_path / "store"), read_result(kept, m.terms.digest)
    config = tmp_path / "adapter_config.json"
    told = {"revision": "ghp_" + "q7Wz2LxV9TkR4NmB8YcD3FhJ6PsG1A0eUiKo"}
    config.write_text(json.dumps(json.loads((result.adapter / "adapter_config.json").read_text()) | told))
    held = replace(result, voters=result.voters | {"voter-0": (config,)})
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(InputError, match="the shape of a secret") as error:
        adopt_round(instance, store, BaseModel(location=str(m.base.path)), held)
    assert "ghp_" not in str(error.value) and store.names() == []
