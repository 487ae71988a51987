"""Imported examples of a forgotten tenant: no executions, so `capibara forget` names them with what takes them out."""

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from capibara_assets.lineage.records import Results

_FORMER = "a former result, which nothing reads: delete that folder"


def imports_left(results: "Results", tenant: str | None) -> list[str]:
    """Each file and dataset that holds imported examples of a tenant, in sentences."""
    from capibara_assets.lineage.columns import columns

    if tenant is None:
        return []
    left = []
    for artifact in results.store.list("imported_examples"):
        theirs = columns(artifact, "lines", ["file", "tenant"]).filter(tenant=tenant)
        for file, count in theirs["file"].value_counts(sort=True).iter_rows():
            command = f"`capibara dataset remove {file} --domain {artifact.partition}` takes them out of new datasets"
            then = command if results.is_current(artifact) else _FORMER
            left.append(f"{count} imported lines of {file} in {artifact.path}: {then}")
    for artifact in results.store.list("moe_dataset"):
        held = columns(artifact, "examples", ["provenance", "tenants"])
        theirs = held.filter(pl.col("tenants").list.contains(tenant), pl.col("provenance") == "imported")
        if theirs.height:
            then = "run it anew once the files are removed" if results.is_current(artifact) else _FORMER
            left.append(f"{theirs.height} imported examples in {artifact.path}: {then}")
    return sorted(left)
