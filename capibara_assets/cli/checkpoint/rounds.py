"""`capibara consensus invite`, `serve`, `close`, `adopt`, and `capibara voter`: votes of several organisations."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from capibara_assets.cli.terminal.documents import AS_JSON, echo_result
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.numbers import PORT
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import DOMAINS
from capibara_assets.errors import InputError
from capibara_assets.processes.serving import require_free

if TYPE_CHECKING:
    from capibara_assets.consensus.rounds.mailbox import Mailbox
    from capibara_assets.consensus.rounds.round import RoundExamples
    from capibara_assets.modeling.base import Base

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_PLACE = click.argument("place")
_ROUND = click.option("--round", "digest", required=True, help="The round's digest, as the organiser told it to you.")
_BASE = click.option("--base", type=click.Path(path_type=Path), help="Base model; default: the deployment's.")
_KEY = click.option("--key", type=_FILE, required=True, help="Private key (`capibara consensus keys new`).")
_OUT = click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder of the result."
)


@with_example(
    "capibara voter submit https://acme.example/sql --round DIGEST --voter acme --key acme.key --adapter adapter"
)
@click.group()
def voter() -> None:
    """Take part in a vote of several organisations: submit an adapter, judge the others'."""


@with_example(
    "capibara voter submit https://acme.example/sql --round DIGEST --voter acme --key acme.key --adapter adapter"
)
@voter.command("submit")
@_PLACE
@_ROUND
@click.option("--voter", "name", required=True, help="Your name in the round.")
@_KEY
@click.option("--adapter", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True)
@AS_JSON
@shows_progress("handing in")
def submit(place: str, digest: str, name: str, key: Path, adapter: Path, as_json: bool) -> None:
    """Submit the LoRA adapter in a folder, signed; the first one before the deadline counts."""
    from capibara_assets.consensus.rounds.messages import SUBMITTED
    from capibara_assets.consensus.rounds.taking_part import key_of
    from capibara_assets.consensus.rounds.taking_part import submit as hand_in
    from capibara_assets.lineage.secret_scan import require_unshaped

    require_unshaped(adapter / name for name in SUBMITTED)
    with _opened(place, digest) as (box, _):
        message = hand_in(box, name, key_of(box.terms, name, key), adapter)
    told = f"{name}: handed in as {message.head.name}; the deadline is {box.terms.deadline}"
    echo_result({"voter": name, "message": message.head.name, "deadline": str(box.terms.deadline)}, told, as_json)


@with_example("capibara voter vote https://acme.example/sql --round DIGEST --voter acme --key acme.key --out result")
@voter.command("vote")
@_PLACE
@_ROUND
@click.option("--voter", "name", required=True, help="Your name in the round.")
@_KEY
@_BASE
@_OUT
@click.option(
    "--patience", default=3600.0, type=click.FloatRange(min=0), help="Seconds to wait for the organiser's next step."
)
@AS_JSON
@shows_progress("voting")
def vote(
    place: str, digest: str, name: str, key: Path, base: Path | None, out: Path, patience: float, as_json: bool
) -> None:  # fmt: skip
    """Judge the others' adapters on your shard, sign, confirm, and keep the result with its certificate."""
    from capibara_assets.consensus.rounds.submissions import documents
    from capibara_assets.consensus.rounds.taking_part import vote_in

    with _opened(place, digest) as (box, examples):
        result = vote_in(box, examples, _base(base), name, key, out, patience)
    certificate = out / "certificate.json"
    shown = documents(result.named)
    told = [*_named(shown), f"{certificate}: check it with `capibara consensus verify`"]
    echo_result({"certificate": certificate, "named": shown}, told, as_json)


@with_example(
    "capibara consensus invite rounds/sql --keys registry.json --key organiser.key --domain sql"
    " --examples examples.parquet --targets q_proj,v_proj --deadline 2027-01-31T18:00:00Z"
)
@click.command("invite")
@_PLACE
@click.option("--keys", type=_FILE, required=True, help="Registry of the voters' public keys.")
@click.option("--key", type=_FILE, required=True, help="Your private key; the round is closed with it.")
@click.option("--domain", type=click.Choice([domain.value for domain in DOMAINS]), required=True)
@click.option("--examples", type=_FILE, required=True, help="examples.parquet of the domain's moe_dataset.")
@click.option("--targets", required=True, help="Modules that adapters change: q_proj,v_proj,…")
@click.option(
    "--deadline", type=click.DateTime(["%Y-%m-%dT%H:%M:%SZ"]), required=True, help="Deadline of submissions, in UTC."
)
@click.option("--max-rank", default=64, type=click.IntRange(min=1), help="Largest rank of an adapter.")
@click.option(
    "--max-bytes", default=256 << 20, type=click.IntRange(min=1), help="Largest message of a voter, in bytes."
)
@_BASE
@AS_JSON
@shows_progress("writing the round")
def invite(
    place: str, keys: Path, key: Path, domain: str, examples: Path, targets: str, deadline: datetime, max_rank: int,
    max_bytes: int, base: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Write a round to PLACE (a folder or a bucket), and print its digest, which every voter has to be told."""
    import polars as pl

    from capibara_assets.consensus.choose.experts import numbered_shards
    from capibara_assets.consensus.election.ballots import public_key
    from capibara_assets.consensus.election.keys import read_private_key, read_registry
    from capibara_assets.consensus.recipe import ConsensusRecipe
    from capibara_assets.consensus.rounds.places import open_round_place
    from capibara_assets.consensus.rounds.round import RoundExamples, write_round
    from capibara_assets.resources import Recipes
    from capibara_assets.storage.digests import sha256_file
    from capibara_assets.storage.foreign import read_by_library, require_plain

    if place.startswith(("http:", "https:")):
        raise InputError("a round is written into the folder that the server serves: give that folder")
    deployment, registry, loaded = Deployment.from_environment(), read_registry(keys), _base(base)
    recipe = Recipes(profile=deployment.profile, folder=deployment.recipes).load("consensus", ConsensusRecipe)
    require_plain(examples)
    with read_by_library(f"{examples} is no table of examples"):
        table = pl.read_parquet(examples)
    numbers = {name: number for number, name in enumerate(sorted(registry))}
    validation, shards = numbered_shards(loaded, numbers, table, recipe)
    with TemporaryDirectory(prefix="capibara-round-") as work:
        terms = write_round(
            open_round_place(place, Path(work)), loaded, RoundExamples(tuple(validation), shards), recipe,
            domain=domain, dataset={"table": sha256_file(examples), "rule": "validation split, whole groups"},
            targets=targets.split(","), max_rank=max_rank, deadline=deadline.replace(tzinfo=UTC), max_bytes=max_bytes,
            keys=registry, organiser=public_key(read_private_key(key)),
        )  # fmt: skip
    echo_result({"round": terms.digest, "deadline": str(terms.deadline)}, terms.digest, as_json)


@with_example("capibara consensus serve rounds --port 8765")
@click.command("serve")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--host", default="127.0.0.1", help="Address to listen at.")
@click.option("--port", default=8765, type=PORT, help="Port; 0: a free one.")
def serve(folder: Path, host: str, port: int) -> None:
    """Serve the rounds in FOLDER over HTTP, until interrupted."""
    require_free(host, port)
    from capibara_assets.consensus.rounds.server import RoundServer

    with RoundServer((host, port), folder) as server, suppress(KeyboardInterrupt):  # SIGINT or SIGTERM: its end
        click.echo(f"http://{host}:{server.server_address[1]}")
        server.serve_forever()


@with_example("capibara consensus close rounds/sql --round DIGEST --key organiser.key --out result")
@click.command("close")
@_PLACE
@_ROUND
@_KEY
@_BASE
@_OUT
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), help="Log of certificates to append to.")
@AS_JSON
@shows_progress("closing the round")
def close(
    place: str, digest: str, key: Path, base: Path | None, out: Path, log: Path | None, as_json: bool
) -> None:  # fmt: skip
    """Wait for the deadline, hold the vote, publish adapter and certificate; lists ignored messages."""
    from capibara_assets.consensus.certificates.certificate_log import append_certificate
    from capibara_assets.consensus.election.ballots import public_key
    from capibara_assets.consensus.election.keys import read_private_key
    from capibara_assets.consensus.rounds.closing import close_round
    from capibara_assets.consensus.rounds.submissions import documents

    own = read_private_key(key)
    with _opened(place, digest) as (box, examples):
        if public_key(own) != box.terms.organiser:
            raise InputError(f"{key} is not the key that wrote round {digest[:12]}: its organiser closes it")
        agreement, named = close_round(box, examples, _base(base), own, out)
    if log is not None:
        append_certificate(log, agreement.certificate.election, agreement.certificate.digest)
    certificate, accepted, shown = out / "certificate.json", agreement.certificate.accepted, documents(named)
    told = [*_named(shown), f"{certificate}: {', '.join(accepted)} accepted"]
    echo_result({"certificate": certificate, "accepted": accepted, "named": shown}, told, as_json)


@with_example("capibara consensus adopt result --round DIGEST")
@click.command("adopt")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@_ROUND
@AS_JSON
@shows_progress("verifying")
def adopt(folder: Path, digest: str, as_json: bool) -> None:
    """Import a round's result, the --out of `close` or `voter vote`, as the domain's consensus checkpoint.

    It is verified anew first. Merges, evaluation and promotion of the deployment read it next.
    """
    from capibara_assets.assets.adopted_rounds import adopt_round
    from capibara_assets.cli.graph.instance import open_instance, open_store
    from capibara_assets.consensus.rounds.adopting import taken_result
    from capibara_assets.resources import BaseModel

    deployment = Deployment.from_environment()
    base_model = BaseModel(location=deployment.base_model, fetch_gib=deployment.fetch_gib)
    with taken_result(folder, digest) as result, open_instance(deployment) as instance:
        store = open_store(deployment)
        artifact, changed = adopt_round(instance, store, base_model, result)
    what = "is now" if changed else "was already"
    told = f"round {digest[:12]} {what} {artifact.name}[{artifact.partition}] {artifact.digest[:12]}"
    about = {"asset": artifact.name, "partition": artifact.partition, "digest": artifact.digest, "changed": changed}
    echo_result({"round": digest, **about}, told, as_json)


ORGANISERS: tuple[click.Command, ...] = (invite, serve, close, adopt)


@contextmanager
def _opened(place: str, digest: str) -> "Iterator[tuple[Mailbox, RoundExamples]]":
    from capibara_assets.consensus.rounds.mailbox import Mailbox
    from capibara_assets.consensus.rounds.places import open_round_place
    from capibara_assets.consensus.rounds.round import read_round

    with TemporaryDirectory(prefix="capibara-round-") as work:
        at = open_round_place(place, Path(work))
        terms, examples = read_round(at, digest)
        yield Mailbox(at, terms, Path(work)), examples


def _base(path: Path | None) -> "Base":
    from capibara_assets.modeling.base import load_base

    return load_base(path or Path(Deployment.from_environment().base_model))


def _named(named: list[dict[str, str]]) -> list[str]:
    return [f"{one['what']}: {one['sender'] or one['letter'][:12]}: {one['why']}" for one in named]
