"""What an asset reads, and a record of it: the digests that Dagster's latest materializations name (never "latest")."""

import json
import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pydantic

from capibara_assets import __version__
from capibara_assets.assets.settings import setting_digest
from capibara_assets.domains import DOMAINS, WHOLE, Domain
from capibara_assets.errors import InputError
from capibara_assets.metadata.column_lineage import COLUMN_LINEAGE, column_lineage
from capibara_assets.metadata.page import AssetPage
from capibara_assets.resources import BaseModel, Recipes, Store
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.manifest import title_of

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.modeling.base import Base
    from capibara_assets.storage.checkpointed import Checkpointed
    from capibara_assets.storage.records import Record
    from capibara_assets.storage.store import Artifact, ArtifactStore

DIGEST = "digest"
CHECKPOINTS = "checkpoints"
INPUTS = "inputs"
COLUMNS = "columns"  # under Dagster's own key they would stand before the verdict, a page of them
SECONDS = "seconds"
HELD = "capibara/held"  # run tag: JSON list of the results (`name|partition`) that failed a blocking check


def latest_metadata(instance: dg.DagsterInstance, name: str, partition: str | None = None) -> Mapping[str, Any]:
    """Metadata of an asset (partition)'s latest materialization; empty if there is none."""
    record = _latest(instance, name, partition)
    return {} if record is None else values_of(record)


def latest_time(instance: dg.DagsterInstance, name: str, partition: str | None = None) -> float | None:
    """Unix time of an asset (partition)'s last materialization; None if there is none."""
    record = _latest(instance, name, partition)
    return None if record is None else record.timestamp


def _latest(instance: dg.DagsterInstance, name: str, partition: str | None) -> dg.EventLogRecord | None:
    wanted = dg.AssetRecordsFilter(dg.AssetKey(name), asset_partitions=[partition] if partition else None)
    return next(iter(instance.fetch_materializations(wanted, limit=1).records), None)


def values_of(record: dg.EventLogRecord) -> dict[str, Any]:
    """Metadata of a materialization's record, as plain values."""
    made = record.asset_materialization
    return {key: value.value for key, value in made.metadata.items()} if made is not None else {}


def latest_digest(instance: dg.DagsterInstance, name: str, partition: str | None = None) -> str | None:
    """Digest published by the latest materialization of an asset (partition); None if there is none."""
    return latest_metadata(instance, name, partition).get(DIGEST)


def latest_by_partition(instance: dg.DagsterInstance, name: str) -> dict[str | None, Mapping[str, Any]]:
    """Partition (None for an asset without any) → metadata of its latest materialization; in two queries."""
    key = dg.AssetKey(name)
    latest = instance.get_latest_storage_id_by_partition(key, dg.DagsterEventType.ASSET_MATERIALIZATION)
    wanted = dg.AssetRecordsFilter(key, storage_ids=list(latest.values())) if latest else key
    return {
        record.partition_key: values_of(record)
        for record in instance.fetch_materializations(wanted, limit=len(latest) or 1).records
        if record.asset_materialization
    }


def latest_digests(instance: dg.DagsterInstance, name: str) -> dict[str | None, str]:
    """Partition → digest that its latest materialization published, as `latest_by_partition`."""
    return {where: str(said[DIGEST]) for where, said in latest_by_partition(instance, name).items() if DIGEST in said}


def source_name(name: str, partition: str | None = None) -> str:
    """How a record names an upstream result: `name|partition`."""
    return f"{name}|{partition or WHOLE}"


@dataclass(frozen=True)
class Origin:
    """Provenance and description of a checkpoint.

    Attributes:
        recipe: what it was trained or merged with.
        base, dataset: digests of the base model, and of the one dataset that it was trained on.
        parent: id of the checkpoint whose weights it has.
        metrics: what was measured; numbers that are not finite are left out.
        tags: such as the voter's name.
    """

    recipe: Mapping[str, Any] | pydantic.BaseModel
    base: str
    dataset: str | None = None
    step: int = 0
    parent: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    tags: tuple[str, ...] = ()

    def description(self) -> dict[str, Any]:
        """The fields of the checkpoint's description that the origin determines."""
        recipe = self.recipe.model_dump(mode="json") if isinstance(self.recipe, pydantic.BaseModel) else self.recipe
        return {
            "step": self.step,
            "parent": self.parent,
            "base_digest": self.base,
            "dataset_digest": self.dataset,
            "recipe": dict(recipe),
            "metrics": {name: value for name, value in self.metrics.items() if math.isfinite(value)},
            "tags": self.tags,
        }


@dataclass
class Inputs:
    """Reads upstream artifacts and recipes, and remembers which: the record goes into the artifact's manifest."""

    instance: dg.DagsterInstance
    store: "ArtifactStore"
    code_version: str = ""
    run_id: str | None = None
    held: frozenset[str] = frozenset()
    upstream: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    columns: dg.TableSchema | None = None
    """Of the first table that it published."""
    started: float = field(default_factory=time.monotonic)
    digests: Callable[[str], Mapping[str | None, str]] | None = None
    """What `latest_digests` says of an asset, for readers that ask often; None: each result is looked up anew."""

    @classmethod
    def of(cls, context: dg.AssetExecutionContext, store: Store) -> "Inputs":
        version = context.assets_def.code_versions_by_key.get(context.asset_key) if context.has_assets_def else None
        held = frozenset(json.loads(context.run.tags.get(HELD, "[]")))
        return cls(context.instance, store.open(), version or "", context.run_id, held)

    def artifact(self, name: str, partition: Domain | None = None) -> "Artifact":
        """The artifact that the latest materialization names.

        Raises:
            InputError: the asset (partition) was never materialized, or failed a blocking check.
        """
        given = self.available(name, partition)
        if given is None:
            where = title_of(name, partition)
            if source_name(name, partition) in self.held:
                raise InputError(f"{where} failed a blocking check: mend what the check names, then run it again")
            raise InputError(f"{where} is not materialized yet: materialize it first")
        return given

    def available(self, name: str, partition: Domain | None = None) -> "Artifact | None":
        """The same, or None if there is none (yet) that may be read; recorded, so that an arrival is a change."""
        source = source_name(name, partition)
        digest = None if source in self.held else self._latest(name, partition)
        self.upstream[source] = digest or ""
        return self.store.open(name, partition, digest) if digest else None

    def _latest(self, name: str, partition: Domain | None) -> str | None:
        if self.digests is None:
            return latest_digest(self.instance, name, partition)
        return self.digests(name).get(partition)

    def every(self, name: str, needed: Domain | None = None) -> "dict[Domain, Artifact]":
        """The artifacts of all domains that exist so far.

        Raises:
            InputError: that of `needed` is not among them.
        """
        artifacts = {
            domain: self.artifact(name, domain) if domain == needed else self.available(name, domain)
            for domain in DOMAINS
        }
        return {domain: artifact for domain, artifact in artifacts.items() if artifact is not None}

    def some(self, name: str) -> "dict[Domain, Artifact]":
        """The artifacts of all domains that exist so far, at least one.

        Raises:
            InputError: there is none.
        """
        artifacts = self.every(name)
        if not artifacts:
            raise InputError(f"{name} is not materialized yet for any domain: materialize it first")
        return artifacts

    def behind(self, artifact: "Artifact", name: str, without: Domain) -> "list[Artifact]":
        """The results of an asset, of the other domains, that an artifact was made of; not those that are gone since.

        Reading them through it adds no dependency: it changes with them, and its manifest records which they were.
        """
        upstream = artifact.manifest.inputs.get("upstream", {})
        wanted = [(domain, upstream.get(source_name(name, domain))) for domain in DOMAINS if domain != without]
        return [
            self.store.open(name, d, digest) for d, digest in wanted if digest and self.store.holds(name, d, digest)
        ]

    def recipe(self, recipes: Recipes, name: str, model: type[pydantic.BaseModel]) -> Any:
        """A recipe, whose digest counts as an input."""
        self.settings[f"recipe:{name}"] = recipes.digest(name)
        return recipes.load(name, model)

    def setting(self, name: str, value: Any) -> None:
        """Anything else that the result depends on: a base model's digest, a hardware target."""
        self.settings[name] = setting_digest(value)

    def base(self, base_model: BaseModel) -> "Base":
        """The base model, whose digest counts as an input."""
        from capibara_assets.modeling.base import load_base

        base = load_base(base_model.path)
        self.setting("base_model", base.digest)
        return base

    def base_digest(self, base_model: BaseModel) -> str:
        """The digest of the base model, which counts as an input, without loading its weights."""
        from capibara_assets.modeling.files import base_digest

        digest = base_digest(base_model.path)
        self.setting("base_model", digest)
        return digest

    def previous(self, name: str) -> "Artifact | None":
        """The previous result of an unpartitioned asset: its own state, not an input."""
        digest = latest_digest(self.instance, name)
        return self.store.open(name, None, digest) if digest else None

    def publish(
        self,
        name: str,
        partition: Domain | None,
        *,
        tables: "Mapping[str, tuple[type[Record], pl.DataFrame | Path]] | None" = None,
        documents: Mapping[str, Any] | None = None,
        trees: Mapping[str, Path] | None = None,
        volatile: Collection[str] = (),
        checkpoints: "Mapping[str, Checkpointed] | None" = None,
    ) -> "Artifact":
        """`ArtifactStore.publish`, with the recorded inputs.

        Raises:
            InputError: it holds a secret that the readers of logs redacted; as `ArtifactStore.publish`.
        """
        from capibara_assets.metadata.tables import column_schema
        from capibara_assets.storage.store import Table

        frames = {key: frame for key, (_, frame) in (tables or {}).items()}
        require_no_secrets(self.store, name, frames, documents or {})
        self.columns = next((column_schema(model) for model, _ in (tables or {}).values()), None)
        typed = {key: Table(model, frame) for key, (model, frame) in (tables or {}).items()}
        return self.store.publish(
            name,
            partition,
            tables=typed,
            documents=documents,
            trees=trees,
            inputs=self.record(),
            volatile=volatile,
            checkpoints=checkpoints,
        )

    def checkpointed(self, model: str, origin: Origin, beside: Collection[str] = ()) -> "Checkpointed":
        """Describe a folder to publish as a checkpoint of `model`, made from all recorded inputs.

        Args:
            beside: patterns of files in the folder that are no part of the checkpoint.
        """
        from capibara_assets.storage.checkpointed import Checkpointed

        about = {
            "model": model,
            **origin.description(),
            "code_version": __version__,
            "sources": {_where(source): digest for source, digest in sorted(self.upstream.items()) if digest},
            "run": self.run_id,
        }
        return Checkpointed(about, beside)

    def record(self) -> dict[str, Any]:
        """For the manifest: upstream digests, settings, code version."""
        return {"upstream": self.upstream, "settings": self.settings, "code_version": self.code_version}

    def digest(self) -> str:
        """One digest of the record: names the folder of work in progress."""
        return sha256_bytes(canonical_json(self.record()))


def _where(source: str) -> str:
    """`name|partition` as people write it."""
    name, _, partition = source.partition("|")
    return name if partition == WHOLE else f"{name}[{partition}]"


def require_no_secrets(
    store: "ArtifactStore", name: str, tables: Mapping[str, Any], documents: Mapping[str, Any]
) -> None:
    """Last check before publishing (docs/security.md). Raises InputError: the content holds a redacted secret."""
    from capibara_assets.executions.ingest.ledger import seen_secrets
    from capibara_assets.executions.secrets.gate import held_back

    if secrets := held_back(tables, documents, seen_secrets(store.work)):
        raise InputError(
            f"{name} is not published: it holds a secret that was redacted in the logs: {'; '.join(secrets)}. Read the "
            "playbooks again (`capibara run --select ace_playbooks`) or remove it from the files that were imported"
        )


def materialized(artifact: "Artifact", inputs: Inputs, page: AssetPage) -> dg.MaterializeResult:
    """Result of every asset: digest as data version, metadata for readers, and recorded inputs.

    Raises:
        InputError: the page shows a secret that the readers of logs redacted.
    """
    before = latest_metadata(inputs.instance, artifact.name, artifact.partition)
    size = sum(entry.bytes for entry in artifact.manifest.files.values())
    cost = {
        **_columns(artifact.name, inputs.columns),
        SECONDS: round(time.monotonic() - inputs.started, 2),
        "mib": round(size / 2**20, 3),
    }
    records = {
        "artifact": dg.MetadataValue.path(str(artifact.path)),
        **({CHECKPOINTS: dg.MetadataValue.json(artifact.checkpoints)} if artifact.checkpoints else {}),
        INPUTS: dg.MetadataValue.json(inputs.record()),
        DIGEST: artifact.digest,
    }
    shown = page.entries(before, cost, records)
    require_no_secrets(inputs.store, artifact.name, {}, {"metadata": {key: str(one) for key, one in shown.items()}})
    return dg.MaterializeResult(metadata=shown, data_version=dg.DataVersion(artifact.digest))


def _columns(name: str, columns: dg.TableSchema | None) -> dict[str, Any]:
    """The columns of an asset's table, and the upstream columns that each is made from."""
    if columns is None:
        return {}
    lineage = column_lineage(name, [column.name for column in columns.columns])
    return {COLUMNS: columns, **({COLUMN_LINEAGE: lineage} if lineage else {})}
