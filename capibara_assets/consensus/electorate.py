"""The electorate of a vote: attestation of voters, their assignments, and the count of their ballots."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capibara_assets.checkpoints.inspect.verify import module_shapes
from capibara_assets.consensus.certificates.model import (
    MOST_BALLOTS,
    MOST_VOTERS,
    Election,
    Thresholds,
    count,
    software_versions,
    verdict_reason,
)
from capibara_assets.consensus.choose.sampling import subsample
from capibara_assets.consensus.election.attestation import (
    Limits,
    Submission,
    Verdict,
    attest,
    majority_shapes,
    read_submission,
)
from capibara_assets.consensus.election.keys import VoterKeys
from capibara_assets.consensus.election.polling import Poll
from capibara_assets.consensus.election.voter import Assignment, Confirm
from capibara_assets.consensus.election.voting import Outcome, faults
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.base import Base

if TYPE_CHECKING:
    from capibara_assets.datasets.tokens.tokenising import Encoded


@dataclass(frozen=True)
class AttestedVoters:
    """Every registered voter's submission, and attestation's verdict on it.

    Attributes:
        folders: voter -> its adapter's folder.
        f: number of voters that may be arbitrary.
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
        """Voter -> adapter, of those that attestation accepted."""
        handed_in = {name: self.submissions[name].adapter for name in self.names if self.verdicts[name].accepted}
        return {name: adapter for name, adapter in handed_in.items() if adapter is not None}

    @property
    def excluded(self) -> list[str]:
        """Voters rejected by attestation: neither candidates nor electors."""
        return [name for name in self.names if name not in self.candidates]

    @property
    def without_vote(self) -> list[str]:
        """Candidates without a vote, because others submitted the same adapter."""
        return [name for name in self.candidates if not self.verdicts[name].votes]

    @property
    def electors(self) -> list[str]:
        """Candidates that may vote, each on the others."""
        return [name for name in self.candidates if self.verdicts[name].votes]

    @property
    def digests(self) -> dict[str, str]:
        """Voter -> digest of its adapter, of those that can be read."""
        return {name: one.digest for name, one in self.submissions.items() if one.digest is not None}


@dataclass(frozen=True)
class CountedVote:
    """The ballots, their count, and the reason for each voter's acceptance or rejection.

    Attributes:
        poll: keys and ballots as the voters' processes returned them.
        outcome: the count.
        reasons: voter -> its verdict in words, with figures.
    """

    poll: Poll
    outcome: Outcome
    reasons: Mapping[str, str]

    @property
    def silent(self) -> dict[str, str]:
        """Electors without a valid ballot, with the reason."""
        return {name: self.poll.absent.get(name, "none of its ballots counts") for name in self.outcome.absent}

    @property
    def heard(self) -> list[str]:
        """Accepted voters with valid ballots, who confirm in the second round."""
        voted = {name for tally in self.outcome.tallies for name in (*tally.accepting, *tally.refusing)}
        return [name for name in self.outcome.accepted if name in voted]


def attest_voters(base: Base, voters: Mapping[str, Path], recipe: ConsensusRecipe) -> AttestedVoters:
    """Read and attest the voters' adapters; an unreadable one is a rejected voter, not an error.

    Raises:
        InputError: more voters or ballots than a certificate may have.
    """
    ballots = len(voters) * (len(voters) - 1) * recipe.verification_rounds
    if len(voters) > MOST_VOTERS or ballots > MOST_BALLOTS:
        raise InputError(
            f"{len(voters)} voters in {recipe.verification_rounds} rounds cast {ballots:,} ballots: a vote has at most "
            f"{MOST_VOTERS} voters and {MOST_BALLOTS:,} ballots, so that its certificate can be checked"
        )
    submissions = {name: read_submission(name, voters[name], base.digest) for name in sorted(voters)}
    f = faults(len(submissions), recipe.fault_tolerance)
    sound = {n: s.adapter for n, s in submissions.items() if s.adapter is not None and not s.problem}
    shapes = module_shapes(base.model, tuple(majority_shapes(sound)))
    limits = Limits(norm_ratio=recipe.norm_ratio_limit, copy_ratio=recipe.copy_ratio)
    digests = {name: submissions[name].digest or "" for name in sound}
    verdicts = attest(sound, shapes, limits, digests, f=f)
    refused = {n: Verdict(n, False, s.problem) for n, s in submissions.items() if n not in sound}
    return AttestedVoters(voters, submissions, {**verdicts, **refused}, f)


def make_election(
    attested: AttestedVoters,
    base: Base,
    recipe: ConsensusRecipe,
    context: Mapping[str, str],
    privacy: Mapping[str, Any] | None,
) -> Election:
    """Build the election that ballots are bound to: inputs, thresholds, candidates and rule."""
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


def make_assignments(
    attested: AttestedVoters,
    election: Election,
    rounds: Mapping[str, tuple[tuple["Encoded", ...], ...]],
    keys: VoterKeys | None = None,
    confirm: Confirm | None = None,
) -> list[Assignment]:
    """One assignment per elector: judge every candidate but its own, on its own examples.

    Args:
        rounds: elector -> its examples for each round.
        keys: of registered voters; the others draw one each.
        confirm: what they do in a second round, if there is one.
    """
    digests, faults_left = attested.digests, max(0, attested.f - len(attested.excluded))
    others = {name: [other for other in attested.candidates if other != name] for name in attested.electors}
    return [
        Assignment(
            voter=name,
            rounds=rounds[name],
            candidates={other: attested.folders[other] for other in others[name]},
            digests={other: digests[other] for other in others[name]},
            election=election.digest,
            faults=faults_left,
            key_file=None if keys is None else keys.file(name),
            registered=None if keys is None else keys.registry.get(name),
            confirm=confirm,
        )
        for name in attested.electors
    ]


def electors_examples(
    attested: AttestedVoters,
    validation: Sequence["Encoded"],
    shards: Mapping[str, Sequence[int]],
    recipe: ConsensusRecipe,
) -> tuple[dict[str, list[list[int]]], dict[str, tuple[tuple["Encoded", ...], ...]]]:
    """Elector -> indices of its examples of each part, and the examples. Raises as `voting_rounds`."""
    rounds = {name: voting_rounds(name, shards.get(name, ()), validation, recipe) for name in attested.electors}
    return rounds, {name: examples_of(own, validation) for name, own in rounds.items()}


def examples_of(rounds: Sequence[Sequence[int]], validation: Sequence["Encoded"]) -> tuple[tuple["Encoded", ...], ...]:
    """The examples of each round, selected by the indices from `voting_rounds`."""
    return tuple(tuple(validation[index] for index in part) for part in rounds)


def count_votes(attested: AttestedVoters, election: Election, poll: Poll) -> CountedVote:
    """Count the ballots of a poll and write each voter's verdict as text."""
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
    return CountedVote(poll, outcome, reasons)


def voting_rounds(
    name: str, shard: Sequence[int], validation: Sequence["Encoded"], recipe: ConsensusRecipe
) -> list[list[int]]:
    """Indices of a voter's validation examples for each round, spread evenly over its shard.

    Args:
        name: the voter, for the error.
        shard: indices into `validation` that the voter judges on.

    Raises:
        InputError: fewer usable examples than rounds; an index of no example.
    """
    if strangers := [index for index in shard if not 0 <= index < len(validation)]:
        raise InputError(
            f"the shard of voter {name!r} names example {strangers[0]}, there are {len(validation)}, from 0: give "
            "indices into the validation examples"
        )
    usable = [index for index in shard if validation[index].supervised > 0]
    lengths = [len(validation[index].input_ids) for index in usable]
    kept = [usable[i] for i in subsample(lengths, recipe.examples_per_shard, recipe.tokens_per_shard)]
    if len(kept) < recipe.verification_rounds:
        raise InputError(
            f"voter {name!r} has {len(kept)} validation examples for {recipe.verification_rounds} rounds of voting: "
            "the domain needs more validation data"
        )
    return [kept[number :: recipe.verification_rounds] for number in range(recipe.verification_rounds)]


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
        candidates=recipe.candidates,
    )
