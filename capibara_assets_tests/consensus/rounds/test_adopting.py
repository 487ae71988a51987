"""A round's result in the artifact store: verified anew, it is the domain's consensus, is served, stays provable."""

import copy
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner

from capibara_assets.assets.adopted_rounds import adopt_round
from capibara_assets.assets.inputs import latest_digest
from capibara_assets.assets.manual_promotion import ManualPromotion, promote_manually
from capibara_assets.checkpoints.artifacts import open_artifacts
from capibara_assets.cli.checkpoint.consensus import consensus
from capibara_assets.cli.dataset.lineage import lineage
from capibara_assets.consensus.election.keys import read_private_key
from capibara_assets.consensus.rounds.adopting import read_result
from capibara_assets.consensus.rounds.closing import close_round
from capibara_assets.consensus.rounds.taking_part import vote_in
from capibara_assets.errors import InputError
from capibara_assets.lineage.adapters import verify_published
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.resources import BaseModel
from capibara_assets_tests.consensus.rounds.conftest import NAMES, Meet, Meeting, after_deadline


@pytest.fixture
def agreed(meet: Meet, tmp_path: Path) -> tuple[Meeting, Path]:
    """A round that two of three voters ended, and the folder that one of them kept."""
    m = meet(seconds=3600)
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
    for voter in NAMES[:2]:  # who accepted it, and that no data of theirs is known here
        assert f"key {m.terms.keys[voter]}: its datasets are not known" in told
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


def test_what_does_not_hold_is_not_taken_over(agreed: tuple[Meeting, Path], tmp_path: Path) -> None:
    m, kept = agreed
    changes: list[Callable[[Meeting, Path], str]] = [
        _other_round, _other_adapter, _other_keys, _without_election, _without_a_voter, _nothing,
        _added_to_the_adapter, _added_to_a_voters,
    ]  # fmt: skip
    for change in changes:
        folder = tmp_path / change.__name__
        shutil.copytree(kept, folder)
        digest = change(m, folder)
        with pytest.raises(InputError):
            read_result(folder, digest)
