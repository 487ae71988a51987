"""Reservations of a valid certificate: unverified keys, weak thresholds, and losses that nobody signed."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping

from capibara_assets.consensus.certificates.averages import LOSS_ROUNDING
from capibara_assets.consensus.certificates.confirmations import confirmed_tokens
from capibara_assets.consensus.certificates.model import Certificate
from capibara_assets.consensus.election.voting import faults
from capibara_assets.consensus.recipe import ConsensusRecipe

SINGLE_OPERATOR = (
    "independent voters: one party ran every voter and the count, and could have run others; signatures show that "
    "nothing was changed after the vote"
)

SEVERAL_ORGANISATIONS = (
    "independent voters: each signed with the key of its name in the round; whether the holders of these keys are "
    "different parties is for those to judge who know whose keys they are"
)


def independence(certificate: Certificate) -> str:
    """Reservations about the voters' identities under the certificate's trust model."""
    return SEVERAL_ORGANISATIONS if certificate.trust_model == "several-organisations" else SINGLE_OPERATOR


def unsigned_words(certificate: Certificate) -> Iterator[str]:
    """What a certificate states in words that nobody signed and nothing recomputes: why voters are missing."""
    if missing := sorted({*certificate.absent, *certificate.unconfirmed}):
        yield f"why {', '.join(missing)} gave no ballots or no confirmation: whoever held the vote says so, unsigned"


def key_reservations(certificate: Certificate, keys: Mapping[str, str] | None) -> Iterator[str]:
    """Reservations about voters' keys that no registry confirms; version 1 has no signatures at all."""
    if certificate.schema_version == 1:
        yield "signatures: version 1 has none, whoever can edit the file can have made it up"
        return
    unknown = [v.name for v in certificate.voters if v.public_key is not None and v.name not in (keys or {})]
    if keys is None:
        yield "whose keys these are: give the public keys that you know (--keys), else anybody can have signed"
    elif unknown:
        yield f"whose keys those of {', '.join(unknown)} are: they are not among the keys given"
    electors = {v.name for v in certificate.voters if v.stage != "attestation" and v.votes and certificate.n > 1}
    silent = [v.name for v in certificate.voters if v.public_key is None and v.name in electors & (keys or {}).keys()]
    if silent:
        yield f"whether {', '.join(silent)} kept silent or was not asked: there is a key for it, and no ballot"


def threshold_reservations(certificate: Certificate) -> Iterator[str]:
    """Reservations about thresholds that are weaker than the shipped ones."""
    stated, shipped = certificate.thresholds, ConsensusRecipe.model_validate({})
    for name, value, least in (
        ("quality", stated.quality, shipped.quality_threshold),
        ("consensus", stated.consensus, shipped.consensus_threshold),
        ("copy_ratio", stated.copy_ratio, shipped.copy_ratio),
    ):
        if value < least:
            yield f"that the voters are sound by the usual bar: {name} {value:g} is below the shipped {least:g}"
    for name, value, most in (
        ("norm_ratio", stated.norm_ratio, shipped.norm_ratio_limit),
        ("tolerance", stated.tolerance, shipped.tolerance),
    ):
        if value > most:
            yield f"that the voters are sound by the usual bar: {name} {value:g} is above the shipped {most:g}"
    usual = faults(certificate.n, shipped.fault_tolerance)
    if certificate.f < usual:
        yield f"that a liar does no harm: f is {certificate.f}, {certificate.n} voters stand {usual}"
    elif certificate.f == 0:
        yield f"that a liar does no harm: {certificate.n} voters stand none, it takes four"


def loss_findings(certificate: Certificate) -> tuple[list[str], list[str]]:
    """Compare stated losses with signed ballots; return (contradictions, open points).

    The validation examples are the electors' shards together, and each ballot has the base's loss on its voter's shard
    and the candidate's. So the base's loss follows where nobody lied, and of a voter's loss the others' ballots give
    the least that it can be, without those of f that may lie. Losses of averages are in no ballot; from version 3 on
    accepted voters confirm them (`confirmations`).
    """
    if certificate.schema_version == 1 or certificate.n == 1:
        return [], ["losses: nobody signed them"]
    tokens: dict[str, int] = defaultdict(int)
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))  # candidate -> voter -> nats
    parts = set[tuple[str, int]]()
    for ballot in certificate.ballots:
        part = (ballot.voter, ballot.round)
        if part not in parts:
            parts.add(part)
            tokens[ballot.voter] += ballot.tokens
            sums["base"][ballot.voter] += ballot.tokens * (ballot.base_loss or 0.0)
        loss = 0.0 if ballot.loss is None else ballot.loss
        sums[f"voter {ballot.candidate}"][ballot.voter] += ballot.tokens * loss
    total = sum(tokens.values())
    if not total:
        return ["no ballot states tokens"], []
    stated: dict[str, float | None] = {"base": certificate.result.base_loss}
    stated |= {f"voter {entry.name}": entry.loss for entry in certificate.tried if entry.kind == "voter"}
    problems = []
    for name, told in stated.items():
        believed = sorted(sums[name].values())[: max(0, len(sums[name]) - certificate.f)]
        if told is not None and (least := math.fsum(believed) / total) - told > LOSS_ROUNDING:
            problems.append(f"the loss of {name} is stated as {told:.6f}, the ballots allow no less than {least:.6f}")
    open_ = [
        f"losses of the candidates that are averages: {_who_signed(certificate)}, measure them again (--remeasure)"
    ]
    everybody = {v.name for v in certificate.voters if v.stage != "attestation" and v.votes} == tokens.keys()
    measured = math.fsum(sums["base"].values()) / total
    if everybody and abs(measured - certificate.result.base_loss) > LOSS_ROUNDING:
        open_.append(
            f"the base's loss: {measured:.6f} by the ballots, stated is {certificate.result.base_loss:.6f}; a voter "
            "misstated it, or the count did"
        )
    return problems, open_


def _who_signed(certificate: Certificate) -> str:
    """Who signed the losses of averages, and on how much of the examples they were measured by who did."""
    if certificate.schema_version < 3:
        return "no ballot has them"
    total, covered = confirmed_tokens(certificate)
    signed = f"{len(certificate.confirmations)} accepted voters signed them"
    return signed if covered >= total else f"{signed}, whose own examples have {covered / total:.0%} of the tokens"
