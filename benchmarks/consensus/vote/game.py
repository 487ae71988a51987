"""One game of the bench `vote`: n voters drawn from the pool, f of them bad, through attestation, vote and choice.

The stages are the library's own functions in the order of `consensus.agree.agree`; what a game saves is the processes,
and losses that are known already. Bad voters lie in the vote, too: they accept one another and refuse all others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from benchmarks.consensus.vote.attacks import BACKDOOR, NOISE, Attack, Drawn, Named
from benchmarks.consensus.vote.losses import LossBook, given, key_of
from capibara_assets.consensus.choose.combining import combine
from capibara_assets.consensus.choose.sampling import subsample
from capibara_assets.consensus.election.attestation import Limits, attest
from capibara_assets.consensus.election.voting import Ballot, Outcome, faults, quality, vote, vouched_best
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.training.data.order import validation_shard

VALIDATION, TEST, TRIGGERED = "validation", "test", "triggered"
_DIGITS = 6
Parts = Callable[[Sequence[int], int, int], Sequence[int]]


@dataclass(frozen=True)
class Entrant:
    """A voter of a game: its adapter, what that is made of, and whether it is one of the bad ones."""

    name: str
    adapter: LoraAdapter
    key: str
    bad: bool


@dataclass(frozen=True)
class Result:
    """What came of one game.

    Attributes:
        loss, honest_loss: test loss of the consensus, and of what the same steps after the vote make of the honest
            voters alone; the former is None where there was no quorum.
        success, honest_success: share of triggered questions answered with the payload, of a backdoor's games.
        accepted_bad, rejected_honest: voters judged wrongly.
    """

    attack: str
    n: int
    seed: int
    strength: float
    loss: float | None
    honest_loss: float
    success: float | None
    honest_success: float | None
    accepted_bad: int
    rejected_honest: int

    @property
    def increase(self) -> float:
        """Relative increase of the loss; infinite where nothing was published."""
        return float("inf") if self.loss is None else self.loss / self.honest_loss - 1


@dataclass(frozen=True)
class Table:
    """What games are played with.

    Attributes:
        pool: kind of `pool.Kind` -> adapters; a kind that no attack of the run needs may be missing.
        shards: number of voters -> each voter's indices into the validation set.
        chooser: given, it makes the consensus of the accepted voters (`consensus.choosing`); None: the rule alone.
        in_slice: set of examples -> which of them are of the slice (`data.SLICE`).
    """

    pool: Mapping[str, Sequence[Named]]
    book: LossBook
    recipe: ConsensusRecipe
    shards: Mapping[int, list[list[int]]]
    chooser: Callable[[Mapping[str, LoraAdapter], int], LoraAdapter] | None = None
    in_slice: Mapping[str, np.ndarray] = field(default_factory=dict)


def in_turn(shard: Sequence[int], number: int, rounds: int) -> list[int]:
    """What a voter judges by in a round: its shard dealt out by number, as the vote deals it."""
    return list(shard[number::rounds])


def shards_for(
    examples: pl.DataFrame, ids: Sequence[str], lengths: Sequence[int], n: int, recipe: ConsensusRecipe
) -> list[list[int]]:
    """Each of n voters' validation examples as indices into `ids`: whole groups, as the vote deals them."""
    place = {name: index for index, name in enumerate(ids)}
    found = []
    for shard in range(n):
        own = [place[name] for name in validation_shard(examples, shard, n)["example_id"] if name in place]
        kept = subsample([lengths[i] for i in own], recipe.examples_per_shard, recipe.tokens_per_shard)
        found.append([own[i] for i in kept])
    return found


def play(table: Table, attack: Attack, n: int, seed: int) -> Result:
    """One game; the same seed draws the same honest voters under every attack."""
    entrants, strength = entrants_of(table, attack, n, seed)
    honest = [one for one in entrants if not one.bad]
    outcome = judged(table, entrants)
    accepted = [one for one in entrants if one.name in outcome.accepted]
    clean_key = consensus_key(table, honest, 0)

    def clean() -> LoraAdapter:
        return consensus_of(table, honest, 0)

    def consensus() -> LoraAdapter:
        return consensus_of(table, accepted, outcome.faults_left)

    quorate = len(accepted) >= outcome.quorum
    key = consensus_key(table, accepted, outcome.faults_left)
    backdoored = attack.name == BACKDOOR
    return Result(
        attack=attack.name,
        n=n,
        seed=seed,
        strength=strength,
        loss=table.book.mean(TEST, key, consensus) if quorate else None,
        honest_loss=table.book.mean(TEST, clean_key, clean),
        success=table.book.success(TRIGGERED, key, consensus) if quorate and backdoored else None,
        honest_success=table.book.success(TRIGGERED, clean_key, clean) if backdoored else None,
        accepted_bad=sum(one.bad for one in accepted),
        rejected_honest=len(honest) - sum(not one.bad for one in accepted),
    )


def entrants_of(table: Table, attack: Attack, n: int, seed: int) -> tuple[list[Entrant], float]:
    """The voters of a game in the order of their names, and the attack's strength; bad ones sit at random places."""
    f = faults(n, table.recipe.fault_tolerance)
    random = np.random.default_rng([n, seed])
    voters = _some(table.pool["honest"], n, random)
    noise, backdoor = (
        _some(table.pool.get(kind, []), f, np.random.default_rng([n, seed, number]))
        for number, kind in enumerate((NOISE, BACKDOOR))
    )
    names = [f"voter-{int(place):02}" for place in random.permutation(n)]
    strength = attack.strengths[seed % len(attack.strengths)]
    bad = attack.make(Drawn(voters[: n - f], voters[n - f :], noise, backdoor), strength, random)
    submitted = [*((one, False) for one in voters[: n - f]), *((one, True) for one in bad)]
    entrants = [Entrant(name, one.adapter, one.key, bad) for name, (one, bad) in zip(names, submitted, strict=True)]
    return sorted(entrants, key=lambda one: one.name), strength


def judged(table: Table, entrants: Sequence[Entrant], *, lies: bool = True, parts: Parts = in_turn) -> Outcome:
    """Attestation and vote.

    Args:
        lies: bad voters accept one another and refuse all others; without, they tell what they measure.
        parts: (shard, round, rounds) -> the examples of a shard that a round judges by.
    """
    recipe, book = table.recipe, table.book
    names = [one.name for one in entrants]
    f = faults(len(names), recipe.fault_tolerance)
    adapters, keys = ({one.name: one.adapter for one in entrants}, {one.name: one.key for one in entrants})
    limits = Limits(norm_ratio=recipe.norm_ratio_limit, copy_ratio=recipe.copy_ratio)
    verdicts = attest(adapters, None, limits, keys, f=f)
    voteless = {name for name in names if not verdicts[name].votes}
    excluded = [name for name in names if not verdicts[name].accepted]
    candidates = [one for one in entrants if one.name not in excluded]
    nll = {one.name: book.nll(VALIDATION, one.key, given(one.adapter)) for one in candidates}
    base, tokens = book.nll(VALIDATION, "base", None), book.tokens(VALIDATION)
    ballots = []
    for place, voter in enumerate(entrants):
        if voter.name in excluded or voter.name in voteless:
            continue
        own = table.shards[len(names)][place]
        for number in range(recipe.verification_rounds):
            part = list(parts(own, number, recipe.verification_rounds))
            amount = int(tokens[part].sum())
            base_loss = round(float(base[part].sum() / amount), _DIGITS)
            means = {
                one.name: round(float(nll[one.name][part].sum() / amount), _DIGITS)
                for one in candidates
                if one.name != voter.name
            }
            best = vouched_best(means.values(), max(0, f - len(excluded)))
            for candidate in candidates:
                if candidate.name == voter.name:
                    continue
                worth = quality(means[candidate.name], best, base_loss)
                if lies and voter.bad:
                    worth = float(candidate.bad)
                ballots.append(
                    Ballot(
                        voter=voter.name, candidate=candidate.name, round=number, tokens=amount,
                        loss=means[candidate.name], base_loss=base_loss, best_loss=best, quality=worth,
                    )
                )  # fmt: skip
    return vote(
        ballots,
        recipe.quality_threshold,
        recipe.consensus_threshold,
        recipe.verification_rounds,
        recipe.fault_tolerance,
        voters=names,
        excluded=excluded,
        without_vote=voteless,
        voting_strategy=recipe.voting_strategy,
    )


def consensus_of(table: Table, accepted: Sequence[Entrant], f: int) -> LoraAdapter:
    """What comes of accepted voters, f of whom may still be bad."""
    ordered, recipe = _ordered(accepted), table.recipe
    if table.chooser is None:
        adapters = [one.adapter for one in ordered]
        return combine(adapters, recipe.rule, f=f, pre=recipe.pre, rank=recipe.rank).adapter
    by_key = {one.key: one.adapter for one in ordered}
    if len(by_key) < len(ordered):
        raise ValueError("copies of one adapter were accepted: attestation lets one of them through")
    return table.chooser(by_key, f)


def consensus_key(table: Table, accepted: Sequence[Entrant], f: int) -> str:
    """What `consensus_of` makes, as a name."""
    recipe, steps = table.recipe, "rule" if table.chooser is None else "chosen"
    settings = [recipe.rule, recipe.pre, recipe.rank, recipe.tolerance, recipe.merge_strategy]
    return key_of(steps, settings, f, [one.key for one in _ordered(accepted)])


def _ordered(entrants: Sequence[Entrant]) -> list[Entrant]:
    return sorted(entrants, key=lambda one: (one.key, one.name))


def _some(pool: Sequence[Named], count: int, random: np.random.Generator) -> list[Named]:
    """So many different ones, none of an empty pool."""
    return [pool[int(i)] for i in random.choice(len(pool), size=count, replace=False)] if pool else []
