"""Checks of a certificate by recomputation: the count from ballots, attestation and candidates from adapters."""

import math
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from capibara_assets.checkpoints.inspect.verify import digest_of
from capibara_assets.consensus.certificates.candidates import (
    accepted_voters,
    candidate_problems,
    choice_problems,
    close,
)
from capibara_assets.consensus.certificates.model import (
    ROUND,
    Certificate,
    VoterEntry,
    recount,
    refused_entries,
    stated_election,
    tally_entries,
    verdict_reason,
)
from capibara_assets.consensus.choose.combining import combine
from capibara_assets.consensus.election.attestation import (
    Limits,
    Submission,
    attest,
    read_submission,
)
from capibara_assets.consensus.election.ballots import in_order
from capibara_assets.consensus.election.keys import REGISTERED, registry_digest
from capibara_assets.consensus.election.voting import quality, vouched_best
from capibara_assets.modeling.adapters import LoraAdapter

_TOLERANCE = 1e-9
_EVIDENCE_TOLERANCE = 1e-6  # of figures that come out of linear-algebra libraries


def shape_problems(certificate: Certificate) -> list[str]:
    """Structural problems: duplicate voters, another order than the one, fields that the version does not have."""
    problems = []
    names = [voter.name for voter in certificate.voters]
    if len(set(names)) < len(names):
        problems.append("a voter is listed twice")
    # One vote has one certificate: what anybody can put in another order would have another digest, unsigned
    if certificate.schema_version > 1 and names != sorted(names):
        problems.append("the voters are not in the order of their names")
    if certificate.schema_version > 1 and certificate.ballots != in_order(certificate.ballots):
        problems.append("the ballots are not each there once, in the order of voters, parts and candidates")
    later = {"election", "tried", "seal", "refused", "confirmations", "unconfirmed"}
    if certificate.schema_version == 1 and certificate.model_fields_set & later:
        problems.append("schema version 1 does not have an election, candidates or a seal: the version was changed")
    several = certificate.trust_model == "several-organisations"
    if several != (ROUND in certificate.context) or (several and REGISTERED not in certificate.context):
        problems.append(f"trust model {certificate.trust_model}, but its context says otherwise: it was changed")
    return problems


def key_problems(certificate: Certificate, known: Mapping[str, str]) -> list[str]:
    """Keys that differ from the known ones, or that several voters share.

    A voter without a key cast no ballot that counts: nobody spoke in its name.
    """
    stated = {voter.name: voter.public_key for voter in certificate.voters}
    problems = [f"{name}: its key is {stated[name]}, not {key}" for name, key in sorted(known.items())
                if stated.get(name) not in (None, key)]  # fmt: skip
    if strangers := sorted(known.keys() - stated.keys()):
        problems.append(f"{', '.join(strangers)}: registered, but no voter of this vote: left out of it, or registered "
                        "later (then give the keys as they were before the vote)")  # fmt: skip
    settled = certificate.context.get(REGISTERED)
    if settled and stated.keys() <= known.keys() and registry_digest(known, stated) != settled:
        problems.append("the keys given are not those that were registered before the vote: its election names others")
    voted = {ballot.voter for ballot in certificate.ballots}
    problems += [f"{name}: it has a key, and no ballot that is signed with it" for name, key in sorted(stated.items())
                 if key is not None and name not in voted]  # fmt: skip
    owners: dict[str, list[str]] = {}
    for name, key in stated.items():
        if key is not None:
            owners.setdefault(key, []).append(name)
    return problems + [f"{' and '.join(names)} have one key: one signed for the other"
                       for names in owners.values() if len(names) > 1]  # fmt: skip


def vote_problems(certificate: Certificate) -> list[str]:
    """Problems in signatures, qualities, the count, acceptance and its reasons, the gate's verdicts or the choice."""
    problems = []
    try:
        outcome = recount(certificate)
    except ValueError as error:
        return [f"the ballots cannot be counted: {error}"]
    if (outcome.n, outcome.f, outcome.quorum) != (certificate.n, certificate.f, certificate.quorum):
        problems.append(f"n, f, quorum are {outcome.n}, {outcome.f}, {outcome.quorum}, not as stated")
    if certificate.schema_version == 1:
        problems += _quality_problems(certificate, max(0, outcome.f - len(outcome.excluded)))
    else:
        if (election := stated_election(certificate).digest) != certificate.election:
            problems.append(
                f"what was fixed before the vote makes election {election[:12]}, not {certificate.election[:12]}"
            )
        stated = set(certificate.refused)
        problems += [
            f"ballot of {entry.voter} on {entry.candidate}, round {entry.round}: {entry.fault}: {entry.why}"
            for entry in refused_entries(outcome)
            if entry not in stated
        ]
        if refused_entries(outcome) != certificate.refused:
            problems.append("the refused ballots are not those that are stated")
        if outcome.equivocated != certificate.equivocated:
            problems.append(f"{', '.join(outcome.equivocated) or 'nobody'} contradicted itself, not as stated")
        if set(outcome.absent) != set(certificate.absent):
            problems.append(f"absent are {sorted(outcome.absent)}, the certificate states {sorted(certificate.absent)}")
        problems += choice_problems(certificate)
    if tally_entries(outcome.tallies) != certificate.tallies:
        problems.append("the tallies are not what the ballots add up to")
    problems += _verdict_problems(certificate)
    if sorted(outcome.accepted) != sorted(certificate.accepted):
        problems.append(
            f"the ballots accept {sorted(outcome.accepted)}, the certificate {sorted(certificate.accepted)}"
        )
    if len(outcome.accepted) < outcome.quorum:
        problems.append(f"{len(outcome.accepted)} accepted voters are below the quorum of {outcome.quorum}")
    if outcome.faults_left != certificate.faults_left:
        problems.append(f"faults_left is {outcome.faults_left}, not {certificate.faults_left}")
    return problems


def absent_voters(certificate: Certificate, folders: Mapping[str, Path]) -> tuple[str, ...]:
    """Voters whose adapter took part in the vote but is not available here."""
    return tuple(
        sorted(
            voter.name
            for voter in certificate.voters
            if voter.name not in folders or (voter.digest is not None and not folders[voter.name].exists())
        )
    )


def digest_problems(certificate: Certificate, folders: Mapping[str, Path]) -> list[str]:
    """Mismatched digests of the voters' adapters that are available here."""
    return [
        problem
        for voter in certificate.voters
        if voter.name in folders and folders[voter.name].exists()
        for problem in _digest_problem(voter, read_submission(voter.name, folders[voter.name], certificate.base_digest))
    ]


def read_submissions(certificate: Certificate, folders: Mapping[str, Path]) -> dict[str, Submission]:
    """The adapters of all voters, in the order of their names; none raises, however bad it is."""
    names = sorted(voter.name for voter in certificate.voters)
    return {name: read_submission(name, folders[name], certificate.base_digest) for name in names}


def unreadable_voters(certificate: Certificate, submissions: Mapping[str, Submission]) -> list[str]:
    """Voters whose adapter could be read at the vote, and cannot be read here."""
    stated = {voter.name for voter in certificate.voters if voter.digest is not None}
    return [name for name, read in submissions.items() if name in stated and read.digest is None]


def attestation_problems(certificate: Certificate, submissions: Mapping[str, Submission]) -> list[str]:
    """Attest the adapters of all voters again; problems in digests, verdicts, reasons or norms.

    Where some cannot be read, that alone is told: the others' norms are ratios to theirs.
    """
    entries = {voter.name: voter for voter in certificate.voters}
    problems = [line for name, read in submissions.items() for line in _digest_problem(entries[name], read)]
    if unreadable_voters(certificate, submissions):
        return problems
    readable: dict[str, LoraAdapter] = {}
    digests: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for name, read in submissions.items():
        if read.adapter is not None and not read.problem:
            readable[name] = read.adapter
            digests[name] = read.digest or ""
        else:
            reasons[name] = read.problem
    stated = certificate.thresholds
    limits = Limits(stated.norm_ratio, stated.least_norm_ratio, stated.copy_ratio)
    verdicts = attest(readable, None, limits, digests, f=certificate.f)
    for name, entry in sorted(entries.items()):
        sound = name in verdicts and verdicts[name].accepted
        if sound == (entry.stage == "attestation"):
            problems.append(f"{name}: attestation {'accepts' if sound else 'rejects'} it, the certificate does not")
            continue
        reason = verdicts[name].reason if name in verdicts else reasons[name]
        if not sound and certificate.schema_version > 1 and entry.reason != reason:
            problems.append(f"{name}: attestation says {reason!r}, the certificate {entry.reason!r}")
        if name not in verdicts:
            continue
        if not close(verdicts[name].norm, entry.norm):
            problems.append(f"{name}: the norm of its delta is {verdicts[name].norm}, not {entry.norm}")
        if not close(verdicts[name].norm_ratio, entry.norm_ratio):
            problems.append(f"{name}: its norm's ratio is {verdicts[name].norm_ratio}, not {entry.norm_ratio}")
        if certificate.schema_version > 1 and sound and verdicts[name].votes != entry.votes:
            problems.append(f"{name}: it has {'a' if verdicts[name].votes else 'no'} vote, the certificate differs")
    return problems


def result_problems(certificate: Certificate, submissions: Mapping[str, Submission]) -> list[str]:
    """Rebuild the candidates from the adapters; problems in candidates, the rule's evidence or the consensus."""
    chosen = accepted_voters(certificate)
    read = {voter.name: submissions[voter.name].adapter for voter in chosen}
    adapters = {name: adapter for name, adapter in read.items() if adapter is not None}
    if len(adapters) < len(chosen) or not adapters:
        return ["the result cannot be recomputed: an accepted voter is unreadable"]
    try:
        combination = combine(
            [adapters[voter.name] for voter in chosen],
            certificate.rule,
            f=certificate.faults_left,
            pre=certificate.pre,
            rank=certificate.result.requested_rank,
        )
    except ValueError as error:
        return [f"the result cannot be recomputed: {error}"]
    evidence = {"order": [voter.name for voter in chosen], **combination.evidence}
    problems = [f"evidence: {what}" for what in differences(evidence, certificate.evidence)]
    digest = digest_of(combination.adapter)
    if certificate.schema_version > 1:
        return problems + candidate_problems(certificate, adapters)
    if digest != certificate.result.digest:
        problems.append(f"the rule makes adapter {digest[:12]} of these voters, not {certificate.result.digest[:12]}")
    weights = combination.weights or (None,) * len(chosen)
    for voter, weight in zip(chosen, weights, strict=True):
        if not close(weight, voter.weight):
            problems.append(f"{voter.name}: its weight is {weight}, not {voter.weight}")
    return problems


def _digest_problem(entry: VoterEntry, read: Submission) -> list[str]:
    if read.digest == entry.digest:
        return []
    if read.digest is None:
        return [f"{entry.name}: its adapter in {read.folder} is {read.problem}"]
    return [f"{entry.name}: digest is {str(read.digest)[:12]}, the certificate states {str(entry.digest)[:12]}"]


def privacy_problems(privacy: Mapping[str, Any]) -> list[str]:
    """Recompute each stated epsilon from the accountant's parameters; mismatches."""
    try:  # imports a library that takes seconds to load
        accountant = import_module("capibara_assets.training.strategies.privacy")
    except ImportError as error:
        return [f"privacy: epsilon cannot be recomputed: {error}"]
    return [
        f"privacy of {voter}: {problem}"
        for voter, document in sorted(privacy.items())
        for problem in accountant.privacy_problems(document)
    ]


def _quality_problems(certificate: Certificate, faults: int) -> list[str]:
    """Wrong qualities in version 1; later versions refuse such ballots in the count."""
    problems = []
    for ballot in certificate.ballots:
        judged = [b.loss for b in certificate.ballots if (b.voter, b.round) == (ballot.voter, ballot.round)]
        best = vouched_best(judged, faults)
        right = quality(ballot.loss, best, ballot.base_loss)
        if best != ballot.best_loss or not math.isclose(right, ballot.quality, abs_tol=_TOLERANCE):
            problems.append(
                f"ballot of {ballot.voter} on {ballot.candidate}: quality {ballot.quality:.4f} stated, "
                f"{right:.4f} from its losses"
            )
    return problems


def _verdict_problems(certificate: Certificate) -> list[str]:
    """Voters' entries that contradict the count."""
    outcome = recount(certificate)
    tallies = {tally.candidate: tally for tally in outcome.tallies}
    problems = []
    for voter in certificate.voters:
        tally = tallies.get(voter.name)
        stage = "attestation" if tally is None else "accepted" if tally.accepted else "vote"
        if (voter.stage, voter.accepted) != (stage, stage == "accepted"):
            problems.append(f"{voter.name}: the count says {stage}, its entry {voter.stage}, accepted {voter.accepted}")
        elif certificate.schema_version > 1 and stage == "attestation" and voter.votes:
            problems.append(f"{voter.name}: rejected by attestation, but has a vote")
        elif certificate.schema_version > 1 and tally is not None:
            reason = verdict_reason(tally, certificate.ballots, voter.votes)
            if voter.reason != reason:
                problems.append(f"{voter.name}: the count says {reason!r}, its entry {voter.reason!r}")
    return problems


def differences(right: Any, stated: Any, place: str = "") -> Iterable[str]:
    """Describe the differences between two JSON values; numbers may differ by rounding."""
    if isinstance(right, Mapping) and isinstance(stated, Mapping):
        for key in sorted({*map(str, right), *map(str, stated)}):
            if key not in right or key not in stated:
                yield f"{place}{key} is {'not ' if key in right else ''}stated"
            else:
                yield from differences(right[key], stated[key], f"{place}{key}.")
    elif isinstance(right, list | tuple) and isinstance(stated, list | tuple) and len(right) == len(stated):
        for position, (one, other) in enumerate(zip(right, stated, strict=True)):
            yield from differences(one, other, f"{place}{position}.")
    elif _is_number(right) and _is_number(stated):
        if not math.isclose(right, stated, rel_tol=_EVIDENCE_TOLERANCE, abs_tol=_EVIDENCE_TOLERANCE):
            yield f"{place.rstrip('.')} is {right}, not {stated}"
    elif right != stated:
        yield f"{place.rstrip('.')} is {right!r}, not {stated!r}"


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)
