"""Choice of the consensus among candidates: every accepted voter, the robust aggregate, a mixture, soups.

All are measured on the same validation examples, and the best that passes the gate is the consensus. The gate: a finite
loss, below the base's, and not above the best accepted voter's by more than the tolerance. For voters of several
strategies the integrated adapter is a candidate too, with a threshold of its own (integrated.py). Of candidates within
rounding of the best, the first in this order is chosen: the robust aggregate, then the averages, then single voters.

Candidates that fit their weights to the validation examples (mixture, weighted and greedy soup) are measured on the
examples they were fitted to, with a handful of weights against thousands of tokens; the test split is kept for the
evaluation.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from capibara_assets.checkpoints.inspect.verify import digest_of
from capibara_assets.consensus.choose.combining import combine
from capibara_assets.consensus.choose.convex import convex_weights, mixture_gap
from capibara_assets.consensus.choose.integrated import integrated_verdict, strategy_weights
from capibara_assets.consensus.choose.lanes import lanes
from capibara_assets.consensus.choose.shares import rounded_shares, weighted_shares
from capibara_assets.consensus.election.attestation import order_of_computing
from capibara_assets.consensus.election.options import with_common_options
from capibara_assets.consensus.recipe import ConsensusRecipe, ConvexRecipe, IntegratedRecipe, SoupRecipe
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, applied
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.greedy import greedy_choice
from capibara_assets.modeling.losses import TokenLosses
from capibara_assets.modeling.low_rank import MergedAdapter, merge_adapters

if TYPE_CHECKING:
    from capibara_assets.datasets.tokens.tokenising import Encoded

BASE = "base"
Kind = Literal["robust", "convex", "uniform_soup", "weighted_soup", "greedy_soup", "integrated", "voter"]
MergeStrategy = Literal["weighted_average", "convex_optimization"]
_FORCED: dict[str, Kind] = {"weighted_average": "weighted_soup", "convex_optimization": "convex"}
_DIGITS = 6  # of losses: the last bits of a float32 model depend on the number of threads
_MARGIN = 1e-5  # nats per token: losses nearer than this are equal up to those bits


class Tried(BaseModel):
    """A measured candidate: its composition and its result. `rebuild` makes it again, without a model."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field(description="The voter's, else the kind")
    kind: Kind
    voters: tuple[str, ...] = Field(description="Accepted voters it was made from, in the order of the computation")
    weights: tuple[float, ...] | None = Field(description="Of these voters; null where the rule works per coordinate")
    rule: str | None = Field(default=None, description="Robust aggregate: the rule")
    pre: str | None = Field(default=None, description="Robust aggregate: mixing before the rule")
    f: int = Field(default=0, description="Robust aggregate: voters that may still be bad", ge=0)
    requested_rank: int | None = Field(
        default=None, description="Most that a merge may have; null: exact, the ranks add up. A voter alone is not cut"
    )
    relative_error: float = Field(description="Frobenius error of a smaller rank; 0 for an exact one")
    digest: str = Field(description="SHA-256 over the adapter's config and weights")
    loss: float | None = Field(description="On validation, nats per token; null when not finite")
    passed: bool
    reason: str = Field(description="The gate's verdict, with its figure")
    figures: dict[str, Any] = Field(default_factory=dict, description="What led to the weights")


@dataclass(frozen=True)
class ConsensusChoice:
    """The chosen consensus adapter, with every candidate that was measured.

    Attributes:
        adapter: the consensus; its digest is `chosen.digest`.
        chosen: its entry in `tried`.
        tried: every candidate, in the order that breaks ties.
        losses: on validation, nats per token, of "base" and of the accepted voters; NaN where not finite.
    """

    adapter: MergedAdapter
    chosen: Tried
    tried: tuple[Tried, ...]
    losses: dict[str, float]


@dataclass(frozen=True)
class ValidationLosses:
    """Lazily measured token losses on validation examples.

    Attributes:
        base: the model that the adapters were trained on.
        examples: held-out examples that all candidates are measured on.
        known: losses already known, of "base" and of voters by name, from `measure`.
        measuring: losses under an adapter, in place of `measure`; simulations of many choices pass a cached one.
    """

    base: Base
    examples: Sequence["Encoded"]
    known: Mapping[str, TokenLosses] = field(default_factory=dict)
    measuring: Callable[[LoraAdapter], TokenLosses] | None = None

    def named(self, name: str, adapter: LoraAdapter | None) -> TokenLosses:
        """Losses of the base (None) or of a voter's adapter."""
        return self.known[name] if name in self.known else measure(self.base, adapter, self.examples)

    def under(self, adapter: LoraAdapter) -> TokenLosses:
        """Losses of the base with an adapter that does not belong to a voter."""
        return self.measuring(adapter) if self.measuring else measure(self.base, adapter, self.examples)


class ChoiceError(InputError):
    """Raised when no candidate passes the gate.

    Attributes:
        tried: every candidate with its verdict.
    """

    def __init__(self, message: str, tried: tuple[Tried, ...]) -> None:
        super().__init__(message)
        self.tried = tried


def choose(
    validation: ValidationLosses,
    accepted: Mapping[str, LoraAdapter],
    recipe: ConsensusRecipe,
    *,
    f: int,
    strategies: Mapping[str, str] | None = None,
    digests: Mapping[str, str] | None = None,
) -> ConsensusChoice:
    """Measure every candidate on validation, and choose the best that passes the gate.

    The adapter depends neither on the order nor on the names of the voters (`order_of_computing`).

    Args:
        validation: losses that all candidates are judged by.
        accepted: name -> adapter of the voters that the vote accepted; they change the same modules.
        recipe: rule, mixing before it, rank, tolerance, and how candidates are made; its `merge_strategy` forces the
            weighted soup or the mixture, which still has to pass the gate.
        f: accepted voters that may still be bad, for the robust rule.
        strategies: accepted voter -> kind of its strategy; where all three of the integrated strategy are among them,
            its adapter is a candidate, too.
        digests: accepted voter -> digest of the files that it submitted; None: adapters in memory, which have those
            that `write_adapter` would write.

    Raises:
        ChoiceError: no candidate, or not the forced one, passes the gate; nothing may be published.
        ValueError: no voter, or the rule's precondition does not hold for (n, f).
    """
    if not accepted:
        raise ValueError("no voter was accepted: there is no candidate to choose from")
    submitted = {name: digest_of(own) for name, own in accepted.items()} if digests is None else digests
    order = order_of_computing({name: submitted[name] for name in accepted})
    known = {name: validation.named(name, accepted.get(name)) for name in (BASE, *order)}
    losses = {name: _mean(own) for name, own in known.items()}
    combiner = _VoterCombiner([accepted[name] for name in order], recipe.rank, validation.under)
    voters = [combiner.voter(place, losses[name]) for place, name in enumerate(order)]
    sound = [place for place, name in enumerate(order) if math.isfinite(losses[name])]

    made = [_robust(combiner, recipe, f)]
    if sound:
        how = recipe.candidates
        made.append(_convex(combiner, sound, [known[order[place]].nll for place in sound], how.convex))
        made += _soups(combiner, {place: losses[order[place]] for place in sound}, order, how.soup)
        kinds = {order[place]: kind for place in sound if (kind := (strategies or {}).get(order[place])) is not None}
        made += _integrated(combiner, kinds, losses, order, how.integrated)
    best = min((losses[order[place]] for place in sound), default=math.nan)
    tried = tuple(_judged(candidate, order, losses[BASE], best, recipe) for candidate in (*made, *voters))
    chosen = choice_of(tried, recipe.merge_strategy)
    return ConsensusChoice((*made, *voters)[tried.index(chosen)].adapter, chosen, tried, losses)


def rebuild(entry: Tried, voters: Mapping[str, LoraAdapter]) -> MergedAdapter:
    """Make a candidate's adapter again, from its entry and the adapters of all accepted voters.

    Raises:
        InputError: a voter that it was made from is missing.
        ValueError: the entry's rule or weights do not fit its voters.
    """
    if missing := [name for name in entry.voters if name not in voters]:
        raise InputError(f"{entry.name} was made from {', '.join(missing)} too: give the adapters of all its voters")
    adapters = [voters[name] for name in entry.voters]
    every = list(voters.values())
    if entry.kind == "robust":
        made = combine(adapters, str(entry.rule), f=entry.f, pre=entry.pre, rank=entry.requested_rank).adapter
        return _publishable(made, every)
    if entry.weights is None:
        raise ValueError(f"{entry.name} has no weights")
    return _publishable(_merged(adapters, entry.weights, entry.requested_rank), every)


def measure(base: Base, adapter: LoraAdapter | None, validation: Sequence["Encoded"]) -> TokenLosses:
    """Token losses of the base (`adapter` None) or of an adapter on it; bit-identical for any number of threads."""
    base.model.eval()
    with nullcontext() if adapter is None else applied(base.model, adapter), lanes() as parallel:
        return parallel.token_losses(base.model, validation)


@dataclass(frozen=True)
class _Candidate:
    """One candidate, made and measured, before the gate."""

    kind: Kind
    adapter: MergedAdapter
    weights: tuple[float, ...] | None
    loss: float
    figures: dict[str, Any]
    settings: dict[str, Any]  # of the robust rule
    place: int = 0  # of a voter, in the order of digests


class _VoterCombiner:
    """Makes weighted sums of the voters' adapters and measures them, once for each set of weights."""

    def __init__(
        self, adapters: Sequence[LoraAdapter], rank: int | None, measuring: Callable[[LoraAdapter], TokenLosses]
    ) -> None:
        self.adapters, self.rank, self.measuring = adapters, rank, measuring
        self._made: dict[tuple[float, ...], tuple[MergedAdapter, float]] = {}

    def loss(self, adapter: LoraAdapter) -> float:
        """Validation loss of an adapter, nats per token."""
        return _mean(self.measuring(adapter))

    def voter(self, place: int, loss: float) -> _Candidate:
        """A single voter as a candidate."""
        weights = tuple(float(place == other) for other in range(len(self.adapters)))
        adapter = _publishable(_merged(self.adapters, weights, self.rank), self.adapters)
        self._made[weights] = (adapter, loss)
        return _Candidate("voter", adapter, weights, loss, {}, {}, place)

    def keep(self, weights: tuple[float, ...], adapter: MergedAdapter, loss: float) -> None:
        """Store a weighted sum that was computed elsewhere."""
        self._made.setdefault(weights, (adapter, loss))

    def average(
        self, weights: Sequence[float], places: Sequence[int]
    ) -> tuple[tuple[float, ...], MergedAdapter, float]:
        """Weights of all voters, their weighted sum, and its validation loss; voters not in `places` have weight 0."""
        given = dict(zip(places, weights, strict=True))
        whole = tuple(given.get(place, 0.0) for place in range(len(self.adapters)))
        if whole not in self._made:
            adapter = _publishable(_merged(self.adapters, whole, self.rank), self.adapters)
            self._made[whole] = (adapter, self.loss(adapter))
        return whole, *self._made[whole]


def _publishable(adapter: MergedAdapter, voters: Sequence[LoraAdapter]) -> MergedAdapter:
    """The adapter with a config in which no voter alone decides what concerns all."""
    return replace(adapter, config=with_common_options(adapter.config, voters))


def _merged(adapters: Sequence[LoraAdapter], weights: Sequence[float], rank: int | None) -> MergedAdapter:
    """The weighted sum, of at most this rank; a single voter with weight 1 is returned unchanged."""
    alone = [adapter for adapter, weight in zip(adapters, weights, strict=True) if weight != 0.0]
    if len(alone) == 1 and 1.0 in weights:
        return MergedAdapter(alone[0].config, alone[0].tensors)
    return merge_adapters(adapters, weights, rank)


def _robust(combiner: _VoterCombiner, recipe: ConsensusRecipe, f: int) -> _Candidate:
    """The robust rule's aggregate of all voters."""
    robust = combine(combiner.adapters, recipe.rule, f=f, pre=recipe.pre, rank=recipe.rank)
    adapter = _publishable(robust.adapter, combiner.adapters)
    loss = combiner.loss(adapter)
    if robust.weights is not None:
        combiner.keep(robust.weights, adapter, loss)
    settings = {"rule": recipe.rule, "pre": recipe.pre, "f": f}
    return _Candidate("robust", adapter, robust.weights, loss, robust.evidence, settings)


def _convex(
    combiner: _VoterCombiner, places: Sequence[int], token_nll: Sequence[np.ndarray], recipe: ConvexRecipe
) -> _Candidate:
    """The sum of deltas by the weights of the likeliest mixture of the voters (the sum's own loss is not convex)."""
    losses, pull = np.stack(token_nll), recipe.lambda_reg
    rounded = rounded_shares(convex_weights(losses, pull, recipe.max_iterations).weights)
    weights, adapter, loss = combiner.average(rounded, places)
    gap = mixture_gap(losses, rounded, pull)
    figures = {"lambda_reg": pull, "duality_gap": math.ceil(gap * 1e9) / 1e9, "tokens": int(losses.shape[1])}
    return _Candidate("convex", adapter, weights, loss, figures, {})


def _soups(
    combiner: _VoterCombiner, losses: Mapping[int, float], names: Sequence[str], recipe: SoupRecipe
) -> list[_Candidate]:
    """The uniform, weighted and greedy soups of the voters with a finite loss, given by place."""
    places = list(losses)
    uniform = combiner.average([1 / len(places)] * len(places), places)
    weighted = combiner.average(weighted_shares(list(losses.values()), recipe.metric), places)
    best_first = sorted(places, key=lambda place: (losses[place], place))
    members, _, steps = greedy_choice(
        best_first, -losses[best_first[0]], lambda some: -combiner.average([1 / len(some)] * len(some), some)[2]
    )
    greedy = combiner.average([1 / len(members)] * len(members), members)
    attempts = [
        {
            "voters": [names[place] for place in step.tried],
            "loss": -step.score if math.isfinite(step.score) else None,
            "kept": step.kept,
        }
        for step in steps
    ]
    return [
        _Candidate("uniform_soup", uniform[1], uniform[0], uniform[2], {}, {}),
        _Candidate("weighted_soup", weighted[1], weighted[0], weighted[2], {}, {}),
        _Candidate("greedy_soup", greedy[1], greedy[0], greedy[2], {"attempts": attempts}, {}),
    ]


def _integrated(
    combiner: _VoterCombiner,
    kinds: Mapping[str, str],
    losses: Mapping[str, float],
    names: Sequence[str],
    recipe: IntegratedRecipe,
) -> list[_Candidate]:
    """The integrated strategy's adapter, as a list; empty where one of its strategies has no voter.

    Args:
        kinds: voter with a finite loss -> kind of its strategy.
    """
    if not {kind for kind, weight in recipe.weights.items() if weight > 0} <= set(kinds.values()):
        return []
    share = strategy_weights(kinds, recipe.weights)
    places = [place for place, name in enumerate(names) if math.isfinite(losses[name])]
    weights, adapter, loss = combiner.average([share.get(names[place], 0.0) for place in places], places)
    best = min(losses[name] for name, own in share.items() if own > 0)
    accepted, quality, words = integrated_verdict(loss, best, losses[BASE], recipe.threshold)
    figures = {"strategies": dict(kinds), "quality": round(quality, _DIGITS), "accepted": accepted, "verdict": words}
    return [_Candidate("integrated", adapter, weights, loss, figures, {})]


def _judged(candidate: _Candidate, order: Sequence[str], base: float, best: float, recipe: ConsensusRecipe) -> Tried:
    """The candidate's entry for the certificate, with the gate's verdict."""
    passed, reason = gate(candidate.loss, base, best, recipe.tolerance, candidate.figures)
    alone = candidate.kind == "voter"
    return Tried(
        name=order[candidate.place] if alone else candidate.kind,
        kind=candidate.kind,
        voters=(order[candidate.place],) if alone else tuple(order),
        weights=(1.0,) if alone else candidate.weights,
        **candidate.settings,
        requested_rank=None if alone else recipe.rank,
        relative_error=candidate.adapter.relative_error,
        digest=digest_of(candidate.adapter),
        loss=candidate.loss if math.isfinite(candidate.loss) else None,
        passed=passed,
        reason=reason,
        figures=candidate.figures,
    )


def gate(loss: float, base: float, best: float, tolerance: float, figures: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether a candidate may be published, with the reason.

    Args:
        loss, base, best: validation losses of the candidate, the base and the best accepted voter; nats per token.
        tolerance: share of `best` that the loss may lie above it.
        figures: of the candidate; "accepted" false, with "verdict", refuses it (the integrated adapter's threshold).
    """
    if not math.isfinite(loss):
        passed, reason = False, "its loss is not finite"
    elif not loss < base:
        passed, reason = False, f"loss {loss:.6f} is not under the base's {base:.6f}"
    else:
        most = best * (1 + tolerance)
        passed = loss <= most
        reason = f"loss {loss:.6f} is {loss - best:+.6f} from the best voter's; up to {most:.6f} is allowed"
    if not figures.get("accepted", True):
        return False, f"{reason}; {figures.get('verdict')}"
    return passed, reason


def choice_of(tried: tuple[Tried, ...], merge_strategy: MergeStrategy | None) -> Tried:
    """Choose the consensus from the losses and verdicts in the candidates' entries.

    Raises:
        ChoiceError: none of them, or not the forced one, passed the gate.
    """
    if merge_strategy is not None:
        forced = [entry for entry in tried if entry.kind == _FORCED[merge_strategy]]
        if not forced or not forced[0].passed:
            why = forced[0].reason if forced else "no accepted voter has a finite loss"
            raise ChoiceError(
                f"merge_strategy {merge_strategy} forces a candidate that may not be published: {why}. "
                "Leave merge_strategy out of the recipe to choose the best of all candidates",
                tried,
            )
        return forced[0]
    passing = [(entry, entry.loss) for entry in tried if entry.passed and entry.loss is not None]
    if not passing:
        verdicts = "; ".join(f"{entry.name}: {entry.reason}" for entry in tried)
        raise ChoiceError(f"no candidate for the consensus may be published. {verdicts}", tried)
    least = min(loss for _, loss in passing)
    return next(entry for entry, loss in passing if loss <= least + _MARGIN)


def _mean(losses: TokenLosses) -> float:
    mean = losses.by_example.mean
    return round(mean, _DIGITS) if math.isfinite(mean) else math.nan
