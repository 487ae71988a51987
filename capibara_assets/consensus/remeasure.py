"""Repetition of a certificate's choice from base model, examples and voters: every loss, weight and the chosen one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from capibara_assets.consensus.certificates.model import Certificate
from capibara_assets.consensus.choose.choosing import ChoiceError, Tried, ValidationLosses, choose
from capibara_assets.consensus.choose.integrated import read_strategies
from capibara_assets.consensus.choose.shares import PARTS
from capibara_assets.consensus.election.ballots import examples_digest
from capibara_assets.consensus.electorate import examples_of, voting_rounds
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.modeling.base import Base

if TYPE_CHECKING:
    from capibara_assets.datasets.tokens.tokenising import Encoded

_LOSS = 2e-5  # nats per token that another machine's float32 may differ by


def remeasured_problems(
    certificate: Certificate,
    voters: Mapping[str, Path],
    base: Base,
    validation: Sequence["Encoded"],
    shards: Mapping[str, Sequence[int]],
    recipe: ConsensusRecipe,
) -> list[str]:
    """Differences between the stated candidates and those recomputed from base, examples and adapters.

    Args:
        voters: name -> adapter folder, every accepted voter.
        validation: held-out examples of the domain.
        shards: voter's name -> indices into `validation` that it judged on.
        recipe: how much of a shard a vote reads; thresholds and rule are the certificate's.

    Raises:
        InputError: base or examples are not those that the vote was about.
    """
    if base.digest != certificate.base_digest:
        raise InputError(
            f"the base model is {base.digest[:12]}, the certificate is about {certificate.base_digest[:12]}"
        )
    stated = certificate.thresholds
    recipe = recipe.model_copy(
        update={
            "verification_rounds": stated.verification_rounds,
            "tolerance": stated.tolerance,
            "candidates": stated.candidates,
            "rule": certificate.rule,
            "pre": certificate.pre,
            "rank": certificate.result.requested_rank,
            "merge_strategy": certificate.merge_strategy,
        }
    )
    electors = [voter.name for voter in certificate.voters if voter.stage != "attestation" and voter.votes]
    rounds = {name: voting_rounds(name, shards.get(name, ()), validation, recipe) for name in electors}
    _require_the_examples(certificate, {name: examples_of(own, validation) for name, own in rounds.items()})
    used = sorted({index for own in rounds.values() for part in own for index in part})
    accepted = {name: read_adapter(voters[name]) for name in certificate.accepted}
    try:
        choice = choose(
            ValidationLosses(base, [validation[index] for index in used]),
            accepted,
            recipe,
            f=certificate.faults_left,
            strategies=read_strategies({name: voters[name] for name in accepted}),
            digests={voter.name: voter.digest or "" for voter in certificate.voters},
        )
    except ChoiceError as error:
        return [f"measured again, nothing may be chosen: {error}"]
    problems = _loss_problem("the base", choice.losses["base"], certificate.result.base_loss)
    right = {entry.name: entry for entry in choice.tried}
    if right.keys() != {entry.name for entry in certificate.tried}:
        problems.append(f"the candidates are {', '.join(right)}, others are stated")
    for entry in certificate.tried:
        if entry.name in right:
            problems += _entry_problems(right[entry.name], entry)
    return problems


def _require_the_examples(certificate: Certificate, rounds: Mapping[str, tuple[tuple["Encoded", ...], ...]]) -> None:
    """Raise unless the examples are those that the signed ballots name."""
    named = {(ballot.voter, ballot.round): ballot.examples for ballot in certificate.ballots}
    for (voter, number), digest in sorted(named.items()):
        own = rounds.get(voter, ())
        if number < len(own) and examples_digest(own[number]) != digest:
            raise InputError(
                f"the examples of {voter}, round {number}, are not those that its ballots name: verify with the "
                "dataset and the consensus recipe of the vote (examples_per_shard, tokens_per_shard, max_length)"
            )


def _entry_problems(right: Tried, stated: Tried) -> list[str]:
    problems = _loss_problem(f"candidate {stated.name}", right.loss, stated.loss)
    # a part more or less of fitted weights: another machine's last bits decide at the cut to whole parts
    off = [
        name
        for name, a, b in zip(right.voters, right.weights or (), stated.weights or (), strict=False)
        if abs(a - b) > 1.5 / PARTS
    ]
    if right.voters != stated.voters or (right.weights is None) != (stated.weights is None) or off:
        problems.append(
            f"candidate {stated.name}: measured again its weights are {right.weights}, not {stated.weights}"
        )
    return problems


def _loss_problem(what: str, right: float | None, stated: float | None) -> list[str]:
    if right == stated or (right is not None and stated is not None and abs(right - stated) <= _LOSS):
        return []
    return [f"{what}: measured again its loss is {right}, not {stated}"]
