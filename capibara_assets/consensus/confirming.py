"""The second round of a vote: the proposal to accepted voters, their checks, and the number of confirmations needed.

The coordinator has measured every candidate on all voters' examples and chosen. Each accepted voter is given this with
the candidates that are averages, and measures those itself on its own examples, as it measured the others' adapters in
the first round. It confirms where that comes to what is stated for its examples and the chosen one follows from what is
stated for all; else it refuses, with the reason.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from capibara_assets.checkpoints.inspect.verify import adapter_digest, digest_of
from capibara_assets.consensus.certificates.averages import averages_of
from capibara_assets.consensus.certificates.model import Election
from capibara_assets.consensus.choose.choosing import BASE, ConsensusChoice, Tried, choice_of, gate, measure
from capibara_assets.consensus.election.ballots import Ballot, election_id, examples_digest
from capibara_assets.consensus.election.confirmations import (
    CONFIRMED,
    FLOAT32_TOLERANCE,
    SHORT_TOLERANCE,
    Confirmation,
    Decided,
    agrees,
    ballots_digest,
    confirmation_fault,
    confirmed,
    required_confirmations,
    stated_digest,
)
from capibara_assets.consensus.election.polling import Poll
from capibara_assets.consensus.election.voter import DIGITS, Hearing, Proposal
from capibara_assets.consensus.electorate import AttestedVoters, CountedVote
from capibara_assets.errors import InputError, in_words
from capibara_assets.modeling.adapters import LoraAdapter, read_adapter, write_adapter
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.losses import Losses, TokenLosses

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from capibara_assets.datasets.tokens.tokenising import Encoded


class Proposed(BaseModel):
    """A proposal as a voter reads it: whoever asked may state anything."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    subject: dict[str, Any] = Field(description="Of the election, by whose digest it is known")
    ballots: tuple[Ballot, ...]
    tried: tuple[Tried, ...]
    base_loss: float
    averages: dict[str, str] = Field(description="Candidate -> folder of the adapter")
    losses: dict[str, float | None] = Field(description="Candidate -> on the examples of all voters")
    all_tokens: int
    chosen: str
    own: dict[str, float | None] = Field(description="Candidate -> on the voter's examples")


@dataclass
class Measured:
    """Cache of the averages measured during a choice, by digest: adapter and per-example losses."""

    base: Base
    examples: Sequence["Encoded"]
    adapters: dict[str, LoraAdapter] = field(default_factory=dict)
    losses: dict[str, Losses] = field(default_factory=dict)

    def measure(self, adapter: LoraAdapter) -> TokenLosses:
        """Measure an adapter and cache the result; passed to `ValidationLosses.measuring`."""
        losses = measure(self.base, adapter, self.examples)
        digest = digest_of(adapter)
        self.adapters[digest], self.losses[digest] = adapter, losses.by_example
        return losses


@dataclass(frozen=True)
class SecondRound:
    """The request for confirmation that was sent to the accepted voters.

    Attributes:
        decided: what each is asked to confirm.
        examples: voter that is asked -> digests of its own examples, of each part.
        own: voter -> digest of each average -> loss on the voter's examples, as the choice measured it.
        tokens: voter -> supervised tokens of these.
        tolerance: nats per token between two measurements of one adapter.
    """

    decided: Decided
    examples: Mapping[str, tuple[str, ...]]
    own: Mapping[str, Mapping[str, float | None]]
    tokens: Mapping[str, int]
    tolerance: float


def tolerance_of(base: Base) -> float:
    """Tolerance in nats per token when another process recomputes the losses; depends on the base's dtype."""
    long = all(each.dtype in (torch.float32, torch.float64) for each in base.model.parameters())
    return FLOAT32_TOLERANCE if long else SHORT_TOLERANCE


def open_second_round(
    election: Election,
    counted: CountedVote,
    choice: ConsensusChoice,
    measured: Measured,
    rounds: Mapping[str, Sequence[Sequence[int]]],
    used: Sequence[int],
) -> SecondRound:
    """Build the second round; accepted voters without a valid ballot are not asked.

    Args:
        rounds: elector -> indices of its examples, of each part.
        used: the indices that `measured.examples` have.
    """
    place = {index: number for number, index in enumerate(used)}
    averages = averages_of(choice.tried)
    examples, own, tokens = {}, {}, {}
    for name in counted.heard:
        rows = [place[index] for part in rounds[name] for index in part]
        parts = [[measured.examples[place[index]] for index in part] for part in rounds[name]]
        examples[name] = tuple(map(examples_digest, parts))
        own[name] = {digest: _mean(measured.losses[digest], rows) for digest in averages}
        tokens[name] = sum(measured.examples[row].supervised for row in rows)
    decided = Decided(
        election=election.digest,
        ballots=ballots_digest(counted.poll.ballots),
        losses={entry.digest: entry.loss for entry in choice.tried},
        averages=averages,
        all_tokens=sum(example.supervised for example in measured.examples),
        chosen=choice.chosen.digest,
        stated=stated_digest([e.model_dump(mode="json") for e in choice.tried], _base_loss(choice)),
    )
    return SecondRound(decided, examples, own, tokens, float(election.context[CONFIRMED]))


def propose(
    asked: SecondRound,
    election: Election,
    counted: CountedVote,
    choice: ConsensusChoice,
    measured: Measured,
    folder: Path,
) -> dict[str, Proposal]:
    """Proposal for each voter of the second round, as JSON; averages are written below the folder.

    Everything is in it that `confirm` needs to make up its own mind.
    """
    for digest in asked.decided.averages:
        write_adapter(measured.adapters[digest], folder / digest)
    common: dict[str, Any] = {
        "subject": election.subject,
        "ballots": [ballot.model_dump(mode="json") for ballot in counted.poll.ballots],
        "tried": [entry.model_dump(mode="json") for entry in choice.tried],
        "base_loss": _base_loss(choice),
        "averages": {digest: str(folder / digest) for digest in asked.decided.averages},
        "losses": dict(asked.decided.losses),
        "all_tokens": asked.decided.all_tokens,
        "chosen": asked.decided.chosen,
    }
    return {name: {**common, "own": dict(own)} for name, own in asked.own.items()}


def _base_loss(choice: ConsensusChoice) -> float:
    return round(choice.losses[BASE], DIGITS)


def confirm(hearing: Hearing, proposal: Proposal, key: "Ed25519PrivateKey") -> Confirmation:
    """Check a proposal as a voter, measure the averages, and sign.

    Raises:
        InputError: why the voter does not: it is no proposal, the vote is another, a ballot of its own is not there as
            it cast it, a candidate's file is another, a loss on its own examples is not what is stated, or the chosen
            candidate does not follow from the losses.
    """
    assignment, asked = hearing.assignment, _read(proposal)
    if election_id(asked.subject) != assignment.election:
        raise InputError(f"this is another election than {assignment.election[:12]}, which its ballots name")
    if lost := sum(ballot not in asked.ballots for ballot in hearing.ballots):
        raise InputError(f"{lost} of its {len(hearing.ballots)} ballots are not there as it cast them")
    if problem := choice_problem(asked.tried, asked.base_loss, asked.subject, asked.chosen):
        raise InputError(problem)
    losses = {entry.digest: entry.loss for entry in asked.tried}
    if losses != asked.losses or set(asked.averages) != set(averages_of(asked.tried)):
        raise InputError("the candidates are not those whose losses it is asked to confirm")
    tolerance, measured = float(asked.subject["context"][CONFIRMED]), dict[str, float | None]()
    for digest, folder in sorted(asked.averages.items()):
        if (actual := adapter_digest(Path(folder))) != digest:
            raise InputError(f"{folder} is {actual[:12]}, the candidate is {digest[:12]}")
        own = hearing.measure(read_adapter(Path(folder)))
        measured[digest] = _mean(own, range(len(own.nll)))
        if not agrees(measured[digest], asked.own.get(digest), tolerance):
            raise InputError(
                f"candidate {digest[:12]}: its loss on the examples of {assignment.voter} is {measured[digest]}, "
                f"stated is {asked.own.get(digest)}"
            )
    return confirmed(
        Confirmation(
            voter=assignment.voter,
            election=assignment.election,
            ballots=ballots_digest(asked.ballots),
            examples=tuple(examples_digest(part) for part in assignment.rounds),
            tokens=sum(example.supervised for part in assignment.rounds for example in part),
            measured=measured,
            all_tokens=asked.all_tokens,
            losses=losses,
            chosen=asked.chosen,
            stated=stated_digest([e.model_dump(mode="json") for e in asked.tried], asked.base_loss),
        ),
        key,
    )


def _read(proposal: Proposal) -> Proposed:
    try:
        return Proposed.model_validate(proposal)
    except ValidationError as error:
        raise InputError(f"the proposal is none that this software reads: {in_words(error)}") from error


def choice_problem(tried: tuple[Tried, ...], base_loss: float, subject: Mapping[str, Any], chosen: str) -> str:
    """Why a choice does not follow from the stated losses; empty if it does.

    Args:
        subject: of the election, which has the tolerance of the gate, and the candidate that is forced, if one is.
    """
    best = min((e.loss for e in tried if e.kind == "voter" and e.loss is not None), default=math.nan)
    for entry in tried:
        loss = math.nan if entry.loss is None else entry.loss
        passed, reason = gate(loss, base_loss, best, subject["thresholds"]["tolerance"], entry.figures)
        if (passed, reason) != (entry.passed, entry.reason):
            return f"candidate {entry.name}: the gate says {reason!r}, not {entry.reason!r}"
    right = choice_of(tried, subject["merge_strategy"])
    return "" if right.digest == chosen else f"{right.name} follows from the losses, and {chosen[:12]} is chosen"


def count_confirmations(
    asked: SecondRound, attested: AttestedVoters, counted: CountedVote, poll: Poll
) -> tuple[tuple[Confirmation, ...], dict[str, str]]:
    """The valid confirmations, and the reasons for accepted voters without one.

    Raises:
        InputError: fewer than 2f + 1, with every reason.
    """
    good, why = list[Confirmation](), dict(poll.unconfirmed)
    for one in poll.confirmations:
        fault = confirmation_fault(one, poll.keys.get(one.voter), asked.decided, asked.examples)
        own = asked.own.get(one.voter, {})
        off = [d for d, loss in one.measured.items() if not agrees(loss, own.get(d), asked.tolerance)]
        if fault is None and (off or one.tokens != asked.tokens[one.voter]):
            fault = "it signed other losses on its examples than were measured here, or other tokens"
        if fault is None:
            good.append(one)
        else:
            why[one.voter] = fault
    accepted = [name for name in counted.outcome.accepted if name in attested.electors]
    confirming = {one.voter for one in good}
    outcome = counted.outcome
    mute = counted.silent | dict.fromkeys(outcome.equivocated, "contradicted itself in the first round")
    unconfirmed = {name: (why | mute)[name] for name in accepted if name not in confirming}
    needed = required_confirmations(outcome.n, outcome.f, len(outcome.accepted) - len(accepted))
    if len(good) < needed:
        stated = "; ".join(f"{name}: {reason}" for name, reason in unconfirmed.items())
        raise InputError(
            f"{len(good)} of {len(outcome.accepted)} accepted voters confirmed the losses of the candidates and the "
            f"choice, {needed} needed (f={outcome.f}). {stated or 'The others have no key'}. Run the asset again; "
            "a loss that comes out otherwise in another process points at the machine or at whoever runs it"
        )
    return tuple(sorted(good, key=lambda one: one.voter)), unconfirmed


def _mean(losses: Losses, rows: Sequence[int]) -> float | None:
    """Nats per token of some examples; None where not finite."""
    mean = losses.mean_of(rows)
    return round(mean, DIGITS) if math.isfinite(mean) else None
