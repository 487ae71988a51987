"""The vote: every voter judges every other voter's candidate on its own held-out shard.

Quality of a candidate on a shard is clip(1 - (loss - best) / (base - best), 0, 1): 1 for the best, 0 for the base
model. `best` is the least loss that more than f of the judged candidates reach: the plain minimum would let a liar who
trained on the validation data push every honest candidate under the threshold.

A candidate's electors are the attested voters other than itself: m of them, of which f' may still lie (f less those
that attestation rejected). It is accepted by min(ceil(threshold * m), m - f') ballots, and by more than f' in any case.
With n = 4 and f = 1 that is 2 of 3: the two honest electors of an honest candidate are enough whatever the liar says,
and a liar alone is not. In general m - f' is the number of honest electors, so honest voters who agree always reach
it, and more than f' means that one honest voter at least agreed.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from capibara_assets.storage.records import Record

_ROUNDING = 1e-9  # 3 * (1/3) must be 1


class Ballot(Record):
    """One voter's judgement of one candidate on one part of its own shard."""

    schema_name: ClassVar[str] = "ballots"
    schema_version: ClassVar[int] = 1
    key: ClassVar[tuple[str, ...]] = ("voter", "candidate", "round")

    voter: str = Field(description="Who judges, on its own validation shard")
    candidate: str = Field(description="Whose adapter is judged")
    round: int = Field(description="Part of the shard, from 0", ge=0)
    tokens: int = Field(description="Supervised tokens the losses are means over", ge=0)
    loss: float | None = Field(description="The candidate's loss, nats per token; null when not finite")
    base_loss: float = Field(description="The base model's loss there")
    best_loss: float | None = Field(description="Least loss there that more than f of the judged candidates reach")
    quality: float = Field(description="clip(1 - (loss - best) / (base - best), 0, 1)", ge=0, le=1)


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
    """Result of a vote among n registered voters of which f may be arbitrary."""

    n: int
    f: int
    tallies: tuple[Tally, ...]
    excluded: tuple[str, ...]

    @property
    def accepted(self) -> tuple[str, ...]:
        return tuple(tally.candidate for tally in self.tallies if tally.accepted)

    @property
    def faults_left(self) -> int:
        """Bad voters that may still be among the accepted: f less all that were rejected."""
        return max(0, self.f - (self.n - len(self.accepted)))

    @property
    def quorum(self) -> int:
        return 2 * self.f + 1


def quality(loss: float | None, best: float | None, base: float) -> float:
    """clip(1 - (loss - best) / (base - best), 0, 1); 0 where nobody beats the base, or a loss is not finite."""
    if loss is None or best is None or not all(map(math.isfinite, (loss, best, base))) or best >= base:
        return 0.0
    return min(max(1.0 - (loss - best) / (base - best), 0.0), 1.0)


def vouched_best(losses: Iterable[float | None], f: int) -> float | None:
    """The least loss that more than f candidates reach; None when there are not that many finite ones."""
    finite = sorted(loss for loss in losses if loss is not None and math.isfinite(loss))
    return finite[f] if f < len(finite) else None


def faults(n: int, fault_tolerance: float = 1 / 3) -> int:
    """f = floor((n - 1) * fault_tolerance): 1 of 4, 2 of 7, 3 of 10."""
    return max(0, math.floor((n - 1) * fault_tolerance + _ROUNDING))


def required_ballots(electors: int, f: int, consensus_threshold: float) -> int:
    """min(ceil(threshold * m), m - f), but always more than f."""
    share = math.ceil(consensus_threshold * electors - _ROUNDING)
    return max(min(share, electors - f), f + 1)


def vote(
    ballots: Iterable[Ballot],
    quality_threshold: float = 0.85,
    consensus_threshold: float = 0.75,
    verification_rounds: int = 3,
    fault_tolerance: float = 1 / 3,
    *,
    voters: Collection[str] | None = None,
    excluded: Collection[str] = (),
) -> Outcome:
    """Count ballots.

    A voter accepts a candidate when its quality reaches the threshold in more than half of the rounds. Self-votes,
    ballots of strangers and of excluded voters do not count; a voter with two different ballots for one candidate and
    round contradicts itself and counts as missing everywhere, as does one that gave none.

    Args:
        voters: everybody registered (n); by default whoever is named on a ballot.
        excluded: those that attestation rejected: no candidates, no electors.

    Raises:
        ValueError: a threshold outside (0, 1], or fewer than n >= 3f + 1 voters.
    """
    if not (0 < quality_threshold <= 1 and 0 < consensus_threshold <= 1 and verification_rounds >= 1):
        raise ValueError("thresholds lie in (0, 1] and there is at least one verification round")
    cast = list(ballots)
    registered = sorted(set(voters) if voters is not None else {n for b in cast for n in (b.voter, b.candidate)})
    f = faults(len(registered), fault_tolerance)
    if len(registered) < 3 * f + 1:
        raise ValueError(f"a vote needs n >= 3f + 1 voters, but n={len(registered)}, f={f}")
    out = sorted(set(excluded) & set(registered))
    left = [name for name in registered if name not in out]
    votes, liars = _collect(cast, set(left))
    tallies = []
    for candidate in left:
        electors = [name for name in left if name != candidate]
        opinions = {
            name: _accepts(votes[name][candidate], quality_threshold, verification_rounds)
            for name in electors
            if name not in liars and candidate in votes[name]
        }
        tallies.append(
            Tally(
                candidate,
                accepting=tuple(name for name in electors if opinions.get(name) is True),
                refusing=tuple(name for name in electors if opinions.get(name) is False),
                missing=tuple(name for name in electors if name not in opinions),
                required=required_ballots(len(electors), max(0, f - len(out)), consensus_threshold),
            )
        )
    return Outcome(len(registered), f, tuple(tallies), tuple(out))


def _collect(cast: list[Ballot], known: set[str]) -> tuple[Mapping[str, dict[str, dict[int, Ballot]]], set[str]]:
    """voter -> candidate -> round -> ballot, and the voters that gave two different ballots for one round."""
    votes: dict[str, dict[str, dict[int, Ballot]]] = defaultdict(dict)
    liars: set[str] = set()
    for ballot in cast:
        if ballot.voter not in known or ballot.candidate not in known or ballot.voter == ballot.candidate:
            continue
        first = votes[ballot.voter].setdefault(ballot.candidate, {}).setdefault(ballot.round, ballot)
        if first != ballot:
            liars.add(ballot.voter)
    return votes, liars


def _accepts(rounds: Mapping[int, Ballot], threshold: float, verification_rounds: int) -> bool:
    accepting = sum(ballot.quality >= threshold for number, ballot in rounds.items() if number < verification_rounds)
    return 2 * accepting > verification_rounds
