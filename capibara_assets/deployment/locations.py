"""Location of `resources/`: beside the package in a checkout, inside it in a wheel."""

from functools import cache
from pathlib import Path

from capibara_assets.errors import InputError


@cache
def resources_root() -> Path:
    """The folder of declarations: hardware targets, recipes, base models, experience.

    Raises:
        InputError: the installation carries no `resources/` (a damaged wheel or checkout).
    """
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "_resources", package.parent / "resources"):
        if candidate.is_dir():
            return candidate
    raise InputError(f"no resources/ beside or inside {package}: reinstall capibara-assets")


def shipped_experience() -> str:
    """The folder of the experience that ships. Raises InputError as `resources_root`."""
    return str(resources_root() / "experience")
