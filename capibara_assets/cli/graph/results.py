"""The current results of a deployment, for commands that trace records through them."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import dagster as dg

from capibara_assets.assets.inputs import latest_digests
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import DOMAINS, Domain
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
        for partition, digest in latest_digests(instance, name).items():
            if partition is None or partition in DOMAINS:  # a domain may be gone since
                with suppress(MissingArtifact):
                    current[name, partition] = store.open(name, partition and Domain(partition), digest)
    return Results(store, current)
