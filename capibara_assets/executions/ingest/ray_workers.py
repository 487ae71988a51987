"""The tasks of an ingest run on a Ray cluster: each group of tasks writes to a folder of its own, which counts once.

Ray does a group again whose worker died, so what a run of a group wrote becomes part of the spill only when its answer
has come. Records stay in the encrypted spill, on a folder that all nodes mount; through Ray go paths and counts.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.executions.ingest.spill import Spill
from capibara_assets.executions.ingest.workers import IngestWorker, WorkerSetup, checked, drop_bucket
from capibara_assets.executions.parsing import rare_collections
from capibara_assets.processes.ray_map import RayCluster, divided, ray_map

_ATTEMPTS = "attempts"


@dataclass(frozen=True)
class RayIngestWorkers:
    """Workers of a Ray cluster that share the spill of an ingest run."""

    setup: WorkerSetup
    cluster: RayCluster

    def do(self, kind: str, values: Sequence[Any]) -> list[Any]:
        """Runs tasks of one kind on the cluster; returns the answers in order.

        Raises:
            InputError: a file cannot be read, no cluster answers, or a node does not mount the work folder.
            RuntimeError: workers died several times with the same tasks under way.
        """
        groups = divided(range(len(values)), self.cluster)
        tasks = [(kind, [values[number] for number in group]) for group in groups]
        spill = Spill(Path(self.setup.folder), bytes.fromhex(self.setup.key), "adopting")
        results: list[Any] = [None] * len(values)
        for position, (out, answers) in ray_map(self.cluster, _Group(self.setup), tasks):
            spill.adopt(Path(out))
            for number, answer in zip(groups[position], answers, strict=True):
                results[number] = answer
                if kind == "finish":
                    drop_bucket(self.setup, values[number][0])
        return results


@dataclass(frozen=True)
class _Group:
    """Does groups of tasks in a worker of Ray."""

    setup: WorkerSetup

    def __call__(self, task: tuple[str, list[Any]]) -> tuple[str, list[Any]]:
        kind, values = task
        folder = Path(self.setup.folder)
        if not folder.is_dir():
            raise InputError(
                f"a node of the Ray cluster does not have {folder}: put storage.work on a volume that all nodes mount"
            )
        name = uuid.uuid4().hex
        out = folder / _ATTEMPTS / name
        out.mkdir(parents=True)
        worker = IngestWorker(self.setup, name, out)
        with rare_collections():
            answers = [checked(worker.do(kind, value)) for value in values]
            worker.do("flush", None)
        return str(out), answers
