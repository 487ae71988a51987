"""What an operator who thinks could claim: averages that are none, losses nobody measured, keys that are nobody's."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from capibara_assets.checkpoints.inspect.verify import digest_of
from capibara_assets.consensus.agree import Agreement
from capibara_assets.consensus.certificates.certificate import (
    parse_certificate,
    read_certificate,
    sealed,
    verify_certificate,
)
from capibara_assets.consensus.certificates.model import Certificate
from capibara_assets.consensus.choose.choosing import Tried, choice_of, gate
from capibara_assets.consensus.election.ballots import new_key
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.consensus.remeasure import remeasured_problems
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.low_rank import merge_adapters
from capibara_assets_tests.consensus.certificates.conftest import Agreed, voted_again
from capibara_assets_tests.consensus.conftest import Tokens

VERSION_1 = Path(__file__).parent / "certificate_1.json"


def claimed(path: Path, voters: Mapping[str, Path], kind: str, weights: Callable[[int], list[float]]) -> Certificate:
    """The certificate with another candidate as the consensus, all that follows from it made to fit.

    Real ballots, keys and adapters; its loss is stated just under that of the best, and its digest is the real one.
    """
    certificate = read_certificate(path)
    entry = next(one for one in certificate.tried if one.kind == kind)
    chosen = weights(len(entry.voters))
    adapter = merge_adapters([read_adapter(voters[name]) for name in entry.voters], chosen, None)
    loss = round(min(one.loss or math.inf for one in certificate.tried) - 0.01, 6)
    best = min(one.loss or math.inf for one in certificate.tried if one.kind == "voter")
    base, tolerance = certificate.result.base_loss, certificate.thresholds.tolerance
    passed, reason = gate(loss, base, best, tolerance, {})
    figures = dict(entry.figures)
    forged = entry.model_copy(
        update={
            "weights": tuple(chosen), "digest": digest_of(adapter), "loss": loss, "passed": passed, "reason": reason,
            "relative_error": adapter.relative_error, "figures": figures,
        }
    )  # fmt: skip
    tried = tuple(forged if one is entry else one for one in certificate.tried)
    assert choice_of(tried, None) is forged
    share = dict(zip(forged.voters, chosen, strict=True))
    result = certificate.result.model_copy(
        update={"digest": forged.digest, "loss": loss, "relative_error": 0.0, "rank": int(adapter.config["r"])}
    )
    entries = tuple(v.model_copy(update={"weight": share.get(v.name)}) for v in certificate.voters)
    return sealed(
        certificate.model_copy(update={"tried": tried, "chosen": forged.name, "result": result, "voters": entries})
    )


@pytest.mark.parametrize(
    ("kind", "weights", "words"),
    [
        ("convex", lambda k: [-100.0] * k, "are not all at least 0"),
        ("convex", lambda k: [1.0] * k, "weights sum to 3, not to 1"),
        ("uniform_soup", lambda k: [0.5, 0.5] + [0.0] * (k - 2), "are not equal shares of"),
        ("uniform_soup", lambda k: [-100.0] * k, "are not all at least 0"),
        ("weighted_soup", lambda k: [0.9, 0.1] + [0.0] * (k - 2), "candidate weighted_soup: by perplexity"),
        ("greedy_soup", lambda k: [0.0] * (k - 1) + [1.0], "its attempts come to equal shares of"),
    ],
)
def test_no_linear_combination_passes_for_an_average(
    agreed: Agreed, kind: str, weights: Callable[[int], list[float]], words: str
) -> None:
    path, voters, _ = agreed
    forged = claimed(path, voters, kind, weights)
    keys = {voter.name: str(voter.public_key) for voter in forged.voters}
    problems = verify_certificate(forged, voters, keys=keys).problems
    assert any(words in problem for problem in problems), problems


def test_a_point_of_the_simplex_that_nobody_measured_needs_the_base(
    agreed: Agreed, tiny: Base, validation: list[Tokens], shards: dict[str, list[int]]
) -> None:
    """Its loss is in no ballot: without base and examples that is said, with them it is refused."""
    path, voters, adapter = agreed
    keys = {voter.name: str(voter.public_key) for voter in read_certificate(path).voters}

    def again(certificate: Certificate, folders: Mapping[str, Path]) -> list[str]:
        return remeasured_problems(certificate, folders, tiny, validation, shards, ConsensusRecipe())

    whole = verify_certificate(path, voters, result=adapter, keys=keys, remeasure=again)
    assert whole.problems == () and whole.proven and "losses" in whole.recomputed and whole.unproven
    forged = claimed(path, voters, "convex", lambda k: [0.7, 0.3] + [0.0] * (k - 2))
    found = verify_certificate(forged, voters, keys=keys)
    assert not found.proven and any("averages: 3 accepted voters signed them" in line for line in found.unchecked)
    problems = verify_certificate(forged, voters, keys=keys, remeasure=again).problems
    assert any(problem.startswith("candidate convex: measured again its loss is") for problem in problems)
    assert any("measured again its weights are" in problem for problem in problems)
    with pytest.raises(InputError, match="not those that its ballots name"):
        remeasured_problems(read_certificate(path), voters, tiny, validation[::-1], shards, ConsensusRecipe())


def restated(certificate: Certificate, **losses: float) -> Certificate:
    """Other losses of voters, with the gate's verdicts that follow."""
    base, tolerance = certificate.result.base_loss, certificate.thresholds.tolerance

    def of(entry: Tried) -> float:
        return losses.get(entry.name, entry.loss or math.inf)

    best = min(of(entry) for entry in certificate.tried if entry.kind == "voter")
    verdicts = {entry.name: gate(of(entry), base, best, tolerance, {}) for entry in certificate.tried}
    tried = tuple(
        entry.model_copy(
            update={"loss": of(entry), "passed": verdicts[entry.name][0], "reason": verdicts[entry.name][1]}
        )
        for entry in certificate.tried
    )
    return certificate.model_copy(update={"tried": tried})


def test_a_voters_loss_is_not_below_what_the_others_signed(agreed: Agreed) -> None:
    path, voters, _ = agreed
    name = next(entry.name for entry in read_certificate(path).tried if entry.kind == "voter")
    problems = verify_certificate(sealed(restated(read_certificate(path), **{name: 0.0001})), voters).problems
    assert any(problem.startswith(f"the loss of voter {name} is stated as 0.000100") for problem in problems)


def test_a_base_loss_that_the_ballots_do_not_make_is_named(agreed: Agreed) -> None:
    certificate = read_certificate(agreed[0])
    honest = verify_certificate(certificate)
    assert not any("base's loss" in line for line in honest.unchecked)
    higher = certificate.result.model_copy(update={"base_loss": certificate.result.base_loss + 1})
    found = verify_certificate(sealed(restated(certificate.model_copy(update={"result": higher}))))
    assert any("a voter misstated it, or the count did" in line for line in found.unchecked) and not found.proven
    lower = certificate.result.model_copy(update={"base_loss": certificate.result.base_loss / 10})
    problems = verify_certificate(sealed(certificate.model_copy(update={"result": lower}))).problems
    assert any(problem.startswith("the loss of base is stated as") for problem in problems)


def test_one_key_for_several_voters_is_refused(agreed: Agreed) -> None:
    path, voters, _ = agreed
    certificate, one = read_certificate(path), new_key()
    forged = voted_again(certificate, dict.fromkeys((voter.name for voter in certificate.voters), one))
    problems = verify_certificate(forged, voters).problems
    assert any("have one key: one signed for the other" in problem for problem in problems)


def test_fresh_keys_and_weak_thresholds_are_said(original: tuple[Path, Agreement]) -> None:
    certificate = read_certificate(original[0] / "certificate.json")
    found = verify_certificate(certificate)
    assert found.ok and not found.proven and found.reservations == ()
    assert any("anybody can have signed" in line for line in found.unchecked)
    some = {certificate.voters[0].name: str(certificate.voters[0].public_key)}
    assert any("are not among the keys given" in line for line in verify_certificate(certificate, keys=some).unchecked)
    weak = certificate.thresholds.model_copy(
        update={"quality": 1e-9, "consensus": 1e-9, "norm_ratio": 1e9, "fault_tolerance": 0.0, "copy_ratio": 0.0,
                "tolerance": 5.0}
    )  # fmt: skip
    said = verify_certificate(certificate.model_copy(update={"thresholds": weak, "f": 0})).reservations
    assert len(said) == 6 and any("f is 0, 4 voters stand 1" in line for line in said)


def test_the_version_cannot_be_taken_down_past_known_keys() -> None:
    with pytest.raises(InputError, match="version 1 has no keys to compare with"):
        verify_certificate(VERSION_1, keys={"voter-0": "a stranger's"})
    found = verify_certificate(VERSION_1)
    assert found.ok and not found.proven
    with pytest.raises(InputError, match="no public key was given"):
        verify_certificate(VERSION_1, keys={})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace('"base_loss": ', '"base_loss": Infinity, "was": ', 1), "Infinity is no JSON number"),
        (lambda text: text.replace('"n": ', '"n": 7, "n": ', 1), "'n' is there twice in one object"),
        (lambda text: text.replace('"quorum": ', '"quorum": NaN, "was": ', 1), "NaN is no JSON number"),
        (lambda text: "[" * 10_000, "is not a certificate"),
    ],
)
def test_what_two_readers_would_read_differently_is_no_certificate(
    agreed: Agreed, change: Callable[[str], str], words: str
) -> None:
    path = agreed[0]
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError, match=words):
        read_certificate(path)


def test_infinity_in_a_document_is_named_with_its_field(agreed: Agreed) -> None:
    document = json.loads(agreed[0].read_text())
    document["result"]["base_loss"] = math.inf
    with pytest.raises(InputError, match=r"result\.base_loss: should be a finite number"):
        parse_certificate(document)
    document = json.loads(agreed[0].read_text())
    document["ballots"][0]["base_loss"] = math.inf
    with pytest.raises(InputError, match=r"ballots\.0\.base_loss: should be a finite number"):
        parse_certificate(document)
