"""The public names of evaluation.

| name | what it is |
|---|---|
| `Router` | picks the expert for a prompt, or the base model; read from an export's `router/` |

Its module is imported when the name is first used.
"""

from typing import TYPE_CHECKING

from capibara_assets.deployment.public_names import public_names

if TYPE_CHECKING:
    from capibara_assets.evaluation.routing.router import Router

__all__ = ["Router"]

_HOMES = {
    "Router": "evaluation.routing.router",
}

__getattr__, __dir__ = public_names(__name__, _HOMES)
