"""The loops and NumPy's forms compute what the kernels do, and are measured beside them."""

from capibara_assets.planning.claims.kernels import KERNELS, measure_kernels, sparse_softmax


def test_sparse_softmax_is_over_the_kept_entries() -> None:
    assert sparse_softmax([[0.0, 5.0, 0.0]], [[True, False, True]]) == [[0.5, 0.0, 0.5]]


def test_kernels_are_compared_with_what_computes_the_same() -> None:
    """Raises where a result differs; the ratios of so small matrices say little."""
    found = measure_kernels(repeats=1, size=16, large=32)
    assert set(found) == {"size", "over_numpy", *KERNELS, *(f"{name}_range" for name in KERNELS)}
    assert set(found["over_numpy"]) == {"16", "32"}
    assert all(set(side) == set(KERNELS) for side in found["over_numpy"].values())
    assert all(ratio > 0 for side in found["over_numpy"].values() for ratio in side.values())
    assert min(found[name] for name in KERNELS) > 1
