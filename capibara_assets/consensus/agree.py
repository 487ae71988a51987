"""One adapter out of independent voters' adapters: attestation, vote, robust rule, certificate - in this order."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capibara_assets.checkpoints.inspect.verify import module_shapes
from capibara_assets.consensus.certificates.model import (
    Certificate,
    Election,
    ResultEntry,
    Thresholds,
    VoterEntry,
    count,
    refused_entries,
    sealed,
    software_versions,
    tally_entries,
    verdict_reason,
)
from capibara_assets.consensus.choose.choosing import BASE, Choice, Tried, choose, measure
from capibara_assets.consensus.choose.integrated import read_strategies
from capibara_assets.consensus.choose.sampling import subsample
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.consensus.vote.attestation import (
    Limits,
    Submission,
    Verdict,
    attest,
    majority_shapes,
    read_submission,
)
from capibara_assets.consensus.vote.polling import Hold, Poll, hold_vote
from capibara_assets.consensus.vote.voter import DIGITS, Assignment
from capibara_assets.consensus.vote.voting import Outcome, faults
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.base import Base
from capibara_assets.training.voter_manifest import VoterManifest

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.datasets.tokens.tokenising import Encoded
    from capibara_assets.storage.artifact import Artifact

CONSENSUS = "consensus"
VOLATILE = ("certificate.json",)
"""Outside the data version: keys and signatures; the model card holds the digest of all else in it."""


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
        distances: between the voters that took part (`attested_distances`), for a picture; empty where not asked for.
    """

    adapter: LoraAdapter
    certificate: Certificate
    losses: dict[str, float]
    distances: dict[str, Any] = field(default_factory=dict)

    def documents(self) -> dict[str, Any]:
        """Name -> JSON."""
        return {"certificate": self.certificate.model_dump(mode="json"), "losses": self.losses}

    def metrics(self) -> dict[str, float]:
        """What the adapter's checkpoint states of it."""
        return {"validation_loss": self.losses[CONSENSUS], "base_validation_loss": self.losses[BASE]}


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
    attested = _attested(base, voters, recipe)
    _require_candidates(attested)
    election = _election(attested, base, recipe, context, privacy)
    parts = {name: _parts(name, shards.get(name, ()), validation, recipe) for name in attested.electors}
    assignments = _assignments(attested, election, {n: _examples(own, validation) for n, own in parts.items()})
    poll = hold(base, assignments, recipe.consensus_timeout, recipe.max_retries)
    counted = _counted(attested, election, poll)
    _require_answers(attested, counted)
    _require_quorum(attested, len(counted.outcome.accepted), counted.reasons, poll.absent)
    used = sorted({index for rounds in parts.values() for part in rounds for index in part})
    choice, losses = _choice(base, attested, counted, [validation[index] for index in used], recipe)
    certificate = _certificate(attested, election, counted, choice, losses)
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
    from capibara_assets.consensus.choose.experts import validation_shards

    voters = {path.name: path for path in sorted(folder.iterdir()) if path.is_dir()} if folder.is_dir() else {}
    voters |= {name: folder / name for name in missing}
    if not voters:
        raise InputError(f"no voters in {folder}: train the domain first")
    validation, shards = validation_shards(base, voters, examples, recipe)
    return agree(base, voters, validation, shards, recipe, context, privacy=read_privacy(voters))


def agree_on_artifacts(base: Base, adapters: "Artifact", dataset: "Artifact", recipe: ConsensusRecipe) -> Agreement:
    """`agree_on_voters` on a domain's `trained_adapters` and `moe_dataset`, with the distances between voters.

    Raises:
        ConsensusError, InputError: as `agree_on_voters`.
    """
    from capibara_assets.consensus.choose.distances import attested_distances

    voters = adapters.directory("voters")
    context = {
        "domain": str(adapters.partition),
        "trained_adapters": adapters.digest,
        "moe_dataset": dataset.digest,
    }
    missing = adapters.document("summary")["missing"]
    agreement = agree_on_voters(base, voters, dataset.frame("examples"), recipe, context, missing)
    return replace(agreement, distances=attested_distances(voters, agreement.certificate.model_dump(mode="json")))


def read_privacy(folders: Mapping[str, Path]) -> dict[str, Any] | None:
    """Parameters and epsilon of each voter that was trained with differential privacy, as its manifest states them."""
    stated = {name: VoterManifest.readable(folder).privacy for name, folder in sorted(folders.items())}
    return {name: privacy for name, privacy in stated.items() if privacy is not None} or None


@dataclass(frozen=True)
class _Attested:
    """What every registered voter handed in, and what attestation says of it.

    Attributes:
        folders: voter -> its adapter's folder.
        f: voters that may be arbitrary.
    """

    folders: Mapping[str, Path]
    submissions: Mapping[str, Submission]
    verdicts: Mapping[str, Verdict]
    f: int

    @property
    def names(self) -> list[str]:
        return sorted(self.folders)

    @cached_property
    def candidates(self) -> dict[str, LoraAdapter]:
        """The adapters that attestation let through."""
        handed_in = {name: self.submissions[name].adapter for name in self.names if self.verdicts[name].accepted}
        return {name: adapter for name, adapter in handed_in.items() if adapter is not None}

    @property
    def excluded(self) -> list[str]:
        return [name for name in self.names if name not in self.candidates]

    @property
    def without_vote(self) -> list[str]:
        return [name for name in self.candidates if not self.verdicts[name].votes]

    @property
    def electors(self) -> list[str]:
        return [name for name in self.candidates if self.verdicts[name].votes]

    @property
    def digests(self) -> dict[str, str]:
        """Voter -> digest of its adapter, of those that can be read."""
        return {name: one.digest for name, one in self.submissions.items() if one.digest is not None}


@dataclass(frozen=True)
class _Counted:
    """The vote: what was handed in, how it was counted, and each voter's verdict in words."""

    poll: Poll
    outcome: Outcome
    reasons: Mapping[str, str]

    @property
    def silent(self) -> dict[str, str]:
        """Electors without a ballot that counts, and why."""
        return {name: self.poll.absent.get(name, "none of its ballots counts") for name in self.outcome.absent}


def _attested(base: Base, voters: Mapping[str, Path], recipe: ConsensusRecipe) -> _Attested:
    submissions = {name: read_submission(name, voters[name], base.digest) for name in sorted(voters)}
    f = faults(len(submissions), recipe.fault_tolerance)
    sound = {n: s.adapter for n, s in submissions.items() if s.adapter is not None and not s.problem}
    shapes = module_shapes(base.model, tuple(majority_shapes(sound)))
    limits = Limits(norm_ratio=recipe.norm_ratio_limit, copy_ratio=recipe.copy_ratio)
    digests = {name: submissions[name].digest or "" for name in sound}
    verdicts = attest(sound, shapes, limits, digests, f=f)
    refused = {n: Verdict(n, False, s.problem) for n, s in submissions.items() if n not in sound}
    return _Attested(voters, submissions, {**verdicts, **refused}, f)


def _election(
    attested: _Attested,
    base: Base,
    recipe: ConsensusRecipe,
    context: Mapping[str, str],
    privacy: Mapping[str, Any] | None,
) -> Election:
    return Election(
        context=context,
        base_digest=base.digest,
        thresholds=_thresholds(recipe),
        voters={name: attested.submissions[name].digest for name in attested.names},
        candidates=list(attested.candidates),
        without_vote=attested.without_vote,
        rule=recipe.rule,
        pre=recipe.pre,
        rank=recipe.rank,
        merge_strategy=recipe.merge_strategy,
        privacy=privacy,
        software=software_versions(),
    )


def _assignments(
    attested: _Attested, election: Election, rounds: Mapping[str, tuple[tuple["Encoded", ...], ...]]
) -> list[Assignment]:
    """What each elector is asked: to judge everybody's candidate but its own, on its own examples."""
    digests, left = attested.digests, max(0, attested.f - len(attested.excluded))
    others = {name: [other for other in attested.candidates if other != name] for name in attested.electors}
    return [
        Assignment(
            voter=name,
            rounds=rounds[name],
            candidates={other: attested.folders[other] for other in others[name]},
            digests={other: digests[other] for other in others[name]},
            election=election.digest,
            faults=left,
        )
        for name in attested.electors
    ]


def _examples(rounds: Sequence[Sequence[int]], validation: Sequence["Encoded"]) -> tuple[tuple["Encoded", ...], ...]:
    return tuple(tuple(validation[index] for index in part) for part in rounds)


def _counted(attested: _Attested, election: Election, poll: Poll) -> _Counted:
    outcome = count(
        poll.ballots,
        election.thresholds,
        attested.names,
        attested.excluded,
        without_vote=attested.without_vote,
        keys=poll.keys,
        election=election.digest,
        candidates=attested.digests,
    )
    reasons = {name: attested.verdicts[name].reason for name in attested.excluded}
    for tally in outcome.tallies:
        votes = attested.verdicts[tally.candidate].votes
        reasons[tally.candidate] = verdict_reason(tally, poll.ballots, votes)
    return _Counted(poll, outcome, reasons)


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
    base: Base, attested: _Attested, counted: _Counted, examples: Sequence["Encoded"], recipe: ConsensusRecipe
) -> tuple[Choice, dict[str, float]]:
    """The consensus among its candidates; losses of the base, of every attested voter and of the consensus."""
    outcome = counted.outcome
    accepted = {name: attested.candidates[name] for name in outcome.accepted}
    strategies = read_strategies({name: attested.folders[name] for name in outcome.accepted})
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
        raise ConsensusError(f"no consensus: {error}", counted.reasons) from error
    losses = {BASE: choice.losses[BASE]}
    for name, adapter in attested.candidates.items():
        known = choice.losses.get(name)
        losses[name] = measure(base, adapter, examples).by_example.mean if known is None else known
    losses[CONSENSUS] = choice.chosen.loss if choice.chosen.loss is not None else math.nan
    return choice, {name: round(loss, DIGITS) if math.isfinite(loss) else loss for name, loss in losses.items()}


def _certificate(
    attested: _Attested, election: Election, counted: _Counted, choice: Choice, losses: Mapping[str, float]
) -> Certificate:
    """The record of the agreement, not sealed yet."""
    outcome, chosen, digests = counted.outcome, choice.chosen, attested.digests
    robust = next(entry for entry in choice.tried if entry.kind == "robust")
    certificate = Certificate(
        context=dict(sorted(election.context.items())),
        base_digest=election.base_digest,
        n=outcome.n,
        f=outcome.f,
        quorum=outcome.quorum,
        thresholds=election.thresholds,
        election=election.digest,
        voters=_entries(attested, counted, chosen),
        ballots=counted.poll.ballots,
        refused=refused_entries(outcome),
        equivocated=outcome.equivocated,
        absent=counted.silent,
        tallies=tally_entries(outcome.tallies),
        rule=election.rule,
        pre=election.pre,
        merge_strategy=election.merge_strategy,
        faults_left=outcome.faults_left,
        evidence={"order": sorted(outcome.accepted, key=lambda name: (digests[name], name)), **robust.figures},
        tried=tuple(e.model_copy(update={"figures": {}}) if e.kind == "robust" else e for e in choice.tried),
        chosen=chosen.name,
        result=ResultEntry(
            digest=chosen.digest,
            rank=int(choice.adapter.config["r"]),
            requested_rank=election.rank,
            relative_error=choice.adapter.relative_error,
            loss=losses[CONSENSUS],
            base_loss=losses[BASE],
        ),
        privacy=None if election.privacy is None else dict(election.privacy),
        seeds=dict(election.seeds),
        software=dict(election.software),
    )
    # Through JSON: what is read back is what was sealed, lists for tuples
    return Certificate.model_validate_json(certificate.model_dump_json())


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


def _entries(attested: _Attested, counted: _Counted, chosen: Tried) -> tuple[VoterEntry, ...]:
    outcome, verdicts = counted.outcome, attested.verdicts
    weights: dict[str, float | None] = dict.fromkeys(outcome.accepted, None if chosen.weights is None else 0.0)
    weights |= dict(zip(chosen.voters, chosen.weights or (None,) * len(chosen.voters), strict=True))
    return tuple(
        VoterEntry(
            name=name,
            digest=attested.submissions[name].digest,
            accepted=name in outcome.accepted,
            stage="attestation" if name in outcome.excluded else "accepted" if name in outcome.accepted else "vote",
            reason=counted.reasons[name],
            norm=verdicts[name].norm,
            norm_ratio=verdicts[name].norm_ratio,
            weight=weights.get(name),
            votes=verdicts[name].votes and name not in outcome.excluded,
            public_key=counted.poll.keys.get(name),
        )
        for name in attested.names
    )


def _require_candidates(attested: _Attested) -> None:
    """Enough of them, and somebody else to vote for each."""
    reasons = {name: attested.verdicts[name].reason or "accepted by attestation" for name in attested.names}
    _require_quorum(attested, len(attested.candidates), reasons)
    if len(attested.candidates) == 1:
        (alone,) = attested.candidates
        raise ConsensusError(
            f"no consensus: {alone} is alone, and nobody votes for itself. Name two voters or more in the training "
            "recipe, or use the trained adapter as it is",
            {**reasons, alone: "alone"},
        )


def _require_answers(attested: _Attested, counted: _Counted) -> None:
    """Silence is a fault like any other: with more than f of them nobody can tell what honest voters think."""
    outcome, electors = counted.outcome, attested.electors
    silent = counted.silent | dict.fromkeys(outcome.equivocated, "contradicted itself")
    # Of a copied adapter's owners one at most is honest, and has no vote: it counts as one that answered
    answered = len(electors) - len(silent) + (len(outcome.tallies) - len(electors))
    if answered >= outcome.quorum or not silent:
        return
    missing = "; ".join(f"{name}: {why}" for name, why in sorted(silent.items()))
    raise ConsensusError(
        f"no consensus: {answered} of {outcome.n} voters answered, {outcome.quorum} needed (f={outcome.f}). "
        f"Missing: {missing}. Run the asset again; a voter that needs longer wants a larger consensus_timeout",
        {**counted.reasons, **silent},
    )


def _require_quorum(
    attested: _Attested, accepted: int, reasons: Mapping[str, str], absent: Mapping[str, str] | None = None
) -> None:
    names, f = attested.names, attested.f
    quorum = 2 * f + 1
    if accepted >= quorum:
        return
    stated = "; ".join(f"{name}: {reasons[name]}" for name in names)
    silent = "".join(f" {name} gave no ballots: {why}." for name, why in sorted((absent or {}).items()))
    raise ConsensusError(
        f"no consensus: {accepted} of {len(names)} voters accepted, {quorum} needed (f={f}). {stated}.{silent} "
        "Train the rejected voters again",
        reasons,
    )
