"""Aggregation on the compiled passes: what small inputs promise holds there too, in bounded memory."""

import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capibara_assets.consensus.aggregation import geometry, kernels
from capibara_assets.consensus.aggregation.aggregate import RULES, aggregate
from capibara_assets.consensus.aggregation.preaggregation import pre_aggregate
from capibara_assets.processes.cores import cores_here

N, F, D = 15, 3, 2 * kernels.BLOCK + 77

# Mixing precedes any rule, and what is not finite is found before both: a rule of each kind, all in `make test-all`.
OF_EACH_KIND = ("median", "krum")
REST = [rule for rule in RULES if rule not in OF_EACH_KIND]
FIRST_MIXED = [
    *((rule, "nnm") for rule in OF_EACH_KIND),
    *(pytest.param(rule, "nnm", marks=pytest.mark.extended) for rule in REST),
]
INFINITE = [
    *((rule, np.inf) for rule in OF_EACH_KIND),
    *(pytest.param(rule, np.inf, marks=pytest.mark.extended) for rule in REST),
]


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    random = np.random.default_rng(0)
    made = (random.standard_normal((N, D)) + random.standard_normal(D)).astype(np.float32)
    made[3] *= 1e6
    made[7] = made[1]  # a copy
    assert made.size >= geometry.LARGE
    return made


def options_of(rule: str) -> dict[str, Any]:
    return {"centered_clipping": {"tau": 1.0}, "monna": {"reference": 4}}.get(rule, {})


@pytest.mark.parametrize(("rule", "pre"), [*((rule, None) for rule in RULES), *FIRST_MIXED])
def test_compiled_passes_agree_with_numpy(
    rule: str, pre: str | None, vectors: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = aggregate(vectors, rule, f=F, pre=pre, **options_of(rule))
    monkeypatch.setattr(geometry, "LARGE", vectors.size + 1)
    slow = aggregate(vectors, rule, f=F, pre=pre, **options_of(rule))
    assert fast.evidence.get("selected") == slow.evidence.get("selected")
    scale = np.abs(slow.vector).max()
    assert np.abs(fast.vector - slow.vector).max() <= 1e-9 * scale


@pytest.mark.parametrize("rule", RULES)
def test_order_threads_and_kind_of_input_do_not_show(
    rule: str, vectors: np.ndarray, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = options_of(rule)
    first = aggregate(vectors, rule, f=F, **options)
    order = np.random.default_rng(1).permutation(N)
    if rule == "monna":
        options = {"reference": int(np.flatnonzero(order == 4)[0])}
    monkeypatch.setattr(kernels, "cores_here", lambda: 3)
    turned = aggregate(vectors[order], rule, f=F, **options)
    assert turned.vector.tobytes() == first.vector.tobytes()
    np.save(tmp_path / "vectors.npy", vectors)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    alike = (list(vectors), mapped, torch.from_numpy(vectors), [torch.from_numpy(row) for row in vectors])
    for same in (*alike, np.asfortranarray(vectors)):
        assert aggregate(same, rule, f=F, **options_of(rule)).vector.tobytes() == first.vector.tobytes()


@pytest.mark.parametrize(("rule", "value"), [*((rule, np.nan) for rule in RULES), *INFINITE])
def test_non_finite_voters_are_left_out(rule: str, value: float, vectors: np.ndarray) -> None:
    spoilt = vectors.copy()
    spoilt[[2, 9], [D - 1, 5]] = value
    before = spoilt.tobytes()
    found = aggregate(spoilt, rule, f=F + 2, strict=rule != "bulyan", **options_of(rule))
    assert found.rejected == (2, 9)
    assert spoilt.tobytes() == before
    kept = np.delete(vectors, [2, 9], axis=0)
    options = {"reference": 3} if rule == "monna" else options_of(rule)
    clean = aggregate(kept, rule, f=F, strict=rule != "bulyan", **options)
    assert found.vector.tobytes() == clean.vector.tobytes()
    with pytest.raises(ValueError, match="2 of 15 voters are not finite, more than f=1"):
        aggregate(spoilt, rule, f=1, **options_of(rule))


def test_a_precondition_is_judged_after_quarantine() -> None:
    vectors = np.random.default_rng(2).standard_normal((4, geometry.LARGE)).astype(np.float32)
    vectors[0, 0] = vectors[1, 0] = np.nan
    assert aggregate(vectors, "median", f=2, strict=False).rejected == (0, 1)
    assert aggregate(vectors, "median", f=2).evidence["f_used"] == 0


def test_float32_values_whose_sum_is_beyond_float32() -> None:
    vectors = np.full((5, geometry.LARGE), 3e38, np.float32)
    assert aggregate(vectors, "mean").vector[0] == pytest.approx(3e38, rel=1e-6)
    assert aggregate(vectors, "median").rejected == ()


def test_float64_voters_too_long_for_float64_are_left_out() -> None:
    vectors = np.random.default_rng(3).standard_normal((5, geometry.LARGE // 4))
    vectors[4] = 1e200
    for rule in ("mean", "median", "krum", "mda"):
        assert aggregate(vectors, rule, f=1).rejected == (4,)


def test_nearly_equal_voters_keep_their_distances() -> None:
    random = np.random.default_rng(4)
    vectors = np.repeat(random.standard_normal((1, geometry.LARGE // 4)), 7, axis=0)
    noise = random.standard_normal(vectors.shape) * 1e-9
    vectors += noise
    scores = np.array(aggregate(vectors, "krum", f=1).evidence["scores"])
    exact = np.square(vectors[:, None] - vectors[None, :]).sum(axis=2)
    assert np.allclose(scores, np.sort(exact, axis=1)[:, 1:5].sum(axis=1), rtol=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_no_copy_of_the_voters_is_made(rule: str, vectors: np.ndarray) -> None:
    aggregate(vectors, rule, f=F, **options_of(rule))  # compiled and loaded
    tracemalloc.start()
    aggregate(vectors, rule, f=F, **options_of(rule))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * D + 4 * 2**20 < vectors.nbytes  # the result, and strips


def test_mixing_is_never_formed_whole(vectors: np.ndarray) -> None:
    tracemalloc.start()
    aggregate(vectors, "trimmed_mean", f=F, pre="nnm")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    blocks = cores_here() * 8 * N * geometry.BLOCK
    assert peak < 8 * D + 2 * blocks + 4 * 2**20


def test_pre_aggregate_takes_lists_and_leaves_them(vectors: np.ndarray) -> None:
    before = vectors.tobytes()
    mixed = pre_aggregate(list(vectors), "nnm", f=F)
    assert mixed.shape == vectors.shape
    assert mixed.dtype == np.float64
    assert vectors.tobytes() == before
    assert np.array_equal(mixed, pre_aggregate(vectors[::-1], "nnm", f=F)[::-1])


def test_half_precision_tensors_and_whole_numbers() -> None:
    tensor = torch.randn(5, 8, dtype=torch.bfloat16, requires_grad=True)
    wanted = aggregate(tensor.detach().float().numpy(), "median").vector
    assert np.array_equal(aggregate(tensor, "median").vector, wanted)
    assert np.array_equal(aggregate([[1, 2], [3, 4], [5, 9]], "median").vector, [3, 4])
    with pytest.raises(ValueError, match="real numbers"):
        aggregate(np.ones((3, 2), complex), "mean")
    with pytest.raises(ValueError, match=r"\(n, d\) matrix"):
        aggregate([np.ones(3), np.ones(4)], "mean")


def test_small_inputs_load_no_compiler() -> None:
    code = (
        "import sys, numpy as np; from capibara_assets.consensus.aggregation.aggregate import aggregate; "
        "aggregate(np.ones((7, 9)), 'krum', f=2); assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
