"""How far apart voters' adapters are: those that attestation let through, rejected by the vote or not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from capibara_assets.consensus.aggregation.geometry import distances_of
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.modeling.low_rank import inner_products


def attested_distances(folder: Path, certificate: Mapping[str, Any]) -> dict[str, Any]:
    """Distances between the deltas of all voters that took part in the vote.

    A certificate has those between the accepted ones alone, which the rule saw; a picture is to show the others, too.

    Args:
        folder: `voters/` of the adapters that the certificate, as JSON, is about.

    Returns:
        "order": names, as in the certificate; "distances": (n, n) Frobenius norms of differences of deltas.
    """
    order = [voter["name"] for voter in certificate["voters"] if voter["stage"] != "attestation"]
    gram = inner_products([read_adapter(folder / name) for name in order])
    return {"order": order, "distances": np.sqrt(distances_of(gram)).tolist()}
