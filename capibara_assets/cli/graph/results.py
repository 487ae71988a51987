"""The current results of a deployment, for commands that trace records through them."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from capibara_assets.assets.inputs import latest_digest
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import DOMAINS
from capibara_assets.lineage.records import Results
from capibara_assets.resources import Store
from capibara_assets.storage.store import ArtifactStore, MissingArtifact


@contextmanager
def open_results(deployment: Deployment) -> Iterator[Results]:
    """The results of a deployment, while its Dagster instance is open."""
    with open_instance(deployment) as instance:
        yield results_of(instance, Store(root=deployment.store, work=str(deployment.work)).open())


def results_of(instance: dg.DagsterInstance, store: ArtifactStore) -> Results:
    """The artifacts of the latest materializations, without those that were removed."""
    current = {}
    for name in store.names():
        for partition in (None, *DOMAINS):
            digest = latest_digest(instance, name, partition.value if partition else None)
            if digest is None:
                continue
            try:
                current[name, partition.value if partition else None] = store.open(name, partition, digest)
            except MissingArtifact:
                continue
    return Results(store, current)
