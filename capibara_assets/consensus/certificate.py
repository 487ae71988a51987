"""The certificate of an agreement: everything needed to check afterwards who was accepted, why, and what came out."""

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from tempfile import TemporaryDirectory
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from capibara_assets import __version__
from capibara_assets.checkpoints.verify import adapter_digest
from capibara_assets.consensus.attestation import Limits, attest, read_submission
from capibara_assets.consensus.combining import combine
from capibara_assets.consensus.voting import Ballot, Outcome, Tally, quality, vote, vouched_best
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.jsonfiles import write_json_atomic

SCHEMA_VERSION = 1
_PACKAGES = ("numpy", "torch", "transformers", "safetensors")
_TOLERANCE = 1e-9


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class VoterEntry(_Part):
    """One registered voter: accepted, or rejected at a stage for a reason that carries the figure."""

    name: str
    digest: str | None = Field(description="SHA-256 over the adapter's config and weights; null when unreadable")
    accepted: bool
    stage: Literal["attestation", "vote", "accepted"] = Field(description="Where it was rejected, or accepted")
    reason: str
    norm: float | None = Field(description="Frobenius norm of its delta")
    norm_ratio: float | None = Field(description="Its norm over the median norm of the other finite voters")
    weight: float | None = Field(description="Its weight in the result; null where the rule has no weights")


class TallyEntry(_Part):
    """The count of one candidate's ballots."""

    candidate: str
    accepting: tuple[str, ...]
    refusing: tuple[str, ...]
    missing: tuple[str, ...]
    required: int
    accepted: bool


class Thresholds(_Part):
    """What the vote and attestation went by."""

    fault_tolerance: float
    quality: float
    consensus: float
    verification_rounds: int
    norm_ratio: float


class ResultEntry(_Part):
    """The adapter that came out."""

    digest: str = Field(description="SHA-256 over its config and weights")
    rank: int
    requested_rank: int | None = Field(description="Null: exact, the ranks of the voters add up")
    relative_error: float = Field(description="Frobenius error of a smaller rank; 0 for an exact one")
    loss: float = Field(description="On the validation examples of the vote, nats per token")
    base_loss: float


class Certificate(_Part):
    """A checkable record of one agreement; `digest` is over everything else in it."""

    schema_version: int = SCHEMA_VERSION
    trust_model: Literal["single-operator"] = Field(
        default="single-operator",
        description="One party ran every voter and the count: nothing here is signed by voters",
    )
    context: dict[str, str] = Field(description="Domain and digests of what the agreement was made from")
    base_digest: str
    n: int = Field(description="Registered voters")
    f: int = Field(description="Voters that may be arbitrary")
    quorum: int = Field(description="Least number of accepted voters, 2f + 1")
    thresholds: Thresholds
    voters: tuple[VoterEntry, ...]
    ballots: tuple[Ballot, ...]
    tallies: tuple[TallyEntry, ...]
    rule: str
    pre: str | None
    faults_left: int = Field(description="f less the rejected voters: what the rule still has to stand")
    evidence: dict[str, Any] = Field(description="What the rule saw: norms, distances, selected voters")
    result: ResultEntry
    seeds: dict[str, int] = Field(description="Of anything drawn at random: nothing, where this is empty")
    software: dict[str, str]
    digest: str = ""

    @property
    def accepted(self) -> tuple[str, ...]:
        return tuple(voter.name for voter in self.voters if voter.accepted)


@dataclass(frozen=True)
class Verification:
    """What checking a certificate found; `recomputed` names the steps that were done again."""

    problems: tuple[str, ...]
    recomputed: tuple[str, ...]
    forgotten: tuple[str, ...] = ()
    """Inputs it names that were removed since, because a record in them was forgotten: they cannot be checked again."""

    @property
    def ok(self) -> bool:
        return not self.problems


def sealed(certificate: Certificate) -> Certificate:
    """The certificate with the digest of its content."""
    return certificate.model_copy(update={"digest": _content_digest(certificate)})


def write_certificate(certificate: Certificate, path: Path) -> None:
    """Write as readable JSON, in one step; the same agreement gives the same bytes."""
    write_json_atomic(path, certificate.model_dump(mode="json"))


def read_certificate(path: Path) -> Certificate:
    """Read a certificate.

    Raises:
        InputError: missing, not JSON, or not a certificate of a known schema version.
    """
    try:
        document = json.loads(path.read_text("utf-8"))
        certificate = Certificate.model_validate(document)
    except (OSError, ValueError, ValidationError) as error:
        raise InputError(f"{path} is not a certificate: {error}") from error
    if certificate.schema_version != SCHEMA_VERSION:
        raise InputError(f"{path}: schema version {certificate.schema_version}, this software reads {SCHEMA_VERSION}")
    return certificate


def json_schema() -> dict[str, Any]:
    """The certificate as JSON Schema."""
    return {**Certificate.model_json_schema(), "x-schema-version": SCHEMA_VERSION}


def verify_certificate(
    source: Path | Certificate,
    voters: Mapping[str, Path] | None = None,
    *,
    result: Path | None = None,
    forgotten: Collection[str] = (),
) -> Verification:
    """Check a certificate: its digest, and every step that its inputs allow to be done again.

    Without inputs the qualities, the count, quorum and who was accepted are recomputed from the losses it states.
    With `voters` (name -> adapter folder) also digests, attestation, and the adapter that the rule makes of them,
    which has to have the stated digest; with `result` the published adapter too. `forgotten` holds the digests of
    artifacts that were removed because a record was forgotten: those that it was made from are named, and are no
    problem of the certificate.
    """
    certificate = source if isinstance(source, Certificate) else read_certificate(source)
    problems: list[str] = []
    if certificate.digest != _content_digest(certificate):
        problems.append("the certificate's content is not what its digest states: it was changed")
    problems += _vote_problems(certificate)
    recomputed = ["content digest", "qualities", "count", "quorum"]
    if voters is not None:
        problems += _attestation_problems(certificate, voters)
        problems += _result_problems(certificate, voters)
        recomputed += ["voters' digests", "attestation", "result"]
    if result is not None:
        found = adapter_digest(result)
        if found != certificate.result.digest:
            problems.append(f"the published adapter is {found[:12]}, not {certificate.result.digest[:12]}")
        recomputed.append("published adapter")
    gone = tuple(sorted(name for name, digest in certificate.context.items() if digest in set(forgotten)))
    return Verification(tuple(problems), tuple(recomputed), gone)


def digest_of(adapter: LoraAdapter) -> str:
    """The digest that the adapter's files have once written."""
    with TemporaryDirectory() as folder:
        write_adapter(adapter, Path(folder))
        return adapter_digest(Path(folder))


def software_versions() -> dict[str, str]:
    """Versions of what the result depends on."""
    own = {"python": python_version(), "capibara-assets": __version__}
    return {**own, **{package: version(package) for package in _PACKAGES}}


def tally_entries(tallies: Iterable[Tally]) -> tuple[TallyEntry, ...]:
    return tuple(
        TallyEntry(
            candidate=t.candidate, accepting=t.accepting, refusing=t.refusing, missing=t.missing,
            required=t.required, accepted=t.accepted,
        )
        for t in tallies
    )  # fmt: skip


def count(
    ballots: Iterable[Ballot], thresholds: Thresholds, voters: Collection[str], excluded: Collection[str]
) -> Outcome:
    """The vote under a certificate's thresholds."""
    return vote(
        ballots,
        thresholds.quality,
        thresholds.consensus,
        thresholds.verification_rounds,
        thresholds.fault_tolerance,
        voters=voters,
        excluded=excluded,
    )


def _content_digest(certificate: Certificate) -> str:
    return sha256_bytes(canonical_json(certificate.model_dump(mode="json", exclude={"digest"})))


def _vote_problems(certificate: Certificate) -> list[str]:
    problems = []
    excluded = [voter.name for voter in certificate.voters if voter.stage == "attestation"]
    outcome = count(certificate.ballots, certificate.thresholds, [v.name for v in certificate.voters], excluded)
    if (outcome.n, outcome.f, outcome.quorum) != (certificate.n, certificate.f, certificate.quorum):
        problems.append(f"n, f, quorum are {outcome.n}, {outcome.f}, {outcome.quorum}, not as stated")
    faults_in_vote = max(0, outcome.f - len(excluded))
    for ballot in certificate.ballots:
        judged = [b.loss for b in certificate.ballots if (b.voter, b.round) == (ballot.voter, ballot.round)]
        best = vouched_best(judged, faults_in_vote)
        right = quality(ballot.loss, best, ballot.base_loss)
        if best != ballot.best_loss or not math.isclose(right, ballot.quality, abs_tol=_TOLERANCE):
            problems.append(
                f"ballot of {ballot.voter} on {ballot.candidate}: quality {ballot.quality:.4f} stated, "
                f"{right:.4f} from its losses"
            )
    if tally_entries(outcome.tallies) != certificate.tallies:
        problems.append("the tallies are not what the ballots add up to")
    if sorted(outcome.accepted) != sorted(certificate.accepted):
        problems.append(
            f"the ballots accept {sorted(outcome.accepted)}, the certificate {sorted(certificate.accepted)}"
        )
    if len(outcome.accepted) < outcome.quorum:
        problems.append(f"{len(outcome.accepted)} accepted voters are below the quorum of {outcome.quorum}")
    if outcome.faults_left != certificate.faults_left:
        problems.append(f"faults_left is {outcome.faults_left}, not {certificate.faults_left}")
    return problems


def _attestation_problems(certificate: Certificate, folders: Mapping[str, Path]) -> list[str]:
    entries = {voter.name: voter for voter in certificate.voters}
    missing = sorted(entries.keys() - folders.keys())
    if missing:
        return [f"no folder given for voter {', '.join(missing)}"]
    problems = []
    readable: dict[str, LoraAdapter] = {}
    for name, entry in sorted(entries.items()):
        found = read_submission(name, folders[name], certificate.base_digest)
        if found.digest != entry.digest:
            problems.append(
                f"{name}: digest is {str(found.digest)[:12]}, the certificate states {str(entry.digest)[:12]}"
            )
        if found.adapter is not None and not found.problem:
            readable[name] = found.adapter
    verdicts = attest(readable, None, Limits(certificate.thresholds.norm_ratio))
    for name, entry in sorted(entries.items()):
        sound = name in verdicts and verdicts[name].accepted
        if sound == (entry.stage == "attestation"):
            problems.append(f"{name}: attestation {'accepts' if sound else 'rejects'} it, the certificate does not")
        elif sound and not _close(verdicts[name].norm, entry.norm):
            problems.append(f"{name}: the norm of its delta is {verdicts[name].norm}, not {entry.norm}")
    return problems


def _result_problems(certificate: Certificate, folders: Mapping[str, Path]) -> list[str]:
    chosen = sorted((v for v in certificate.voters if v.accepted), key=lambda v: (v.digest or "", v.name))
    found = {
        v.name: read_submission(v.name, folders[v.name], certificate.base_digest) for v in chosen if v.name in folders
    }
    adapters = [found[v.name].adapter for v in chosen if v.name in found]
    usable = [adapter for adapter in adapters if adapter is not None]
    if len(usable) < len(chosen) or not usable:
        return ["the result cannot be recomputed: an accepted voter is missing or unreadable"]
    try:
        combination = combine(
            usable,
            certificate.rule,
            f=certificate.faults_left,
            pre=certificate.pre,
            rank=certificate.result.requested_rank,
        )
    except ValueError as error:
        return [f"the result cannot be recomputed: {error}"]
    problems = []
    digest = digest_of(combination.adapter)
    if digest != certificate.result.digest:
        problems.append(f"the rule makes adapter {digest[:12]} of these voters, not {certificate.result.digest[:12]}")
    weights = combination.weights or (None,) * len(chosen)
    for voter, weight in zip(chosen, weights, strict=True):
        if not _close(weight, voter.weight):
            problems.append(f"{voter.name}: its weight is {weight}, not {voter.weight}")
    return problems


def _close(a: float | None, b: float | None) -> bool:
    return a == b if a is None or b is None else math.isclose(a, b, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
