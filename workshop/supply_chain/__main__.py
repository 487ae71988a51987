"""Command line: `python -m workshop.supply_chain sbom|audit|wheel`, each with `--help`."""

import sys
from pathlib import Path

import click

from capibara_assets.errors import InputError
from workshop.supply_chain import advisories, bill, wheel

DIST = Path("dist")
TOOLS = Path(".supply-venv") / "bin"


@click.group()
def supply_chain() -> None:
    """What this project is made of."""


@supply_chain.command()
@click.option("--tool", default=str(TOOLS / "cyclonedx-py"), show_default=True, help="The command cyclonedx-py.")
def sbom(tool: str) -> None:
    """Write dist/sbom*.json (CycloneDX 1.6): this environment, and each image's lock with its hashes."""
    DIST.mkdir(exist_ok=True)
    here = bill.of_environment(tool, DIST / "sbom.json")
    bill.require_whole(here)
    print(f"{DIST / 'sbom.json'}: {len(here.components)} components, {bill.licences(here)}")
    for lock in bill.locks():
        image = bill.of_lock(tool, lock, DIST / f"sbom-{lock.stem}.json")
        bill.require_hashes(image, lock)
        print(f"{DIST / f'sbom-{lock.stem}.json'}: {len(image.components)} components, each with its hashes")


@supply_chain.command()
@click.option("--tool", default=str(TOOLS / "pip-audit"), show_default=True, help="The command pip-audit.")
@click.option("--strict", is_flag=True, help="End with 1 where advisories cannot be had, too.")
def audit(tool: str, strict: bool) -> None:
    """Compare every pinned version with the advisories that the package index publishes."""
    result = advisories.audited(tool, Path("constraints.txt"))
    for line in result.lines():
        print(line)
    if result.vulnerable or (strict and result.unknown):
        sys.exit(1)


@supply_chain.command("wheel")
def build_wheel() -> None:
    """Build the wheel of HEAD twice, in two folders; refuse one whose bytes differ."""
    DIST.mkdir(exist_ok=True)
    made = wheel.built_twice(DIST)
    print(f"{made.file}: sha256 {made.digest}, the same twice")


if __name__ == "__main__":
    try:
        supply_chain()
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
