"""Machines of any number of chips, as tables of published runs name them; a declared target has `machine_of`."""

from functools import cache
from math import ceil

from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.planning.hardware.families import RING, TpuFamily, read_families
from capibara_assets.planning.hardware.machine import (
    Machine,
    accelerators,
    exponentials_per_s,
    facts_of,
    find_family,
    network_of,
    reachable_share,
)
from capibara_assets.planning.hardware.targets import GIB


def machine(family: str, chips: int, islands: int = 1) -> Machine:
    """A machine of `chips` chips: TPUs in `islands` equal slices, GPUs in hosts.

    Raises:
        InputError: unknown chip, or a count below 1.
    """
    name = find_family(family)
    accelerator, facts = accelerators()[name], facts_of(name)
    if chips < 1 or islands < 1:
        raise InputError(f"{family}: {chips} chips in {islands} slices is no machine")
    size = ceil(chips / islands) if facts.kind == "tpu" else min(accelerator.island, chips)
    axes = slice_axes(size, facts.torus) if facts.torus else ()
    wraps = tuple(axis % RING == 0 for axis in axes)
    if (declared_family := _tpu_family(accelerator.family)) is not None:
        axes = declared_family.shape_of(size) or axes
        wraps = declared_family.wrap(axes)
    return Machine(
        family=name,
        kind=facts.kind,
        chips=chips,
        island=size,
        peaks=tuple((precision, tera * 1e12) for precision, tera in facts.peak_tflops.items()),
        memory_bytes=int(facts.hbm_gib * GIB),
        hbm=facts.hbm_gb_per_s * 1e9,
        link=facts.link_gb_per_s * 1e9,
        network=network_of(name),
        tile=accelerator.tile,
        chips_per_host=min(facts.chips_per_host, size),
        axes=axes,
        wraps=wraps,
        reachable=reachable_share(accelerator),
        exponentials=exponentials_per_s(accelerator, facts),
        architecture=accelerator.architecture or name,
    )


def slice_axes(chips: int, dimensions: int) -> tuple[int, ...]:
    """Sides of the most compact box of `chips` chips, for slices that no family lists."""
    boxes = _boxes(chips, dimensions)
    return min(boxes, key=lambda axes: (sum(axes), axes))


@cache
def _boxes(chips: int, dimensions: int) -> tuple[tuple[int, ...], ...]:
    if dimensions == 1:
        return ((chips,),)
    sides = [side for side in range(1, chips + 1) if chips % side == 0]
    return tuple((side, *rest) for side in sides for rest in _boxes(chips // side, dimensions - 1) if side <= rest[0])


@cache
def _tpu_family(name: str | None) -> TpuFamily | None:
    family = read_families(resources_root() / "hardware" / "families").get(name) if name else None
    return family if isinstance(family, TpuFamily) else None
