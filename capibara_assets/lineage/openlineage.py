"""Results as OpenLineage events (https://openlineage.io/spec/2-0-2), built from their manifests.

One COMPLETE event per materialization: the job is the asset (partition), inputs and output are results by name and
digest. Its run id follows from what it tells, so that an event that is sent again is the same one. Namespaces and
names hold no path.
"""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from capibara_assets.lineage.ancestors import UNPARTITIONED, upstream
from capibara_assets.storage.artifact import Artifact

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

_IDS = uuid.UUID("6f0b5c0e-6a3e-5b0b-9d55-0d1c6a1f2c77")  # of run ids made by this module
_PRODUCER = "capibara-assets"


@dataclass(frozen=True)
class Made:
    """One materialization.

    Attributes:
        at: Unix time.
        run_id: the Dagster run; empty where there was none.
    """

    artifact: Artifact
    at: float
    run_id: str


def run_events(made: Iterable[Made], namespace: str) -> "Iterator[RunEvent]":
    """The events of materializations, in their order.

    Args:
        namespace: of jobs and datasets.

    Raises:
        ImportError: the extra `openlineage` is not installed.
        IntegrityError: a manifest is damaged.
    """
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import dataset_version_dataset, parent_run

    for one in made:
        artifact = one.artifact
        name = _named(artifact.name, artifact.partition or UNPARTITIONED)
        identity = uuid.uuid5(_IDS, f"{namespace} {name} {artifact.digest} {one.run_id}")
        facets = {}
        if one.run_id:
            job = parent_run.Job(namespace=namespace, name="dagster")
            facets["parent"] = parent_run.ParentRunFacet(run=parent_run.Run(runId=one.run_id), job=job)
        yield RunEvent(
            eventType=RunState.COMPLETE,
            eventTime=datetime.fromtimestamp(one.at, UTC).isoformat(),
            run=Run(str(identity), facets),
            job=Job(namespace, name),
            inputs=[
                InputDataset(
                    namespace,
                    _named(node.asset, node.partition),
                    facets={"version": dataset_version_dataset.DatasetVersionDatasetFacet(node.digest)},
                )
                for node in upstream(artifact.manifest)
            ],
            outputs=[
                OutputDataset(
                    namespace,
                    name,
                    facets={"version": dataset_version_dataset.DatasetVersionDatasetFacet(artifact.digest)},
                )
            ],
            producer=_PRODUCER,
        )


def _named(asset: str, partition: str) -> str:
    return asset if partition == UNPARTITIONED else f"{asset}/{partition}"
