"""`capibara model`: base models from the Hub, fetched once and with their size checked first."""

import click

from capibara_assets.modeling.files import validate_base
from capibara_assets.modeling.hub import fetch


@click.group()
def model() -> None:
    """Base models."""


@model.command("fetch")
@click.argument("reference")
@click.option("--max-gib", default=20.0, show_default=True, help="Refuse models larger than this.")
def fetch_command(reference: str, max_gib: float) -> None:
    """Download REFERENCE (id@revision) so that --base-model can use it; never hangs offline."""
    identifier, _, revision = reference.partition("@")
    path = fetch(identifier, revision, int(max_gib * 2**30))
    validate_base(path)
    click.echo(path)
