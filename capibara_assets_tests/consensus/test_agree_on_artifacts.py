"""Distances of all voters that took part, beside the dense deltas they are about."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.consensus.aggregation.geometry import classical_scaling
from capibara_assets.consensus.agree_on_artifacts import attested_distances
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets_tests.consensus.conftest import changed


def stages(**stage: str) -> dict[str, Any]:
    return {"voters": [{"name": name, "stage": found} for name, found in stage.items()]}


def test_outvoted_voters_have_distances_and_quarantined_ones_do_not(
    honest: dict[str, LoraAdapter], on_disk: Callable[[Mapping[str, LoraAdapter]], dict[str, Path]]
):
    adapter, second = list(honest.values())[:2]
    voters = {"v0": adapter, "v1": changed(adapter, -1.0), "v2": second}
    folder = next(iter(on_disk(voters).values())).parent
    found = attested_distances(folder, stages(v0="accepted", v1="vote", v2="accepted", gone="attestation"))
    assert found["order"] == ["v0", "v1", "v2"]
    deltas = [[a.scale(m) * (a.b(m).double() @ a.a(m).double()) for m in a.modules] for a in voters.values()]
    for i, one in enumerate(deltas):
        for j, two in enumerate(deltas):
            right = sum(float(((x - y) ** 2).sum()) for x, y in zip(one, two, strict=True)) ** 0.5
            assert found["distances"][i][j] == pytest.approx(right, rel=1e-5, abs=1e-6)
    assert classical_scaling(found["distances"])[1] < 1e-3  # symmetric, and three points fit a plane
