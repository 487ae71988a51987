"""Agreement on published artifacts: from voters' folders and a domain's examples to one certified adapter."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from capibara_assets.consensus.aggregation.geometry import distances_of
from capibara_assets.consensus.agree import Agreement, Announce, agree
from capibara_assets.consensus.certificates.certificate import Remeasure
from capibara_assets.consensus.certificates.model import Certificate
from capibara_assets.consensus.choose.experts import validation_shards
from capibara_assets.consensus.election.keys import VoterKeys
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.consensus.remeasure import remeasured_problems
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.low_rank import inner_products
from capibara_assets.training.voter_manifest import VoterManifest

if TYPE_CHECKING:
    import polars as pl

    from capibara_assets.storage.artifact import Artifact


def agree_on_voters(
    base: Base,
    folder: Path,
    examples: "pl.DataFrame",
    recipe: ConsensusRecipe,
    context: Mapping[str, str],
    missing: Collection[str] = (),
    keys: VoterKeys | None = None,
    announce: Announce | None = None,
) -> Agreement:
    """Run `agree` on a published `voters/` folder and the domain's examples; voter i judges on the i-th shard.

    Args:
        folder: one subfolder per voter.
        examples: table of `Example`; its validation split is cut into shards.
        context: domain and digests of the inputs, for the certificate.
        missing: registered voters that did not finish: they count in n (and so in f), and are rejected.
        keys: long-lived keys, of voters that have one.
        announce: publishes the election, before the first ballot.

    Raises:
        ConsensusError, InputError: as `agree`; no voter at all; no validation examples.
    """
    voters = {path.name: path for path in sorted(folder.iterdir()) if path.is_dir()} if folder.is_dir() else {}
    voters |= {name: folder / name for name in missing}
    if not voters:
        raise InputError(f"no voters in {folder}: train the domain first")
    validation, shards = validation_shards(base, voters, examples, recipe)
    return agree(
        base, voters, validation, shards, recipe, context, privacy=read_privacy(voters), keys=keys, announce=announce
    )


def agree_on_artifacts(
    base: Base,
    adapters: "Artifact",
    dataset: "Artifact",
    recipe: ConsensusRecipe,
    keys: VoterKeys | None = None,
    announce: Announce | None = None,
) -> Agreement:
    """Run `agree_on_voters` on a domain's `trained_adapters` and `moe_dataset`, and add the distances between voters.

    Raises:
        ConsensusError, InputError: as `agree_on_voters`.
    """
    voters = adapters.directory("voters")
    context = {
        "domain": str(adapters.partition),
        "trained_adapters": adapters.digest,
        "moe_dataset": dataset.digest,
    }
    missing = adapters.document("summary")["missing"]
    agreement = agree_on_voters(base, voters, dataset.frame("examples"), recipe, context, missing, keys, announce)
    return replace(agreement, distances=attested_distances(voters, agreement.certificate.model_dump(mode="json")))


def choice_again(base: Base, dataset: "Artifact", recipe: ConsensusRecipe) -> Remeasure:
    """A function for `verify_certificate` that repeats the choice with the base model and the dataset.

    Args:
        recipe: how much of each shard a vote reads.
    """

    def remeasure(certificate: Certificate, voters: Mapping[str, Path]) -> list[str]:
        validation, shards = validation_shards(base, voters, dataset.frame("examples"), recipe)
        return remeasured_problems(certificate, voters, base, validation, shards, recipe)

    return remeasure


def read_privacy(folders: Mapping[str, Path]) -> dict[str, Any] | None:
    """Read the parameters and epsilon of each voter trained with differential privacy from its manifest."""
    stated = {name: VoterManifest.readable(folder).privacy for name, folder in sorted(folders.items())}
    return {name: privacy for name, privacy in stated.items() if privacy is not None} or None


def attested_distances(folder: Path, certificate: Mapping[str, Any]) -> dict[str, Any]:
    """Distances between the deltas of all voters that attestation accepted, also those that the vote rejected.

    The certificate has the distances between accepted voters only, which are what the rule saw; the chart shows all.

    Args:
        folder: `voters/` with the adapters of the voters in the certificate.
        certificate: as a JSON document.

    Returns:
        "order": names, as in the certificate; "distances": (n, n) Frobenius norms of differences of deltas.
    """
    order = [voter["name"] for voter in certificate["voters"] if voter["stage"] != "attestation"]
    gram = inner_products([read_adapter(folder / name) for name in order])
    return {"order": order, "distances": np.sqrt(distances_of(gram)).tolist()}
