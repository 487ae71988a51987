"""`capibara checkpoint head`: sign a summary of a store, and detect later whether an older copy replaced it."""

from pathlib import Path

import click

from capibara_assets.cli.terminal.documents import AS_JSON, echo_result
from capibara_assets.cli.terminal.exits import FOUND
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError

_FILE = click.Path(dir_okay=False, path_type=Path)


@with_example("capibara checkpoint head head.json --write --key head.key")
@click.command("head")
@click.argument("file", type=_FILE)
@click.option("--write", is_flag=True, help="Sign a new head into FILE, following the existing one.")
@click.option("--key", type=_FILE, help="Private key that signs (`capibara consensus keys new`); with --write.")
@click.option("--public", metavar="KEY", help="Public key of whoever signed FILE; without --write.")
@click.option(
    "--at-least", default=1, type=click.IntRange(min=1), metavar="N", help="Number of a head that you saw before."
)
@AS_JSON
@shows_progress("reading the store")
def head(file: Path, write: bool, key: Path | None, public: str | None, at_least: int, as_json: bool) -> None:
    """Compare the deployment's store with the signed head in FILE; exit code 1: it was rolled back.

    Keep FILE, or at least its number, where those who can write to the store cannot: an older head fits an older copy.
    """
    from capibara_assets.cli.graph.instance import open_store
    from capibara_assets.consensus.election.keys import read_private_key
    from capibara_assets.lineage.store_head import read_head, rolled_back, write_head

    deployment = Deployment.from_environment()
    store = open_store(deployment)
    if write:
        if key is None or public is not None:
            raise InputError("--write signs with --key FILE.key, and takes no --public")
        signed, lost = write_head(file, store, read_private_key(key)), list[str]()
    else:
        if public is None or key is not None:
            raise InputError("give --public KEY, of whoever signed the head; --key goes with --write")
        signed = read_head(file, public, at_least)
        lost = rolled_back(store, signed)
    told = f"head {signed.number} of {signed.time}: {'; '.join(lost) or 'the store has all of it'}"
    if not signed.names_elections:
        told += "; of elections it says nothing, as it was written before heads did: --write a new one after it"
    stated = {"number": signed.number, "time": signed.time, "rolled_back": lost, "elections": signed.names_elections}
    echo_result(stated, told, as_json)
    if lost:
        raise SystemExit(FOUND)
