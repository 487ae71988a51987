"""Server side of federated training with remote clients: send tasks, check results, aggregate them.

Rounds, clipping, noise, accountant, validation and resume are `strategies.federated`'s, as in the simulation. The
server has the recipe, the base and the validation examples; it never has a train example.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import polars as pl
import torch
from safetensors.torch import save
from torch import Tensor

from capibara_assets.datasets.imported.own_files import read_held_out
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, read_adapter, write_adapter
from capibara_assets.storage.digests import sha256_file
from capibara_assets.storage.jsonfiles import write_bytes_atomic, write_json_atomic
from capibara_assets.training.data.examples import COLUMNS, read_examples
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.monitoring.events import EventLog
from capibara_assets.training.remote.exchange import (
    Answers,
    ClientTask,
    packed,
    read_figures,
    unpacked,
    validation_lines,
)
from capibara_assets.training.standalone.choices import RunOptions
from capibara_assets.training.standalone.output_folder import VerifiedFolder, finished_output, publish_outputs
from capibara_assets.training.standalone.run import prepare
from capibara_assets.training.strategies.clients import client_recipe
from capibara_assets.training.strategies.federated import (
    GLOBAL,
    ROUND,
    SUM,
    Federation,
    base_validation,
    budget_and_seed,
    client_spec,
    train_federation,
    write_round,
)
from capibara_assets.training.strategy import FederatedStrategy
from capibara_assets.training.supervisor.assembly import has_result
from capibara_assets.training.supervisor.run import assemble_domain
from capibara_assets.training.supervisor.voter_process import alone_in
from capibara_assets.training.voter_manifest import RESULT, TIMINGS

UNIT = "organisations"
_BEFORE = "round-0"  # the base with untrained weights
_PARTS = "parts.json"  # of a round whose answers are all kept

Say = Callable[[str], None]


class Link(Protocol):
    """The way to the clients.

    Attributes:
        sums: whether it hands over sums alone (secure aggregation).
    """

    sums: bool

    def trained_by(self, clients: int) -> str:
        """Description of the transport and the number of clients, for the manifest."""
        ...

    def ask(self, tasks: Mapping[str, ClientTask], weights: bytes, validation: bytes) -> Answers:
        """Ask the clients of a round, by name, and wait for their answers. Raises InputError: it cannot go on."""
        ...


@dataclass(frozen=True)
class _Start:
    """The untrained base, as measured by the server.

    Attributes:
        loss: validation loss.
        adapter: LoRA's own weights, the reference for the shapes of clients' weights.
    """

    loss: float
    adapter: LoraAdapter


def serve_training(options: RunOptions, link: Link, least: int, say: Say) -> VerifiedFolder:
    """Train a recipe's federated voter with the clients of a link; the output folder is that of `capibara train`.

    Started again after an interruption, it goes on at the first round that is not complete.

    Args:
        options: the recipe, the validation examples (no train examples) and the output folder.
        least: clients that have to answer in a round, of those that are asked.
        say: gets a line for the operator; may name clients.

    Raises:
        InputError: the recipe is not for federated training, or too few clients answer; says in which round.
    """
    request, _ = prepare(options, examples=_only_validation)
    voter, folder = request.recipe.voters[0], request.folder(request.recipe.voters[0])
    strategy = voter.strategy
    if len(request.recipe.voters) != 1 or not isinstance(strategy, FederatedStrategy):
        raise InputError(f"recipe {request.recipe.name} is not of one voter with strategy kind federated")
    if link.sums and strategy.privacy is None:
        raise InputError("secure aggregation adds clipped changes: set privacy in the recipe's strategy")
    if finished := finished_output(request):
        say(f"{request.output} was finished before, from the same inputs")
        return finished[0]
    with alone_in(folder, lambda: None):
        if not has_result(request, voter):
            run = VoterRun(request, voter, folder, lambda event: None, lambda: None)
            train_federation(_federation(run, strategy, link, least, say))
        return publish_outputs(request, assemble_domain(request))[0]


def _only_validation(files: Sequence[Path], validation: Sequence[Path], work: Path) -> tuple[Path, dict[str, Any]]:
    """Write a table of validation examples alone."""
    if files or len(validation) != 1:
        raise InputError("the server has one file of validation examples, and no others: clients hold those that train")
    held = read_held_out(validation[0])
    rows = held.with_columns(group_id="example_id", split=pl.lit("validation")).select(COLUMNS)
    work.mkdir(parents=True, exist_ok=True)
    rows.write_parquet(table := work / "validation.parquet")
    return table, {"train": 0, "validation": rows.height, "digest": sha256_file(table)}


def _federation(run: VoterRun, strategy: FederatedStrategy, link: Link, least: int, say: Say) -> Federation:
    names = tuple(f"client-{number}" for number in range(strategy.clients))
    budget, seed = budget_and_seed(run, strategy)
    start, validation = _measured_start(run), validation_lines(read_examples(run.request.dataset))

    def train(
        federation: Federation, number: int, asked: Sequence[str], log: EventLog, initial: Mapping[str, Tensor] | None
    ) -> dict[str, dict[str, Any]]:
        place = run.folder / f"round-{number}"
        if (place / _PARTS).is_file():  # never asked twice: two sums with one noise would tell their difference
            return dict(json.loads((place / _PARTS).read_text("utf-8")))
        shutil.rmtree(place, ignore_errors=True)
        if not asked:
            return {}
        tasks = {name: _task(federation, number, name, link.sums) for name in asked}
        say(f"round {number}: asks {', '.join(asked)}")
        answers = _checked(link.ask(tasks, packed(initial), validation), start, link.sums)
        silent = {name: answers.silent.get(name, "no answer") for name in asked if name not in answers.figures}
        if silent:
            text = f"round {number}: {len(answers.figures)} of {len(asked)} clients answered; without " + ", ".join(
                f"{name} ({why})" for name, why in sorted(silent.items())
            )
            say(text)
            if len(answers.figures) < min(least, len(asked)):
                raise InputError(
                    f"{text}. At least {min(least, len(asked))} have to: start the missing ones, and the same run "
                    f"again; it goes on at round {number}"
                )
            if not strategy.privacy:  # who took part is not told under privacy
                log.write("warning", 0, text=text)
        return _kept(place, answers, start)

    return Federation(run, strategy, names, UNIT, budget, seed, train, link.trained_by(strategy.clients))


def _measured_start(run: VoterRun) -> _Start:
    """The base with untrained weights, measured once; a resumed training reads it."""
    place = run.folder / _BEFORE / GLOBAL
    if not (place / ROUND).is_file():
        evaluated = base_validation(run)
        write_round(place, evaluated, {"validation_loss": evaluated.loss}, {})
    saved = json.loads((place / ROUND).read_text("utf-8"))
    return _Start(saved["figures"]["validation_loss"], read_adapter(place))


def _task(federation: Federation, number: int, name: str, sums: bool) -> ClientTask:
    """What a client is asked in a round: what the simulation would train there."""
    request, voter, strategy = federation.run.request, federation.run.voter, federation.strategy
    return ClientTask(
        round=number, client=name, domain=request.domain, base_digest=request.base_digest, lora=request.lora,
        recipe=client_recipe(request.recipe, voter, strategy), voter=client_spec(voter, strategy, number, name),
        seed=request.seed, clip=strategy.privacy.clip if sums and strategy.privacy else None,
    )  # fmt: skip


def _checked(answers: Answers, start: _Start, sums: bool) -> Answers:
    """The answers that can be used; of the others the reason, as of clients that are silent.

    Raises:
        InputError: of a sum one term cannot be used, so neither can the sum.
    """
    usable, silent = dict(answers.figures), dict(answers.silent)
    for name, text in answers.figures.items():
        try:
            read_figures(text)
            if not sums:
                _require_fitting(unpacked(answers.weights[name]), start)
        except InputError as error:
            if sums:
                raise InputError(f"{name} is in the sum, and {error}") from error
            del usable[name]
            silent[name] = f"its answer cannot be used: {error}"
    return Answers(usable, {name: answers.weights[name] for name in usable if not sums}, silent, answers.total)


def _require_fitting(tensors: Mapping[str, Tensor], start: _Start) -> None:
    """Raises InputError: not the weights of this training, or not finite."""
    expected = {name: (value.shape, value.dtype) for name, value in start.adapter.tensors.items()}
    if {name: (value.shape, value.dtype) for name, value in tensors.items()} != expected:
        raise InputError("its weights have other names, shapes or types than the server's")
    if not all(bool(torch.isfinite(value).all()) for value in tensors.values()):
        raise InputError("its weights are not finite")


def _kept(place: Path, answers: Answers, start: _Start) -> dict[str, dict[str, Any]]:
    """Keep the answers in the round's folder, where its end is computed; part's name -> its manifest."""
    parts = {}
    for name in sorted(answers.figures, key=lambda one: int(one.rpartition("-")[2])):
        figures = read_figures(answers.figures[name]).model_dump()
        result = place / name / RESULT
        if name in answers.weights:
            write_adapter(LoraAdapter(start.adapter.config, unpacked(answers.weights[name])), result)
        result.mkdir(parents=True, exist_ok=True)
        write_json_atomic(result / TIMINGS, {"seconds": figures.pop("seconds")})
        own = {"skipped_steps": [], "rolled_back_steps": [], "base_validation_loss": start.loss}  # not asked for
        parts[f"{place.name}/{name}"] = figures | own
    if answers.total is not None:
        write_bytes_atomic(place / SUM, save({"sum": torch.from_numpy(answers.total)}))
    write_json_atomic(place / _PARTS, parts)
    return parts
