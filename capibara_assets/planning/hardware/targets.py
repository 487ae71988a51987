"""Hardware targets by name: files of `resources/hardware`, and any slice of a family (`tpu-v5p-256`, `h100-16`).

A new target is a new file: whole, or `slice_of` a family with what differs. A family's facts stand once, in
`resources/hardware/families`.
"""

import difflib
from functools import cache
from pathlib import Path

from pydantic import Field

from capibara_assets.deployment.declarations import Declared, declared, read_declared, read_mapping
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.planning.hardware.declaration import (
    GIB,
    Efficiency,
    HardwareTarget,
    Kubernetes,
    Links,
    Memory,
    Peak,
    Price,
    Quantization,
    Topology,
)
from capibara_assets.planning.hardware.families import Family, describe, family_of, read_families, slice_target

__all__ = [
    "GIB",
    "Efficiency",
    "HardwareTarget",
    "Kubernetes",
    "Links",
    "Memory",
    "Peak",
    "Price",
    "Quantization",
    "Topology",
    "find_target",
    "load_families",
    "load_targets",
    "read_target",
]


class SliceDeclaration(Declared):
    """A target that is a slice of a family; what is given here wins over what the family says."""

    name: str
    slice_of: str = Field(description="a file of families/")
    size: str | None = Field(default=None, description="64 or 8x8; default: what the name ends with")
    description: str | None = None
    peaks: dict[str, Peak] | None = None
    memory: Memory | None = None
    links: Links | None = None
    efficiency: Efficiency | None = None
    price: Price | None = None
    launcher: str | None = None
    kubernetes: Kubernetes | None = None


def read_target(file: Path) -> HardwareTarget:
    """One declaration: a whole target, or a slice of a family.

    Raises:
        InputError: not YAML, an unknown or missing key, a name that is not the file's, or an impossible slice.
    """
    values = read_mapping(file)
    target = _slice(file) if "slice_of" in values else read_declared(file, HardwareTarget)
    if target.name != file.stem:
        raise InputError(f"hardware target {file}: its name is {target.name!r}; name the file {target.name}.yaml")
    return target


def _slice(file: Path) -> HardwareTarget:
    wanted = read_declared(file, SliceDeclaration)
    families = _families()
    if wanted.slice_of not in families:
        raise InputError(f"{file}: no family {wanted.slice_of!r}; known: {', '.join(sorted(families))}")
    size = wanted.size or wanted.name.removeprefix(f"{wanted.slice_of}-")
    derived = slice_target(families[wanted.slice_of], size)
    given = wanted.model_dump(exclude={"slice_of", "size"}, exclude_none=True)
    # Validated as a whole again: a wrong override is refused like a wrong declaration.
    return declared(HardwareTarget, derived.model_dump() | given, file)


@cache
def _families() -> dict[str, Family]:
    return read_families(resources_root() / "hardware" / "families")


def load_families() -> dict[str, Family]:
    """All chip families that ship, by name."""
    return dict(_families())


@cache
def _shipped() -> dict[str, HardwareTarget]:
    return load_targets(resources_root() / "hardware")


def load_targets(folder: Path | None = None) -> dict[str, HardwareTarget]:
    """All targets that have a file in `folder` (default: those that ship), by name.

    Raises:
        InputError: a file is wrong, or the folder declares nothing.
    """
    if folder is None:
        return dict(_shipped())
    targets = {file.stem: read_target(file) for file in sorted(folder.glob("*.yaml"))}
    if not targets:
        raise InputError(f"no hardware targets (*.yaml) in {folder}")
    return targets


def find_target(name: str, targets: dict[str, HardwareTarget] | None = None) -> HardwareTarget:
    """The target of that name: one with a file, or any slice of a family (`tpu-v4-128`, `tpu-v6e-4x8`, `a100-8`).

    Raises:
        InputError: unknown; the message names the nearest. A slice that cannot be: the message names those that can.
    """
    known = load_targets() if targets is None else targets
    if name in known:
        return known[name]
    families = _families()
    if (found := family_of(name, families)) is not None:
        return slice_target(*found)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    any_of = "; ".join(f"{family.name}-N ({describe(family)})" for family in families.values())
    raise InputError(f"no hardware target {name!r}; {hint}known: {', '.join(sorted(known))}; or any slice of {any_of}")
