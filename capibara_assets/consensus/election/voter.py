"""One voter of a vote, in its own process: reads the candidates, measures them, and signs its ballots.

The process stays for the second round, and its key in it: once the coordinator has put a proposal into its folder, it
confirms that or refuses, and ends.

What it says is one JSON file a round, written beside and renamed: the reader never waits for a voter that hangs in the
middle of a message, and unpickles nothing that a voter made. The private key is in no message, and in no file but its
own.
"""

import gc
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from capibara_assets.checkpoints.inspect.verify import adapter_digest
from capibara_assets.consensus.election.ballots import Ballot, examples_digest, new_key, public_key, signed
from capibara_assets.consensus.election.confirmations import Confirmation
from capibara_assets.consensus.election.keys import read_private_key
from capibara_assets.consensus.election.voting import quality, vouched_best
from capibara_assets.errors import InputError, printable
from capibara_assets.modeling.adapters import LoraAdapter, applied, read_adapter
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.modeling.losses import Losses, assistant_losses
from capibara_assets.processes.memory import return_free_memory
from capibara_assets.processes.supervise import end_with_parent
from capibara_assets.storage.jsonfiles import strict_json, write_json_atomic

if TYPE_CHECKING:
    from capibara_assets.datasets.tokens.tokenising import Encoded

ANSWER, FAILURE, PULSE = "answer.json", "failure.json", "pulse"
PROPOSAL, CONFIRMATION = "proposal.json", "confirmation.json"
FAILED = 3
_MOST_BYTES = 4096  # of a ballot in an answer, of a candidate in a confirmation
_MOST_REFUSAL = 2000  # characters of why a voter does not confirm
_LOOK_S = 0.05  # between two looks for the proposal
# Small batches keep their activations in the cache and pad little
_BATCH_TOKENS = 1024
DIGITS = 6  # of losses: the last bits of a float32 model depend on the number of threads


@dataclass(frozen=True)
class Assignment:
    """The task of one voter: the candidates it judges, and the examples it judges them on.

    Attributes:
        rounds: examples of each round, no example in two of them.
        candidates: name -> adapter folder, without the voter's own.
        digests: name -> digest that the adapter must have: the ballots name it.
        election: digest of the election, which the ballots name.
        faults: voters that may still lie; so many losses are below the one that counts as the best.
        key_file: where the voter's process reads its private key; None: it draws one for this vote.
        registered: the public key that the answer has to have; None: any.
        confirm: what it does in the second round; None: there is none.
    """

    voter: str
    rounds: tuple[tuple["Encoded", ...], ...]
    candidates: Mapping[str, Path]
    digests: Mapping[str, str]
    election: str
    faults: int
    key_file: Path | None = None
    registered: str | None = None
    confirm: "Confirm | None" = None


@dataclass(frozen=True)
class Hearing:
    """Context of a voter in the second round, apart from the proposal.

    Attributes:
        ballots: as it signed them in the first round.
        measure: the losses of an adapter on its own examples.
    """

    assignment: Assignment
    ballots: tuple[Ballot, ...]
    measure: Callable[[LoraAdapter], Losses]


Proposal = Mapping[str, Any]
"""What the coordinator asks a voter to confirm, as JSON; `confirming.propose` makes it."""
Confirm = Callable[[Hearing, Proposal, Ed25519PrivateKey], Confirmation]
"""Confirms a proposal. Raises InputError: why the voter does not."""


@dataclass(frozen=True)
class BaseModelSource:
    """Path and options from which a voter process loads the base model."""

    path: Path
    digest: str
    dtype: torch.dtype
    device: str
    shared: Path

    def load(self) -> Base:
        """Load the base model; on a CPU its weights are mapped once for all voters.

        Raises:
            InputError: the folder holds another model than the vote is about.
        """
        base = load_base(self.path, self.dtype, shared=self.shared if self.device == "cpu" else None)
        if base.digest != self.digest:
            raise InputError(f"base model {self.path} is {base.digest[:12]}, the vote is about {self.digest[:12]}")
        base.model.to(self.device)
        return base


Evaluate = Callable[[Base, LoraAdapter | None, Sequence["Encoded"]], Losses]


def run(assignment: Assignment, base: Base | BaseModelSource, folder: Path, threads: int) -> None:
    """Entry point of a voter's process: writes ANSWER into the folder, or FAILURE and exits 3.

    Where the vote has a second round it then waits for PROPOSAL and writes CONFIRMATION.
    """
    end_with_parent()
    torch.set_num_threads(threads)
    try:
        key, beat = own_key(assignment), (folder / PULSE).touch
        own = answer(assignment, _loaded(base), poll=beat, key=key)
        write_json_atomic(folder / ANSWER, own)
        if assignment.confirm is not None:
            second_round(assignment, base, folder, own, key)
    except Exception as error:  # noqa: BLE001 - handed to the coordinator, and the process fails
        write_json_atomic(folder / FAILURE, {"error": f"{type(error).__name__}: {error}"})
        os._exit(FAILED)


def second_round(
    assignment: Assignment, base: Base | BaseModelSource, folder: Path, own: Mapping[str, Any], key: Ed25519PrivateKey
) -> None:
    """Wait for the proposal and write the confirmation or the refusal; memory other than the key is released.

    Args:
        own: the voter's answer.
    """
    if isinstance(base, BaseModelSource):
        gc.collect()  # lets go of its own model; in a forked voter it would copy every page that it looks at
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return_free_memory()
    while not (folder / PROPOSAL).is_file():
        time.sleep(_LOOK_S)  # the process that puts it there kills this one when the vote is over, or is gone itself
    proposal = json.loads((folder / PROPOSAL).read_text("utf-8"))
    document = confirmation_of(assignment, _loaded(base), own, proposal, key, poll=(folder / PULSE).touch)
    write_json_atomic(folder / CONFIRMATION, document)


def confirmation_of(
    assignment: Assignment,
    base: Base,
    own: Mapping[str, Any],
    proposal: Proposal,
    key: Ed25519PrivateKey,
    poll: Callable[[], None] | None = None,
    evaluate: Evaluate | None = None,
) -> dict[str, Any]:
    """A voter's answer in the second round as JSON: its confirmation, or the reason for refusing."""
    if assignment.confirm is None:
        raise ValueError(f"{assignment.voter} has no second round")
    measuring = evaluate or (lambda model, adapter, examples: losses(model, adapter, examples, poll))
    examples = [example for part in assignment.rounds for example in part]
    ballots = tuple(Ballot.model_validate(ballot) for ballot in own["ballots"])
    hearing = Hearing(assignment, ballots, lambda adapter: measuring(base, adapter, examples))
    try:
        return {"confirmation": assignment.confirm(hearing, proposal, key).model_dump(mode="json")}
    except InputError as error:
        return {"refused": str(error)[:_MOST_REFUSAL]}


def own_key(assignment: Assignment) -> Ed25519PrivateKey:
    """The voter's registered key, or a new one for this vote.

    Raises:
        InputError: the private key cannot be used, or is not the registered one.
    """
    key = new_key() if assignment.key_file is None else read_private_key(assignment.key_file)
    _require_registered(assignment, public_key(key))
    return key


def _loaded(base: Base | BaseModelSource) -> Base:
    return base.load() if isinstance(base, BaseModelSource) else base


def answer(
    assignment: Assignment,
    base: Base,
    poll: Callable[[], None] | None = None,
    evaluate: Evaluate | None = None,
    key: Ed25519PrivateKey | None = None,
) -> dict[str, Any]:
    """Judge every candidate in every round, and sign the ballots; returns public key and ballots as JSON.

    Args:
        key: the voter's; default: `own_key`.

    Raises:
        InputError: a candidate is not what the vote is about, the base model's loss is not finite, or as `own_key`.
    """
    key = key or own_key(assignment)
    measure = evaluate or (lambda model, adapter, examples: losses(model, adapter, examples, poll))
    examples = [example for part in assignment.rounds for example in part]
    by_candidate: dict[str | None, Losses] = {None: measure(base, None, examples)}
    for name, folder in sorted(assignment.candidates.items()):
        if (digest := adapter_digest(folder)) != assignment.digests[name]:
            raise InputError(f"{folder} is {digest[:12]}, the vote is about {assignment.digests[name][:12]}")
        by_candidate[name] = measure(base, read_adapter(folder), examples)
    made: list[Ballot] = []
    start = 0
    for number, part in enumerate(assignment.rounds):
        rows = slice(start, start + len(part))
        start += len(part)
        made += _ballots(assignment, number, part, {name: _mean(own, rows) for name, own in by_candidate.items()},
                         int(by_candidate[None].tokens[rows].sum()))  # fmt: skip
    ballots = [signed(ballot, key).model_dump(mode="json") for ballot in made]
    return {"voter": assignment.voter, "public_key": public_key(key), "ballots": ballots}


def losses(
    base: Base,
    adapter: LoraAdapter | None,
    examples: Sequence["Encoded"],
    poll: Callable[[], None] | None = None,
) -> Losses:
    """Losses of the base model on examples, with or without an adapter."""
    with nullcontext() if adapter is None else applied(base.model, adapter):
        return assistant_losses(base.model, examples, batch_tokens=_BATCH_TOKENS, poll=poll)


def read_answer(file: Path, assignment: Assignment) -> tuple[str, tuple[Ballot, ...]]:
    """Read a voter's public key and ballots; their validity is judged by the count.

    Raises:
        InputError: not an answer, not of this voter, or more than twice as long as a valid one can be.
    """
    voter, most = assignment.voter, 2 * len(assignment.candidates) * len(assignment.rounds)
    try:
        if file.stat().st_size > _MOST_BYTES * (most + 1):
            raise InputError(f"the answer of {voter} has {file.stat().st_size} bytes for at most {most} ballots")
        document = strict_json(file.read_bytes())
        voter_of, public, ballots = document["voter"], document["public_key"], document["ballots"]
        if voter_of != voter or not isinstance(public, str) or not isinstance(ballots, list):
            raise InputError(f"the answer of {voter} is not its own, or has no key and list of ballots")
        if len(ballots) > most:
            raise InputError(f"{voter} cast {len(ballots)} ballots where {most} are the most that can make sense")
        _require_registered(assignment, public)
        read = tuple(Ballot.model_validate(ballot) for ballot in ballots)
        if read and all(ballot.voter != voter for ballot in read):  # some of its own beside them: the count names those
            raise InputError(f"{voter} hands in no ballot of its own, but of {read[0].voter[:80]!r}")
        return public, read
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"the answer of {voter} is no answer: {error}") from error


def read_confirmation(file: Path, voter: str, candidates: int) -> Confirmation:
    """Read a voter's confirmation; its signature is checked by the count.

    Args:
        candidates: number of them, which bounds its length.

    Raises:
        InputError: it refused (with its reason), or this is no confirmation of this voter.
    """
    try:
        if file.stat().st_size > _MOST_BYTES * (candidates + 2):
            raise InputError(f"the confirmation of {voter} has {file.stat().st_size} bytes for {candidates} candidates")
        document = strict_json(file.read_bytes())
        if "refused" in document:
            raise InputError(f"refused: {printable(str(document['refused']))[:_MOST_REFUSAL]}")
        confirmation = Confirmation.model_validate(document["confirmation"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"the confirmation of {voter} is none: {error}") from error
    if confirmation.voter != voter:
        raise InputError(f"the confirmation of {voter} is not its own")
    return confirmation


def _require_registered(assignment: Assignment, public: str) -> None:
    if assignment.registered not in (None, public):
        raise InputError(f"{assignment.voter} has key {public}, {assignment.registered} is registered for it")


def _ballots(
    assignment: Assignment,
    number: int,
    part: Sequence["Encoded"],
    means: dict[str | None, float | None],
    tokens: int,
) -> list[Ballot]:
    base_loss = means.pop(None)
    if base_loss is None:
        raise InputError(
            f"the base model's loss on the shard of {assignment.voter!r} is not finite: check the base model"
        )
    best = vouched_best(means.values(), assignment.faults)
    read = examples_digest(part)
    return [
        Ballot(
            voter=assignment.voter, candidate=str(name), round=number, tokens=tokens, loss=loss, base_loss=base_loss,
            best_loss=best, quality=quality(loss, best, base_loss), candidate_digest=assignment.digests[str(name)],
            examples=read, election=assignment.election,
        )
        for name, loss in means.items()
    ]  # fmt: skip


def _mean(measured: Losses, rows: slice) -> float | None:
    """Nats per token of some examples; None where not finite."""
    mean = measured.mean_of(rows)
    return round(mean, DIGITS) if math.isfinite(mean) else None
