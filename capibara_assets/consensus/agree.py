"""Consensus on one adapter from independent voters: attestation, vote, choice, confirmation and certificate.

`agree` is the whole protocol on adapters in memory and on disk; `agree_on_artifacts` runs it on published artifacts.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from capibara_assets.consensus.certificates.model import (
    ROUND,
    Certificate,
    Election,
    ResultEntry,
    VoterEntry,
    refused_entries,
    sealed,
    tally_entries,
)
from capibara_assets.consensus.certificates.published_election import EXAMPLES, PublishedElection, examples_digests
from capibara_assets.consensus.choose.choosing import BASE, ConsensusChoice, Tried, ValidationLosses, choose, measure
from capibara_assets.consensus.choose.integrated import read_strategies
from capibara_assets.consensus.confirming import (
    Measured,
    SecondRound,
    confirm,
    count_confirmations,
    open_second_round,
    propose,
    tolerance_of,
)
from capibara_assets.consensus.election.attestation import order_of_computing
from capibara_assets.consensus.election.ballots import examples_digest
from capibara_assets.consensus.election.confirmations import CONFIRMED, Confirmation
from capibara_assets.consensus.election.keys import REGISTERED, VoterKeys, registry_digest
from capibara_assets.consensus.election.polling import Hold, Poll, hold_vote
from capibara_assets.consensus.election.voter import DIGITS, Proposal
from capibara_assets.consensus.electorate import (
    AttestedVoters,
    CountedVote,
    attest_voters,
    count_votes,
    electors_examples,
    make_assignments,
    make_election,
)
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.base import Base

if TYPE_CHECKING:
    from capibara_assets.datasets.tokens.tokenising import Encoded

Announce = Callable[[PublishedElection], None]
CONSENSUS = "consensus"
VOLATILE = ("certificate.json",)
"""Left out of the data version: keys and signatures are new in every run. The model card has the digest of the rest."""


class ConsensusError(InputError):
    """There is no consensus to publish: too few voters answered or were accepted, or no candidate passed the gate.

    Attributes:
        reasons: every registered voter's name -> why it was rejected, or "accepted".
    """

    def __init__(self, message: str, reasons: Mapping[str, str]) -> None:
        super().__init__(message)
        self.reasons = dict(reasons)


@dataclass(frozen=True)
class Agreement:
    """Result of a consensus: the adapter and the record of how it was reached.

    Attributes:
        adapter: the consensus.
        certificate: attestation, ballots, count, candidates and choice.
        losses: validation loss (nats per token, on the examples the vote read) of "base", every attested voter by its
            name, and "consensus".
        distances: between the attested voters (`attested_distances`), for the chart; empty where not computed.
    """

    adapter: LoraAdapter
    certificate: Certificate
    losses: dict[str, float]
    distances: dict[str, Any] = field(default_factory=dict)

    def documents(self) -> dict[str, Any]:
        """JSON documents to publish, by name."""
        return {"certificate": self.certificate.model_dump(mode="json"), "losses": self.losses}

    def metrics(self) -> dict[str, float]:
        """Validation losses recorded with the adapter's checkpoint, in nats per token."""
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
    keys: VoterKeys | None = None,
    announce: Announce | None = None,
    hold: Hold = hold_vote,
) -> Agreement:
    """Choose one adapter by a vote of independent voters and certify the result.

    A voter that is registered alone has nobody to judge it: it is accepted if it passes attestation and the gate, and
    the certificate says that there was no vote.

    Args:
        base: the model that the adapters were trained on.
        voters: name -> adapter folder, every registered voter; one without a readable adapter is a rejected voter.
        validation: held-out examples of the domain.
        shards: voter's name -> indices into `validation` that it judges candidates on.
        recipe: thresholds, aggregation rule, and how much validation data is read.
        context: domain and digests of the inputs, for the certificate.
        privacy: voter -> parameters and epsilon of its differentially private training, for the certificate.
        keys: of registered voters, who sign with these; without, every voter draws a key for this vote.
        announce: publishes the election, before the first ballot.
        hold: runs the vote; by default with a process per voter.

    Raises:
        ConsensusError: a single candidate remains, fewer than 2f + 1 answered, were accepted or confirmed the choice,
            or no candidate passes the gate; nothing may be published then.
        InputError: a voter has no shard or an empty one, or an example is in two voters' shards.
    """
    attested = attest_voters(base, voters, recipe)
    _require_candidates(attested)
    rounds, examples = electors_examples(attested, validation, shards, recipe)
    _require_disjoint(rounds)
    registry = None if keys is None else keys.registry
    election, published = settle(attested, base, recipe, context, examples, registry, privacy)
    if announce is not None:
        announce(published)
    used = sorted(index for own in rounds.values() for part in own for index in part)
    with TemporaryDirectory(prefix="capibara-candidates-") as home:
        after = _AfterTheVote(base, attested, election, recipe, rounds, used, validation, Path(home))
        if len(attested.names) == 1:
            after.decide(Poll({}, (), {}))
        else:
            assignments = make_assignments(attested, election, examples, keys, confirm)
            after.confirmed(hold(base, assignments, recipe.consensus_timeout, recipe.max_retries, after.decide))
    return after.agreement()


@dataclass
class _AfterTheVote:
    """What follows from the first round's answers, and from the second's.

    Attributes:
        rounds: elector -> indices of its examples, of each part; `used` are all of them.
        home: folder for the candidates that voters are asked to confirm.
    """

    base: Base
    attested: AttestedVoters
    election: Election
    recipe: ConsensusRecipe
    rounds: Mapping[str, Sequence[Sequence[int]]]
    used: Sequence[int]
    validation: Sequence["Encoded"]
    home: Path
    decided: tuple[CountedVote, ConsensusChoice, dict[str, float], SecondRound | None] | None = None
    confirmations: tuple[Confirmation, ...] = ()
    unconfirmed: dict[str, str] = field(default_factory=dict)

    def decide(self, poll: Poll) -> dict[str, Proposal]:
        """Count the ballots and choose; return what each voter is asked to confirm. Raises as `agree`."""
        counted = count_votes(self.attested, self.election, poll)
        _require_answers(self.attested, counted)
        _require_quorum(self.attested, len(counted.outcome.accepted), counted.reasons, poll.absent)
        measured = Measured(self.base, [self.validation[index] for index in self.used])
        choice, losses = _choice(self.base, self.attested, counted, measured, self.recipe)
        if len(self.attested.names) == 1:
            self.decided = (counted, choice, losses, None)
            return {}
        asked = open_second_round(self.election, counted, choice, measured, self.rounds, self.used)
        self.decided = (counted, choice, losses, asked)
        return propose(asked, self.election, counted, choice, measured, self.home)

    def confirmed(self, poll: Poll) -> None:
        """Count the confirmations. Raises ConsensusError: there are too few."""
        assert self.decided is not None
        counted, _, _, asked = self.decided
        assert asked is not None
        try:
            self.confirmations, self.unconfirmed = count_confirmations(asked, self.attested, counted, poll)
        except InputError as error:
            raise ConsensusError(f"no consensus: {error}", counted.reasons) from error

    def agreement(self) -> Agreement:
        """The agreement with its certificate, available once the choice is confirmed."""
        assert self.decided is not None
        _, choice, losses, _ = self.decided
        finite = {name: loss for name, loss in losses.items() if math.isfinite(loss)}
        return Agreement(choice.adapter, sealed(self._certificate()), finite)

    def _certificate(self) -> Certificate:
        """The certificate without its digests."""
        assert self.decided is not None
        attested, election, (counted, choice, losses, _) = self.attested, self.election, self.decided
        outcome, chosen, digests = counted.outcome, choice.chosen, attested.digests
        robust = next(entry for entry in choice.tried if entry.kind == "robust")
        certificate = Certificate(
            trust_model="several-organisations" if ROUND in election.context else "single-operator",
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
            evidence={
                "order": list(order_of_computing({name: digests[name] for name in outcome.accepted})),
                **robust.figures,
            },
            tried=tuple(e.model_copy(update={"figures": {}}) if e.kind == "robust" else e for e in choice.tried),
            chosen=chosen.name,
            confirmations=self.confirmations,
            unconfirmed=dict(self.unconfirmed),
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
        # Through JSON, so that what is sealed is what will be read back (lists for tuples)
        return Certificate.model_validate_json(certificate.model_dump_json())


def settle(
    attested: AttestedVoters,
    base: Base,
    recipe: ConsensusRecipe,
    context: Mapping[str, str],
    examples: Mapping[str, Sequence[Sequence["Encoded"]]],
    registry: Mapping[str, str] | None,
    privacy: Mapping[str, Any] | None = None,
) -> tuple[Election, PublishedElection]:
    """Build the election from the attested submissions, and the public form of it.

    Args:
        examples: elector -> its examples of each part.
        registry: voter -> long-lived public key, of those that have one; None: nobody has.
    """
    read = {name: [examples_digest(part) for part in parts] for name, parts in examples.items()}
    context = {**context, EXAMPLES: examples_digests(read)}
    if len(attested.names) > 1:  # who is registered alone does not vote
        context[CONFIRMED] = f"{tolerance_of(base):g}"
    if registry is not None:
        context[REGISTERED] = registry_digest(registry, attested.names)
    election = make_election(attested, base, recipe, context, privacy)
    return election, PublishedElection.of(election, attested.f, registry or {}, read)


def _choice(
    base: Base, attested: AttestedVoters, counted: CountedVote, measured: Measured, recipe: ConsensusRecipe
) -> tuple[ConsensusChoice, dict[str, float]]:
    """Choose the consensus; with the losses of the base, of every attested voter and of the consensus."""
    outcome = counted.outcome
    accepted = {name: attested.candidates[name] for name in outcome.accepted}
    strategies = read_strategies({name: attested.folders[name] for name in outcome.accepted})
    try:
        validation = ValidationLosses(base, measured.examples, measuring=measured.measure)
        choice = choose(
            validation, accepted, recipe, f=outcome.faults_left, strategies=strategies, digests=attested.digests
        )
    except InputError as error:
        raise ConsensusError(f"no consensus: {error}", counted.reasons) from error
    losses = {BASE: choice.losses[BASE]}
    for name, adapter in attested.candidates.items():
        known = choice.losses.get(name)
        losses[name] = measure(base, adapter, measured.examples).by_example.mean if known is None else known
    losses[CONSENSUS] = choice.chosen.loss if choice.chosen.loss is not None else math.nan
    return choice, {name: round(loss, DIGITS) if math.isfinite(loss) else loss for name, loss in losses.items()}


def _entries(attested: AttestedVoters, counted: CountedVote, chosen: Tried) -> tuple[VoterEntry, ...]:
    outcome, verdicts = counted.outcome, attested.verdicts
    voted = {ballot.voter for ballot in counted.poll.ballots}
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
            public_key=counted.poll.keys.get(name) if name in voted else None,
        )
        for name in attested.names
    )


def _require_disjoint(rounds: Mapping[str, Sequence[Sequence[int]]]) -> None:
    """Raise where an example is judged on twice: the sum of the voters' losses would not be that of all examples."""
    owner: dict[int, str] = {}
    for name, own in rounds.items():
        for index in (index for part in own for index in part):
            if index in owner:
                raise InputError(f"example {index} is in the shards of {owner[index]} and {name}: give it to one, once")
            owner[index] = name


def _require_candidates(attested: AttestedVoters) -> None:
    """Raise unless there are enough candidates, and another voter to judge each (or nobody else was registered)."""
    reasons = {name: attested.verdicts[name].reason or "accepted by attestation" for name in attested.names}
    _require_quorum(attested, len(attested.candidates), reasons)
    if len(attested.candidates) == 1 < len(attested.names):
        (alone,) = attested.candidates
        raise ConsensusError(
            f"no consensus: {alone} is the only candidate of {len(attested.names)} voters, and none judges its own: "
            "train the others again, or name one voter alone in the training recipe to do without a vote",
            {**reasons, alone: "alone"},
        )


def _require_answers(attested: AttestedVoters, counted: CountedVote) -> None:
    """Raise where more than f voters did not answer: the honest voters' opinion is then unknown."""
    outcome, electors = counted.outcome, attested.electors
    silent = counted.silent | dict.fromkeys(outcome.equivocated, "contradicted itself")
    # Of a copied adapter's owners one at most is honest, and has no vote: it counts as one that answered
    answered = len(electors) - len(silent) + (len(outcome.tallies) - len(electors))
    if answered >= outcome.quorum or not silent:
        return
    missing = "; ".join(f"{name}: {why}" for name, why in sorted(silent.items()))
    raise ConsensusError(
        f"no consensus: {answered} of {outcome.n} voters answered, {outcome.quorum} needed (f={outcome.f}). "
        f"Missing: {missing}. Run the asset again; for voters that need longer, "
        "set a larger consensus_timeout in the consensus recipe",
        {**counted.reasons, **silent},
    )


def _require_quorum(
    attested: AttestedVoters, accepted: int, reasons: Mapping[str, str], absent: Mapping[str, str] | None = None
) -> None:
    """Raise unless 2f + 1 voters were accepted; the error gives the reason for each voter."""
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
