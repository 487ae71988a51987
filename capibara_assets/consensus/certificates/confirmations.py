"""Checks of a vote's second round: who confirmed the losses and the choice, and what the signed losses imply."""

import math
from collections import defaultdict
from collections.abc import Iterator

from capibara_assets.consensus.certificates.averages import LOSS_ROUNDING, averages_of
from capibara_assets.consensus.certificates.model import Certificate
from capibara_assets.consensus.election.confirmations import (
    CONFIRMED,
    FLOAT32_TOLERANCE,
    Decided,
    ballots_digest,
    confirmation_fault,
    required_confirmations,
    stated_digest,
)


def confirmation_problems(certificate: Certificate) -> list[str]:
    """Contradictions in the second round: a changed version, a false confirmation, or too few confirmations.

    An election states, before the vote, that it has a second round, and every ballot is signed for it: so
    calling a certificate version 2 cannot hide missing confirmations, and no certificate can do without them.
    """
    two_rounds = CONFIRMED in certificate.context
    if certificate.schema_version < 3 or certificate.n == 1:
        given = bool(certificate.confirmations or certificate.unconfirmed)
        problems = ["there is no second round, and confirmations of one"] if given else []
        if two_rounds:
            what = f"version {certificate.schema_version} has none" if certificate.n > 1 else "one voter has none"
            problems.append(f"its election has a second round, {what}: the version or the voters were changed")
        return problems
    if not two_rounds:
        return ["version 3 has a second round, its election has none: the version was changed"]
    return [*_round_problems(certificate)]


def _round_problems(certificate: Certificate) -> Iterator[str]:
    tolerance = _tolerance(certificate)
    if not 0 <= tolerance < math.inf:
        yield f"{CONFIRMED} is {certificate.context[CONFIRMED]!r}, no number of nats"
        return
    heard = {name for tally in certificate.tallies for name in (*tally.accepting, *tally.refusing)}
    accepted = {voter.name: voter for voter in certificate.voters if voter.accepted}
    decided, examples = _decided(certificate), _examples(certificate)
    good = list[str]()
    for one in certificate.confirmations:
        voter = accepted.get(one.voter)
        if voter is None or not voter.votes or one.voter not in heard:
            fault: str | None = "only accepted voters whose ballots count confirm"
        elif one.voter in good:
            fault = "it confirms twice"
        else:
            fault = confirmation_fault(one, voter.public_key, decided, examples)
        if fault is None:
            good.append(one.voter)
        else:
            yield f"confirmation of {one.voter}: {fault}"
    if good != sorted(good):
        yield "the confirmations are not in the order of the voters"
    voteless = [name for name, voter in accepted.items() if not voter.votes]
    needed = required_confirmations(certificate.n, certificate.f, len(voteless))
    if len(good) < needed:
        yield f"{len(good)} accepted voters confirm the losses of the candidates and the choice, {needed} are needed"
    silent = accepted.keys() - {*good, *voteless}
    if set(certificate.unconfirmed) != silent:
        yield f"unconfirmed are {sorted(silent)}, the certificate states {sorted(certificate.unconfirmed)}"
    yield from _sum_problems(certificate, tolerance)


def _sum_problems(certificate: Certificate, tolerance: float) -> Iterator[str]:
    """Losses that are not the sum of those that voters signed for their own examples, or are below it."""
    total, covered = confirmed_tokens(certificate)
    if covered > total:
        yield f"the voters' examples have {covered} tokens, all examples {total}"
        return
    allowed = (tolerance + LOSS_ROUNDING) * total
    for entry in certificate.tried:
        parts = [(one.tokens, one.measured[entry.digest]) for one in certificate.confirmations
                 if entry.digest in one.measured]  # fmt: skip
        finite = all(loss is not None for _, loss in parts)
        if parts and finite != (entry.loss is not None) and (not finite or covered == total):
            yield f"candidate {entry.name}: its loss is {entry.loss}, voters signed {[loss for _, loss in parts]}"
        if not parts or entry.loss is None or not finite:
            continue
        signed, stated = math.fsum(tokens * (loss or 0.0) for tokens, loss in parts), entry.loss * total
        if signed > stated + allowed or (covered == total and signed < stated - allowed):
            bound = "" if covered == total else "at least "
            yield (
                f"candidate {entry.name}: by the losses that voters signed on their examples its loss is {bound}"
                f"{signed / total:.6f}, not {entry.loss:.6f}"
            )


def confirmation_reservations(certificate: Certificate) -> Iterator[str]:
    """Reservations: no second round was held, or it used an unusual tolerance."""
    if certificate.n == 1:
        return
    if certificate.schema_version < 3:
        yield (
            f"that voters stand behind the choice: version {certificate.schema_version} has no second round, nobody "
            "signed the losses of the candidates that are averages, nor the chosen one"
        )
        return
    if unsigned := [one.voter for one in certificate.confirmations if one.stated is None]:
        yield (
            f"figures of the candidates: {', '.join(unsigned)} signed losses and choice alone, as earlier versions "
            "did; what else is stated of the candidates may have been changed since"
        )
    if not _tolerance(certificate) <= FLOAT32_TOLERANCE:
        yield (
            f"the last digits of confirmed losses: they agree within {_tolerance(certificate):g} nats per token, "
            f"weights of 32 bits within {FLOAT32_TOLERANCE:g}"
        )


def _decided(certificate: Certificate) -> Decided:
    """What the voters had to confirm, by what the certificate states."""
    return Decided(
        election=certificate.election,
        ballots=ballots_digest(certificate.ballots),
        losses={entry.digest: entry.loss for entry in certificate.tried},
        averages=averages_of(certificate.tried),
        all_tokens=confirmed_tokens(certificate)[0],
        chosen=certificate.result.digest,
        stated=stated_digest([e.model_dump(mode="json") for e in certificate.tried], certificate.result.base_loss),
    )


def _examples(certificate: Certificate) -> dict[str, tuple[str, ...]]:
    """Voter -> digests of the examples that its ballots name, of each part."""
    named: dict[str, dict[int, str]] = defaultdict(dict)
    for ballot in certificate.ballots:
        if ballot.examples is not None:
            named[ballot.voter].setdefault(ballot.round, ballot.examples)
    return {voter: tuple(parts[number] for number in sorted(parts)) for voter, parts in named.items()}


def confirmed_tokens(certificate: Certificate) -> tuple[int, int]:
    """Number of supervised tokens of all examples, and of those whose voters confirmed."""
    total = certificate.confirmations[0].all_tokens if certificate.confirmations else 0
    return total, sum(one.tokens for one in certificate.confirmations)


def _tolerance(certificate: Certificate) -> float:
    try:
        return float(certificate.context[CONFIRMED])
    except (KeyError, ValueError):
        return math.nan
