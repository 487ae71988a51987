"""Artifacts made by hand: in a store of the test, and known to its Dagster instance as an asset leaves them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import polars as pl
from dagster._core.definitions.data_version import DATA_VERSION_TAG
from safetensors.numpy import save_file

from capibara_assets.assets.inputs import DIGEST, INPUTS, Inputs
from capibara_assets.domains import Domain
from capibara_assets.modeling.files import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from capibara_assets.resources import Store
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.checkpointed import Checkpointed
from capibara_assets.storage.records import Record


def adapter_folder(folder: Path, seed: int = 0) -> Path:
    """A small adapter in PEFT's format."""
    folder.mkdir(parents=True)
    weights = np.random.default_rng(seed).random((8, 8), np.float32)
    save_file({f"base_model.model.l.lora_{half}.weight": weights for half in "AB"}, folder / ADAPTER_WEIGHTS)
    (folder / ADAPTER_CONFIG).write_text('{"peft_type": "LORA", "r": 8}')
    return folder


@dataclass(frozen=True)
class Published:
    """A store and an instance of a test."""

    instance: dg.DagsterInstance
    store: Store

    @classmethod
    def afresh(cls, instance: dg.DagsterInstance, folder: Path) -> "Published":
        """A new store in `folder`, and the instance with its history wiped (making one takes longer than that)."""
        instance.wipe()
        return cls(instance, Store(root=str(folder / "store"), work=str(folder / "work")))

    def inputs(self) -> Inputs:
        return Inputs(self.instance, self.store.open())

    def put(
        self,
        name: str,
        partition: Domain | None = None,
        *,
        tables: Mapping[str, tuple[type[Record], pl.DataFrame]] | None = None,
        documents: Mapping[str, Any] | None = None,
        trees: Mapping[str, Path] | None = None,
        upstream: Mapping[str, str] | None = None,
        checkpoints: Mapping[str, Checkpointed] | None = None,
    ) -> Artifact:
        """Publish, and report the materialization that names it."""
        inputs = self.inputs()
        inputs.upstream.update(upstream or {})
        artifact = inputs.publish(
            name, partition, tables=tables, documents=documents, trees=trees, checkpoints=checkpoints
        )
        self.instance.report_runless_asset_event(
            dg.AssetMaterialization(
                name,
                partition=partition.value if partition else None,
                metadata={DIGEST: artifact.digest, INPUTS: dg.MetadataValue.json(inputs.record())},
                tags={DATA_VERSION_TAG: artifact.digest},
            )
        )
        return artifact
