"""The public names of launching.

| name | what it is |
|---|---|
| `Launcher` | starts trainings in a local process group or a Kubernetes pod, and renders that pod |

Dagster is imported when the name is first used.
"""

from typing import TYPE_CHECKING

from capibara_assets.deployment.public_names import public_names

if TYPE_CHECKING:
    from capibara_assets.launching.launchers import Launcher

__all__ = ["Launcher"]

_HOMES = {
    "Launcher": "launching.launchers",
}

__getattr__, __dir__ = public_names(__name__, _HOMES)
