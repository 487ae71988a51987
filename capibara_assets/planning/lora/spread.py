"""How many of a target's devices train one voter together, where several voters share them."""

from dataclasses import replace

from capibara_assets.planning.accounting import Breakdown, DeviceStep, Sharding, size, training_memory
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.models import ModelShape

_CUT = (
    "stage 2 cuts the adapters' gradients and optimizer over them; stage 3 would cut the frozen weights too, but gather"
    " every layer in each pass"
)


def zero_stage(devices: int) -> int:
    """The ZeRO stage of a voter on so many devices."""
    return 2 if devices > 1 else 0


def layout(devices: int) -> Sharding:
    """What a voter's devices divide among them."""
    return Sharding.zero(zero_stage(devices), devices)


def devices_of_a_voter(
    base: ModelShape, step: DeviceStep, target: HardwareTarget, headroom: float, voters: int
) -> tuple[int, Breakdown]:
    """Devices of one voter, and the memory of each.

    A single voter has all. Of several each has the fewest that hold its step: side by side they keep the devices busy
    without exchanging gradients. Their number divides the target's, and the step itself is unchanged: a voter is not
    quantised or recomputed for having fewer devices.

    Args:
        step: fits on all devices together.
    """
    counts = [count for count in range(1, target.chips + 1) if target.chips % count == 0]
    for devices in counts if voters > 1 else counts[-1:]:
        memory = training_memory(base, replace(step, layout=layout(devices)))
        if memory.total <= target.usable_bytes * headroom:
            break
    return devices, memory


def why_so_many(devices: int, memory: Breakdown, target: HardwareTarget, voters: int) -> str:
    """The reason for a voter's devices and ZeRO stage."""
    if target.chips == 1:
        return "one device: nothing to cut"
    if devices == target.chips:
        return f"{devices} devices: {_CUT}"
    at_once = min(voters, target.chips // devices)
    held = f"a voter fits on {devices} of {target.chips} devices ({size(memory.total)} each)"
    return f"{held}, so {at_once} of {voters} train side by side: {_CUT if devices > 1 else 'nothing to cut'}"
