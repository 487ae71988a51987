"""Adoption of an adapter trained on a TPU slice as a domain's trained adapters, for the command line."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import dagster as dg

from capibara_assets.assets.inputs import Inputs, latest_digest, materialized
from capibara_assets.assets.training import voters_checkpointed
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.metadata.training_entries import training_page

if TYPE_CHECKING:
    from capibara_assets.planning.writers.jax_config import JaxConfig
    from capibara_assets.resources import BaseModel
    from capibara_assets.storage.artifact import Artifact
    from capibara_assets.storage.store import ArtifactStore
    from capibara_assets.training.standalone.from_slice import SliceRun

TRAINED_ADAPTERS = "trained_adapters"


def require_adoptable(inputs: Inputs, base_model: "BaseModel", config: "JaxConfig") -> "Artifact":
    """The domain's dataset, which a slice's plan has to train on for the graph to take its adapter.

    Raises:
        InputError: the export is of another dataset than the latest, or there is none; the base model in a folder is
            another than the deployment's.
    """
    from capibara_assets.modeling.files import base_digest
    from capibara_assets.storage.mirror import is_remote
    from capibara_assets.training.standalone.from_slice import exported_dataset

    domain = Domain(config.domain)
    dataset, exported = inputs.artifact("moe_dataset", domain), exported_dataset(config)
    if exported != dataset.digest:
        raise InputError(
            f"{config.data} is of moe_dataset[{domain}] {(exported or 'unknown')[:12]}, the latest is"
            f" {dataset.digest[:12]}: `capibara dataset export {domain} --storage ROOT` writes that there"
        )
    own = inputs.base_digest(base_model)
    if not is_remote(config.base) and (actual := base_digest(Path(config.base))) != own:
        raise InputError(f"{config.base} is base model {actual[:12]}, the deployment's is {own[:12]}: copy it there")
    return dataset


def adopt_slice(
    instance: dg.DagsterInstance, store: "ArtifactStore", base_model: "BaseModel", run: "SliceRun", plan: Path
) -> tuple["Artifact", bool]:
    """Publish an adapter from a slice as `trained_adapters` of its domain: one voter, on all groups.

    The vote, merges, evaluation and promotion read it next, as what the graph trained.

    Args:
        plan: folder of the files that were run.

    Returns:
        The artifact, and whether it is another than the domain's latest.

    Raises:
        InputError: it was trained on another dataset or base model than the latest, or gave no adapter.
    """
    from capibara_assets.lineage.card import write_voter_cards
    from capibara_assets.storage.commit import copy_folder
    from capibara_assets.training.standalone.from_slice import assembled, request_of
    from capibara_assets.training.standalone.materials import VOLATILE

    config, domain = run.config, Domain(run.config.domain)
    inputs = Inputs(instance, store, code_version="1")
    dataset = require_adoptable(inputs, base_model, config)
    if run.dataset != dataset.digest:
        raise InputError(
            f"the slice was trained on moe_dataset[{domain}] {(run.dataset or 'unknown')[:12]}, the latest is"
            f" {dataset.digest[:12]}: train a plan anew, in another --out and below another storage root"
        )
    before = latest_digest(instance, TRAINED_ADAPTERS, domain)
    with TemporaryDirectory(prefix="capibara-slice-") as name:
        folder = Path(name)
        base = (base_model.path, inputs.base_digest(base_model))
        request = request_of(config, dataset, base, folder / "work")
        inputs.setting("slice", request.input_digest())
        summary = assembled(request, run)
        copy_folder(plan, folder / "launch")
        voters = request.out / "voters"
        write_voter_cards(voters, dataset, dict.fromkeys(summary["voters"], (0, 1)), base_model.card_name, base[1])
        artifact = inputs.publish(
            TRAINED_ADAPTERS,
            domain,
            trees={"voters": voters, "launch": folder / "launch"},
            documents={"summary": summary},
            volatile=VOLATILE,
            checkpoints=voters_checkpointed(inputs, request, summary["voters"]),
        )
        page = training_page(summary, voters)
    if artifact.digest == before:
        return artifact, False
    instance.report_runless_asset_event(
        dg.AssetMaterialization(
            TRAINED_ADAPTERS,
            partition=domain.value,
            metadata=materialized(artifact, inputs, page).metadata,
            tags={"dagster/data_version": artifact.digest},
        )
    )
    return artifact, True
