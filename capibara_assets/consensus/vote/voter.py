"""One voter of a vote, in a process of its own: draws its key, reads the candidates, judges them, signs its ballots.

What it hands back is one file of JSON, written beside and renamed: whoever reads it never waits for a voter that hangs
in the middle of a message, and unpickles nothing that a voter made. The private key is in no file and no message.
"""

import json
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from capibara_assets.checkpoints.inspect.verify import adapter_digest
from capibara_assets.consensus.vote.ballots import Ballot, examples_digest, new_key, public_key, signed
from capibara_assets.consensus.vote.voting import quality, vouched_best
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, applied, read_adapter
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.modeling.losses import Losses, assistant_losses
from capibara_assets.storage.jsonfiles import write_json_atomic

if TYPE_CHECKING:
    from capibara_assets.datasets.tokens.tokenising import Encoded

ANSWER, FAILURE, PULSE = "answer.json", "failure.json", "pulse"
FAILED = 3
_MOST_BYTES = 4096  # of a ballot
# Small batches keep their activations in the cache and pad little
_BATCH_TOKENS = 1024
DIGITS = 6  # of losses: the last bits of a float32 model depend on the number of threads


@dataclass(frozen=True)
class Assignment:
    """What one voter is asked.

    Attributes:
        rounds: examples of each round, no example in two of them.
        candidates: name -> adapter folder, without the voter's own.
        digests: name -> digest that the adapter must have: the ballots name it.
        election: digest of what the vote is about and goes by.
        faults: voters that may still lie; how many losses stand below the one that counts as the best.
    """

    voter: str
    rounds: tuple[tuple["Encoded", ...], ...]
    candidates: Mapping[str, Path]
    digests: Mapping[str, str]
    election: str
    faults: int


@dataclass(frozen=True)
class BaseModel:
    """Where a voter that shares no memory with the coordinator gets the base model from."""

    path: Path
    digest: str
    dtype: torch.dtype
    device: str
    shared: Path

    def load(self) -> Base:
        """The base model, its weights mapped once for all voters where it is on a CPU."""
        base = load_base(self.path, self.dtype, shared=self.shared if self.device == "cpu" else None)
        if base.digest != self.digest:
            raise InputError(f"base model {self.path} is {base.digest[:12]}, the vote is about {self.digest[:12]}")
        base.model.to(self.device)
        return base


Evaluate = Callable[[Base, LoraAdapter | None, Sequence["Encoded"]], Losses]


def run(assignment: Assignment, base: Base | BaseModel, folder: Path, threads: int) -> None:
    """Entry of a voter's process: leaves ANSWER in the folder and exits 0, or FAILURE and exits 3."""
    _end_with_parent()
    torch.set_num_threads(threads)
    try:
        loaded = base.load() if isinstance(base, BaseModel) else base
        write_json_atomic(folder / ANSWER, answer(assignment, loaded, poll=(folder / PULSE).touch))
    except Exception as error:  # noqa: BLE001 - handed to the coordinator, and the process fails
        write_json_atomic(folder / FAILURE, {"error": f"{type(error).__name__}: {error}"})
        os._exit(FAILED)


def answer(
    assignment: Assignment, base: Base, poll: Callable[[], None] | None = None, evaluate: Evaluate | None = None
) -> dict[str, Any]:
    """Draw a key, judge every candidate in every round, and sign: the public key and the ballots, as JSON.

    Raises:
        InputError: a candidate is not what the vote is about, or the base model's loss is not finite.
    """
    key = new_key()
    measure = evaluate or (lambda model, adapter, examples: losses(model, adapter, examples, poll))
    examples = [example for part in assignment.rounds for example in part]
    found: dict[str | None, Losses] = {None: measure(base, None, examples)}
    for name, folder in sorted(assignment.candidates.items()):
        if (digest := adapter_digest(folder)) != assignment.digests[name]:
            raise InputError(f"{folder} is {digest[:12]}, the vote is about {assignment.digests[name][:12]}")
        found[name] = measure(base, read_adapter(folder), examples)
    made: list[Ballot] = []
    start = 0
    for number, part in enumerate(assignment.rounds):
        rows = slice(start, start + len(part))
        start += len(part)
        made += _ballots(assignment, number, part, {name: _mean(all_, rows) for name, all_ in found.items()},
                         int(found[None].tokens[rows].sum()))  # fmt: skip
    ballots = [signed(ballot, key).model_dump(mode="json") for ballot in made]
    return {"voter": assignment.voter, "public_key": public_key(key), "ballots": ballots}


def losses(
    base: Base,
    adapter: LoraAdapter | None,
    examples: Sequence["Encoded"],
    poll: Callable[[], None] | None = None,
) -> Losses:
    """Losses of the base model, or of it with an adapter, on examples."""
    with nullcontext() if adapter is None else applied(base.model, adapter):
        return assistant_losses(base.model, examples, batch_tokens=_BATCH_TOKENS, poll=poll)


def read_answer(file: Path, assignment: Assignment) -> tuple[str, tuple[Ballot, ...]]:
    """The public key and the ballots that a voter left; what they say is for the count to judge.

    Raises:
        InputError: it is no answer, not of this voter, or more than twice as long as one that makes sense.
    """
    voter, most = assignment.voter, 2 * len(assignment.candidates) * len(assignment.rounds)
    try:
        if file.stat().st_size > _MOST_BYTES * (most + 1):
            raise InputError(f"the answer of {voter} has {file.stat().st_size} bytes for at most {most} ballots")
        found = json.loads(file.read_text("utf-8"))
        voter_of, public, ballots = found["voter"], found["public_key"], found["ballots"]
        if voter_of != voter or not isinstance(public, str) or not isinstance(ballots, list):
            raise InputError(f"the answer of {voter} is not its own, or has no key and list of ballots")
        if len(ballots) > most:
            raise InputError(f"{voter} cast {len(ballots)} ballots where {most} are the most that can make sense")
        return public, tuple(Ballot.model_validate(ballot) for ballot in ballots)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"the answer of {voter} is no answer: {error}") from error


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


def _mean(found: Losses, rows: slice) -> float | None:
    mean = float(found.nll[rows].sum() / found.tokens[rows].sum())
    return round(mean, DIGITS) if math.isfinite(mean) else None


def _end_with_parent() -> None:
    """Leave as soon as the coordinator is gone, however it went."""

    def follow() -> None:
        parent = parent_process()
        if parent is not None:
            wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
