"""The public functions of consensus; each is loaded with its module when it is asked for.

A name costs what it needs: the rules on arrays do without torch. Each can be had of the package itself, too.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capibara_assets.consensus.aggregation import aggregate
    from capibara_assets.consensus.certificate import certify, verify_certificate
    from capibara_assets.consensus.checkpoint_merge import merge_checkpoints
    from capibara_assets.consensus.convex import convex_weights, simplex_least_squares
    from capibara_assets.consensus.preaggregation import pre_aggregate
    from capibara_assets.consensus.privacy import dp_clipped_mean, dp_epsilon
    from capibara_assets.consensus.soups import soup
    from capibara_assets.consensus.voting import vote
    from capibara_assets.modeling.low_rank import merge_adapters

__all__ = [
    "aggregate",
    "certify",
    "convex_weights",
    "dp_clipped_mean",
    "dp_epsilon",
    "merge_adapters",
    "merge_checkpoints",
    "pre_aggregate",
    "simplex_least_squares",
    "soup",
    "verify_certificate",
    "vote",
]

_HOMES = {
    "aggregate": "consensus.aggregation",
    "certify": "consensus.certificate",
    "convex_weights": "consensus.convex",
    "dp_clipped_mean": "consensus.privacy",
    "dp_epsilon": "consensus.privacy",
    "merge_adapters": "modeling.low_rank",
    "merge_checkpoints": "consensus.checkpoint_merge",
    "pre_aggregate": "consensus.preaggregation",
    "simplex_least_squares": "consensus.convex",
    "soup": "consensus.soups",
    "verify_certificate": "consensus.certificate",
    "vote": "consensus.voting",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"capibara_assets.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
