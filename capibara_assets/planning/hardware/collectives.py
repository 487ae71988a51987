"""Time of collective operations on a machine's links: torus rings, switches inside hosts, networks between them."""

from collections.abc import Sequence
from dataclasses import dataclass

from capibara_assets.planning.hardware.machine import Machine

AXES = ("tensor", "expert", "fsdp", "pipeline", "data", "slices")  # innermost first: the chattiest sit closest


@dataclass(frozen=True)
class AxisPlacement:
    """Placement of a mesh axis on a machine: `inner` neighbours on fast links, in each of `outer` islands."""

    inner: int
    outer: int
    members: int


def place_axis(machine: Machine, lengths: Sequence[int], index: int) -> AxisPlacement:
    """Placement of one axis of a mesh, whose axes are laid out from the innermost on.

    Args:
        machine: the chips.
        lengths: lengths of the mesh's axes, innermost first.
        index: position of the axis in `lengths`.
    """
    stride = 1
    for length in lengths[:index]:
        stride *= length
    members = lengths[index]
    inner = min(members, max(1, machine.island // stride))
    while members % inner:  # an island that holds no whole part of the axis holds the next smaller divisor of it
        inner -= 1
    return AxisPlacement(inner=inner, outer=members // inner, members=members)


def ring_rate(machine: Machine, members: int) -> float:
    """Bandwidth (bytes/s) of one chip in a ring over `members` chips of one island.

    On a torus a group that spans several axes runs a ring on each: an axis that wraps round carries both directions, an
    open one (or a part of an axis) half of that (jax-ml/scaling-book, sharding). On a switch it is the chip's port.
    """
    if not machine.axes:
        return machine.link
    rate, left = 0.0, members
    # Longest axes first: a group fills whole axes before it continues on the next.
    for length, wraps in sorted(zip(machine.axes, machine.wraps, strict=True), reverse=True):
        if left <= 1:
            break
        whole = left >= length
        rate += machine.link * (2 if wraps and whole else 1)
        left = -(-left // length) if whole else 1
    return rate or machine.link


def gather_seconds(machine: Machine, where: AxisPlacement, total: float) -> float:
    """Seconds of an all-gather to `total` bytes on each member, or of a reduce-scatter of as many.

    Between islands each chip fetches its share of the other islands' parts, and the fast links distribute it; the
    slower of the two stages is counted, since they overlap.
    """
    if where.members == 1:
        return 0.0
    fast = total * (where.members - 1) / where.members / ring_rate(machine, where.inner) if where.inner > 1 else 0.0
    slow = total * (where.outer - 1) / where.outer / (machine.network * where.inner) if where.outer > 1 else 0.0
    return max(fast, slow)


def reduce_seconds(machine: Machine, where: AxisPlacement, total: float) -> float:
    """Seconds of an all-reduce of `total` bytes on each member: a reduce-scatter and an all-gather."""
    return 2 * gather_seconds(machine, where, total)


def exchange_seconds(machine: Machine, where: AxisPlacement, held: float) -> float:
    """Seconds of an all-to-all in which each member sends all but its own part of `held` bytes."""
    if where.members == 1:
        return 0.0
    away = held * (where.members - 1) / where.members
    if where.outer > 1:
        return away / machine.network
    # On an open ring of n the mean distance is n/3 links, on a closed one n/4; a switch needs one hop.
    hops = max(1.0, where.inner / 4) if machine.axes else 1.0
    return away * hops / (2 * ring_rate(machine, where.inner)) if machine.axes else away / machine.link
