"""The vote: the formula, thresholds that honest voters can reach, liars, silence and contradiction."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.consensus.election.voting import Ballot, faults, quality, required_ballots, vote, vouched_best
from capibara_assets.storage.records import json_schema


def ballot(voter: str, candidate: str, value: float, number: int = 0) -> Ballot:
    return Ballot(
        voter=voter,
        candidate=candidate,
        round=number,
        tokens=10,
        loss=2.0,
        base_loss=3.0,
        best_loss=1.0,
        quality=value,
    )


def everybody(names: list[str], good: set[str], liars: set[str] = frozenset(), hostile: float = 0.0) -> list[Ballot]:
    """Honest voters find `good` good and the rest bad; liars say `hostile` of everyone."""
    return [
        ballot(v, c, hostile if v in liars else 1.0 if c in good else 0.0) for v, c in product(names, names) if v != c
    ]


def names(n: int) -> list[str]:
    return [f"v{i:02}" for i in range(n)]


@pytest.mark.parametrize(
    ("loss", "best", "base", "expected"),
    [(2.0, 2.0, 4.0, 1.0), (3.0, 2.0, 4.0, 0.5), (4.0, 2.0, 4.0, 0.0), (5.0, 2.0, 4.0, 0.0), (1.0, 2.0, 4.0, 1.0),
     (2.0, 4.0, 4.0, 0.0), (None, 2.0, 4.0, 0.0), (2.0, None, 4.0, 0.0), (float("nan"), 2.0, 4.0, 0.0)],
)  # fmt: skip
def test_quality(loss: float | None, best: float | None, base: float, expected: float) -> None:
    assert quality(loss, best, base) == expected


def test_best_has_to_be_vouched_for() -> None:
    assert vouched_best([2.0, 0.1, 2.5], f=0) == 0.1
    assert vouched_best([2.0, 0.1, 2.5], f=1) == 2.0
    assert vouched_best([2.0, None, float("inf")], f=1) is None


@pytest.mark.parametrize(("n", "f"), [(1, 0), (3, 0), (4, 1), (6, 1), (7, 2), (10, 3), (13, 4), (16, 5), (31, 10)])
def test_fault_tolerance_of_one_third(n: int, f: int) -> None:
    assert faults(n) == f


@pytest.mark.parametrize(("n", "required"), [(2, 1), (3, 2), (4, 2), (7, 4), (10, 6), (13, 8)])
def test_required_ballots(n: int, required: int) -> None:
    assert required_ballots(n - 1, faults(n), 0.75) == required


@pytest.mark.parametrize("n", [4, 7, 8, 10, 13, 16])
@pytest.mark.parametrize("hostile", [0.0, 1.0])
def test_f_liars_neither_block_nor_push_through(n: int, hostile: float) -> None:
    everyone = names(n)
    f = faults(n)
    liars = set(everyone[:f])
    good = set(everyone[f:])
    outcome = vote(everybody(everyone, good, liars, hostile), verification_rounds=1)
    assert set(outcome.accepted) == good
    assert (outcome.n, outcome.f, outcome.quorum, outcome.faults_left) == (n, f, 2 * f + 1, 0)
    # A liar's candidate that honest voters like is as good as any other
    outcome = vote(everybody(everyone, set(everyone), liars, hostile), verification_rounds=1)
    assert set(outcome.accepted) == set(everyone)


@pytest.mark.parametrize("n", [4, 7, 10, 13])
def test_f_silent_voters_block_nobody(n: int) -> None:
    everyone = names(n)
    silent = set(everyone[: faults(n)])
    cast = [b for b in everybody(everyone, set(everyone)) if b.voter not in silent]
    outcome = vote(cast, voters=everyone, verification_rounds=1)
    assert set(outcome.accepted) == set(everyone)
    assert outcome.tallies[-1].missing == tuple(sorted(silent))


def test_excluded_voters_are_neither_candidates_nor_electors() -> None:
    everyone = names(4)
    outcome = vote(everybody(everyone, set(everyone)), voters=everyone, excluded=["v00"], verification_rounds=1)
    assert outcome.accepted == ("v01", "v02", "v03")
    assert outcome.tallies[0].accepting == ("v02", "v03")
    assert outcome.tallies[0].required == 2


def test_self_votes_strangers_and_contradictions_do_not_count() -> None:
    everyone = names(4)
    cast = everybody(everyone, {"v01", "v02", "v03"})
    cast += [ballot("v00", "v00", 1.0), ballot("stranger", "v00", 1.0)]
    assert "v00" not in vote(cast, voters=everyone, verification_rounds=1).accepted
    twice = [*everybody(everyone, set(everyone)), ballot("v03", "v01", 0.0)]
    tallies = {t.candidate: t for t in vote(twice, voters=everyone, verification_rounds=1).tallies}
    assert tallies["v00"].missing == ("v03",), "equivocation makes all of a voter's ballots void"
    assert tallies["v00"].accepting == ("v01", "v02")
    replayed = everybody(everyone, set(everyone)) * 2
    assert vote(replayed, voters=everyone, verification_rounds=1) == vote(
        everybody(everyone, set(everyone)), voters=everyone, verification_rounds=1
    )


def test_most_rounds_have_to_accept() -> None:
    everyone = names(4)
    cast = [b.model_copy(update={"round": r}) for r in range(3) for b in everybody(everyone, set(everyone))]
    assert vote(cast).accepted == tuple(everyone)
    one_bad = [b.model_copy(update={"quality": 0.0}) if b.round == 1 else b for b in cast]
    assert vote(one_bad).accepted == tuple(everyone)
    two_bad = [b.model_copy(update={"quality": 0.0}) if b.round else b for b in cast]
    assert vote(two_bad).accepted == ()
    assert vote([b for b in cast if b.round == 0]).accepted == ()


@given(st.randoms(use_true_random=False), st.integers(4, 10))
def test_order_of_ballots_does_not_show(random: object, n: int) -> None:
    everyone = names(n)
    cast = [
        ballot(v, c, random.random())  # type: ignore[attr-defined]
        for v, c in product(everyone, everyone)
        if v != c
    ]
    shuffled = list(cast)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert vote(cast, verification_rounds=1) == vote(shuffled, verification_rounds=1)


@pytest.mark.parametrize("damage", [{"quality": float("nan")}, {"quality": 1.5}, {"round": -1}, {"quality": None}])
def test_a_ballot_that_is_none_stops_no_vote(damage: dict[str, object]) -> None:
    four = names(4)
    cast: list[object] = [one.model_dump() for one in everybody(four, set(four[:3]))]
    cast = [one | damage if one["voter"] == four[3] else one for one in cast]  # type: ignore[operator,index]
    for voters in (four, None):
        outcome = vote(cast, voters=voters, verification_rounds=1)  # type: ignore[arg-type]
        assert outcome.accepted == tuple(four[:3]) and outcome.absent == (four[3],)
        assert {(one.voter, one.fault) for one in outcome.refused} == {(four[3], "malformed")}
        assert outcome.refused[0].why.startswith(next(iter(damage)))
    assert vote([*cast, {}, {"voter": 3}], voters=four, verification_rounds=1).accepted == outcome.accepted  # type: ignore[list-item]


def test_refusals_are_stated() -> None:
    for share in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="fault_tolerance is a share"):
            vote([], fault_tolerance=share)
    with pytest.raises(ValueError, match=r"n >= 3f \+ 1 voters, but n=4, f=2"):
        vote(everybody(names(4), set()), fault_tolerance=0.7)
    with pytest.raises(ValueError, match=r"thresholds lie in \(0, 1\]"):
        vote([], quality_threshold=0.0)


def test_ballot_schema_is_published() -> None:
    schema = json_schema(Ballot)
    assert schema["x-key"] == ["voter", "candidate", "round"]
    assert schema["x-schema-version"] == 2


@pytest.mark.parametrize(("n", "with_f", "with_one_more"), [(4, 2, 1), (7, 2, 1), (10, 3, 2), (13, 3, 2), (16, 4, 3)])
def test_honest_ballots_that_a_colluder_needs(n: int, with_f: int, with_one_more: int) -> None:
    """The table of docs/consensus-attacks.md: colluders accept one another and refuse all others."""
    for colluding, needed in ((faults(n), with_f), (faults(n) + 1, with_one_more)):
        voters = names(n)
        liars, honest = voters[:colluding], voters[colluding:]
        for fooled in (needed - 1, needed):
            ballots = [
                ballot(v, c, float(c in liars) if v in liars else float(c in honest or v in honest[:fooled]))
                for v, c in product(voters, voters)
                if v != c
            ]
            outcome = vote(ballots, 0.5, 0.5, 1, voters=voters)
            through = set(outcome.accepted) & set(liars)
            assert through == (set(liars) if fooled == needed else set())
            assert colluding > faults(n) or set(honest) <= set(outcome.accepted)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 1.0])
def test_how_much_a_slice_may_lose_before_an_honest_ballot_refuses(share: float) -> None:
    """As good as the best outside a slice, a candidate may lose so much in it (docs/consensus-attacks.md)."""
    base, best, most = 3.0, 2.0, 0.5 / share
    for lost, accepted in ((0.999 * most, True), (1.001 * most, False)):
        loss = (1 - share) * best + share * (best + lost * (base - best))
        assert (quality(loss, best, base) >= 0.5) == accepted
