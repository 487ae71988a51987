"""Agreement among voters: honest ones, the three drills, quorum, and independence of order."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from capibara_assets.consensus.agree import BASE, CONSENSUS, Agreement, ConsensusError, agree
from capibara_assets.consensus.agree_on_artifacts import read_privacy
from capibara_assets.consensus.certificates.verification import (
    attestation_problems,
    read_submissions,
    result_problems,
    vote_problems,
)
from capibara_assets.consensus.electorate import attest_voters
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.modeling.base import Base
from capibara_assets_tests.consensus.conftest import Tokens, changed
from capibara_assets_tests.consensus.in_process import hold_here

Writer = Callable[[Mapping[str, LoraAdapter]], dict[str, Path]]
RECIPE = ConsensusRecipe()


@pytest.fixture(scope="module")
def honest_agreement(
    tiny: Base,
    honest: dict[str, LoraAdapter],
    validation: list[Tokens],
    shards: dict[str, list[int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Agreement:
    folder = tmp_path_factory.mktemp("honest")
    for name, adapter in honest.items():
        write_adapter(adapter, folder / name)
    return agree(tiny, {n: folder / n for n in honest}, validation, shards, RECIPE, {"domain": "python"})


def test_honest_voters_are_all_accepted(honest_agreement: Agreement, honest: dict[str, LoraAdapter]) -> None:
    certificate = honest_agreement.certificate
    assert certificate.accepted == tuple(honest)
    assert (certificate.n, certificate.f, certificate.quorum, certificate.faults_left) == (4, 1, 3, 1)
    assert len(certificate.ballots) == 12
    assert all(ballot.voter != ballot.candidate for ballot in certificate.ballots)
    losses = honest_agreement.losses
    assert losses[CONSENSUS] < 0.9 * losses[BASE]
    assert losses[CONSENSUS] <= 1.02 * min(losses[name] for name in honest)
    assert certificate.result.relative_error == 0.0
    assert certificate.result.rank == 32
    assert sum(voter.weight or 0 for voter in certificate.voters) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("factor", "stage", "words"),
    [
        (-1.0, "vote", "rejected by 0 of 3 ballots, 2 needed; quality 0.00 to 0.00"),
        pytest.param(-3.0, "vote", "rejected by 0 of 3 ballots", marks=pytest.mark.extended),
        (float("nan"), "attestation", "not finite: 6 of 12 tensors hold NaN or Inf"),
        pytest.param(float("inf"), "attestation", "not finite", marks=pytest.mark.extended),
        (100.0, "attestation", "times the median of the others"),
    ],
)
@pytest.mark.parametrize("liar", [pytest.param("voter-0", marks=pytest.mark.extended), "voter-3"])
def test_a_bad_voter_is_named_and_the_result_hardly_moves(
    factor: float,
    stage: str,
    words: str,
    liar: str,
    tiny: Base,
    honest: dict[str, LoraAdapter],
    honest_agreement: Agreement,
    validation: list[Tokens],
    shards: dict[str, list[int]],
    on_disk: Writer,
) -> None:
    voters = on_disk({**honest, liar: changed(honest[liar], factor)})
    agreement = agree(tiny, voters, validation, shards, RECIPE, {"domain": "python"}, hold=hold_here)
    rejected = [voter for voter in agreement.certificate.voters if not voter.accepted]
    assert [(voter.name, voter.stage) for voter in rejected] == [(liar, stage)]
    assert words in rejected[0].reason
    assert agreement.certificate.faults_left == 0
    cast = {ballot.voter for ballot in agreement.certificate.ballots}
    assert (liar in cast) == (stage == "vote"), "who failed attestation casts no ballot"
    # The three honest voters left know less than four; beyond that nothing may be lost
    assert agreement.losses[CONSENSUS] <= 1.05 * honest_agreement.losses[CONSENSUS]
    json.dumps(agreement.certificate.model_dump(mode="json"), allow_nan=False)


@pytest.mark.parametrize(
    "rule",
    [
        "mda",
        *(pytest.param(rule, marks=pytest.mark.extended) for rule in ("geometric_median", "trimmed_mean", "median")),
    ],
)
def test_neither_order_nor_names_show_in_the_result(
    rule: str,
    tiny: Base,
    honest: dict[str, LoraAdapter],
    validation: list[Tokens],
    shards: dict[str, list[int]],
    on_disk: Writer,
) -> None:
    recipe = RECIPE.model_copy(update={"rule": rule})
    voters = on_disk(honest)
    first = agree(tiny, voters, validation, shards, recipe, {"domain": "sql"}, hold=hold_here)
    backwards = agree(
        tiny,
        dict(reversed(voters.items())),
        validation,
        dict(reversed(shards.items())),
        recipe,
        {"domain": "sql"},
        hold=hold_here,
    )
    # Keys are drawn anew for each vote; everything else is the same
    assert first.certificate.digest == backwards.certificate.digest
    assert first.certificate.voters[0].public_key != backwards.certificate.voters[0].public_key
    renamed = {f"x{9 - int(name[-1])}": name for name in voters}
    other = agree(
        tiny,
        {new: voters[old] for new, old in renamed.items()},
        validation,
        {new: shards[old] for new, old in renamed.items()},
        recipe,
        {"domain": "sql"},
        hold=hold_here,
    )
    assert other.certificate.result == first.certificate.result


def test_below_quorum_nothing_comes_out(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens], shards: dict[str, list[int]], on_disk: Writer
) -> None:
    bad = {
        **honest,
        "voter-0": changed(honest["voter-0"], -1.0),
        "voter-1": changed(honest["voter-1"], -1.0),
    }
    with pytest.raises(ConsensusError, match="no consensus: 2 of 4 voters accepted, 3 needed") as raised:
        agree(tiny, on_disk(bad), validation, shards, RECIPE, {}, hold=hold_here)
    assert "rejected by" in raised.value.reasons["voter-0"]
    assert raised.value.reasons["voter-2"].startswith("accepted by 2 of 3 ballots")


def test_a_voter_left_alone_has_nobody_to_vote_for_it(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens], shards: dict[str, list[int]], on_disk: Writer
) -> None:
    left = on_disk({"voter-1": changed(honest["voter-1"], float("nan")), "voter-2": honest["voter-2"]})
    with pytest.raises(ConsensusError, match=r"voter-2 is the only candidate of 2 voters.*train the others") as raised:
        agree(tiny, left, validation, shards, RECIPE, {})
    assert "not finite" in raised.value.reasons["voter-1"]


def test_a_voter_registered_alone_needs_no_vote_but_attestation_and_the_gate(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens], shards: dict[str, list[int]], on_disk: Writer
) -> None:
    alone = on_disk({"voter-2": honest["voter-2"]})
    agreement = agree(tiny, alone, validation, shards, RECIPE, {"domain": "sql"})
    certificate = agreement.certificate
    assert (certificate.n, certificate.f, certificate.quorum, certificate.ballots) == (1, 0, 1, ())
    assert certificate.voters[0].reason.startswith("accepted without a vote: the only voter registered")
    assert certificate.absent == {} and agreement.losses[CONSENSUS] < agreement.losses[BASE]
    read = read_submissions(certificate, alone)
    assert (
        vote_problems(certificate)
        == attestation_problems(certificate, read)
        == result_problems(certificate, read)
        == []
    )
    for factor, words in ((float("nan"), "not finite"), (-1.0, "no consensus")):
        bad = on_disk({"voter-2": changed(honest["voter-2"], factor)})
        with pytest.raises(ConsensusError, match=words):
            agree(tiny, bad, validation, shards, RECIPE, {})


def test_missing_damaged_and_foreign_adapters(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens], shards: dict[str, list[int]], on_disk: Writer
) -> None:
    voters = on_disk(honest)
    weights = voters["voter-1"] / "adapter_model.safetensors"
    whole = weights.read_bytes()

    def reason() -> str:
        verdicts = attest_voters(tiny, voters, RECIPE).verdicts
        assert [name for name, verdict in sorted(verdicts.items()) if not verdict.accepted] == ["voter-1"]
        return verdicts["voter-1"].reason

    weights.write_bytes(whole[:-7])
    assert "unreadable" in reason()
    # What attestation says is the certificate's reason, and the others agree without it
    found = agree(tiny, voters, validation, shards, RECIPE, {}, hold=hold_here).certificate
    assert {voter.name: voter.reason for voter in found.voters if not voter.accepted} == {"voter-1": reason()}
    weights.write_bytes(whole)
    (voters["voter-1"] / "manifest.json").write_text(json.dumps({"digest": "0" * 64}))
    assert "changed after training" in reason()
    (voters["voter-1"] / "manifest.json").write_text(json.dumps({"base_digest": "1" * 64}))
    assert "trained on base model 111111111111" in reason()
    (voters["voter-1"] / "manifest.json").write_text("[")
    assert "is not JSON" in reason()
    shutil.rmtree(voters["voter-1"])
    assert "is missing" in reason()
    fewer = {n: t for n, t in honest["voter-1"].tensors.items() if ".q_proj." not in n}
    write_adapter(LoraAdapter(honest["voter-1"].config, fewer), voters["voter-1"])
    assert "modules missing: model.layers.0.self_attn.q_proj" in reason()


def test_no_gain_over_the_base_is_no_consensus(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens], shards: dict[str, list[int]], on_disk: Writer
) -> None:
    useless = {name: changed(adapter, -0.1) for name, adapter in honest.items()}
    with pytest.raises(ConsensusError, match="0 of 4 voters accepted"):
        agree(tiny, on_disk(useless), validation, shards, RECIPE, {}, hold=hold_here)


def test_rounds_and_empty_shards(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens], shards: dict[str, list[int]], on_disk: Writer
) -> None:
    voters = on_disk(honest)
    three = agree(
        tiny, voters, validation, shards, RECIPE.model_copy(update={"verification_rounds": 3}), {}, hold=hold_here
    )
    assert len(three.certificate.ballots) == 36
    assert three.certificate.accepted == tuple(honest)
    with pytest.raises(InputError, match="voter 'voter-2' has 0 validation examples"):
        agree(tiny, voters, validation, {**shards, "voter-2": []}, RECIPE, {})
    for stranger in (len(validation), -1):
        with pytest.raises(InputError, match=f"shard of voter 'voter-2' names example {stranger}, there are"):
            agree(tiny, voters, validation, {**shards, "voter-2": [0, stranger]}, RECIPE, {})


def test_the_recipe_that_ships_is_the_default() -> None:
    assert shipped_recipe("consensus", ConsensusRecipe) == ConsensusRecipe()


def test_privacy_that_a_voter_states_is_read_from_its_manifest(tmp_path: Path) -> None:
    stated = {"epsilon": 1.0, "delta": 1e-5}
    manifests = {"private": {"published": {"privacy": stated}}, "plain": {"published": {}}, "old": {"published": None}}
    for name, manifest in manifests.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    folders = {name: tmp_path / name for name in (*manifests, "missing")}
    assert read_privacy(folders) == {"private": stated}
    assert read_privacy({"missing": tmp_path / "missing"}) is None
