"""The current results of a deployment, for commands that trace records through them."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from capibara_assets.assets.inputs import Inputs, latest_digests
from capibara_assets.cli.graph.instance import open_instance, open_store
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.lineage.records import Results
from capibara_assets.storage.removal import removed
from capibara_assets.storage.store import ArtifactStore


@contextmanager
def open_results(deployment: Deployment) -> Iterator[Results]:
    """The results of a deployment, while its Dagster instance is open."""
    with open_instance(deployment) as instance:
        yield results_of(instance, open_store(deployment))


@contextmanager
def open_inputs(deployment: Deployment) -> Iterator[Inputs]:
    """The latest artifact of each asset of a deployment, while its Dagster instance is open."""
    with open_instance(deployment) as instance:
        yield Inputs(instance, open_store(deployment))


def results_of(instance: dg.DagsterInstance, store: ArtifactStore) -> Results:
    """The artifacts of the latest materializations, without those that were removed; others are lost."""
    current, lost = {}, set()
    gone = {(one.asset, one.partition, one.digest) for one in removed(store)}
    for name in store.names():
        for partition, digest in latest_digests(instance, name).items():
            if partition is not None and partition not in DOMAINS:  # a domain may be gone since
                continue
            if (artifact := store.find(name, partition and Domain(partition), digest)) is not None:
                current[name, partition] = artifact
            elif (name, partition, digest) not in gone:
                lost.add((name, partition, digest))
    return Results(store, current, frozenset(lost))
