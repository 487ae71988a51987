"""The result of a round of several organisations as a domain's consensus checkpoint, from the command line."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import dagster as dg

from capibara_assets.assets.inputs import Inputs, Origin, latest_digest, materialized
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.metadata.consensus_entries import certificate_page

if TYPE_CHECKING:
    from capibara_assets.consensus.rounds.adopting import RoundResult
    from capibara_assets.resources import BaseModel
    from capibara_assets.storage.artifact import Artifact
    from capibara_assets.storage.store import ArtifactStore

CONSENSUS_CHECKPOINT = "consensus_checkpoint"


def adopt_round(
    instance: dg.DagsterInstance, store: "ArtifactStore", base_model: "BaseModel", result: "RoundResult"
) -> tuple["Artifact", bool]:
    """Publish a round's adapter as `consensus_checkpoint` of its domain, with its certificate and the voters' own.

    It is a result like the graph's own: merges, evaluation and promotion read it next. A training of the domain leads
    to a vote of the graph again, which then follows it.

    Returns:
        The artifact, and whether it is another than the domain's latest.

    Raises:
        InputError: the round is of no domain here, or of another base model than the deployment's; or what a voter
            signed holds a secret by its shape, with which no export of the deployment would pass again.
    """
    from capibara_assets.consensus.agree import CONSENSUS, VOLATILE
    from capibara_assets.consensus.choose.choosing import BASE
    from capibara_assets.consensus.rounds.adopted import ROUND, VOTERS
    from capibara_assets.lineage.card import consensus_subject, write_model_card
    from capibara_assets.lineage.secret_scan import require_unshaped
    from capibara_assets.storage.commit import copy_folder

    terms, certificate, losses = result.terms, result.certificate, result.losses()
    if terms.domain not in {domain.value for domain in Domain}:
        raise InputError(f"round {terms.digest[:12]} is about {terms.domain!r}, which is no domain here")
    domain, inputs = Domain(terms.domain), Inputs(instance, store, code_version="1")
    if (own := inputs.base_digest(base_model)) != terms.base_digest:
        raise InputError(
            f"round {terms.digest[:12]} is about the base model {terms.base_digest[:12]}, the deployment's is"
            f" {own[:12]}: its adapter would not fit"
        )
    require_unshaped([*result.adapter.glob("*.json"), *(file for files in result.voters.values() for file in files)])
    inputs.setting(ROUND, terms.digest)
    before = latest_digest(instance, CONSENSUS_CHECKPOINT, domain)
    origin = Origin(
        terms.recipe,
        terms.base_digest,
        metrics={"validation_loss": losses[CONSENSUS], "base_validation_loss": losses[BASE]},
        tags=(ROUND, terms.digest),
    )
    with TemporaryDirectory(prefix="capibara-round-") as name:
        folder = Path(name)
        copy_folder(result.adapter, folder / "adapter")
        for voter, files in result.voters.items():
            (folder / VOTERS / voter).mkdir(parents=True)
            for file in files:
                shutil.copyfile(file, folder / VOTERS / voter / file.name)
        subject = consensus_subject(domain, base_model.card_name, terms.base_digest, certificate.digest)
        write_model_card(folder / "adapter", store, {}, subject)
        artifact = inputs.publish(
            CONSENSUS_CHECKPOINT,
            domain,
            trees={"adapter": folder / "adapter", VOTERS: folder / VOTERS},
            documents=result.documents(),
            volatile=VOLATILE,
            checkpoints={"adapter": inputs.checkpointed(f"{domain}/consensus", origin)},
        )
    if artifact.digest == before:
        return artifact, False
    page = certificate_page(certificate.model_dump(mode="json"), losses)
    shown = materialized(artifact, inputs, page).metadata
    instance.report_runless_asset_event(
        dg.AssetMaterialization(
            CONSENSUS_CHECKPOINT,
            partition=domain.value,
            metadata=shown,
            tags={"dagster/data_version": artifact.digest},
        )
    )
    return artifact, True
