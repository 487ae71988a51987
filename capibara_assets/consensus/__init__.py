"""Consensus of independent voters' adapters: vote, robust aggregation, choice, merges, mixtures, certificates.

The public functions are those of `api`, and can be imported from here. May import `evaluation` and what lies below it;
its modules import each other, never this package.
"""

from typing import TYPE_CHECKING, Any

from capibara_assets.consensus import api
from capibara_assets.consensus.api import __all__ as __all__

if TYPE_CHECKING:
    from capibara_assets.consensus.api import (
        HeldOut as HeldOut,
    )
    from capibara_assets.consensus.api import (
        aggregate as aggregate,
    )
    from capibara_assets.consensus.api import (
        certify as certify,
    )
    from capibara_assets.consensus.api import (
        convex_weights as convex_weights,
    )
    from capibara_assets.consensus.api import (
        dp_clipped_mean as dp_clipped_mean,
    )
    from capibara_assets.consensus.api import (
        dp_epsilon as dp_epsilon,
    )
    from capibara_assets.consensus.api import (
        merge_adapters as merge_adapters,
    )
    from capibara_assets.consensus.api import (
        merge_checkpoints as merge_checkpoints,
    )
    from capibara_assets.consensus.api import (
        pre_aggregate as pre_aggregate,
    )
    from capibara_assets.consensus.api import (
        simplex_least_squares as simplex_least_squares,
    )
    from capibara_assets.consensus.api import (
        soup as soup,
    )
    from capibara_assets.consensus.api import (
        soup_of_checkpoints as soup_of_checkpoints,
    )
    from capibara_assets.consensus.api import (
        verify_certificate as verify_certificate,
    )
    from capibara_assets.consensus.api import (
        vote as vote,
    )


def __getattr__(name: str) -> Any:
    if name not in api.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *api.__all__})
