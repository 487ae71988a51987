"""Signed ballots, and adversaries that sign, forge, replay and contradict as they like."""

import base64
import random
from functools import cache
from itertools import product
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.consensus.election.ballots import (
    Ballot,
    election_id,
    examples_digest,
    in_order,
    is_signed_by,
    message,
    new_key,
    public_key,
    signed,
)
from capibara_assets.consensus.election.voting import Outcome, faults, quality, vote, vouched_best
from capibara_assets_tests.consensus.conftest import Tokens

ELECTION, OTHER = election_id({"domain": "python"}), election_id({"domain": "sql"})
ROUNDS = 3


@cache
def key_of(voter: str) -> Ed25519PrivateKey:
    return new_key()


def digest(candidate: str) -> str:
    return candidate.encode().hex().ljust(64, "0")


def names(n: int) -> list[str]:
    return [f"v{i:02}" for i in range(n)]


def cast(voter: str, losses: dict[str, float | None], number: int, f: int, **changes: Any) -> list[Ballot]:
    """A voter's ballots of one round, consistent with the losses that it states."""
    best = vouched_best(losses.values(), f)
    made = []
    for candidate, loss in losses.items():
        ballot = Ballot(
            voter=voter, candidate=candidate, round=number, tokens=9, loss=loss, base_loss=3.0, best_loss=best,
            quality=quality(loss, best, 3.0), candidate_digest=digest(candidate), examples="e" * 64, election=ELECTION,
        )  # fmt: skip
        made.append(signed(ballot.model_copy(update=changes), key_of(voter)))
    return made


def honest_ballots(voters: list[str], everyone: list[str], good: set[str], f: int) -> list[Ballot]:
    """Honest voters measure a loss of 1 on good candidates and the base model's on the others."""
    return [
        ballot
        for voter, number in product(voters, range(ROUNDS))
        for ballot in cast(voter, {c: 1.0 if c in good else 3.0 for c in everyone if c != voter}, number, f)
    ]


def counted(ballots: list[Ballot], everyone: list[str], **options: Any) -> Outcome:
    return vote(
        ballots,
        voters=everyone,
        keys={name: public_key(key_of(name)) for name in everyone},
        election=ELECTION,
        candidates={name: digest(name) for name in everyone},
        **options,
    )


def test_a_signature_covers_every_field_and_the_key() -> None:
    key, other = new_key(), new_key()
    ballot = signed(cast("v00", {"v01": 1.0, "v02": 2.0}, 0, 0)[0], key)
    assert is_signed_by(ballot, public_key(key)) and not is_signed_by(ballot, public_key(other))
    changes = {
        "voter": "v09", "candidate": "v02", "round": 1, "tokens": 10, "loss": None, "base_loss": 3.5, "best_loss": 0.5,
        "quality": 0.5, "candidate_digest": None, "examples": None, "election": OTHER, "signature": None,
    }  # fmt: skip
    assert set(changes) == set(Ballot.model_fields)
    for name, value in changes.items():
        assert not is_signed_by(ballot.model_copy(update={name: value}), public_key(key)), name
    again = Ballot.model_validate_json(ballot.model_dump_json())
    assert is_signed_by(again, public_key(key)), "JSON gives every number back"
    assert message(ballot, public_key(key)).startswith(b'{"ballot":{"base_loss":3.0,')


@pytest.mark.parametrize("public", ["", "x", "####", "A" * 44, base64.b64encode(b"\xff" * 32).decode()])
def test_what_is_no_key_signs_nothing(public: str) -> None:
    assert not is_signed_by(cast("v00", {"v01": 1.0, "v02": 2.0}, 0, 0)[0], public)


def test_a_signature_has_one_spelling() -> None:
    ballot = cast("v00", {"v01": 1.0, "v02": 2.0}, 0, 0)[0]
    text = ballot.signature or ""
    assert text.endswith("==")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    stray = text[:-3] + letters[letters.index(text[-3]) ^ 1] + "=="
    assert base64.b64decode(stray) == base64.b64decode(text)
    assert not is_signed_by(ballot.model_copy(update={"signature": stray}), public_key(key_of("v00")))


def test_examples_and_elections_have_digests_of_their_content() -> None:
    one, two = Tokens([1, 2], [-100, 2], 1), Tokens([1, 3], [-100, 3], 1)
    assert len({examples_digest(part) for part in ([one], [two], [one, two], [two, one], [])}) == 5
    assert election_id({"a": 1, "b": 2}) == election_id({"b": 2, "a": 1}) != election_id({"a": 1, "b": 3})


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"election": OTHER}, "replay"),
        ({"election": None}, "replay"),
        ({"candidate_digest": "0" * 64}, "replay"),
        ({"round": ROUNDS}, "unknown round"),
        ({"quality": 0.123}, "inconsistent"),
        ({"best_loss": 0.0}, "inconsistent"),
        ({"candidate": "v00"}, "self-vote"),
        ({"candidate": "v77"}, "unknown candidate"),
        ({"voter": "v77"}, "stranger"),
        ({"voter": "v01"}, "bad signature"),
    ],
)
def test_a_ballot_that_does_not_count_is_named(changes: dict[str, Any], fault: str) -> None:
    everyone = names(4)
    ballots = honest_ballots(everyone, everyone, set(everyone), 1)
    wrong = signed(ballots[0].model_copy(update=changes), key_of("v00"))
    clean = counted(ballots, everyone)
    assert clean.refused == () and set(clean.accepted) == set(everyone)
    outcome = counted([wrong, *ballots[1:]], everyone)
    assert [refused.fault for refused in outcome.refused] == [fault]
    assert outcome.equivocated == () and set(outcome.accepted) == set(everyone)


def test_keys_equivocation_silence_and_repetition() -> None:
    everyone = names(4)
    ballots = honest_ballots(everyone, everyone, set(everyone), 1)
    assert counted([*ballots, *ballots], everyone) == counted(ballots, everyone), "the same ballot twice is one"
    other = signed(ballots[0].model_copy(update={"tokens": 1}), key_of("v00"))
    outcome = counted([*ballots, other], everyone)
    assert outcome.equivocated == ("v00",) and {refused.fault for refused in outcome.refused} == {"equivocation"}
    assert all("v00" in tally.missing for tally in outcome.tallies if tally.candidate != "v00")
    forged = ballots[0].model_copy(update={"tokens": 1})
    outcome = counted([*ballots, forged], everyone)
    assert outcome.equivocated == () and {refused.fault for refused in outcome.refused} == {"bad signature"}
    silent = [ballot for ballot in ballots if ballot.voter != "v03"]
    assert counted(silent, everyone).absent == ("v03",)
    keys = {name: public_key(key_of(name)) for name in everyone[1:]}
    outcome = vote(ballots, voters=everyone, keys=keys, election=ELECTION)
    assert outcome.absent == ("v00",) and {refused.fault for refused in outcome.refused} == {"unknown key"}
    assert len(outcome.refused) == 9


def test_owners_of_a_copied_adapter_stay_candidates_without_a_vote() -> None:
    """n = 4: v00's adapter came twice, v01 is out; whichever of them lied, the two others decide."""
    everyone = names(4)
    for liar in ("v00", "v01"):
        good = set(everyone)
        ballots = honest_ballots([name for name in everyone if name != liar], everyone, good, 0)
        hostile = [
            ballot
            for number in range(ROUNDS)
            for ballot in cast(liar, {c: 3.0 for c in everyone if c != liar}, number, 0)
        ]
        outcome = counted([*ballots, *hostile], everyone, excluded=["v01"], without_vote=["v00"])
        assert set(outcome.accepted) == {"v00", "v02", "v03"}
        assert {refused.voter for refused in outcome.refused} <= {"v00", "v01", "v02", "v03"}
        assert outcome.faults_left == 0


@given(st.sampled_from([4, 4, 4, 7, 7, 7, 10, 13]), st.integers(0, 2**32), st.data())
def test_f_arbitrary_voters_neither_push_through_nor_block(n: int, seed: int, data: st.DataObject) -> None:
    """The adversary holds f keys, sees everything, and sends what it likes, signed by whom it likes.

    Honest voters find `good` good: these are all accepted. Of the others nobody is.
    """
    everyone, f = names(n), faults(n)
    chance = random.Random(seed)
    liars = chance.sample(everyone, f)
    trusted = [name for name in everyone if name not in liars]
    good = set(data.draw(st.lists(st.sampled_from(everyone), unique=True), label="good"))
    # The best loss has to be reached by f + 1 others; fewer good candidates are no quorum (2f + 1) either
    good |= set(trusted[: f + 2])
    honest = honest_ballots(trusted, everyone, good, f)
    hostile: list[Ballot] = []
    mood = data.draw(st.sampled_from(["against", "for its own", "random", "silent", "chaos"]), label="mood")
    for liar, number in product(liars, range(ROUNDS)):
        if mood == "silent":
            continue
        judged = [name for name in everyone if name != liar]
        if mood == "against":
            losses: dict[str, float | None] = {c: 3.0 if c in good else 1.0 for c in judged}
        elif mood == "for its own":
            losses = {c: 1.0 if c in liars else 3.0 for c in judged}
        else:
            losses = {c: chance.choice([None, 0.0, 1.0, 2.0, 3.0, 1e300]) for c in judged}
        hostile += cast(liar, losses, number, f)
        if mood == "chaos":
            victim = chance.choice(honest)
            pool = (*hostile, *honest)
            hostile += [
                victim.model_copy(update={"quality": chance.random()}),
                signed(victim.model_copy(update={"quality": chance.random()}), key_of(liar)),
                signed(chance.choice(pool).model_copy(update={"voter": liar, "tokens": 5}), key_of(liar)),
                signed(chance.choice(pool).model_copy(update={"election": OTHER}), key_of(liar)),
                signed(chance.choice(pool).model_copy(update={"round": 99}), key_of(liar)),
                chance.choice(honest),
            ]
    ballots = [*honest, *hostile]
    chance.shuffle(ballots)
    outcome = counted(ballots, everyone)
    assert set(outcome.accepted) == good
    assert set(outcome.equivocated) <= set(liars), "nobody else's hand can make a voter contradict itself"
    shuffled = list(ballots)
    chance.shuffle(shuffled)
    assert counted(shuffled, everyone) == outcome


def test_strategies_for_rounds() -> None:
    everyone = names(4)

    def outcome(losses: list[float], strategy: Any) -> bool:
        ballots = []
        for voter, (number, loss) in product(everyone, enumerate(losses)):
            judged: dict[str, float | None] = {c: 1.0 for c in everyone if c != voter}
            if "v03" in judged:
                judged["v03"] = loss
            ballots += cast(voter, judged, number, 1)
        return "v03" in counted(ballots, everyone, voting_strategy=strategy, quality_threshold=0.6).accepted

    # Qualities 1, 1, 0 / 1, 0.7, 0 / 1, 0.5, 0.5
    assert [outcome([1.0, 1.0, 3.0], s) for s in ("majority", "unanimous", "average")] == [True, False, True]
    assert [outcome([1.0, 1.6, 3.0], s) for s in ("majority", "unanimous", "average")] == [True, False, False]
    assert [outcome([1.0, 2.0, 2.0], s) for s in ("majority", "unanimous", "average")] == [False, False, True]
    assert all(outcome([1.0, 1.2, 1.4], s) for s in ("majority", "unanimous", "average"))
    with pytest.raises(ValueError, match="unknown voting strategy 'loud'"):
        outcome([1.0, 1.0, 1.0], "loud")


def test_plain_ballots_as_mappings() -> None:
    everyone = names(4)
    plain = [
        {"voter": v, "candidate": c, "round": r, "quality": 0.9 if c != "v03" else 0.1}
        for v, c, r in product(everyone, everyone, range(3))
        if v != c
    ]
    assert vote(plain).accepted == ("v00", "v01", "v02")


def test_ballots_have_one_order_also_those_of_a_voter_who_contradicts_itself() -> None:
    losses: dict[str, float | None] = {"b": 1.0, "a": 2.0}
    made = [*cast("v1", losses, 1, 0), *cast("v1", losses, 0, 0), *cast("v0", losses, 0, 0)]
    made += cast("v1", {"b": 1.5, "a": 2.0}, 0, 0)
    ordered = in_order(made)
    assert [(b.voter, b.round, b.candidate) for b in ordered[:3]] == [("v0", 0, "a"), ("v0", 0, "b"), ("v1", 0, "a")]
    for seed in range(20):
        again = random.Random(seed).sample([*made, made[0]], len(made) + 1)
        assert in_order(again) == ordered
