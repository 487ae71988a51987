"""Bills of materials in CycloneDX's format; what they have to hold: all that is installed, fit licences, hashes."""

import importlib.metadata
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
OURS = "capibara-assets"
COPYLEFT = re.compile(r"(?<!L)GPL|General Public|SSPL|Commons Clause", re.IGNORECASE)
ALLOWED = {
    "psycopg2-binary": "LGPL with exceptions: the client of PostgreSQL, of which the extra `postgres` alone asks"
}
"""Distributions whose licence would be refused, and why they may be here."""


@dataclass(frozen=True)
class Bill:
    """A bill of materials.

    Attributes:
        file: where it was written.
        components: of the document, each with `name`, `version` and what else the format has.
    """

    file: Path
    components: Sequence[dict[str, Any]]

    @classmethod
    def read(cls, file: Path) -> "Bill":
        """Read a bill that was written."""
        return cls(file, json.loads(file.read_text("utf-8")).get("components", []))


def locks() -> list[Path]:
    """The locks of the images."""
    return sorted((ROOT / "deploy" / "docker" / "locks").glob("*.txt"))


def of_environment(tool: str, file: Path) -> Bill:
    """The bill of the environment that runs this, with licences and dependencies."""
    return _written([tool, "environment", sys.executable], file)


def of_lock(tool: str, lock: Path, file: Path) -> Bill:
    """The bill of an image's lock, with the hashes of the files that may be installed."""
    return _written([tool, "requirements", str(lock)], file)


def require_whole(bill: Bill) -> None:
    """Refuse a bill of this environment that lacks a distribution, or holds a licence that we may not ship.

    Raises:
        InputError: names what is lacking, or the distribution and its licence.
    """
    installed = {
        (normal(name), one.version)
        for one in importlib.metadata.distributions()
        if (name := one.metadata["Name"]) and normal(name) != OURS
    }
    listed = {(normal(one["name"]), one["version"]) for one in bill.components}
    if lacking := sorted(installed - listed):
        raise InputError(f"{bill.file} lacks {', '.join(map(' '.join, lacking))}, installed here")
    for one in bill.components:
        stated = [text for text in licences_of(one) if COPYLEFT.search(text)]
        if stated and normal(one["name"]) not in ALLOWED:
            raise InputError(f"{one['name']} {one['version']} is under {', '.join(stated)}: take another library")


def require_hashes(bill: Bill, lock: Path) -> None:
    """Refuse a bill of a lock that lacks one of its lines, or the hashes of one. Raises InputError."""
    pinned = {normal(name) for name in re.findall(r"^([\w.-]+)==", lock.read_text("utf-8"), re.MULTILINE)}
    hashed = {
        normal(one["name"])
        for one in bill.components
        if any(reference.get("hashes") for reference in one.get("externalReferences", []))
    }
    if lacking := sorted(pinned - hashed):
        raise InputError(f"{bill.file} has no hash of {', '.join(lacking)}, which {lock} pins")


def licences(bill: Bill) -> str:
    """How many components state which kind of licence, in words."""
    stated = Counter(bool(licences_of(one)) for one in bill.components)
    return f"{stated[True]} of which state their licence, none a copyleft one but {', '.join(sorted(ALLOWED))}"


def licences_of(component: dict[str, Any]) -> list[str]:
    """The licences that a component states: SPDX ids, names or expressions."""
    entries = component.get("licenses", [])
    stated = [entry.get("expression") or (entry.get("license") or {}) for entry in entries]
    return [one if isinstance(one, str) else str(one.get("id") or one.get("name")) for one in stated]


def normal(name: str) -> str:
    """A distribution's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _written(command: Sequence[str], file: Path) -> Bill:
    """Run the tool, which validates what it writes against the format's schema."""
    options = ["--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "--of", "JSON", "-o", str(file)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InputError(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-1000:]}")
    return Bill.read(file)
