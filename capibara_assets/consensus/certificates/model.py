"""The certificate's data model, its digests, and values derived from its parts alone."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from platform import python_version
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from capibara_assets import __version__
from capibara_assets.consensus.choose.choosing import MergeStrategy, Tried
from capibara_assets.consensus.election.ballots import Ballot, election_id
from capibara_assets.consensus.election.confirmations import Confirmation
from capibara_assets.consensus.election.voting import Outcome, Tally, VotingStrategy, faults, vote
from capibara_assets.consensus.recipe import CandidateRecipe
from capibara_assets.storage.digests import canonical_json, sha256_bytes

SCHEMA_VERSION = 3
READABLE = (1, 2, 3)
"""Version 1 had no signatures and no candidates but the rule's, version 2 no second round: such certificates are
checked as far as they go."""
MOST_VOTERS, MOST_BALLOTS = 64, 16_384
"""Of one vote: a certificate of more takes minutes to check, and is refused before any signature is looked at."""
ROUND = "round"
"""In an election's context: digest of the round of several organisations that it ends."""
_PACKAGES = ("numpy", "torch", "transformers", "safetensors", "cryptography")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class VoterEntry(_Part):
    """Entry of a registered voter: accepted, or rejected at a stage with the reason and figure."""

    name: str
    digest: str | None = Field(description="SHA-256 over the adapter's config and weights; null when unreadable")
    accepted: bool
    stage: Literal["attestation", "vote", "accepted"] = Field(description="Where it was rejected, or accepted")
    reason: str
    norm: float | None = Field(description="Frobenius norm of its delta")
    norm_ratio: float | None = Field(description="Its norm over the median norm of the other finite voters")
    weight: float | None = Field(description="Its weight in the result; null where the rule has no weights")
    votes: bool = Field(default=True, description="False: rejected by attestation, or its adapter was handed in twice")
    public_key: str | None = Field(default=None, description="Ed25519, base64; null where it registered none")


class TallyEntry(_Part):
    """The count of one candidate's ballots."""

    candidate: str
    accepting: tuple[str, ...]
    refusing: tuple[str, ...]
    missing: tuple[str, ...]
    required: int
    accepted: bool


class RefusedEntry(_Part):
    """Entry of a ballot that did not count, with the reason."""

    voter: str
    candidate: str
    round: int
    fault: str
    why: str


class Thresholds(_Part):
    """Thresholds of attestation, vote and choice."""

    fault_tolerance: float
    quality: float
    consensus: float
    verification_rounds: int
    norm_ratio: float
    least_norm_ratio: float = 0.0
    copy_ratio: float = Field(
        default=0.0,
        description="Share of the usual distance within which adapters are copies; 0 or left out: only equal ones",
    )
    voting_strategy: VotingStrategy = "majority"
    tolerance: float = Field(default=0.02, description="Of the consensus loss above that of the best accepted voter")
    candidates: CandidateRecipe = Field(
        default=CandidateRecipe(), description="How the candidates were made; left out: by the usual settings"
    )

    @model_serializer(mode="wrap")
    def _as_written(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without a ratio of 0 and usual candidates: certificates from before these were known keep their digests."""
        document: dict[str, Any] = dump(self)
        left_out = {"copy_ratio"} if not self.copy_ratio else set()
        left_out |= {"candidates"} if self.candidates == CandidateRecipe() else set()
        return {name: value for name, value in document.items() if name not in left_out}


class ResultEntry(_Part):
    """Entry of the resulting adapter."""

    digest: str = Field(description="SHA-256 over its config and weights")
    rank: int
    requested_rank: int | None = Field(description="Null: exact, the ranks of the voters add up")
    relative_error: float = Field(description="Frobenius error of a smaller rank; 0 for an exact one")
    loss: float = Field(description="On the validation examples of the vote, nats per token")
    base_loss: float


class Certificate(_Part):
    """A checkable record of one agreement.

    Keys are drawn anew for every vote, so `digest` is over everything but keys and signatures (the same agreement has
    the same digest), and `seal` over everything.
    """

    schema_version: int = SCHEMA_VERSION
    trust_model: Literal["single-operator", "several-organisations"] = Field(
        default="single-operator",
        description="single-operator: one party ran every voter and the count; signatures show that nothing was "
        "changed afterwards and that no voter spoke for another, not that the voters are independent parties. "
        "several-organisations: each voter signed elsewhere, with the key that the round in the context registered",
    )
    context: dict[str, str] = Field(description="Domain and digests of what the agreement was made from")
    base_digest: str
    n: int = Field(description="Registered voters")
    f: int = Field(description="Voters that may be arbitrary")
    quorum: int = Field(description="Least number of accepted voters, 2f + 1")
    thresholds: Thresholds
    election: str = Field(default="", description="SHA-256 of all that was settled before the vote; ballots name it")
    voters: tuple[VoterEntry, ...] = Field(max_length=MOST_VOTERS, fail_fast=True)
    ballots: tuple[Ballot, ...] = Field(
        max_length=MOST_BALLOTS, fail_fast=True, description="All that were handed in, those that do not count too"
    )
    refused: tuple[RefusedEntry, ...] = Field(default=(), max_length=MOST_BALLOTS, fail_fast=True)
    equivocated: tuple[str, ...] = Field(
        default=(), max_length=MOST_VOTERS, description="Signed two different ballots for one round"
    )
    absent: dict[str, str] = Field(default_factory=dict, description="Electors without a ballot that counts, and why")
    tallies: tuple[TallyEntry, ...] = Field(max_length=MOST_VOTERS, fail_fast=True)
    rule: str
    pre: str | None
    merge_strategy: MergeStrategy | None = Field(default=None, description="Forces a candidate; null: the best of all")
    faults_left: int = Field(description="f less the rejected voters: what the rule still has to stand")
    evidence: dict[str, Any] = Field(description="What the rule saw: norms, distances, selected voters")
    tried: tuple[Tried, ...] = Field(
        default=(),
        max_length=2 * MOST_VOTERS,
        fail_fast=True,
        description="Every candidate for the consensus, in the order of ties",
    )
    chosen: str = Field(default="", description="The one that became the consensus")
    confirmations: tuple[Confirmation, ...] = Field(
        default=(),
        max_length=MOST_VOTERS,
        description="Of the second round: accepted voters' signatures under the losses and the choice",
    )
    unconfirmed: dict[str, str] = Field(
        default_factory=dict, description="Accepted voters with a vote and without a confirmation, and why"
    )
    result: ResultEntry
    privacy: dict[str, Any] | None = Field(
        default=None,
        max_length=MOST_VOTERS,
        description="Voter -> differential privacy of its training: parameters and epsilon",
    )
    seeds: dict[str, int] = Field(description="Of anything drawn at random: nothing, where this is empty")
    software: dict[str, str]
    digest: str = ""
    seal: str = ""

    @model_serializer(mode="wrap")
    def _as_written(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without a second round where the version has none, so that earlier certificates keep their digests."""
        document: dict[str, Any] = dump(self)
        left_out = set() if self.schema_version > 2 else {"confirmations", "unconfirmed"}
        return {name: value for name, value in document.items() if name not in left_out}

    @property
    def accepted(self) -> tuple[str, ...]:
        return tuple(voter.name for voter in self.voters if voter.accepted)


def sealed(certificate: Certificate) -> Certificate:
    """The certificate with the digests of its content and of all of it."""
    digested = certificate.model_copy(update={"digest": content_digest(certificate)})
    if digested.schema_version == 1:
        return digested
    return digested.model_copy(update={"seal": whole_digest(digested)})


def content_digest(certificate: Certificate) -> str:
    """SHA-256 of all but keys and signatures, which differ from run to run; in version 1 of everything."""
    if certificate.schema_version == 1:
        return _digest_1(certificate)
    document = certificate.model_dump(mode="json", exclude={"digest", "seal"})
    for voter in document["voters"]:
        del voter["public_key"]
    for signed in (*document["ballots"], *document.get("confirmations", ())):
        del signed["signature"]
    return sha256_bytes(canonical_json(document))


def whole_digest(certificate: Certificate) -> str:
    """SHA-256 of everything but the seal itself."""
    return sha256_bytes(canonical_json(certificate.model_dump(mode="json", exclude={"seal"})))


def _digest_1(certificate: Certificate) -> str:
    """The digest as version 1 wrote it, without the fields that it did not have."""
    return sha256_bytes(canonical_json(certificate.model_dump(mode="json", exclude={"digest"}, exclude_unset=True)))


@dataclass(frozen=True)
class Election:
    """Everything that is fixed before the vote; every ballot is signed together with the digest of this.

    Attributes:
        voters: everybody registered -> digest of the adapter, None where it cannot be read.
        candidates: voters that attestation accepted.
        seeds: of random draws, if any.
    """

    context: Mapping[str, str]
    base_digest: str
    thresholds: Thresholds
    voters: Mapping[str, str | None]
    candidates: Collection[str]
    without_vote: Collection[str]
    rule: str
    pre: str | None
    rank: int | None
    merge_strategy: MergeStrategy | None
    privacy: Mapping[str, Any] | None
    software: Mapping[str, str]
    seeds: Mapping[str, int] = field(default_factory=dict)

    @property
    def subject(self) -> dict[str, Any]:
        """What its digest is over, as JSON."""
        return {
            "context": dict(self.context),
            "base_digest": self.base_digest,
            "thresholds": self.thresholds.model_dump(mode="json"),
            "voters": dict(self.voters),
            "candidates": sorted(self.candidates),
            "without_vote": sorted(self.without_vote),
            "rule": self.rule,
            "pre": self.pre,
            "rank": self.rank,
            "merge_strategy": self.merge_strategy,
            "privacy": None if self.privacy is None else dict(self.privacy),
            "seeds": dict(self.seeds),
            "software": dict(self.software),
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256 that the ballots name."""
        return election_id(self.subject)


def stated_election(certificate: Certificate) -> Election:
    """The election by a certificate's own fields."""
    attested = [voter for voter in certificate.voters if voter.stage != "attestation"]
    return Election(
        context=certificate.context,
        base_digest=certificate.base_digest,
        thresholds=certificate.thresholds,
        voters={voter.name: voter.digest for voter in certificate.voters},
        candidates=[voter.name for voter in attested],
        without_vote=[voter.name for voter in attested if not voter.votes],
        rule=certificate.rule,
        pre=certificate.pre,
        rank=certificate.result.requested_rank,
        merge_strategy=certificate.merge_strategy,
        privacy=certificate.privacy,
        software=certificate.software,
        seeds=certificate.seeds,
    )


def count(
    ballots: Iterable[Ballot],
    thresholds: Thresholds,
    voters: Collection[str],
    excluded: Collection[str],
    **signed: Any,
) -> Outcome:
    """`vote` under a certificate's thresholds; `signed`: its other arguments (keys, election, candidates)."""
    others = max(1, len(voters) - 1)
    f = faults(len(voters), thresholds.fault_tolerance)  # to the letter: a certificate's 0.33 was counted as such
    return vote(
        ballots,
        thresholds.quality,
        thresholds.consensus,
        thresholds.verification_rounds,
        f / others,
        voters=voters,
        excluded=excluded,
        voting_strategy=thresholds.voting_strategy,
        **signed,
    )


def recount(certificate: Certificate) -> Outcome:
    """Count again, from the certificate's ballots and keys."""
    excluded = [voter.name for voter in certificate.voters if voter.stage == "attestation"]
    names = [voter.name for voter in certificate.voters]
    if certificate.schema_version == 1:
        return count(certificate.ballots, certificate.thresholds, names, excluded)
    return count(
        certificate.ballots,
        certificate.thresholds,
        names,
        excluded,
        without_vote=[v.name for v in certificate.voters if not v.votes and v.stage != "attestation"],
        keys={voter.name: voter.public_key for voter in certificate.voters if voter.public_key is not None},
        election=stated_election(certificate).digest,
        candidates={v.name: v.digest for v in certificate.voters if v.digest is not None},
    )


def tally_entries(tallies: Iterable[Tally]) -> tuple[TallyEntry, ...]:
    return tuple(
        TallyEntry(
            candidate=t.candidate, accepting=t.accepting, refusing=t.refusing, missing=t.missing,
            required=t.required, accepted=t.accepted,
        )
        for t in tallies
    )  # fmt: skip


def refused_entries(outcome: Outcome) -> tuple[RefusedEntry, ...]:
    return tuple(
        RefusedEntry(voter=r.voter, candidate=r.candidate, round=r.round, fault=r.fault, why=r.why)
        for r in outcome.refused
    )


def verdict_reason(tally: Tally, ballots: Sequence[Ballot], votes: bool = True) -> str:
    """The vote's verdict on a candidate in words, with the figures."""
    if tally.required == 0:
        return "accepted without a vote: the only voter registered, so validation alone judges it"
    heard = {*tally.accepting, *tally.refusing}
    qualities = sorted(b.quality for b in ballots if b.candidate == tally.candidate and b.voter in heard)
    electors = len(heard) + len(tally.missing)
    verdict = "accepted" if tally.accepted else "rejected"
    span = f"{qualities[0]:.2f} to {qualities[-1]:.2f}" if qualities else "none"
    reason = f"{verdict} by {len(tally.accepting)} of {electors} ballots, {tally.required} needed; quality {span}"
    missing = f"; no ballot of {', '.join(tally.missing)}" if tally.missing else ""
    return reason + missing + ("" if votes else "; its adapter was handed in twice, so it has no vote itself")


def software_versions() -> dict[str, str]:
    """Versions of the packages that the result depends on."""
    own = {"python": python_version(), "capibara-assets": __version__}
    return {**own, **{package: version(package) for package in _PACKAGES}}
