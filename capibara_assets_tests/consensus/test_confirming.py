"""The second round from both sides: what a voter signs and what it refuses, and what becomes of the vote."""

import copy
import json
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from capibara_assets.consensus.agree import Agreement, ConsensusError, agree
from capibara_assets.consensus.certificates.certificate import verify_certificate
from capibara_assets.consensus.confirming import confirm, tolerance_of
from capibara_assets.consensus.election.ballots import Ballot, election_id, new_key, public_key
from capibara_assets.consensus.election.confirmations import Confirmation, confirmed, is_signature, message
from capibara_assets.consensus.election.polling import Decide, Poll, hold_vote
from capibara_assets.consensus.election.voter import (
    ANSWER,
    CONFIRMATION,
    PROPOSAL,
    PULSE,
    Assignment,
    Hearing,
    Proposal,
    answer,
    losses,
    own_key,
    read_confirmation,
    run,
    second_round,
)
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.errors import InputError
from capibara_assets.modeling.base import Base
from capibara_assets_tests.consensus.conftest import Tokens
from capibara_assets_tests.consensus.in_process import hold_here

Vote = Callable[..., Agreement]


@pytest.fixture(scope="module")
def vote(tiny: Base, folders: dict[str, Path], validation: list[Tokens], shards: dict[str, list[int]]) -> Vote:
    recipe = ConsensusRecipe(consensus_timeout=60, max_retries=0)
    return partial(agree, tiny, folders, validation, shards, recipe, {"domain": "python"})


@dataclass
class Heard:
    """voter-1 as it is asked to confirm, and the coordinator's proposal; candidates lie in a folder that stays."""

    hearing: Hearing
    proposal: dict[str, Any]


@pytest.fixture(scope="module")
def heard(tiny: Base, vote: Vote, tmp_path_factory: pytest.TempPathFactory) -> Heard:
    kept = tmp_path_factory.mktemp("candidates")
    caught: list[Heard] = []

    def hold(base: Base, assignments: Sequence[Assignment], timeout: float, retries: int, decide: Decide) -> Poll:
        def catch(poll: Poll) -> Mapping[str, Proposal]:
            asked = decide(poll)
            proposal = json.loads(json.dumps(asked["voter-1"]))
            for digest, folder in proposal["averages"].items():
                proposal["averages"][digest] = str(shutil.copytree(folder, kept / digest))
            own = next(one for one in assignments if one.voter == "voter-1")
            examples = [example for part in own.rounds for example in part]
            ballots = tuple(ballot for ballot in poll.ballots if ballot.voter == "voter-1")
            caught.append(Heard(Hearing(own, ballots, lambda adapter: losses(tiny, adapter, examples)), proposal))
            return asked

        return hold_here(base, assignments, timeout, retries, catch)

    vote(hold=hold)
    return caught[0]


def test_a_voter_signs_what_it_measured_and_what_is_stated(heard: Heard) -> None:
    key = new_key()
    one = confirm(heard.hearing, heard.proposal, key)
    assert is_signature(one.signature, message(one, public_key(key)), public_key(key))
    assert one.voter == "voter-1" and one.election == heard.hearing.assignment.election
    assert set(one.measured) == set(heard.proposal["averages"]) and len(one.measured) >= 3
    assert one.measured == pytest.approx(heard.proposal["own"], abs=2e-6)
    assert len(one.losses) > len(one.measured) and one.losses[one.chosen] == min(one.losses.values())
    assert one.tokens == 72 and one.all_tokens == 288 and len(one.examples) == 1


def _own(proposal: dict[str, Any], change: float) -> None:
    digest = next(iter(proposal["own"]))
    proposal["own"][digest] += change


def _another_election(proposal: dict[str, Any]) -> None:
    proposal["subject"]["thresholds"]["tolerance"] = 0.5


def _another_file(proposal: dict[str, Any]) -> None:
    one, other = list(proposal["averages"])[:2]
    proposal["averages"][one] = proposal["averages"][other]


def _a_ballot_changed(proposal: dict[str, Any]) -> None:
    next(b for b in proposal["ballots"] if b["voter"] == "voter-1")["quality"] = 0.0


def _a_ballot_dropped(proposal: dict[str, Any]) -> None:
    proposal["ballots"] = [b for b in proposal["ballots"] if (b["voter"], b["candidate"]) != ("voter-1", "voter-0")]


def _another_chosen(proposal: dict[str, Any]) -> None:
    proposal["chosen"] = next(entry["digest"] for entry in proposal["tried"] if entry["digest"] != proposal["chosen"])


def _a_loss_below_the_best(proposal: dict[str, Any]) -> None:
    entry = next(entry for entry in proposal["tried"] if entry["digest"] != proposal["chosen"])
    entry["loss"] = 0.1


def _an_average_left_out(proposal: dict[str, Any]) -> None:
    proposal["averages"].pop(next(iter(proposal["averages"])))


def _other_losses(proposal: dict[str, Any]) -> None:
    proposal["losses"][proposal["chosen"]] -= 0.1


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (partial(_own, change=1e-3), "its loss on the examples of voter-1 is"),
        (partial(_own, change=-1e-3), "its loss on the examples of voter-1 is"),
        (_another_election, "this is another election than"),
        (_another_file, "the candidate is"),
        (_a_ballot_changed, "1 of its 3 ballots are not there as it cast them"),
        (_a_ballot_dropped, "1 of its 3 ballots are not there as it cast them"),
        (_another_chosen, "follows from the losses, and"),
        (_a_loss_below_the_best, "the gate says"),
        (_an_average_left_out, "the candidates are not those"),
        (_other_losses, "the candidates are not those"),
    ],
)
def test_a_voter_refuses_what_is_not_so(spoil: Callable[[dict[str, Any]], None], words: str, heard: Heard) -> None:
    proposal = copy.deepcopy(heard.proposal)
    spoil(proposal)
    with pytest.raises(InputError, match=words):
        confirm(heard.hearing, proposal, new_key())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("subject", []), ("ballots", {}), ("ballots", [{}]), ("tried", "x"), ("tried", [[]]), ("base_loss", None),
        ("averages", []), ("averages", {"a": 1}), ("losses", {"a": "b"}), ("all_tokens", "many"), ("chosen", None),
        ("own", None), ("own", [1]), ("note", "more than is asked"), (None, "losses"), (None, "own"),
    ],
)  # fmt: skip
def test_a_voter_refuses_what_is_no_proposal(field: str | None, value: Any, heard: Heard) -> None:
    """Whoever asks may state anything: a refusal is an answer, a traceback none."""
    proposal = copy.deepcopy(heard.proposal)
    if field is None:
        del proposal[value]
    else:
        proposal[field] = value
    with pytest.raises(InputError, match=field or value):
        confirm(heard.hearing, proposal, new_key())


def test_last_digits_are_no_disagreement(heard: Heard) -> None:
    proposal = copy.deepcopy(heard.proposal)
    _own(proposal, 1e-5)
    assert confirm(heard.hearing, proposal, new_key()).measured == pytest.approx(heard.proposal["own"], abs=2e-6)
    _own(proposal, 2e-5)
    with pytest.raises(InputError, match="stated is"):
        confirm(heard.hearing, proposal, new_key())


def test_the_tolerance_is_the_elections_not_the_proposals(heard: Heard) -> None:
    proposal = copy.deepcopy(heard.proposal)
    _own(proposal, 1e-3)
    proposal["subject"]["context"]["confirmed_within"] = "1"
    assert election_id(proposal["subject"]) != heard.hearing.assignment.election
    with pytest.raises(InputError, match="another election"):
        confirm(heard.hearing, proposal, new_key())


def lied_to(*victims: str) -> Callable[..., Poll]:
    """A vote whose coordinator states other losses to these voters."""

    def hold(base: Base, assignments: Sequence[Assignment], timeout: float, retries: int, decide: Decide) -> Poll:
        def lying(poll: Poll) -> Mapping[str, Proposal]:
            told = copy.deepcopy(dict(decide(poll)))
            for name in victims:
                _own(told[name], 0.01)  # type: ignore[arg-type]
            return told

        return hold_here(base, assignments, timeout, retries, lying)

    return hold


def test_one_refusal_is_stated_and_two_end_the_vote(vote: Vote, folders: dict[str, Path]) -> None:
    certificate = vote(hold=lied_to("voter-2")).certificate
    assert [one.voter for one in certificate.confirmations] == ["voter-0", "voter-1", "voter-3"]
    assert list(certificate.unconfirmed) == ["voter-2"]
    assert certificate.unconfirmed["voter-2"].startswith("refused: candidate ")
    found = verify_certificate(certificate, folders)
    assert found.problems == () and any("have 75% of the tokens" in line for line in found.unchecked)
    with pytest.raises(ConsensusError, match=r"2 of 4 accepted voters confirmed.*3 needed \(f=1\)") as raised:
        vote(hold=lied_to("voter-2", "voter-0"))
    assert "voter-0: refused: candidate" in str(raised.value) and "; voter-2: refused: candidate" in str(raised.value)


def test_a_confirmation_that_does_not_fit_is_none(vote: Vote) -> None:
    """Who lies about its own examples, or answers with what another signed, is as good as silent."""

    def lying(base: Base, assignments: Sequence[Assignment], timeout: float, retries: int, decide: Decide) -> Poll:
        keys = {one.voter: new_key() for one in assignments}
        poll = hold_here(base, assignments, timeout, retries, decide)
        first, *others = poll.confirmations
        other = first.model_copy(update={"measured": dict.fromkeys(first.measured, 3.0)})
        forged = confirmed(other, keys[first.voter])
        return replace(poll, confirmations=(forged, *others))

    assert "not signed by the key" in vote(hold=lying).certificate.unconfirmed["voter-0"]


def _lies_about_its_examples(hearing: Hearing, proposal: Proposal, key: Any) -> Confirmation:
    right = confirm(hearing, proposal, key)
    if right.voter != "voter-3":
        return right
    return confirmed(right.model_copy(update={"measured": dict.fromkeys(right.measured, 3.0)}), key)


def test_a_voter_that_signs_losses_nobody_else_measures_is_named(vote: Vote) -> None:
    def hold(base: Base, assignments: Sequence[Assignment], *arguments: Any) -> Poll:
        lying = [replace(one, confirm=_lies_about_its_examples) for one in assignments]
        return hold_here(base, lying, *arguments)

    certificate = vote(hold=hold).certificate
    assert "it signed other losses on its examples" in certificate.unconfirmed["voter-3"]
    assert verify_certificate(certificate).ok


def _second(how: Mapping[str, str], assignment: Assignment, base: Base, folder: Path, threads: int) -> None:
    """Entry of a voter's process that judges, and misbehaves in the second round."""
    action = how.get(assignment.voter)
    if action is None:
        run(assignment, base, folder, threads)
        return
    key = own_key(assignment)
    found = answer(assignment, base, poll=(folder / PULSE).touch, key=key)
    (folder / "part").write_text(json.dumps(found))
    (folder / "part").replace(folder / ANSWER)
    if action == "leaves":
        return
    while not (folder / PROPOSAL).is_file():
        pass
    if action == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "garbage":
        (folder / CONFIRMATION).write_bytes(b"\xff{")
    elif action == "another's":
        second_round(replace(assignment, voter="voter-0"), base, folder, found, key)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        pytest.param("leaves", "ended with exit code 0", marks=pytest.mark.extended),
        ("killed", "killed by signal 9"),
        pytest.param("garbage", "the confirmation of voter-1 is none", marks=pytest.mark.extended),
        # That reading it says so: `test_what_is_no_confirmation`, as of what is none.
        pytest.param("another's", "the confirmation of voter-1 is not its own", marks=pytest.mark.extended),
    ],
)
def test_a_process_that_fails_in_the_second_round_confirms_nothing(
    how: str, words: str, vote: Vote, folders: dict[str, Path]
) -> None:
    """Two at a time: those who have judged wait, and take nobody's place."""
    entry = partial(_second, {"voter-1": how})
    agreement = vote(hold=partial(hold_vote, entry=entry, processes=2, start_method="fork"))
    certificate = agreement.certificate
    assert list(certificate.unconfirmed) == ["voter-1"] and words in certificate.unconfirmed["voter-1"]
    assert certificate.accepted == tuple(folders) and verify_certificate(certificate, folders).problems == ()


@pytest.mark.extended
def test_more_than_f_that_fail_end_the_vote_by_name(vote: Vote) -> None:
    entry = partial(_second, {"voter-1": "killed", "voter-3": "leaves"})
    with pytest.raises(ConsensusError, match="2 of 4 accepted voters confirmed") as raised:
        vote(hold=partial(hold_vote, entry=entry, processes=2, start_method="fork"))
    assert "voter-1: killed by signal 9; voter-3: ended with exit code 0" in str(raised.value)


def test_confirmations_of_processes_are_those_made_here(vote: Vote) -> None:
    """One process at a time; keys differ, so signatures do, and nothing else."""
    apart = vote(hold=partial(hold_vote, processes=1, start_method="fork")).certificate
    here = vote(hold=hold_here).certificate
    assert len(apart.confirmations) == 4 and apart.digest == here.digest and apart.seal != here.seal


@pytest.mark.extended
def test_new_processes_confirm_as_forked_ones_do(vote: Vote) -> None:
    """They let go of the base model while they wait, and load it again."""
    spawned = vote(hold=partial(hold_vote, processes=2, start_method="spawn")).certificate
    assert spawned.unconfirmed == {} and spawned.digest == vote(hold=hold_here).certificate.digest


def test_what_is_no_confirmation(heard: Heard, tmp_path: Path) -> None:
    good = confirm(heard.hearing, heard.proposal, new_key()).model_dump(mode="json")
    file = tmp_path / CONFIRMATION
    for found, words in (
        ({"confirmation": {**good, "more": 1}}, "is none"),
        ({"confirmation": {**good, "round": 1}}, "is none"),
        ({"refused": "x" * 10_000}, "refused: x{1000,1999} … x{400}$"),
        ({}, "is none"),
        ([], "is none"),
        ({"confirmation": good, "more": "x" * 100_000}, "bytes for 5 candidates"),
    ):
        file.write_text(json.dumps(found))
        with pytest.raises(InputError, match=words):
            read_confirmation(file, "voter-1", 5)
    file.write_text(json.dumps({"confirmation": good}))
    assert read_confirmation(file, "voter-1", 5) == Confirmation.model_validate(good)
    with pytest.raises(InputError, match="not its own"):
        read_confirmation(file, "voter-0", 5)


def test_short_numbers_agree_to_fewer_digits(
    tiny: Base, folders: dict[str, Path], validation: list[Tokens], shards: dict[str, list[int]]
) -> None:
    """Otherwise honest voters of a bfloat16 model would refuse each other's last digits."""
    short = replace(tiny, model=copy.deepcopy(tiny.model).to(torch.bfloat16))
    assert tolerance_of(tiny) == 2e-5 < tolerance_of(short) == 5e-3
    made = agree(short, folders, validation, shards, ConsensusRecipe(), {}, hold=hold_here).certificate
    assert len(made.confirmations) == 4 and made.context["confirmed_within"] == "0.005"
    assert any("agree within 0.005" in line for line in verify_certificate(made).reservations)


def test_an_example_that_two_voters_judge_on_is_an_error(vote: Vote, shards: dict[str, list[int]]) -> None:
    arguments = list(vote.args)  # type: ignore[attr-defined]
    arguments[3] = {**shards, "voter-2": [*shards["voter-2"], shards["voter-0"][0]]}
    with pytest.raises(InputError, match="example 0 is in the shards of voter-0 and voter-2"):
        agree(*arguments, hold=hold_here)


def test_votes_without_a_decision_have_one_round(tiny: Base, heard: Heard) -> None:
    assignment = heard.hearing.assignment
    poll = hold_vote(tiny, [assignment], 60, 0, processes=1, start_method="fork")
    assert poll.confirmations == () and poll.unconfirmed == {} and len(poll.ballots) == 3
    assert all(isinstance(ballot, Ballot) for ballot in poll.ballots)
