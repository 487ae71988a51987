"""`capibara consensus`: verify the certificate of a consensus, keep voters' keys, hold votes of organisations."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from capibara_assets.cli.checkpoint.consensus_keys import keys_group
from capibara_assets.cli.checkpoint.rounds import ORGANISERS
from capibara_assets.cli.terminal.documents import AS_JSON
from capibara_assets.cli.terminal.exits import FOUND, UNDECIDED
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.cli.terminal.tables import say
from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError
from capibara_assets.storage.foreign import require_inside

if TYPE_CHECKING:
    from capibara_assets.consensus.certificates.certificate import Remeasure, Verification
    from capibara_assets.consensus.certificates.public_record import PublicRecord
    from capibara_assets.storage.artifact import Artifact
    from capibara_assets.storage.store import ArtifactStore

WITH_RESERVATIONS = UNDECIDED
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@with_example("capibara consensus verify certificate.json")
@click.group()
def consensus() -> None:
    """Verify the certificate of a consensus, manage voters' keys, hold a vote of several organisations."""


for each in (keys_group, *ORGANISERS):
    consensus.add_command(each)


@with_example("capibara consensus verify certificate.json --keys registry.json")
@consensus.command("verify")
@click.argument("cert", type=click.Path(path_type=Path))
@click.option("--voters", type=_FOLDER, help="Folder with one adapter folder per voter name; default: beside CERT.")
@click.option("--result", type=_FOLDER, help="Folder of the published adapter; default: beside CERT.")
@click.option(
    "--keys",
    type=_FILE,
    help="Registry of public keys (`capibara consensus keys`); CERT must use these.",
)
@click.option(
    "--remeasure",
    is_flag=True,
    help="Also measure every candidate's loss again: needs the deployment's base model and dataset, and minutes.",
)
@click.option("--election", type=_FILE, help="The election as it was published before the vote; CERT must be of it.")
@click.option("--log", type=_FILE, help="Log of certificates; CERT must stand in it, as its election's only one.")
@click.option("--log-head", metavar="DIGEST", help="Digest of a line that you saw in that log; it must still be there.")
@AS_JSON
@shows_progress("verifying")
def verify(
    cert: Path,
    voters: Path | None,
    result: Path | None,
    keys: Path | None,
    remeasure: bool,
    election: Path | None,
    log: Path | None,
    log_head: str | None,
    as_json: bool,
) -> None:
    """Recompute what the certificate CERT states, from the inputs that are available, and compare.

    Checks signatures, the vote count, attestation, the second round, every candidate, and the consensus adapter itself.
    For a certificate in the deployment's store the inputs come from that store. Exit code 0: all of it was checked and
    holds; 1: something differs; 3: it holds with reservations, which are listed: what could not be checked, keys nobody
    vouches for, no second round, thresholds below the shipped ones.
    """
    if remeasure and (voters is not None or result is not None):
        raise click.UsageError("--remeasure reads all inputs from the deployment's store: leave --voters, --result out")
    from capibara_assets.consensus.certificates.public_record import PublicRecord
    from capibara_assets.consensus.election.keys import read_registry

    known = None if keys is None else read_registry(keys)
    record = PublicRecord.read(election, log, log_head)
    show(str(cert), {"certificate": str(cert)}, _verified(cert, voters, result, known, remeasure, record), as_json)


def show(name: str, about: dict[str, str], verification: "Verification", as_json: bool) -> None:
    """Print a verification and exit by its result: 0 proven, 3 holds with reservations, 1 contradicted.

    Args:
        about: what the JSON document says beside the findings.
    """
    if as_json:
        findings = {"ok": verification.ok, "proven": verification.proven, **asdict(verification)}
        click.echo(json.dumps({**about, **findings}))
    else:
        holds = "holds" if verification.proven else "holds, with reservations" if verification.ok else "does not hold"
        say(f"{name}: the certificate {holds}")
        for title, lines in (
            ("problems", verification.problems),
            ("done again", verification.recomputed),
            ("could not be checked", verification.unchecked),
            ("proves less than usual", verification.reservations),
            ("not proven by any such certificate", verification.unproven),
            ("inputs forgotten", verification.forgotten),
        ):
            if lines:
                click.echo(f"{title}:")
                for line in lines:
                    say(f"  {line}")
    if not verification.proven:
        raise SystemExit(WITH_RESERVATIONS if verification.ok else FOUND)


def _verified(
    cert: Path,
    voters: Path | None,
    result: Path | None,
    keys: dict[str, str] | None,
    remeasure: bool,
    record: "PublicRecord",
) -> "Verification":
    from capibara_assets.consensus.certificates.certificate import read_certificate, verify_certificate

    if voters is None and result is None:
        published = _published(cert, keys, remeasure, record)
        if published is not None:
            return published
    if remeasure:
        raise InputError(f"{cert} is not in the deployment's store: base model and examples of its vote are not known")
    folders = None
    if voters is not None:
        folders = {voter.name: voters / voter.name for voter in read_certificate(cert).voters}
        if not any(folder.exists() for folder in folders.values()):
            named = ", ".join(folders)
            raise InputError(f"{voters} holds no adapter of {named}: give the folder with one folder a voter")
        for folder in folders.values():
            require_inside(folder, voters)
    return verify_certificate(cert, folders, result=result, keys=keys, record=record)


def _published(
    cert: Path, keys: dict[str, str] | None, remeasure: bool, record: "PublicRecord"
) -> "Verification | None":
    """Verify a certificate of the deployment's store with the store's own artifacts; None for other certificates."""
    folder = cert.absolute().parent
    if folder.parent.parent.name != "consensus_checkpoint" or not (folder / "manifest.json").is_file():
        return None
    from capibara_assets.cli.graph.results import open_results
    from capibara_assets.lineage.adapters import verify_published

    deployment = Deployment.from_environment()
    with open_results(deployment) as results:
        for artifact in results.store.list("consensus_checkpoint"):
            if artifact.digest == folder.name and artifact.partition == folder.parent.name:
                again = _remeasuring(deployment, results.store, artifact) if remeasure else None
                return verify_published(results.store, artifact, keys, again, record)
    return None


def _remeasuring(deployment: Deployment, store: "ArtifactStore", artifact: "Artifact") -> "Remeasure":
    """Makes the choice again from the deployment's base model and consensus recipe and the vote's dataset."""
    from capibara_assets.consensus.agree_on_artifacts import choice_again
    from capibara_assets.consensus.recipe import ConsensusRecipe
    from capibara_assets.modeling.base import load_base
    from capibara_assets.resources import Recipes
    from capibara_assets.storage.store import MissingArtifact

    digest = artifact.document("certificate")["context"]["moe_dataset"]
    try:
        dataset = store.open("moe_dataset", artifact.partition, digest)
    except MissingArtifact as error:
        raise InputError(f"the dataset of the vote is gone, its losses cannot be measured again: {error}") from error
    recipe = Recipes(profile=deployment.profile, folder=deployment.recipes).load("consensus", ConsensusRecipe)
    return choice_again(load_base(Path(deployment.base_model)), dataset, recipe)
