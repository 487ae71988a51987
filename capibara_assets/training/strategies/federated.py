"""Federated training: clients train on examples that no other client sees, and only their weight changes are combined.

McMahan et al. 2017 (arXiv 1602.05629), on LoRA: in every round each client trains the current global adapter on its own
train examples, and the global adapter moves by the clients' mean change, weighted by the supervised tokens that each
trained on. Averaged are the products B A, exact, then cut to the recipe's rank (the report says what the cut lost):
averaging A and B apart would give another adapter. `changes` has the coordinates, `loop/client.py` what a client
trains, `clients` which examples it holds.

What leaves a client: its adapter after each round (so, the change of the weights), and the numbers of its supervised
tokens, examples and steps. What does not: examples, tokens, gradients of single steps, optimizer state. What all know:
the base, the recipe, and the voter's validation shard, by which a client picks the best of its own steps.

Without `privacy` that is data minimisation, and no proof of privacy: weight changes can give examples away (gradient
inversion, membership inference), and nothing is clipped or noised.

With `privacy` the published weights are differentially private for the clients (central model): every change is
clipped, all clients count alike, the same noise is added to their sum however many answered, and the rounds end before
the budget is exceeded. Not covered: the validation shard (it picks the round), and counts of examples, steps and tokens
in the manifest. Neither single clients' figures nor which clients took part are reported. The server is trusted: it
sees sums before their noise. Noise and sampling are drawn from the system's entropy, once, and kept in the voter's
folder until it has finished, so that a resumed run draws the same; two runs from scratch differ.

`train_federated` is a simulation: all clients run in this process, one after the other, from files in the voter's
folder. `training.remote` trains with clients that are elsewhere (Flower's SuperNodes); rounds, clipping, noise,
accountant and resume are those of this module in both. The result's `trained_by` says which it was.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import read_adapter, write_adapter
from capibara_assets.planning.weights import read_weights
from capibara_assets.storage.jsonfiles import write_bytes_atomic, write_json_atomic
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.environment import pick_device, settings_on
from capibara_assets.training.loop.products import Average, detached
from capibara_assets.training.monitoring.events import EVENTS, EventLog
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.step.subject import Subject
from capibara_assets.training.strategies.changes import (
    Coordinates,
    Mechanism,
    Space,
    mean_change,
    noised,
    server_step,
    shaped,
)
from capibara_assets.training.strategies.clients import CLIENTS, client_requests
from capibara_assets.training.strategies.judging import EvaluatedWeights, evaluate_average, evaluate_weights
from capibara_assets.training.strategies.parts import (
    CombinedVoter,
    TrainingPart,
    part_adapter,
    part_seed,
    train_part,
    write_combined,
)
from capibara_assets.training.strategies.privacy_plan import Budget, budget_of, dimensions, document_of, warnings_of
from capibara_assets.training.strategies.secret_seed import drop_secret, secret_seed
from capibara_assets.training.strategy import FederatedStrategy

ROUND, GLOBAL = "round.json", "global"
"""In a round's folder: the global adapter after it, and in that the file that marks the round as complete."""
SUM = "sum.safetensors"
"""In a round's folder: the sum of clipped changes, where the server gets no client's own (secure aggregation)."""
SIMULATED = "simulated in one process"
_SERVER = "server.safetensors"
_SAMPLED, _SILENT, _NOISE = 1, 2, 3  # streams of the seed


@dataclass(frozen=True)
class Federation:
    """Shared state of all rounds of a voter's federated training.

    Attributes:
        clients: their names.
        unit: what a client is made of: tenants, groups or organisations.
        budget: None without privacy.
        seed: of sampling, silence and noise; a secret under privacy.
        train: trains the named clients of a round from the given weights; part's name -> its manifest. A part's folder
            has the client's result, or the round's folder has the clients' `SUM`.
        trained_by: what trained the clients, for the manifest.
    """

    run: VoterRun
    strategy: FederatedStrategy
    clients: tuple[str, ...]
    unit: str
    budget: Budget | None
    seed: int
    train: "TrainClients"
    trained_by: str = SIMULATED

    def log(self) -> EventLog:
        """Open the voter's event log as a new attempt; under privacy it is silent about single clients."""
        kind, run = _PrivateEventLog if self.budget else EventLog, self.run
        return kind(run.folder / EVENTS, run=run.request.run_id(run.voter), listener=run.report, writes=run.ranks.main)


TrainClients = Callable[
    [Federation, int, Sequence[str], EventLog, Mapping[str, Tensor] | None], dict[str, dict[str, Any]]
]


class _PrivateEventLog(EventLog):
    """The voter's log under privacy: it drops the events of single clients."""

    def relay(self, line: dict[str, Any]) -> None:
        pass


def train_federated(run: VoterRun, strategy: FederatedStrategy) -> Path:
    """Train with simulated clients: all in this process, one after the other. Raises: as `train_federation`."""
    return train_federation(federate(run, strategy))


def train_federation(federation: Federation) -> Path:
    """Train all rounds and publish the global adapter of the round with the least validation loss.

    Each round begins with fresh optimizers and a schedule of its own. Clients keep no epoch checkpoints. A round in
    which no client answers leaves the weights unchanged (under privacy: adds the noise alone).

    Raises:
        As `train_voter`: one client that fails fails the voter.
        InputError: fewer train groups or tenants than clients, not one round within the budget, or no answer at all.
    """
    began, run, strategy = time.monotonic(), federation.run, federation.strategy
    folder, log = run.folder, federation.log()
    if federation.budget:
        for text in _warnings_before(federation):
            log.write("warning", 0, text=text)
    parts, rounds = train_rounds(federation, log)
    base_loss = None if _has_first_round(parts) else base_validation(run).loss
    if not run.ranks.main:
        return folder
    best = min(range(len(rounds)), key=lambda at: rounds[at]["validation_loss"])
    figures = {"clients": strategy.clients, "unit": federation.unit, "trained_by": federation.trained_by}
    figures |= {"rounds": rounds, "best_round": best + 1}
    if federation.budget:
        figures["privacy"] = _document(federation, rounds[0]["dimensions"])
        parts = {name: one | {"skipped_steps": [], "rolled_back_steps": []} for name, one in parts.items()}
    curve = [{"step": one["step"], "validation_loss": one["validation_loss"]} for one in rounds]
    adapter = read_adapter(folder / f"round-{best + 1}" / GLOBAL)
    result = write_combined(
        run, CombinedVoter(adapter, parts, curve, rounds[best]["step"], figures, began, base_loss), log
    )
    for path in (folder / CLIENTS, *folder.glob("round-*")):
        shutil.rmtree(path, ignore_errors=True)
    drop_secret(folder)
    return result


def train_rounds(federation: Federation, log: EventLog) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """Train all rounds; returns the manifests of the clients' trainings by name, and each round's figures.

    Raises:
        InputError: no client answered in any of them.
    """
    run, strategy, budget = federation.run, federation.strategy, federation.budget
    parts: dict[str, dict[str, Any]] = {}
    rounds: list[dict[str, Any]] = []
    initial: Mapping[str, Tensor] | None = None
    for number in range(1, (budget.rounds if budget else strategy.rounds) + 1):
        own = train_clients(federation, number, log, initial)
        parts |= own
        place = run.folder / f"round-{number}" / GLOBAL
        if not (place / ROUND).is_file():
            evaluated, figures, state = _combine_round(federation, number, own)
            if run.ranks.main:
                write_round(place, evaluated, figures, state)
                log.write("round", _steps(parts), round=number, of_rounds=strategy.rounds, **figures)
            run.ranks.wait()
        adapter, saved = read_adapter(place), json.loads((place / ROUND).read_text("utf-8"))
        initial = {mine: adapter.tensors[theirs] for mine, theirs in saved["names"].items()}
        rounds.append({"step": _steps(parts), **saved["figures"]})
    if not parts:
        raise InputError(
            f"voter {run.voter.name}: no client answered in {len(rounds)} rounds: raise sampling_rate or rounds, or "
            "lower dropout"
        )
    return parts, rounds


def federate(run: VoterRun, strategy: FederatedStrategy) -> Federation:
    """A federation of simulated clients: writes their datasets. Raises InputError: as `train_federation`."""
    requests, unit = client_requests(run, strategy)
    budget, seed = budget_and_seed(run, strategy)

    def train(
        federation: Federation, number: int, names: Sequence[str], log: EventLog, initial: Mapping[str, Tensor] | None
    ) -> dict[str, dict[str, Any]]:
        done = {}
        for name in names:
            spec = client_spec(run.voter, strategy, number, name)
            part = TrainingPart(f"round-{number}/{name}", requests[name], spec, initial)
            done[part.name] = train_part(run, part, log)
        return done

    return Federation(run, strategy, tuple(requests), unit, budget, seed, train)


def budget_and_seed(run: VoterRun, strategy: FederatedStrategy) -> tuple[Budget | None, int]:
    """The privacy budget (None without privacy), and the seed of the rounds, drawn once."""
    privacy = strategy.privacy
    if privacy is None:
        return None, part_seed(run.voter, "participants")
    return budget_of(strategy), secret_seed(run.folder, privacy.seed, run.ranks)


def client_spec(voter: VoterSpec, strategy: FederatedStrategy, number: int, client: str) -> VoterSpec:
    """Specification of a client's training in a round: the voter's seed for it, on all its examples."""
    update = {"seed": part_seed(voter, number, client), "shard": 0, "strategy": strategy.client()}
    return voter.model_copy(update=update)


def train_clients(
    federation: Federation, number: int, log: EventLog, initial: Mapping[str, Tensor] | None
) -> dict[str, dict[str, Any]]:
    """Train the clients that take part in a round, starting from `initial`; part's name -> its manifest."""
    choice = federation.strategy
    names = participants(federation.seed, number, federation.clients, choice.sampling_rate, choice.dropout)
    return federation.train(federation, number, names, log, initial)


def participants(seed: int, number: int, clients: Sequence[str], sampling_rate: float, dropout: float) -> list[str]:
    """The clients that take part in a round: sampled independently, less those that drop out."""
    sampled = np.random.default_rng((seed, number, _SAMPLED)).random(len(clients)) < sampling_rate
    silent = np.random.default_rng((seed, number, _SILENT)).random(len(clients)) < dropout
    return [client for client, asked, gone in zip(clients, sampled, silent, strict=True) if asked and not gone]


def _has_first_round(parts: Mapping[str, Any]) -> bool:
    """Whether a client answered in the first round, so that a part has validated the base."""
    return any(name.startswith("round-1/") for name in parts)


def _warnings_before(federation: Federation) -> list[str]:
    strategy, request = federation.strategy, federation.run.request
    settings = settings_on(request, pick_device(federation.run.ranks))
    sizes = read_weights(request.base_model).adapted(settings.modules).values()
    numbers = dimensions(strategy.trained, sizes, settings.rank)
    assert strategy.privacy is not None and federation.budget is not None
    return warnings_of(strategy.privacy, federation.budget, strategy.rounds, numbers)


def _combine_round(
    federation: Federation, number: int, clients: Mapping[str, dict[str, Any]]
) -> tuple[EvaluatedWeights, dict[str, Any], Coordinates]:
    """The global adapter after a round, the round's figures, and the server's state."""
    run, choice = federation.run, federation.strategy
    tokens = {name: manifest["supervised_tokens"] for name, manifest in clients.items()}
    shares = [count / sum(tokens.values()) for count in tokens.values()]
    state: Coordinates = {}
    numbers = 0
    general = bool(federation.budget) or choice.trained != "factors" or choice.server.optimizer != "average"
    if general or choice.server.rate != 1.0 or not clients:
        before = run.folder / f"round-{number - 1}" / GLOBAL

        def weights_after(subject: Subject) -> Average:
            nonlocal state, numbers
            start: Mapping[str, Tensor] = detached(subject.trainable)
            if number > 1:
                held = read_adapter(before).tensors
                start = {mine: held[theirs] for mine, theirs in subject.peft_names.items()}
                state = _read_state(before / _SERVER)
            if not clients and not federation.budget:
                return Average(dict(start), 0.0)
            space, how = Space.of(choice.trained, subject), _mechanism(federation, number) or shares
            point, summed = space.read(start), run.folder / f"round-{number}" / SUM
            if isinstance(how, Mechanism) and summed.is_file():
                change = noised(shaped(load_file(summed)["sum"].numpy(), point), how)
            else:
                change = mean_change(space, start, _weights(run, clients, subject), how)
            numbers = sum(value.size for value in point.values())
            point, state = server_step(choice.server, point, change, state)
            return space.write(point, start)

        evaluated = evaluate_weights(run, weights_after)
    else:  # global + sum of share * (client - global) is sum of share * client, because the shares sum to one
        adapters = [part_adapter(run.folder, name) for name in clients]
        evaluated = evaluate_average(run, adapters, shares)
    figures = {"validation_loss": evaluated.loss, "relative_error": evaluated.relative_error}
    if numbers:
        figures["dimensions"] = numbers
    if federation.budget:
        return evaluated, figures, state  # figures and names of single clients stay private
    rows = {
        name.rpartition("/")[2]: {
            "supervised_tokens": tokens[name],
            "share": share,
            "examples": manifest["examples"],
            "steps": manifest["steps"],
            "validation_loss": manifest["validation_loss"],
        }
        for (name, manifest), share in zip(clients.items(), shares, strict=True)
    }
    return evaluated, {"clients": rows, **figures}, state


def _weights(run: VoterRun, clients: Mapping[str, Any], subject: Subject) -> Iterator[dict[str, Tensor]]:
    """The weights of each client that answered, read one after the other."""
    for name in clients:
        tensors = part_adapter(run.folder, name).tensors
        yield {mine: tensors[theirs] for mine, theirs in subject.peft_names.items()}


def _mechanism(federation: Federation, number: int) -> Mechanism | None:
    privacy, budget = federation.strategy.privacy, federation.budget
    if budget is None:
        return None
    assert privacy is not None
    return Mechanism(privacy.clip, budget.noise_multiplier, budget.denominator, (federation.seed, number, _NOISE))


def _document(federation: Federation, numbers: int) -> dict[str, Any]:
    """The privacy document of the certificate."""
    choice = federation.strategy
    assert choice.privacy is not None and federation.budget is not None
    return document_of(
        choice.privacy, federation.budget, choice.rounds, choice.clients, choice.trained, numbers,
        unit=federation.unit, trained_by=federation.trained_by,
        covers="the weights of this adapter; several voters over the same clients compose",
        not_covered=["validation examples", "counts of examples, steps and tokens"],
    )  # fmt: skip


def base_validation(run: VoterRun) -> EvaluatedWeights:
    """Validate the base with untrained LoRA weights, if no client of this process started from it."""
    return evaluate_weights(run, lambda subject: Average(detached(subject.trainable), 0.0))


def _steps(parts: Mapping[str, dict[str, Any]]) -> int:
    return sum(one["steps"] for one in parts.values())


def write_round(place: Path, evaluated: EvaluatedWeights, figures: Mapping[str, Any], state: Coordinates) -> None:
    """Write the global adapter of a round; its last file, round.json, marks it as complete."""
    shutil.rmtree(place, ignore_errors=True)
    write_adapter(evaluated.adapter, place)
    if state:
        write_bytes_atomic(place / _SERVER, save({name: torch.from_numpy(value) for name, value in state.items()}))
    write_json_atomic(place / ROUND, {"figures": dict(figures), "names": evaluated.names})


def _read_state(file: Path) -> Coordinates:
    return {name: value.numpy() for name, value in load_file(file).items()} if file.is_file() else {}
