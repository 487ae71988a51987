"""The vote: every voter judges every other voter's candidate on its own held-out shard.

Quality of a candidate on a shard is clip(1 - (loss - best) / (base - best), 0, 1): 1 for the best, 0 for the base
model. `best` is the least loss that more than f of the judged candidates reach: the plain minimum would let a liar who
trained on the validation data push every honest candidate under the threshold.

A candidate's electors are the attested voters other than itself: m of them, of which f' may still lie (f less those
that attestation rejected). It is accepted by min(ceil(threshold * m), m - f') ballots, and by more than f' in any case.
With n = 4 and f = 1 that is 2 of 3: the two honest electors of an honest candidate are enough whatever the liar says,
and a liar alone is not. In general m - f' is the number of honest electors, so honest voters who agree always reach
it, and more than f' means that one honest voter at least agreed.

Among k copies of one adapter at least k - 1 were not trained: one copy stays a candidate, the others are excluded, and
none of the k has a vote, since nobody can tell which of them is honest. The electors of another candidate are then
n - k - 1, of which f - (k - 1) may lie, so honest ones still decide whenever n >= 3f + 1.

Who is registered alone (n = 1, as a federated or private training is) has no electors, and f = 0: it is accepted
without a ballot, and validation alone judges it. Who is left alone of several is not.

A ballot counts when it is signed by the voter's registered key and names this election, this candidate's bytes and a
round of it. Whoever signs two different ballots for one candidate and round contradicts itself: none of its ballots
counts. A ballot that anyone else made up in its name is only refused, and takes nothing from it.
"""

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from capibara_assets.consensus.election.ballots import Ballot, is_signed_by
from capibara_assets.errors import clause

__all__ = ["Ballot", "Outcome", "Refused", "Tally", "VotingStrategy", "faults", "quality", "vote", "vouched_best"]

_ROUNDING = 1e-9  # 3 * (1/3) must be 1
VotingStrategy = Literal["majority", "unanimous", "average"]
"""A voter accepts a candidate whose quality reaches the threshold in most rounds, in every round, or on average."""

Fault = Literal[
    "malformed", "stranger", "excluded", "self-vote", "unknown candidate", "unknown round", "unknown key",
    "bad signature", "replay", "inconsistent", "equivocation",
]  # fmt: skip


@dataclass(frozen=True, order=True)
class Refused:
    """A ballot that does not count, and why."""

    voter: str
    candidate: str
    round: int
    fault: Fault
    why: str


@dataclass(frozen=True)
class Tally:
    """The count of one candidate's ballots; `missing` electors gave none, or gave contradictory ones."""

    candidate: str
    accepting: tuple[str, ...]
    refusing: tuple[str, ...]
    missing: tuple[str, ...]
    required: int

    @property
    def accepted(self) -> bool:
        return len(self.accepting) >= self.required


@dataclass(frozen=True)
class Outcome:
    """Result of a vote among n registered voters of which f may be arbitrary.

    Attributes:
        excluded: neither candidates nor electors.
        refused: ballots that did not count, sorted; equal ballots sent twice are one.
        equivocated: electors that signed two different ballots for one candidate and round.
        absent: electors none of whose ballots counted, for any other reason.
    """

    n: int
    f: int
    tallies: tuple[Tally, ...]
    excluded: tuple[str, ...]
    refused: tuple[Refused, ...] = ()
    equivocated: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def accepted(self) -> tuple[str, ...]:
        return tuple(tally.candidate for tally in self.tallies if tally.accepted)

    @property
    def faults_left(self) -> int:
        """Bad voters that may still be among the accepted: f minus the rejected ones."""
        return max(0, self.f - (self.n - len(self.accepted)))

    @property
    def quorum(self) -> int:
        return 2 * self.f + 1


def quality(loss: float | None, best: float | None, base: float | None) -> float:
    """clip(1 - (loss - best) / (base - best), 0, 1); 0 where nobody beats the base, or a loss is not finite."""
    if loss is None or best is None or base is None or not all(map(math.isfinite, (loss, best, base))) or best >= base:
        return 0.0
    return min(max(1.0 - (loss - best) / (base - best), 0.0), 1.0)


def vouched_best(losses: Iterable[float | None], f: int) -> float | None:
    """The lowest loss that more than f candidates reach; None if there are fewer finite ones."""
    finite = sorted(loss for loss in losses if loss is not None and math.isfinite(loss))
    return finite[f] if f < len(finite) else None


def faults(n: int, fault_tolerance: float = 1 / 3) -> int:
    """f = floor((n - 1) * fault_tolerance): 1 of 4, 2 of 7, 3 of 10.

    Raises:
        ValueError: more than all the others may be bad (of 1e308 there is no whole number).
    """
    if not fault_tolerance <= 1:
        raise ValueError(f"fault_tolerance is a share of the other voters, 0 to 1/3, not {fault_tolerance}")
    return max(0, math.floor((n - 1) * fault_tolerance + _ROUNDING))


def read_tolerance(fault_tolerance: float) -> float:
    """A tolerance as a person writes it: 0.33, 0.333 and so on mean one third.

    Taken literally, 0.33 would tolerate none of 4 voters, and one of 7.
    """
    return 1 / 3 if re.fullmatch(r"0\.33+", repr(float(fault_tolerance))) else fault_tolerance


def required_ballots(electors: int, f: int, consensus_threshold: float) -> int:
    """min(ceil(threshold * m), m - f), but always more than f."""
    share = math.ceil(consensus_threshold * electors - _ROUNDING)
    return max(min(share, electors - f), f + 1)


def vote(
    ballots: Iterable[Ballot | Mapping[str, Any]],
    quality_threshold: float = 0.85,
    consensus_threshold: float = 0.75,
    verification_rounds: int = 3,
    fault_tolerance: float = 1 / 3,
    *,
    voters: Collection[str] | None = None,
    excluded: Collection[str] = (),
    without_vote: Collection[str] = (),
    voting_strategy: VotingStrategy = "majority",
    keys: Mapping[str, str] | None = None,
    election: str | None = None,
    candidates: Mapping[str, str] | None = None,
) -> Outcome:
    """Count ballots.

    Self-votes, ballots of strangers and of excluded voters do not count, nor do mappings that are no ballots (a quality
    outside [0, 1], a missing field): no voter can stop a vote by what it sends. A voter with two different ballots for
    one candidate and round contradicts itself and counts as missing everywhere, as does one that gave none. The same
    ballot twice is one ballot.

    Args:
        ballots: as models, or as mappings of their fields.
        fault_tolerance: share of the other voters that may be bad; 0.33 is one third (`read_tolerance`).
        voters: everybody registered (n); by default whoever is named on a ballot.
        excluded: those that attestation rejected: no candidates, no electors.
        without_vote: candidates that are no electors: of several copies of one adapter the one that stays.
        voting_strategy: how a voter's rounds become its verdict.
        keys: voter -> public key (base64); given, only ballots signed by them count. Without, nothing is verified.
        election: what ballots have to be bound to.
        candidates: candidate -> digest that ballots have to be about.

    Raises:
        ValueError: a threshold outside (0, 1], a negative fault tolerance, an unknown strategy, or fewer than
            n >= 3f + 1 voters.
    """
    if not 0 <= fault_tolerance < math.inf:
        raise ValueError(f"fault_tolerance is a share of the other voters, 0 to 1/3, not {fault_tolerance}")
    if not (0 < quality_threshold <= 1 and 0 < consensus_threshold <= 1 and verification_rounds >= 1):
        raise ValueError("thresholds lie in (0, 1] and there is at least one verification round")
    if voting_strategy not in ("majority", "unanimous", "average"):
        raise ValueError(f"unknown voting strategy {voting_strategy!r}: majority, unanimous or average")
    cast, refused = _read(ballots)
    named = {name for b in cast for name in (b.voter, b.candidate)}
    named |= {name for r in refused for name in (r.voter, r.candidate)} - {""}
    registered = sorted(set(voters) if voters is not None else named)
    f = faults(len(registered), read_tolerance(fault_tolerance))
    if len(registered) < 3 * f + 1:
        raise ValueError(f"a vote needs n >= 3f + 1 voters, but n={len(registered)}, f={f}")
    out = sorted(set(excluded) & set(registered))
    left = [name for name in registered if name not in out]
    voting = [name for name in left if name not in set(without_vote)]
    f_left = max(0, f - len(out))
    roll = _Roll(registered, left, voting, verification_rounds, keys, election, candidates)
    admitted: list[Ballot] = []
    for ballot in cast:
        fault, why = roll.fault(ballot)
        if fault is None:
            admitted.append(ballot)
        else:
            refused.append(Refused(ballot.voter, ballot.candidate, ballot.round, fault, why))
    votes, contradictions = _collect(admitted)
    refused += contradictions
    liars = {contradiction.voter for contradiction in contradictions}
    if keys is not None:
        refused += _withdraw_inconsistent({name: votes[name] for name in votes if name not in liars}, f_left)
    tallies = []
    for candidate in left:
        electors = [name for name in voting if name != candidate]
        opinions = {
            name: _accepts(votes[name][candidate], quality_threshold, verification_rounds, voting_strategy)
            for name in electors
            if name not in liars and votes.get(name, {}).get(candidate)
        }
        tallies.append(
            Tally(
                candidate,
                accepting=tuple(name for name in electors if opinions.get(name) is True),
                refusing=tuple(name for name in electors if opinions.get(name) is False),
                missing=tuple(name for name in electors if name not in opinions),
                required=0 if len(registered) == 1 else required_ballots(len(electors), f_left, consensus_threshold),
            )
        )
    heard = {name for tally in tallies for name in (*tally.accepting, *tally.refusing)}
    return Outcome(
        len(registered),
        f,
        tuple(tallies),
        tuple(out),
        refused=tuple(sorted(set(refused))),
        equivocated=tuple(sorted(liars)),
        absent=tuple(name for name in voting if name not in heard | liars) if len(registered) > 1 else (),
    )


def _read(ballots: Iterable[Ballot | Mapping[str, Any]]) -> tuple[list[Ballot], list[Refused]]:
    """The ballots, and what is none, by as much of its names as can be read."""
    cast, refused = list[Ballot](), list[Refused]()
    for ballot in ballots:
        try:
            cast.append(ballot if isinstance(ballot, Ballot) else Ballot.model_validate(ballot))
        except ValidationError as error:
            fields = ballot if isinstance(ballot, Mapping) else {}
            voter, candidate = (n if isinstance(n := fields.get(key), str) else "" for key in ("voter", "candidate"))
            number = n if type(n := fields.get("round")) is int else 0
            refused.append(Refused(voter, candidate, number, "malformed", clause(error.errors()[0])))
    return cast, refused


@dataclass(frozen=True)
class _Roll:
    """Who may vote on whom in an election: what one ballot is held against.

    Attributes:
        candidates_left: the registered voters that attestation accepted; `voting`: those of them that have a vote.
        digests: candidate -> digest that ballots have to be about; None: not checked.
    """

    registered: Collection[str]
    candidates_left: Collection[str]
    voting: Collection[str]
    rounds: int
    keys: Mapping[str, str] | None
    election: str | None
    digests: Mapping[str, str] | None

    def fault(self, ballot: Ballot) -> tuple[Fault | None, str]:
        """Why a ballot does not count, by itself; its sender is verified before anything is held against a voter."""
        if ballot.voter not in self.registered:
            return "stranger", f"{ballot.voter} is not registered"
        if self.keys is not None and ballot.voter in self.voting:
            if ballot.voter not in self.keys:
                return "unknown key", f"{ballot.voter} registered no key"
            if not is_signed_by(ballot, self.keys[ballot.voter]):
                return "bad signature", f"not signed by the key of {ballot.voter}"
        if ballot.voter not in self.voting:
            return "excluded", f"{ballot.voter} has no vote: attestation rejected it, or its adapter is a copy"
        if ballot.voter == ballot.candidate:
            return "self-vote", "a voter has no vote on its own adapter"
        if ballot.candidate not in self.candidates_left:
            return "unknown candidate", f"{ballot.candidate} is no candidate"
        if ballot.round >= self.rounds:
            return "unknown round", f"there are {self.rounds} rounds, from 0"
        signed = self.keys is not None
        if self.election is not None and ballot.election != self.election and (signed or ballot.election is not None):
            return "replay", f"made for election {str(ballot.election)[:12]}, this is {self.election[:12]}"
        stated = None if self.digests is None else self.digests.get(ballot.candidate)
        if stated is not None and ballot.candidate_digest != stated and (signed or ballot.candidate_digest is not None):
            return "replay", f"about adapter {str(ballot.candidate_digest)[:12]}, the candidate is {stated[:12]}"
        return None, ""


Votes = dict[str, dict[str, dict[int, Ballot]]]


def _collect(cast: Iterable[Ballot]) -> tuple[Votes, list[Refused]]:
    """voter -> candidate -> round -> ballot, and the contradictions; a second signature of one content is none."""
    votes: Votes = defaultdict(lambda: defaultdict(dict))
    contradictions = []
    for ballot in cast:
        first = votes[ballot.voter][ballot.candidate].setdefault(ballot.round, ballot)
        if first.model_copy(update={"signature": None}) != ballot.model_copy(update={"signature": None}):
            contradictions.append(
                Refused(ballot.voter, ballot.candidate, ballot.round, "equivocation", "two different ballots")
            )
    return votes, contradictions


def _withdraw_inconsistent(votes: Votes, f: int) -> list[Refused]:
    """Take back ballots whose best loss or quality does not follow from the losses the voter itself states."""
    refused = []
    for voter in sorted(votes):
        for number in sorted({number for rounds in votes[voter].values() for number in rounds}):
            part = {c: rounds[number] for c, rounds in votes[voter].items() if number in rounds}
            best = vouched_best((ballot.loss for ballot in part.values()), f)
            for candidate, ballot in sorted(part.items()):
                right = quality(ballot.loss, best, ballot.base_loss)
                if ballot.best_loss == best and math.isclose(right, ballot.quality, abs_tol=_ROUNDING):
                    continue
                why = f"quality {ballot.quality:.4f} stated, {right:.4f} from its losses"
                refused.append(Refused(voter, candidate, number, "inconsistent", why))
                del votes[voter][candidate][number]
    return refused


def _accepts(rounds: Mapping[int, Ballot], threshold: float, verification_rounds: int, strategy: str) -> bool:
    """A round without a ballot is one that does not accept."""
    if strategy == "average":
        return math.fsum(ballot.quality for ballot in rounds.values()) >= threshold * verification_rounds - _ROUNDING
    accepting = sum(ballot.quality >= threshold for ballot in rounds.values())
    return accepting == verification_rounds if strategy == "unanimous" else 2 * accepting > verification_rounds
