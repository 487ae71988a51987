"""The public names of planning.

| name | what it is |
|---|---|
| `find_target` | a hardware target by its name: one of `resources/hardware/`, or any slice of a chip family |

Its module is imported when the name is first used.
"""

from typing import TYPE_CHECKING

from capibara_assets.deployment.public_names import public_names

if TYPE_CHECKING:
    from capibara_assets.planning.hardware.targets import find_target

__all__ = ["find_target"]

_HOMES = {
    "find_target": "planning.hardware.targets",
}

__getattr__, __dir__ = public_names(__name__, _HOMES)
