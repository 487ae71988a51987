"""Checks of a certificate's candidates and its choice: by what it states alone, and made again from the adapters."""

import math
from collections.abc import Mapping

from capibara_assets.checkpoints.inspect.verify import digest_of
from capibara_assets.consensus.certificates.model import Certificate, VoterEntry
from capibara_assets.consensus.choose.choosing import Tried, choice_of, gate, rebuild
from capibara_assets.consensus.choose.combining import combine
from capibara_assets.consensus.choose.integrated import integrated_verdict, strategy_weights
from capibara_assets.consensus.choose.shares import PARTS, weighted_shares
from capibara_assets.consensus.election.attestation import order_of_computing
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter

_TOLERANCE = 1e-9
_FITTED = ("convex", "uniform_soup", "weighted_soup", "greedy_soup")
_WITH_FIGURES = ("convex", "greedy_soup", "integrated")
"""Kinds that state figures, which the second round signs. The robust rule's stand in the evidence, computed again."""


def accepted_voters(certificate: Certificate) -> list[VoterEntry]:
    """Entries of the accepted voters, in the order of the computation."""
    entries = {voter.name: voter for voter in certificate.voters if voter.accepted}
    return [entries[name] for name in order_of_computing({name: voter.digest for name, voter in entries.items()})]


def choice_problems(certificate: Certificate) -> list[str]:
    """Missing candidates, wrong verdicts of the gate, or another consensus than the stated one."""
    problems = []
    accepted = accepted_voters(certificate)
    order = tuple(voter.name for voter in accepted)
    alone = [entry for entry in certificate.tried if entry.kind == "voter"]
    if tuple(entry.name for entry in alone) != order:
        problems.append("the candidates do not hold each accepted voter once")
    kinds = tuple(entry.kind for entry in certificate.tried if entry.kind != "voter")
    if kinds not in (("robust", *_FITTED), ("robust", *_FITTED, "integrated")):
        problems.append(f"the candidates besides the voters are {', '.join(kinds) or 'none'}: some are missing")
    best = min((entry.loss for entry in alone if entry.loss is not None), default=math.nan)
    digests = {voter.name: voter.digest for voter in accepted}
    for entry in certificate.tried:
        loss = math.nan if entry.loss is None else entry.loss
        verdict = gate(loss, certificate.result.base_loss, best, certificate.thresholds.tolerance, entry.figures)
        if verdict != (entry.passed, entry.reason):
            problems.append(f"candidate {entry.name}: the gate says {verdict[1]!r}, not {entry.reason!r}")
        problems += _settings_problems(entry, certificate, order, digests)
    try:
        chosen = choice_of(certificate.tried, certificate.merge_strategy)
    except InputError as error:
        return [*problems, f"nothing can be chosen: {error}"]
    result = certificate.result
    if certificate.chosen != chosen.name:
        problems.append(f"the best candidate that passes the gate is {chosen.name}, not {certificate.chosen}")
    if (chosen.digest, chosen.loss, chosen.relative_error) != (result.digest, result.loss, result.relative_error):
        problems.append(f"the result is not what is stated of candidate {chosen.name}")
    # lists of two lengths are a problem that is told above
    weights = dict(zip(chosen.voters, chosen.weights or (None,) * len(chosen.voters), strict=False))
    for voter in certificate.voters:
        expected = weights.get(voter.name, 0.0 if voter.accepted and chosen.weights is not None else None)
        if voter.weight != expected:
            problems.append(f"{voter.name}: its weight is {expected}, not {voter.weight}")
    return problems


def _settings_problems(
    entry: Tried, certificate: Certificate, order: tuple[str, ...], digests: Mapping[str, str | None]
) -> list[str]:
    """Settings of one candidate that contradict the certificate's."""
    if entry.figures and entry.kind not in _WITH_FIGURES:
        return [f"candidate {entry.name}: it has figures, which nobody signed and nothing recomputes"]
    if entry.kind == "voter":
        stated = (entry.voters, entry.weights, entry.requested_rank, entry.rule, entry.pre, entry.f, entry.digest)
        expected = ((entry.name,), (1.0,), None, None, None, 0, digests.get(entry.name))
        ok = stated[:-1] == expected[:-1] and entry.name in order
        # A voter's files may be written in another way than ours; the digest is of the files that we write
        return [] if ok else [f"candidate {entry.name}: not the unchanged adapter of voter {entry.name} alone"]
    settings = (
        (certificate.rule, certificate.pre, certificate.faults_left) if entry.kind == "robust" else (None, None, 0)
    )
    problems = []
    if entry.name != entry.kind or entry.voters != order:
        problems.append(f"candidate {entry.name}: it is made of {', '.join(entry.voters)}, not of all accepted voters")
    if (entry.rule, entry.pre, entry.f) != settings or entry.requested_rank != certificate.result.requested_rank:
        problems.append(f"candidate {entry.name}: made by other settings than the certificate's")
    if entry.kind == "integrated":
        problems += _integrated_problems(entry, certificate)
    if entry.kind == "weighted_soup":
        problems += _soup_problems(entry, certificate)
    pull = certificate.thresholds.candidates.convex.lambda_reg
    if entry.kind == "convex" and entry.figures.get("lambda_reg") != pull:
        problems.append(f"candidate convex: lambda_reg {entry.figures.get('lambda_reg')} in place of {pull}")
    if entry.weights is not None and len(entry.weights) != len(entry.voters):
        problems.append(f"candidate {entry.name}: {len(entry.weights)} weights for {len(entry.voters)} voters")
    return problems


def _soup_problems(entry: Tried, certificate: Certificate) -> list[str]:
    """Problems in the weighted soup: shares that the voters' losses and the metric do not make."""
    losses = {e.name: e.loss for e in certificate.tried if e.kind == "voter" and e.loss is not None}
    names = [name for name in entry.voters if name in losses]
    metric = certificate.thresholds.candidates.soup.metric
    right = dict(zip(names, weighted_shares([losses[name] for name in names], metric), strict=True)) if names else {}
    stated = dict(zip(entry.voters, entry.weights or (), strict=False))
    # A part more or less: another machine's logarithms may round at the cut to whole parts
    if all(abs(right.get(name, 0.0) - stated.get(name, -1.0)) < 1.5 / PARTS for name in entry.voters):
        return []
    return [f"candidate weighted_soup: by {metric} its weights are {right}, not {stated}"]


def _integrated_problems(entry: Tried, certificate: Certificate) -> list[str]:
    """Problems in the integrated candidate: its strategies' weights, or its own threshold."""
    how = certificate.thresholds.candidates.integrated
    kinds, loss = entry.figures.get("strategies"), {e.name: e.loss for e in certificate.tried if e.kind == "voter"}
    if not isinstance(kinds, dict) or not set(kinds) <= set(entry.voters) & loss.keys():
        return ["candidate integrated: it does not state its voters' strategies"]
    try:
        share = strategy_weights(kinds, how.weights)
    except (InputError, ValueError) as error:
        return [f"candidate integrated: {error}"]
    best = min((loss[name] or 0.0 for name, weight in share.items() if weight > 0), default=math.nan)
    accepted, _, words = integrated_verdict(
        math.nan if entry.loss is None else entry.loss, best, certificate.result.base_loss, how.threshold
    )
    weights = tuple(share.get(name, 0.0) for name in entry.voters)
    if (accepted, words, weights) == (entry.figures.get("accepted"), entry.figures.get("verdict"), entry.weights):
        return []
    return [f"candidate integrated: weights {weights} and {words!r} follow from what it states, not those it states"]


def candidate_problems(certificate: Certificate, adapters: Mapping[str, LoraAdapter]) -> list[str]:
    """Candidates that come out different when they are made again."""
    problems = []
    for entry in certificate.tried:
        try:
            adapter = rebuild(entry, adapters)
        except (InputError, ValueError) as error:
            problems.append(f"candidate {entry.name} cannot be made again: {error}")
            continue
        if (digest := digest_of(adapter)) != entry.digest:
            problems.append(f"candidate {entry.name}: its voters make adapter {digest[:12]}, not {entry.digest[:12]}")
        if not close(adapter.relative_error, entry.relative_error):
            problems.append(
                f"candidate {entry.name}: its error is {adapter.relative_error}, not {entry.relative_error}"
            )
        if entry.name == certificate.chosen and int(adapter.config["r"]) != certificate.result.rank:
            problems.append(f"the result's rank is {adapter.config['r']}, not {certificate.result.rank}")
        if entry.kind == "robust":
            weights = combine(
                [adapters[name] for name in entry.voters], str(entry.rule), f=entry.f, pre=entry.pre,
                rank=entry.requested_rank,
            ).weights  # fmt: skip
            if weights != entry.weights:
                problems.append(f"candidate {entry.name}: the rule's weights are {weights}, not {entry.weights}")
    return problems


def close(a: float | None, b: float | None) -> bool:
    return a == b if a is None or b is None else math.isclose(a, b, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
