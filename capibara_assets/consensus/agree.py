"""One adapter out of independent voters' adapters: attestation, vote, robust rule, certificate - in this order."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capibara_assets.checkpoints.verify import module_shapes
from capibara_assets.consensus.attestation import (
    Limits,
    Submission,
    Verdict,
    attest,
    majority_shapes,
    read_submission,
    stated_by,
)
from capibara_assets.consensus.certified import (
    Certificate,
    ResultEntry,
    Thresholds,
    VoterEntry,
    count,
    election_of,
    refused_entries,
    sealed,
    software_versions,
    tally_entries,
    verdict_reason,
)
from capibara_assets.consensus.choosing import BASE, Choice, Tried, choose, measure
from capibara_assets.consensus.integrated import read_strategies
from capibara_assets.consensus.polling import Hold, Poll, hold_vote
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.consensus.sampling import subsample
from capibara_assets.consensus.voter import DIGITS, Assignment
from capibara_assets.consensus.voting import Outcome, faults
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.base import Base

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.datasets.tokenising import Encoded

CONSENSUS = "consensus"


class ConsensusError(InputError):
    """Too few voters answered or were accepted to publish anything, or no candidate may be.

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
    *,
    privacy: Mapping[str, Any] | None = None,
    hold: Hold = hold_vote,
) -> Agreement:
    """Let voters agree on one adapter.

    Args:
        base: what the adapters were trained on.
        voters: name -> adapter folder, every registered voter; one without a readable adapter is a rejected voter.
        validation: held-out examples of the domain.
        shards: voter's name -> indices into `validation` that it judges candidates on.
        recipe: thresholds, rule, amounts.
        context: domain and digests of the inputs, for the certificate.
        privacy: voter -> parameters and epsilon of its differentially private training, for the certificate.
        hold: how the voters are asked; by default each in a process of its own (`polling.hold_here`: none).

    Raises:
        ConsensusError: one voter is left alone, fewer than 2f + 1 answered or were accepted, or no candidate passes
            the gate; nothing may be published then.
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
    attested = {name: verdicts[name].reason or "accepted by attestation" for name in names}
    _require_quorum(names, len(candidates), f, attested)
    if len(candidates) == 1:
        (alone,) = candidates
        raise ConsensusError(
            f"no consensus: {alone} is alone, and nobody votes for itself. Name two voters or more in the training "
            "recipe, or use the trained adapter as it is",
            {**attested, alone: "alone"},
        )

    digests = {name: submission.digest for name, submission in submissions.items() if submission.digest is not None}
    thresholds, software = _thresholds(recipe), software_versions()
    without_vote = [name for name in candidates if not verdicts[name].votes]
    election = election_of(
        context=context, base_digest=base.digest, thresholds=thresholds,
        voters={name: submissions[name].digest for name in names}, candidates=list(candidates),
        without_vote=without_vote, rule=recipe.rule, pre=recipe.pre, rank=recipe.rank,
        merge_strategy=recipe.merge_strategy, privacy=privacy, seeds={}, software=software,
    )  # fmt: skip
    electors = [name for name in candidates if name not in without_vote]
    parts = {name: _parts(name, shards.get(name, ()), validation, recipe) for name in electors}
    poll = hold(
        base,
        [
            Assignment(
                voter=name,
                rounds=tuple(tuple(validation[index] for index in part) for part in parts[name]),
                candidates={other: voters[other] for other in candidates if other != name},
                digests={other: digests[other] for other in candidates if other != name},
                election=election,
                faults=max(0, f - len(excluded)),
            )
            for name in electors
        ],
        recipe.consensus_timeout,
        recipe.max_retries,
    )
    outcome = count(
        poll.ballots, thresholds, names, excluded, without_vote=without_vote, keys=poll.keys, election=election,
        candidates=digests,
    )  # fmt: skip
    reasons = {name: verdicts[name].reason for name in excluded}
    reasons |= {
        tally.candidate: verdict_reason(tally, poll.ballots, verdicts[tally.candidate].votes)
        for tally in outcome.tallies
    }
    _require_answers(electors, outcome, poll, reasons)
    _require_quorum(names, len(outcome.accepted), f, reasons, poll.absent)

    used = sorted({index for rounds in parts.values() for part in rounds for index in part})
    examples = [validation[index] for index in used]
    strategies = read_strategies({name: voters[name] for name in outcome.accepted})
    choice, losses = _choice(base, candidates, outcome, examples, recipe, reasons, strategies)
    order = sorted(outcome.accepted, key=lambda name: (digests[name], name))
    robust = next(entry for entry in choice.tried if entry.kind == "robust")
    chosen = choice.chosen
    certificate = Certificate(
        context=dict(sorted(context.items())),
        base_digest=base.digest,
        n=outcome.n,
        f=outcome.f,
        quorum=outcome.quorum,
        thresholds=thresholds,
        election=election,
        voters=_entries(submissions, verdicts, outcome, reasons, chosen, poll),
        ballots=poll.ballots,
        refused=refused_entries(outcome),
        equivocated=outcome.equivocated,
        absent={name: poll.absent.get(name, "none of its ballots counts") for name in outcome.absent},
        tallies=tally_entries(outcome.tallies),
        rule=recipe.rule,
        pre=recipe.pre,
        merge_strategy=recipe.merge_strategy,
        faults_left=outcome.faults_left,
        evidence={"order": order, **robust.figures},
        tried=tuple(e.model_copy(update={"figures": {}}) if e.kind == "robust" else e for e in choice.tried),
        chosen=chosen.name,
        result=ResultEntry(
            digest=chosen.digest,
            rank=int(choice.adapter.config["r"]),
            requested_rank=recipe.rank,
            relative_error=choice.adapter.relative_error,
            loss=losses[CONSENSUS],
            base_loss=losses[BASE],
        ),
        privacy=None if privacy is None else dict(privacy),
        seeds={},
        software=software,
    )
    # Through JSON: what is read back is what was sealed, lists for tuples
    certificate = Certificate.model_validate_json(certificate.model_dump_json())
    finite = {name: loss for name, loss in losses.items() if math.isfinite(loss)}
    return Agreement(choice.adapter, sealed(certificate), finite)


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
    return agree(base, voters, validation, shards, recipe, context, privacy=read_privacy(voters))


def read_privacy(folders: Mapping[str, Path]) -> dict[str, Any] | None:
    """Parameters and epsilon of each voter that was trained with differential privacy, as its manifest states them."""
    published = {name: stated_by(folder).get("published") for name, folder in sorted(folders.items())}
    found = {name: one.get("privacy") for name, one in published.items() if isinstance(one, dict)}
    return {name: document for name, document in found.items() if isinstance(document, dict)} or None


def _attestation(base: Base, submissions: Mapping[str, Submission], recipe: ConsensusRecipe) -> dict[str, Verdict]:
    sound = {n: s.adapter for n, s in submissions.items() if s.adapter is not None and not s.problem}
    shapes = module_shapes(base.model, tuple(majority_shapes(sound)))
    limits = Limits(norm_ratio=recipe.norm_ratio_limit, copy_ratio=recipe.copy_ratio)
    digests = {name: submissions[name].digest or "" for name in sound}
    verdicts = attest(sound, shapes, limits, digests, f=faults(len(submissions), recipe.fault_tolerance))
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


def _choice(
    base: Base,
    candidates: Mapping[str, LoraAdapter],
    outcome: Outcome,
    examples: Sequence["Encoded"],
    recipe: ConsensusRecipe,
    reasons: Mapping[str, str],
    strategies: Mapping[str, str],
) -> tuple[Choice, dict[str, float]]:
    """The consensus among its candidates; losses of the base, of every attested voter and of the consensus."""
    accepted = {name: candidates[name] for name in outcome.accepted}
    try:
        choice = choose(
            base,
            accepted,
            examples,
            recipe,
            f=outcome.faults_left,
            merge_strategy=recipe.merge_strategy,
            strategies=strategies,
        )
    except InputError as error:
        raise ConsensusError(f"no consensus: {error}", reasons) from error
    losses = {BASE: choice.losses[BASE]}
    for name, adapter in candidates.items():
        known = choice.losses.get(name)
        losses[name] = measure(base, adapter, examples).by_example.mean if known is None else known
    losses[CONSENSUS] = choice.chosen.loss if choice.chosen.loss is not None else math.nan
    return choice, {name: round(loss, DIGITS) if math.isfinite(loss) else loss for name, loss in losses.items()}


def _thresholds(recipe: ConsensusRecipe) -> Thresholds:
    return Thresholds(
        fault_tolerance=recipe.fault_tolerance,
        quality=recipe.quality_threshold,
        consensus=recipe.consensus_threshold,
        verification_rounds=recipe.verification_rounds,
        norm_ratio=recipe.norm_ratio_limit,
        least_norm_ratio=Limits().least_norm_ratio,
        copy_ratio=recipe.copy_ratio,
        voting_strategy=recipe.voting_strategy,
        tolerance=recipe.tolerance,
    )


def _entries(
    submissions: Mapping[str, Submission],
    verdicts: Mapping[str, Verdict],
    outcome: Outcome,
    reasons: Mapping[str, str],
    chosen: Tried,
    poll: Poll,
) -> tuple[VoterEntry, ...]:
    weights: dict[str, float | None] = dict.fromkeys(outcome.accepted, None if chosen.weights is None else 0.0)
    weights |= dict(zip(chosen.voters, chosen.weights or (None,) * len(chosen.voters), strict=True))
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
            votes=verdicts[name].votes and name not in outcome.excluded,
            public_key=poll.keys.get(name),
        )
        for name in sorted(submissions)
    )


def _require_answers(electors: Sequence[str], outcome: Outcome, poll: Poll, reasons: Mapping[str, str]) -> None:
    """Silence is a fault like any other: with more than f of them nobody can tell what honest voters think."""
    silent = {name: poll.absent.get(name, "none of its ballots counts") for name in outcome.absent}
    silent |= dict.fromkeys(outcome.equivocated, "contradicted itself")
    # Of a copied adapter's owners one at most is honest, and has no vote: it counts as one that answered
    answered = len(electors) - len(silent) + (len(outcome.tallies) - len(electors))
    if answered >= outcome.quorum or not silent:
        return
    missing = "; ".join(f"{name}: {why}" for name, why in sorted(silent.items()))
    raise ConsensusError(
        f"no consensus: {answered} of {outcome.n} voters answered, {outcome.quorum} needed (f={outcome.f}). "
        f"Missing: {missing}. Run the asset again; a voter that needs longer wants a larger consensus_timeout",
        {**reasons, **silent},
    )


def _require_quorum(
    names: Sequence[str], accepted: int, f: int, reasons: Mapping[str, str], absent: Mapping[str, str] | None = None
) -> None:
    quorum = 2 * f + 1
    if accepted >= quorum:
        return
    found = "; ".join(f"{name}: {reasons[name]}" for name in names)
    silent = "".join(f" {name} gave no ballots: {why}." for name, why in sorted((absent or {}).items()))
    raise ConsensusError(
        f"no consensus: {accepted} of {len(names)} voters accepted, {quorum} needed (f={f}). {found}.{silent} "
        "Train the rejected voters again",
        reasons,
    )
