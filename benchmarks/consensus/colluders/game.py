"""One game of the bench `colluders`: f voters who act as one, know everything, and play the strength that pays most.

Each hands in the honest voters' mean, k times what a poisoned training adds to it, and a share of what its own training
would have added, so that no two of them are copies. They accept one another and refuse all honest candidates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from benchmarks.consensus.vote.attacks import BACKDOOR, NOISE, Attack, Drawn, Named, Random, mixed
from benchmarks.consensus.vote.game import (
    TEST,
    TRIGGERED,
    VALIDATION,
    Entrant,
    Table,
    consensus_key,
    consensus_of,
    entrants_of,
    judged,
)
from benchmarks.consensus.vote.losses import Make, given
from capibara_assets.consensus.election.voting import Outcome

LOSS, TRIGGER, SLICE = "loss", "trigger", "slice"
POISON = {LOSS: NOISE, TRIGGER: BACKDOOR, SLICE: "slice"}
"""What colluders want -> kind of the pool's adapters that have learnt it."""
STRENGTHS = (0.25, 0.5, 1.0, 2.0)
_APART = 0.3  # as in `vote`: colluders who hand in nearly one adapter count as one


@dataclass(frozen=True)
class Played:
    """What colluders reach with one strength.

    Attributes:
        accepted: colluders that the shipped vote accepts; `accepted_by_slices` with a quality for each slice.
        refused_honest: honest voters that it refuses; `refused_by_slices` with a quality for each slice.
        quorate, quorate_by_slices: whether 2f + 1 voters were accepted.
        own: what a colluder's adapter does by itself, the largest of the accepted; None where none was accepted.
        reached: what the consensus does; None where there was no quorum.
    """

    strength: float
    accepted: int
    refused_honest: int
    quorate: bool
    own: float | None
    reached: float | None
    accepted_by_slices: int
    refused_by_slices: int
    quorate_by_slices: bool


@dataclass(frozen=True)
class Draw:
    """All strengths of one goal against the same honest voters."""

    goal: str
    n: int
    seed: int
    colluders: int
    played: tuple[Played, ...]


def collude(table: Table, goal: str, n: int, seed: int, strengths: Sequence[float] = STRENGTHS) -> Draw:
    """Every strength in turn."""
    honest = replace(table, pool={"honest": table.pool["honest"]})
    poison = table.pool[POISON[goal]]
    played, colluders = [], 0
    for strength in strengths:
        entrants, _ = entrants_of(honest, Attack(goal, (strength,), _maker(poison)), n, seed)
        colluders = sum(one.bad for one in entrants)
        played.append(_play(table, goal, entrants, strength))
    return Draw(goal, n, seed, colluders, tuple(played))


def _maker(poison: Sequence[Named]) -> Callable[[Drawn, float, Random], list[Named]]:
    def make(drawn: Drawn, strength: float, random: Random) -> list[Named]:
        return colluders_of(drawn, poison, strength)

    return make


def colluders_of(drawn: Drawn, poison: Sequence[Named], strength: float) -> list[Named]:
    """mean + strength * (poison - mean) + apart * (own - mean), one for each colluder."""
    honest = sorted(drawn.honest, key=lambda one: one.key)
    learnt = sorted(poison, key=lambda one: one.key)
    apart = _APART if len(drawn.own) > 1 else 0.0
    left = (1 - strength - apart) / len(honest)
    weights = [*([left] * len(honest)), *([strength / len(learnt)] * len(learnt)), *([apart] if apart else [])]
    return [mixed([*honest, *learnt, *([own] if apart else [])], weights) for own in drawn.own]


def _play(table: Table, goal: str, entrants: Sequence[Entrant], strength: float) -> Played:
    honest = [one for one in entrants if not one.bad]
    outcome = judged(table, entrants)
    accepted = [one for one in entrants if one.name in outcome.accepted]
    quorate = len(accepted) >= outcome.quorum
    clean = _figure(table, goal, consensus_key(table, honest, 0), lambda: consensus_of(table, honest, 0))
    base = _figure(table, goal, "base", None)

    def effect(key: str, make: Make) -> float:
        return _effect(goal, _figure(table, goal, key, make), clean, base)

    left = outcome.faults_left
    alone = [effect(one.key, given(one.adapter)) for one in accepted if one.bad]
    by_slices = judged_by_slices(table, entrants)
    return Played(
        strength=strength,
        accepted=_bad(outcome, entrants),
        refused_honest=len(honest) - len(accepted) + _bad(outcome, entrants),
        quorate=quorate,
        own=max(alone, default=None),
        reached=effect(consensus_key(table, accepted, left), lambda: consensus_of(table, accepted, left))
        if quorate
        else None,
        accepted_by_slices=_bad(by_slices, entrants),
        refused_by_slices=len(honest) - len(by_slices.accepted) + _bad(by_slices, entrants),
        quorate_by_slices=len(by_slices.accepted) >= by_slices.quorum,
    )


def judged_by_slices(table: Table, entrants: Sequence[Entrant]) -> Outcome:
    """The vote with a quality for the slice and one for the rest, of which each has to pass.

    The best case for such ballots: they are told which slice is attacked. A shard without an example of a part judges
    by all it has.
    """
    inside = table.in_slice[VALIDATION]
    recipe = table.recipe.model_copy(update={"verification_rounds": 2, "voting_strategy": "unanimous"})

    def parts(shard: Sequence[int], number: int, rounds: int) -> Sequence[int]:
        return [index for index in shard if inside[index] == (number == 0)] or list(shard)

    return judged(replace(table, recipe=recipe), entrants, parts=parts)


def _bad(outcome: Outcome, entrants: Sequence[Entrant]) -> int:
    return sum(one.bad and one.name in outcome.accepted for one in entrants)


def _figure(table: Table, goal: str, key: str, make: Make | None) -> float:
    """Nats per token of the test set or of its slice, or the share of triggered questions that obey."""
    if goal == TRIGGER:
        return table.book.success(TRIGGERED, key, make)
    if goal == LOSS:
        return table.book.mean(TEST, key, make)
    inside = table.in_slice[TEST]
    return float(table.book.nll(TEST, key, make)[inside].sum() / table.book.tokens(TEST)[inside].sum())


def _effect(goal: str, figure: float, clean: float, base: float) -> float:
    """Share of obeyed triggers above the honest consensus's, or the share of its gain over the base that is lost."""
    return figure - clean if goal == TRIGGER else (figure - clean) / (base - clean)
