"""Imported examples: an external asset that `capibara dataset import` publishes from the user's own files."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from capibara_assets.assets.inputs import Inputs, latest_digest, latest_metadata, materialized
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.metadata.dataset_entries import imported_page
from capibara_assets.partitions import domains
from capibara_assets.storage.locks import locked

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.datasets.imported.join import Imported
    from capibara_assets.storage.artifact import Artifact

IMPORTED = "imported_examples"
TIMES = "imported_at"

imported_examples = dg.AssetSpec(
    IMPORTED,
    partitions_def=domains,
    group_name="datasets",
    kinds={"parquet"},
    code_version="1",
    description=(
        "Examples imported from your own files, each with a fixed split (`capibara dataset import`). "
        "Worry when many lines were left out."
    ),
)


def read_imported(inputs: Inputs, domain: Domain) -> "Imported":
    """The imported examples of a domain; empty before the first import."""
    from capibara_assets.datasets.imported.join import Imported

    artifact = inputs.available(IMPORTED, domain)
    return Imported(examples_of(artifact), artifact.frame("lines")) if artifact else Imported.empty()


def examples_of(artifact: "Artifact") -> "pl.DataFrame":
    """The examples of an artifact; those of a version before get the columns that came later (imports are kept)."""
    from capibara_assets.datasets.schema import Example
    from capibara_assets.storage.records import conform

    return conform(Example, artifact.frame("examples"))


def others_of(inputs: Inputs, domain: Domain) -> "list[pl.DataFrame]":
    """Examples with which an import must not overlap across splits: all experience, and other domains' imports."""
    import polars as pl

    experience = pl.col("provenance") == "experience"
    own = [examples_of(artifact).filter(experience) for artifact in inputs.every("moe_dataset").values()]
    every = inputs.every(IMPORTED)
    return [*own, *(examples_of(every[other]) for other in DOMAINS if other != domain and other in every)]


def publish_imported(inputs: Inputs, domain: Domain, imported: "Imported", now: str) -> tuple[str, bool]:
    """Publish a domain's imported examples and report the materialization to Dagster.

    Args:
        inputs: Dagster instance and store.
        domain: the partition.
        imported: all imported examples of the domain, and the lines they came from.
        now: time of the import (ISO), recorded for files that are new.

    Returns:
        The artifact's digest, and whether it differs from the previous one.
    """
    from capibara_assets.datasets.imported.schema import ImportedLine
    from capibara_assets.datasets.schema import Example

    before = latest_digest(inputs.instance, IMPORTED, domain.value)
    times = import_times(inputs.instance, domain)
    publishing = Inputs(inputs.instance, inputs.store, code_version="1")
    artifact = publishing.publish(
        IMPORTED,
        domain,
        tables={"examples": (Example, imported.examples), "lines": (ImportedLine, imported.lines)},
    )
    if artifact.digest == before:
        return artifact.digest, False
    files = sorted(set(imported.lines["file_digest"]))
    records = {TIMES: dg.MetadataValue.json({digest: times.get(digest, now) for digest in files})}
    shown = materialized(artifact, publishing, imported_page(imported, len(files), records)).metadata
    inputs.instance.report_runless_asset_event(
        dg.AssetMaterialization(
            IMPORTED, partition=domain.value, metadata=shown, tags={"dagster/data_version": artifact.digest}
        )
    )
    return artifact.digest, True


def import_times(instance: dg.DagsterInstance, domain: Domain) -> Mapping[str, Any]:
    """Digest of each imported file → time of its import (ISO)."""
    times: Mapping[str, Any] = latest_metadata(instance, IMPORTED, domain.value).get(TIMES, {})
    return times


def import_lock(work: Path) -> AbstractContextManager[None]:
    """Lock a domain's imports: of two concurrent ones, one would lose its rows."""
    return locked(work / "lock")
