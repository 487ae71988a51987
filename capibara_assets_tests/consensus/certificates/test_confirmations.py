"""What an operator who holds the file could do to the second round, and voters who sign something else."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from capibara_assets.cli.checkpoint.consensus import WITH_RESERVATIONS, consensus
from capibara_assets.consensus.agree import agree
from capibara_assets.consensus.certificates.certificate import (
    certify,
    parse_certificate,
    read_certificate,
    sealed,
    verify_certificate,
    write_certificate,
)
from capibara_assets.consensus.certificates.model import Certificate, content_digest
from capibara_assets.consensus.choose.choosing import choice_of, gate
from capibara_assets.consensus.election.confirmations import (
    CONFIRMED,
    Confirmation,
    confirmed,
    required_confirmations,
)
from capibara_assets.consensus.election.keys import VoterKeys, read_private_key
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.modeling.base import Base
from capibara_assets_tests.consensus.certificates.conftest import registered, voted_again
from capibara_assets_tests.consensus.conftest import Tokens, changed
from capibara_assets_tests.consensus.in_process import hold_here

VERSION_2 = Path(__file__).parent / "certificate_2.json"
Keys = dict[str, Ed25519PrivateKey]
Voted = tuple[Certificate, dict[str, Path], Keys, Certificate]


@pytest.fixture(scope="module")
def voted(
    tiny: Base,
    honest: dict[str, LoraAdapter],
    validation: list[Tokens],
    shards: dict[str, list[int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Voted:
    """Certificate of registered voters of whom one is outvoted, adapters, private keys; another election's."""
    folder = tmp_path_factory.mktemp("voted")
    voters = registered(folder, {**honest, "voter-2": changed(honest["voter-2"], -1.0)})
    hold = partial(
        agree, tiny, voters, validation, shards, ConsensusRecipe(), keys=VoterKeys.of(folder / "keys"), hold=hold_here
    )
    one, other = hold(context={"domain": "sql"}), hold(context={"domain": "python"})
    private = {name: read_private_key(folder / "keys" / f"{name}.key") for name in honest}
    return one.certificate, voters, private, other.certificate


def problems(certificate: Certificate, **changes: Any) -> list[str]:
    """Of the certificate with other content, sealed again as the operator can, and read as from a file."""
    forged = sealed(certificate.model_copy(update=changes))
    return list(verify_certificate(parse_certificate(json.loads(forged.model_dump_json()))).problems)


def found(words: str, said: list[str]) -> bool:
    return any(words in one for one in said)


def with_first(certificate: Certificate, key: Ed25519PrivateKey, **changes: Any) -> dict[str, Any]:
    """The first voter's confirmation with other content, signed by itself."""
    first, *others = certificate.confirmations
    return {"confirmations": (confirmed(first.model_copy(update=changes), key), *others)}


def test_three_of_four_confirm_and_that_is_said(voted: Voted) -> None:
    certificate, voters, private, _ = voted
    assert [one.voter for one in certificate.confirmations] == ["voter-0", "voter-1", "voter-3"]
    assert certificate.unconfirmed == {} and {one.chosen for one in certificate.confirmations} == {
        certificate.result.digest
    }
    averages = {entry.digest for entry in certificate.tried if entry.kind != "voter"}
    assert all(set(one.measured) == averages for one in certificate.confirmations)
    assert all(one.losses == {e.digest: e.loss for e in certificate.tried} for one in certificate.confirmations)
    verified = verify_certificate(certificate, voters)
    assert verified.problems == () and "confirmations" in verified.recomputed
    assert found("3 accepted voters signed them, whose own examples have 75% of the tokens", list(verified.unchecked))
    assert problems(certificate) == []
    named = json.loads(certificate.model_dump_json())["confirmations"]
    assert private and "signature" in named[0], "whose content the digest has"
    other = certificate.confirmations[0].model_copy(update={"signature": "x"})
    assert content_digest(certificate) == content_digest(
        certificate.model_copy(update={"confirmations": (other, *certificate.confirmations[1:])})
    )


def restated(certificate: Certificate, kind: str, loss: float) -> dict[str, Any]:
    """Another loss of one candidate, with all that follows: verdicts, and another consensus if it is the best."""
    best = min(e.loss for e in certificate.tried if e.kind == "voter" and e.loss is not None)
    tried = []
    for entry in certificate.tried:
        told = loss if entry.kind == kind else entry.loss
        passed, reason = gate(told or 0.0, certificate.result.base_loss, best, certificate.thresholds.tolerance, {})
        tried.append(entry.model_copy(update={"loss": told, "passed": passed, "reason": reason}))
    chosen = choice_of(tuple(tried), None)
    share = dict(zip(chosen.voters, chosen.weights or (), strict=True))
    result = certificate.result.model_copy(
        update={"digest": chosen.digest, "loss": chosen.loss, "relative_error": chosen.relative_error}
    )
    voters = tuple(v.model_copy(update={"weight": share.get(v.name)}) for v in certificate.voters)
    return {"tried": tuple(tried), "chosen": chosen.name, "result": result, "voters": voters}


def test_a_changed_loss_is_none_that_voters_signed(voted: Voted) -> None:
    """Before there was a second round nothing but measuring again told."""
    certificate = voted[0]
    convex = next(e for e in certificate.tried if e.kind == "convex")
    assert convex.digest != certificate.result.digest
    for loss, wins in ((round((convex.loss or 0) + 1e-6, 6), False), (round(certificate.result.loss - 0.1, 6), True)):
        changes = restated(certificate, "convex", loss)
        assert (changes["result"].digest == convex.digest) is wins
        said = problems(certificate, **changes)
        assert sum("confirmation of voter-" in one and "it signed loss" in one for one in said) == 3
        assert all("confirm" in one or "voters signed" in one for one in said), "nothing else contradicts it"


def test_another_chosen_digest_is_none_that_voters_signed(voted: Voted) -> None:
    certificate = voted[0]
    other = next(e for e in certificate.tried if e.digest != certificate.result.digest)
    said = problems(certificate, result=certificate.result.model_copy(update={"digest": other.digest}))
    assert found(f"it signed {certificate.result.digest[:12]} as the chosen one, not {other.digest[:12]}", said)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (lambda c: {"election": "e" * 64}, "made for election eeeeeeeeeeee"),
        (lambda c: {"ballots": "b" * 64}, "made for other ballots of the first round"),
        (lambda c: {"examples": ("e" * 64,)}, "other examples than its ballots name"),
        (lambda c: {"losses": {**c.losses, c.chosen: 0.1}}, "it signed loss 0.1"),
        (
            lambda c: {"losses": {**c.losses, "d" * 64: 0.1}},
            "candidate dddddddddddd: it signed loss 0.1, stated is None",
        ),
        (lambda c: {"losses": {}}, "it signed loss None"),
        (lambda c: {"chosen": "c" * 64}, "it signed cccccccccccc as the chosen one"),
        (lambda c: {"measured": {}}, "it did not measure every average once"),
        (lambda c: {"measured": dict.fromkeys(c.measured, 99.0)}, "on their examples its loss is at least"),
        (lambda c: {"measured": dict.fromkeys(c.measured, None)}, "voters signed [None"),
        (lambda c: {"all_tokens": 10**6}, "tokens of all examples"),
        (lambda c: {"tokens": 10**6}, "the voters' examples have"),
    ],
)
def test_a_voter_confirms_this_outcome_or_none(
    changes: Callable[[Confirmation], dict[str, Any]], words: str, voted: Voted
) -> None:
    """Each signed by the voter's own key, as in another vote, or by a liar."""
    certificate, _, private, _ = voted
    of_first = changes(certificate.confirmations[0])
    said = problems(certificate, **with_first(certificate, private["voter-0"], **of_first))
    assert found(words, said), said
    unsigned = certificate.confirmations[0].model_copy(update=of_first)
    said = problems(certificate, confirmations=(unsigned, *certificate.confirmations[1:]))
    assert found("confirmation of voter-0: not signed by the key of voter-0", said), said


def test_confirmations_of_another_election_or_voter_or_round_count_for_nobody(voted: Voted) -> None:
    certificate, _, private, other = voted
    assert other.confirmations[0].losses == certificate.confirmations[0].losses, "the same adapters, the same keys"
    said = problems(certificate, confirmations=other.confirmations)
    assert sum("made for election" in one for one in said) == 3 and found("0 accepted voters confirm", said)
    first, second, third = certificate.confirmations
    said = problems(certificate, confirmations=(first, first.model_copy(update={"voter": "voter-1"}), third))
    assert found("confirmation of voter-1: not signed by the key of voter-1", said)
    anothers = confirmed(second.model_copy(update={"voter": "voter-0"}), private["voter-1"])
    assert found("not signed by the key of voter-0", problems(certificate, confirmations=(anothers, second, third)))
    with pytest.raises(InputError, match=r"confirmations\.0\.round"):
        problems(certificate, **with_first(certificate, private["voter-0"], round=1))
    ballot = next(b for b in certificate.ballots if b.voter == "voter-0")
    borrowed = first.model_copy(update={"signature": ballot.signature})
    assert found("not signed by", problems(certificate, confirmations=(borrowed, second, third)))


def test_two_f_are_too_few_however_they_are_counted(voted: Voted) -> None:
    certificate, _, private, _ = voted
    first, second, third = certificate.confirmations
    needed = "2 accepted voters confirm the losses of the candidates and the choice, 3 are needed"
    assert found(needed, problems(certificate, confirmations=(first, second), unconfirmed={"voter-3": "late"}))
    said = problems(certificate, confirmations=(first, second, second), unconfirmed={"voter-3": "late"})
    assert found(needed, said) and found("confirmation of voter-1: it confirms twice", said)
    outvoted = confirmed(first.model_copy(update={"voter": "voter-2"}), private["voter-2"])
    said = problems(certificate, confirmations=(first, second, outvoted), unconfirmed={"voter-3": "late"})
    assert found(needed, said) and found("voter-2: only accepted voters whose ballots count confirm", said)
    stranger = confirmed(first.model_copy(update={"voter": "voter-9"}), private["voter-2"])
    assert found("voter-9: only accepted", problems(certificate, confirmations=(first, second, stranger)))
    assert found(
        "unconfirmed are [], the certificate states ['voter-3']", problems(certificate, unconfirmed={"voter-3": ""})
    )
    assert found("order of the voters", problems(certificate, confirmations=(third, second, first)))


def test_the_second_round_cannot_be_taken_away(voted: Voted) -> None:
    certificate = voted[0]
    bare: dict[str, Any] = {
        "confirmations": (),
        "unconfirmed": dict.fromkeys(("voter-0", "voter-1", "voter-3"), "late"),
    }
    assert found("0 accepted voters confirm", problems(certificate, **bare))
    lowered = problems(certificate, confirmations=(), unconfirmed={}, schema_version=2)
    assert lowered == ["its election has a second round, version 2 has none: the version or the voters were changed"]
    context = {name: value for name, value in certificate.context.items() if name != CONFIRMED}
    without = problems(certificate, confirmations=(), unconfirmed={}, schema_version=2, context=context)
    assert found("what was fixed before the vote makes election", without) and found("made for election", without)
    assert found("its election has none: the version", problems(certificate, context=context))
    looser = problems(certificate, context={**certificate.context, CONFIRMED: "1000"})
    assert found("what was fixed before the vote makes election", looser)
    for odd in ("nan", "inf", "-1", "much"):
        assert found("no number of nats", problems(certificate, context={**certificate.context, CONFIRMED: odd}))


def test_a_vote_held_to_a_looser_tolerance_says_so(voted: Voted) -> None:
    certificate, _, private, _ = voted
    loose = voted_again(certificate, private, context={**certificate.context, CONFIRMED: "0.005"})
    said = verify_certificate(loose)
    assert said.problems == () and found("they agree within 0.005 nats per token", list(said.reservations))


def test_what_all_voters_signed_adds_up_where_all_confirmed(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens], shards: dict[str, list[int]], tmp_path: Path
) -> None:
    for name, adapter in honest.items():
        write_adapter(adapter, tmp_path / name)
    voters = {name: tmp_path / name for name in honest}
    certificate = agree(tiny, voters, validation, shards, ConsensusRecipe(), {}, hold=hold_here).certificate
    assert sum(one.tokens for one in certificate.confirmations) == certificate.confirmations[0].all_tokens
    first, *others = certificate.confirmations
    for change in (-1e-3, 1e-3):
        measured = {digest: (loss or 0.0) + change for digest, loss in first.measured.items()}
        lying = voted_again(certificate, confirmations=(first.model_copy(update={"measured": measured}), *others))
        assert found(
            "by the losses that voters signed on their examples its loss is", list(verify_certificate(lying).problems)
        )
    assert verify_certificate(voted_again(certificate)).ok


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace('"chosen": ', '"more": 1, "chosen": ', 1), "more"),
        (
            lambda text: text.replace('"all_tokens": ', '"all_tokens": 7, "all_tokens": ', 1),
            "'all_tokens' is there twice",
        ),
        (lambda text: text.replace('"measured": {', '"measured": {"x": NaN, ', 1), "NaN is no JSON number"),
        (lambda text: text.replace('"round": 2', '"round": "2"', 1), "round"),
    ],
)
def test_a_confirmation_has_one_reading(change: Callable[[str], str], words: str, voted: Voted, tmp_path: Path) -> None:
    write_certificate(voted[0], tmp_path / "certificate.json")
    text = (tmp_path / "certificate.json").read_text()
    start = text.index('"confirmations"')
    spoilt = text[:start] + change(text[start:])
    assert spoilt != text
    (tmp_path / "certificate.json").write_text(spoilt)
    with pytest.raises(InputError, match=words):
        read_certificate(tmp_path / "certificate.json")


def test_a_certificate_from_before_holds_with_a_reservation(tmp_path: Path) -> None:
    """Written by the software of then: signed ballots, and no second round."""
    certificate = read_certificate(VERSION_2)
    said = verify_certificate(certificate, keys={v.name: str(v.public_key) for v in certificate.voters})
    assert said.problems == () and not said.proven and "confirmations" not in said.recomputed
    assert [one.split(":")[0] for one in said.reservations] == ["that voters stand behind the choice"]
    assert found("no ballot has them", list(said.unchecked))
    write_certificate(certificate, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == VERSION_2.read_bytes()
    shown = CliRunner().invoke(consensus, ["verify", str(VERSION_2)])
    assert shown.exit_code == WITH_RESERVATIONS and "version 2 has no second round" in shown.output
    raised = problems(certificate, schema_version=3)
    assert raised[0] == "version 3 has a second round, its election has none: the version was changed"


def test_one_voter_alone_has_nobody_to_confirm(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens], shards: dict[str, list[int]], tmp_path: Path
) -> None:
    write_adapter(honest["voter-2"], tmp_path / "voter-2")
    alone = agree(tiny, {"voter-2": tmp_path / "voter-2"}, validation, shards, ConsensusRecipe(), {})
    assert alone.certificate.confirmations == () and CONFIRMED not in alone.certificate.context
    found_ = verify_certificate(certify(alone, tmp_path / "out"))
    assert found_.ok and not any("second round" in line for line in found_.reservations)


def test_how_many_confirmations_it_takes() -> None:
    """f + 1 of them are honest, whichever: of those that were handed in twice a liar is known already."""
    assert [required_confirmations(n, f, 0) for n, f in ((1, 0), (2, 0), (4, 1), (7, 2), (13, 4))] == [0, 1, 3, 5, 9]
    assert required_confirmations(4, 1, 1) == 2 and required_confirmations(3, 0, 1) == 1
    for f in range(1, 5):
        for pairs in range(f + 1):
            assert required_confirmations(3 * f + 1, f, pairs) - (f - pairs) >= f + 1


def test_confirmations_sign_all_that_is_stated_of_candidates_and_base(voted: Voted) -> None:
    certificate, _, keys, _ = voted
    fitted = next(place for place, entry in enumerate(certificate.tried) if entry.kind == "convex")

    def told(figures: dict[str, Any]) -> Certificate:
        entry = certificate.tried[fitted].model_copy(update={"figures": figures})
        tried = (*certificate.tried[:fitted], entry, *certificate.tried[fitted + 1 :])
        return sealed(certificate.model_copy(update={"tried": tried}))

    changed_gap = told({**certificate.tried[fitted].figures, "duality_gap": -5.0})
    assert found("other figures of the candidates", list(verify_certificate(changed_gap).problems))
    assert found("other figures of the candidates", list(verify_certificate(told({"more": 1})).problems))
    base = certificate.result.model_copy(update={"base_loss": certificate.result.base_loss + 1e-6})
    stated = sealed(certificate.model_copy(update={"result": base}))
    assert found("another loss of the base", list(verify_certificate(stated).problems))
    earlier = tuple(
        confirmed(one.model_copy(update={"stated": None, "signature": None}), keys[one.voter])
        for one in certificate.confirmations
    )
    old = verify_certificate(sealed(certificate.model_copy(update={"confirmations": earlier})))
    assert old.ok and any("figures of the candidates" in line for line in old.reservations)
    without = tuple(one.model_copy(update={"stated": None}) for one in certificate.confirmations)
    assert verify_certificate(sealed(certificate.model_copy(update={"confirmations": without}))).problems


def test_lists_of_another_length_are_told_and_no_crash(voted: Voted) -> None:
    certificate = voted[0]
    for place, entry in enumerate(certificate.tried):
        for update in ({"voters": entry.voters[:-1]}, {"weights": (entry.weights or ())[:-1]}):
            other = entry.model_copy(update=update)
            tried = (*certificate.tried[:place], other, *certificate.tried[place + 1 :])
            shorter = sealed(certificate.model_copy(update={"tried": tried}))
            assert verify_certificate(shorter).problems
            assert verify_certificate(shorter, voted[1]).problems
