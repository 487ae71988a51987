"""One adapter out of independent voters' adapters: attestation, vote, robust rule, certificate - in this order."""

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from capibara_assets.checkpoints.verify import module_shapes
from capibara_assets.consensus.attestation import (
    Limits,
    Submission,
    Verdict,
    attest,
    majority_shapes,
    read_submission,
)
from capibara_assets.consensus.certificate import (
    Certificate,
    ResultEntry,
    Thresholds,
    VoterEntry,
    count,
    digest_of,
    sealed,
    software_versions,
    tally_entries,
)
from capibara_assets.consensus.combining import Combination, combine
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.consensus.sampling import subsample
from capibara_assets.consensus.voting import Ballot, Outcome, Tally, faults, quality, vouched_best
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, applied
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.losses import Losses, assistant_losses

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.datasets.tokenising import Encoded

BASE, CONSENSUS = "base", "consensus"
# Small batches keep their activations in the cache and pad little
_BATCH_TOKENS = 1024
_DIGITS = 6  # of losses: the last bits of a float32 model depend on the number of threads


class ConsensusError(InputError):
    """Too few voters were accepted to publish anything.

    Attributes:
        reasons: every registered voter's name -> why it was rejected, or "accepted".
    """

    def __init__(self, message: str, reasons: Mapping[str, str]) -> None:
        super().__init__(message)
        self.reasons = dict(reasons)


@dataclass(frozen=True)
class Agreement:
    """What the voters agreed on.

    Attributes:
        adapter: the consensus.
        certificate: how it came about.
        losses: validation loss (nats per token, on the examples the vote read) of "base", every attested voter by its
            name, and "consensus".
    """

    adapter: LoraAdapter
    certificate: Certificate
    losses: dict[str, float]


def agree(
    base: Base,
    voters: Mapping[str, Path],
    validation: Sequence["Encoded"],
    shards: Mapping[str, Sequence[int]],
    recipe: ConsensusRecipe,
    context: Mapping[str, str],
) -> Agreement:
    """Let voters agree on one adapter.

    Args:
        base: what the adapters were trained on.
        voters: name -> adapter folder, every registered voter; one without a readable adapter is a rejected voter.
        validation: held-out examples of the domain.
        shards: voter's name -> indices into `validation` that it judges candidates on.
        recipe: thresholds, rule, amounts.
        context: domain and digests of the inputs, for the certificate.

    Raises:
        ConsensusError: fewer than 2f + 1 voters were accepted, or what came out is not finite; nothing may be
            published then.
        InputError: a voter has no shard or an empty one.
    """
    names = sorted(voters)
    f = faults(len(names), recipe.fault_tolerance)
    submissions = {name: read_submission(name, voters[name], base.digest) for name in names}
    verdicts = _attestation(base, submissions, recipe)
    candidates = {
        name: adapter
        for name in names
        if verdicts[name].accepted and (adapter := submissions[name].adapter) is not None
    }
    excluded = [name for name in names if name not in candidates]
    _require_quorum(names, len(candidates), f, {n: verdicts[n].reason or "accepted by attestation" for n in names})

    parts = {name: _parts(name, shards.get(name, ()), validation, recipe) for name in candidates}
    used = sorted({index for rounds in parts.values() for part in rounds for index in part})
    examples = [validation[index] for index in used]
    place = {index: position for position, index in enumerate(used)}
    rounds = {name: [[place[i] for i in part] for part in own] for name, own in parts.items()}
    losses = {BASE: _evaluate(base, None, examples)}
    losses |= {name: _evaluate(base, adapter, examples) for name, adapter in candidates.items()}

    thresholds = _thresholds(recipe)
    ballots = _ballots(losses, rounds, max(0, f - len(excluded)))
    outcome = count(ballots, thresholds, names, excluded)
    reasons = {name: verdicts[name].reason for name in excluded}
    reasons |= {tally.candidate: _reason(tally, ballots) for tally in outcome.tallies}
    _require_quorum(names, len(outcome.accepted), f, reasons)

    # Sorted by digest: neither the order of the voters nor their names shows in the result
    chosen = sorted(outcome.accepted, key=lambda name: (submissions[name].digest or "", name))
    combination = combine(
        [candidates[name] for name in chosen], recipe.rule, f=outcome.faults_left, pre=recipe.pre, rank=recipe.rank
    )
    losses[CONSENSUS] = _evaluate(base, combination.adapter, examples)
    if not math.isfinite(losses[CONSENSUS].mean):
        raise ConsensusError("no consensus: the combined adapter's validation loss is not finite", reasons)
    entries = _entries(submissions, verdicts, outcome, reasons, chosen, combination)
    certificate = Certificate(
        context=dict(sorted(context.items())),
        base_digest=base.digest,
        n=outcome.n,
        f=outcome.f,
        quorum=outcome.quorum,
        thresholds=thresholds,
        voters=entries,
        ballots=tuple(ballots),
        tallies=tally_entries(outcome.tallies),
        rule=recipe.rule,
        pre=recipe.pre,
        faults_left=outcome.faults_left,
        evidence={"order": chosen, **combination.evidence},
        result=ResultEntry(
            digest=digest_of(combination.adapter),
            rank=int(combination.adapter.config["r"]),
            requested_rank=recipe.rank,
            relative_error=combination.adapter.relative_error,
            loss=round(losses[CONSENSUS].mean, _DIGITS),
            base_loss=round(losses[BASE].mean, _DIGITS),
        ),
        seeds={},
        software=software_versions(),
    )  # fmt: skip
    means = {name: round(found.mean, _DIGITS) for name, found in losses.items() if math.isfinite(found.mean)}
    return Agreement(combination.adapter, sealed(certificate), means)


def agree_on_voters(
    base: Base,
    folder: Path,
    examples: "pl.DataFrame",
    recipe: ConsensusRecipe,
    context: Mapping[str, str],
    missing: Collection[str] = (),
) -> Agreement:
    """`agree` on a published `voters/` folder and the domain's examples: voter i judges on the i-th shard.

    Args:
        missing: registered voters that did not finish: they count in n (and so in f), and are rejected.

    Raises:
        ConsensusError, InputError: as `agree`; no voter at all; no validation examples.
    """
    from capibara_assets.consensus.experts import validation_shards

    voters = {path.name: path for path in sorted(folder.iterdir()) if path.is_dir()} if folder.is_dir() else {}
    voters |= {name: folder / name for name in missing}
    if not voters:
        raise InputError(f"no voters in {folder}: train the domain first")
    validation, shards = validation_shards(base, voters, examples, recipe)
    return agree(base, voters, validation, shards, recipe, context)


def _attestation(base: Base, submissions: Mapping[str, Submission], recipe: ConsensusRecipe) -> dict[str, Verdict]:
    sound = {n: s.adapter for n, s in submissions.items() if s.adapter is not None and not s.problem}
    shapes = module_shapes(base.model, tuple(majority_shapes(sound)))
    verdicts = attest(sound, shapes, Limits(recipe.norm_ratio_limit))
    refused = {n: Verdict(n, False, s.problem) for n, s in submissions.items() if n not in sound}
    return {**verdicts, **refused}


def _parts(
    name: str, shard: Sequence[int], validation: Sequence["Encoded"], recipe: ConsensusRecipe
) -> list[list[int]]:
    """A voter's examples per round: spread over its shard, within the recipe's numbers and tokens."""
    usable = [index for index in shard if validation[index].supervised > 0]
    lengths = [len(validation[index].input_ids) for index in usable]
    kept = [usable[i] for i in subsample(lengths, recipe.examples_per_shard, recipe.tokens_per_shard)]
    if len(kept) < recipe.verification_rounds:
        raise InputError(
            f"voter {name!r} has {len(kept)} validation examples for {recipe.verification_rounds} rounds of voting: "
            "the domain needs more validation data"
        )
    return [kept[number :: recipe.verification_rounds] for number in range(recipe.verification_rounds)]


def _evaluate(base: Base, adapter: LoraAdapter | None, examples: Sequence["Encoded"]) -> Losses:
    with nullcontext() if adapter is None else applied(base.model, adapter):
        return assistant_losses(base.model, examples, batch_tokens=_BATCH_TOKENS)


def _ballots(losses: Mapping[str, Losses], rounds: Mapping[str, list[list[int]]], f: int) -> list[Ballot]:
    """Every voter's ballots on every other candidate, in each round."""
    ballots = []
    for voter in sorted(rounds):
        for number, part in enumerate(rounds[voter]):
            means = {name: _mean(found, part) for name, found in losses.items() if name != voter}
            base_loss = means.pop(BASE)
            if base_loss is None:
                raise InputError(f"the base model's loss on the shard of {voter!r} is not finite: check the base model")
            best = vouched_best(means.values(), f)
            tokens = int(losses[BASE].tokens[part].sum())
            for candidate, loss in sorted(means.items()):
                ballots.append(
                    Ballot(
                        voter=voter, candidate=candidate, round=number, tokens=tokens, loss=loss, base_loss=base_loss,
                        best_loss=best, quality=quality(loss, best, base_loss),
                    )
                )  # fmt: skip
    return ballots


def _mean(losses: Losses, part: list[int]) -> float | None:
    mean = float(losses.nll[part].sum() / losses.tokens[part].sum())
    return round(mean, _DIGITS) if math.isfinite(mean) else None


def _thresholds(recipe: ConsensusRecipe) -> Thresholds:
    return Thresholds(
        fault_tolerance=recipe.fault_tolerance,
        quality=recipe.quality_threshold,
        consensus=recipe.consensus_threshold,
        verification_rounds=recipe.verification_rounds,
        norm_ratio=recipe.norm_ratio_limit,
    )


def _reason(tally: Tally, ballots: Sequence[Ballot]) -> str:
    qualities = sorted(b.quality for b in ballots if b.candidate == tally.candidate)
    electors = len(tally.accepting) + len(tally.refusing) + len(tally.missing)
    verdict = "accepted" if tally.accepted else "rejected"
    span = f"{qualities[0]:.2f} to {qualities[-1]:.2f}" if qualities else "none"
    return f"{verdict} by {len(tally.accepting)} of {electors} ballots, {tally.required} needed; quality {span}"


def _entries(
    submissions: Mapping[str, Submission],
    verdicts: Mapping[str, Verdict],
    outcome: Outcome,
    reasons: Mapping[str, str],
    chosen: Sequence[str],
    combination: Combination,
) -> tuple[VoterEntry, ...]:
    weights = dict(zip(chosen, combination.weights or (None,) * len(chosen), strict=True))
    return tuple(
        VoterEntry(
            name=name,
            digest=submissions[name].digest,
            accepted=name in outcome.accepted,
            stage="attestation" if name in outcome.excluded else "accepted" if name in outcome.accepted else "vote",
            reason=reasons[name],
            norm=verdicts[name].norm,
            norm_ratio=verdicts[name].norm_ratio,
            weight=weights.get(name),
        )
        for name in sorted(submissions)
    )


def _require_quorum(names: Sequence[str], accepted: int, f: int, reasons: Mapping[str, str]) -> None:
    quorum = 2 * f + 1
    if accepted >= quorum:
        return
    found = "; ".join(f"{name}: {reasons[name]}" for name in names)
    raise ConsensusError(
        f"no consensus: {accepted} of {len(names)} voters accepted, {quorum} needed (f={f}). {found}. "
        "Train the rejected voters again",
        reasons,
    )
