"""A voter's process whose allocator fails where a pass holds more rows than it is told: torch's own error, no stand-in.

The supervisor forks it as it forks real ones; `run._enter` is put in its place.
"""

import json
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch import Tensor

from capibara_assets.modeling.losses import Batch
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.step.subject import LossModule
from capibara_assets.training.supervisor.worker import run_voter

TOLD = "told.json"


def tell(request: TrainingRequest, rows: int, after: int = 0) -> None:
    """How many rows of a training pass fit; passes `after` the first ones alone are counted."""
    request.work.mkdir(parents=True, exist_ok=True)
    (request.work / TOLD).write_text(json.dumps({"rows": rows, "after": after}))


def enter(request: TrainingRequest, spec: VoterSpec, connection: Connection) -> None:
    """First function of such a voter's process."""
    told = json.loads(Path(request.work / TOLD).read_bytes())
    passes, forward = [0], LossModule.forward

    def limited(self: LossModule, batch: Batch) -> Tensor:
        passes[0] += torch.is_grad_enabled()
        if torch.is_grad_enabled() and passes[0] > told["after"] and batch.input_ids.shape[0] > told["rows"]:
            torch.empty(1 << 55)
        return forward(self, batch)

    LossModule.forward = limited
    run_voter(request, spec, connection)
