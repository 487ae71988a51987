"""Client side of federated training: train on local examples by the task, and return weights and counts.

Trains by `train_part`, as the simulation does, so that the same examples, seeds and weights give the same adapter.
Examples, tokens and resume points stay in the client's own folder of work.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from capibara_assets.datasets.imported.own_files import files_below
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.files import base_digest
from capibara_assets.storage.digests import canonical_json, sha256_bytes, sha256_file
from capibara_assets.storage.jsonfiles import write_bytes_atomic
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.environment import compute_settings, pick_device, settings_on
from capibara_assets.training.loop.products import detached
from capibara_assets.training.remote.exchange import LEVELS, ClientFigures, ClientTask, packed, unpacked
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.standalone.run import base_folder, write_examples
from capibara_assets.training.step.subject import load_subject
from capibara_assets.training.strategies.changes import Space, Vector, clipped_for_sum
from capibara_assets.training.strategies.parts import TrainingPart, part_adapter, train_part
from capibara_assets.training.strategy import ClientStrategy
from capibara_assets.training.supervisor.voter_process import alone_in
from capibara_assets.training.voter_manifest import RESULT, TIMINGS

_PART = "trained"


@dataclass(frozen=True)
class OwnMaterials:
    """A client's local data, which is never sent.

    Attributes:
        client: its name in the federation.
        data: files or folders of its examples.
        base: its copy of the base model: a folder, a shipped one, or a fetched id@revision.
        work: its folder of work.
    """

    client: str
    data: tuple[Path, ...]
    base: str
    work: Path


@dataclass(frozen=True)
class ClientResult:
    """A client's finished round.

    Attributes:
        adapter: what it trained.
        start: weights that it started from, by the names of trained parameters; None: LoRA's own.
    """

    task: ClientTask
    run: VoterRun
    manifest: Mapping[str, Any]
    adapter: LoraAdapter
    start: Mapping[str, Tensor] | None

    @property
    def figures(self) -> ClientFigures:
        """The client's report on its training."""
        kept = {name: self.manifest[name] for name in ClientFigures.model_fields if name in self.manifest}
        timings = json.loads((self.run.folder / _PART / RESULT / TIMINGS).read_text("utf-8"))
        return ClientFigures.model_validate(kept | {"seconds": timings["seconds"]})

    @property
    def weights(self) -> bytes:
        """The adapter's weights, as they are sent."""
        return packed(self.adapter.tensors)

    def clipped(self) -> Vector:
        """The change as a vector clipped to the task's norm, for secure aggregation."""
        assert self.task.clip is not None
        request = self.run.request
        device = pick_device()
        settings = settings_on(request, device)
        compute_settings(request.recipe.hardware, device)
        subject = load_subject(request, settings, device)
        strategy = self.task.voter.strategy
        trained = strategy.trained if isinstance(strategy, ClientStrategy) else "factors"
        space = Space.of(trained, subject)
        origin = space.read(self.start if self.start is not None else detached(subject.trainable))
        after = {mine: self.adapter.tensors[theirs] for mine, theirs in subject.peft_names.items()}
        change = {module: value - origin[module] for module, value in space.read(after).items()}
        return clipped_for_sum(change, self.task.clip, LEVELS)


def train_round(task: ClientTask, weights: bytes, validation: bytes, own: OwnMaterials) -> ClientResult:
    """Train one round on the own examples, or go on with one that was interrupted.

    Args:
        weights: to start from; empty: LoRA's own.
        validation: JSON lines that all clients get; what is too close to them does not train.

    Raises:
        InputError: the task is for another client or base, or the own examples cannot be trained on.
        TrainingDiverged: as `train_voter`.
    """
    if task.client != own.client:
        raise InputError(f"the task is for {task.client}, this is {own.client}")
    base = base_folder(own.base)
    if (digest := base_digest(base)) != task.base_digest:
        raise InputError(f"{base.name} is base model {digest[:12]}, the server trains {task.base_digest[:12]}")
    identity = [task.model_dump(mode="json"), sha256_bytes(weights), sha256_bytes(validation)]
    place = own.work / sha256_bytes(canonical_json(identity))[:16]
    with alone_in(own.work, lambda: None):
        for other in own.work.iterdir():
            if other.is_dir() and other != place:
                shutil.rmtree(other)
        place.mkdir(exist_ok=True)
        shared = place / "validation.jsonl"
        write_bytes_atomic(shared, validation)
        dataset, _ = write_examples(files_below(own.data), [shared], place)
        request = TrainingRequest(
            domain=task.domain, base_model=base, base_digest=digest, dataset=dataset,
            dataset_digest=sha256_file(dataset), lora=task.lora, recipe=task.recipe, seed=task.seed,
            work=place, out=place / "out",
        )  # fmt: skip
        start = unpacked(weights) if weights else None
        run = VoterRun(request, task.voter, place, lambda event: None, lambda: None)
        manifest = train_part(run, TrainingPart(_PART, request, task.voter, start), run.log())
    return ClientResult(task, run, manifest, part_adapter(place, _PART), start)
