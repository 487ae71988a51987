"""Hardware targets by name: files of `resources/hardware`, and any slice of a family (`tpu-v5p-256`, `h100-16`).

A new target is a new file: a complete declaration, or `slice_of` a family with the values that differ.
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
    PeakRate,
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
    "PeakRate",
    "Price",
    "Quantization",
    "Topology",
    "find_target",
    "load_families",
    "load_targets",
    "read_target",
]


class SliceDeclaration(Declared):
    """A target declared as a slice of a family; values given here override the family's."""

    name: str
    slice_of: str = Field(description="a file of families/")
    size: str | None = Field(default=None, description="64 or 8x8; default: what the name ends with")
    description: str | None = None
    peaks: dict[str, PeakRate] | None = None
    memory: Memory | None = None
    links: Links | None = None
    efficiency: Efficiency | None = None
    price: Price | None = None
    launcher: str | None = None
    kubernetes: Kubernetes | None = None


def read_target(file: Path) -> HardwareTarget:
    """Read one target file: a complete declaration, or a slice of a family.

    Raises:
        InputError: not YAML, an unknown or missing key, a `name` that differs from the file name, or no such slice.
    """
    values = read_mapping(file)
    target = _slice(file) if "slice_of" in values else read_declared(file, HardwareTarget)
    if target.name != file.stem:
        raise InputError(f"hardware target {file}: its name is {target.name!r}; name the file {target.name}.yaml")
    return target


def _slice(file: Path) -> HardwareTarget:
    """The target of a file with `slice_of`."""
    declaration = read_declared(file, SliceDeclaration)
    families = _families()
    if declaration.slice_of not in families:
        raise InputError(f"{file}: no family {declaration.slice_of!r}; known: {', '.join(sorted(families))}")
    size = declaration.size or declaration.name.removeprefix(f"{declaration.slice_of}-")
    derived = slice_target(families[declaration.slice_of], size)
    given = declaration.model_dump(exclude={"slice_of", "size"}, exclude_none=True)
    # Validated again as a whole: a wrong override fails like a wrong declaration.
    return declared(HardwareTarget, derived.model_dump() | given, file)


@cache
def _families() -> dict[str, Family]:
    return read_families(resources_root() / "hardware" / "families")


def load_families() -> dict[str, Family]:
    """All shipped chip families, by name."""
    return dict(_families())


@cache
def _shipped() -> dict[str, HardwareTarget]:
    return load_targets(resources_root() / "hardware")


def load_targets(folder: Path | None = None) -> dict[str, HardwareTarget]:
    """All targets declared in `folder` (default: the shipped ones), by name.

    Raises:
        InputError: a file does not validate, or the folder has none.
    """
    if folder is None:
        return dict(_shipped())
    targets = {file.stem: read_target(file) for file in sorted(folder.glob("*.yaml"))}
    if not targets:
        raise InputError(f"no hardware targets (*.yaml) in {folder}")
    return targets


def find_target(name: str) -> HardwareTarget:
    """The target of that name: one with a file, or any slice of a family (`tpu-v4-128`, `tpu-v6e-4x8`, `a100-8`).

    Raises:
        InputError: unknown target (the message suggests the nearest) or slice (the message lists those that exist).
    """
    known = load_targets()
    if name in known:
        return known[name]
    families = _families()
    if (family_and_size := family_of(name, families)) is not None:
        return slice_target(*family_and_size)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    any_of = "; ".join(f"{family.name}-N ({describe(family)})" for family in families.values())
    raise InputError(f"no hardware target {name!r}; {hint}known: {', '.join(sorted(known))}; or any slice of {any_of}")
