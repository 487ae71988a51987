"""Attention, matrix product and softmax of masked rows: the kernels we use beside plain Python, and beside NumPy."""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

Rows = list[list[float]]
KERNELS = ("attention", "matmul", "sparse_softmax")
SIZE, LARGE = 64, 512  # sides of the matrices; plain Python takes minutes at the second
_CALLS = 50  # of a kernel in one reading: one takes microseconds
_MEASURABLE = 0.02  # seconds: some machines count a process's time in hundredths
_KEPT = 0.2  # share of the entries that masks keep


def measure_kernels(repeats: int, size: int = SIZE, large: int = LARGE) -> dict[str, Any]:
    """How many times faster each kernel is, on one thread: median of interleaved runs; all results are compared.

    Returns:
        By kernel the ratio to plain Python on `size` x `size` numbers, `<kernel>_range`, `size`, and `over_numpy`: side
        of the matrices -> kernel -> ratio to NumPy.

    Raises:
        AssertionError: two of them differ by more than rounding.
    """
    import torch
    from threadpoolctl import threadpool_limits

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the loops have
    try:
        with threadpool_limits(1):
            return _measured(repeats, size, large)
    finally:
        torch.set_num_threads(threads)


def _measured(repeats: int, size: int, large: int) -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {"size": size}
    ours, (q, k, v, kept) = _kernels(size)
    lists = [value.tolist() for value in (q, k, v, kept)]
    loops: dict[str, Callable[[], Any]] = {
        "attention": lambda: attention(*lists[:3]),
        "matmul": lambda: matmul(*lists[:2]),
        "sparse_softmax": lambda: sparse_softmax(lists[0], lists[3]),
    }
    for name in KERNELS:
        torch.testing.assert_close(ours[name](), torch.tensor(loops[name]()), rtol=1e-3, atol=1e-4)
        ratios = _ratios(loops[name], ours[name], repeats, calls=1)
        found[name] = round(statistics.median(ratios), 1)
        found[f"{name}_range"] = [round(min(ratios), 1), round(max(ratios), 1)]
    found["over_numpy"] = {str(side): _over_numpy(repeats, side) for side in (size, large)}
    return found


def _over_numpy(repeats: int, size: int) -> dict[str, float]:
    import torch

    ours, (q, k, v, kept) = _kernels(size)
    arrays = [value.numpy() for value in (q, k, v, kept)]
    theirs: dict[str, Callable[[], Any]] = {
        "attention": lambda: numpy_attention(*arrays[:3]),
        "matmul": lambda: arrays[0] @ arrays[1],
        "sparse_softmax": lambda: numpy_sparse_softmax(arrays[0], arrays[3]),
    }
    found = {}
    for name in KERNELS:
        torch.testing.assert_close(ours[name](), torch.from_numpy(theirs[name]()), rtol=1e-3, atol=1e-3)
        calls = max(1, _CALLS * SIZE**2 // size**2)
        found[name] = round(statistics.median(_ratios(theirs[name], ours[name], repeats, calls=calls)), 2)
    return found


def _kernels(size: int) -> tuple[dict[str, Callable[[], Any]], tuple[Any, ...]]:
    """Our kernels by name, and the matrices q, k, v and the mask that they work on."""
    import torch
    from torch.nn import functional

    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(size, size, generator=draw) for _ in range(3))
    kept = torch.rand(size, size, generator=draw) < _KEPT
    kept.fill_diagonal_(True)
    masked = q.masked_fill(~kept, -math.inf)
    heads = (q[None, None], k[None, None], v[None, None])
    kernels: dict[str, Callable[[], Any]] = {
        "attention": lambda: functional.scaled_dot_product_attention(*heads, is_causal=True)[0, 0],
        "matmul": lambda: q @ k,
        "sparse_softmax": lambda: masked.softmax(-1),
    }
    return kernels, (q, k, v, kept)


def _ratios(theirs: Callable[[], Any], ours: Callable[[], Any], repeats: int, *, calls: int) -> list[float]:
    """Their seconds over ours, once for each repeat."""
    return [_seconds(theirs, calls) / _seconds(ours, max(calls, _CALLS)) for _ in range(repeats)]


def _seconds(work: Callable[[], Any], calls: int) -> float:
    """Processor seconds of one call: other programs on the machine don't count."""
    started, done = time.process_time(), 0
    while True:
        for _ in range(calls):
            work()
        done += calls
        if (spent := time.process_time() - started) >= _MEASURABLE:
            return spent / done


def matmul(left: Rows, right: Rows) -> Rows:
    """In plain Python."""
    columns = list(zip(*right, strict=True))
    return [[sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in left]


def softmax(row: list[float]) -> list[float]:
    """In plain Python."""
    top = max(row)
    powers = [math.exp(value - top) for value in row]
    total = sum(powers)
    return [power / total for power in powers]


def attention(q: Rows, k: Rows, v: Rows) -> Rows:
    """In plain Python; causal: row i sees rows 0..i."""
    scale = 1 / math.sqrt(len(q[0]))
    scores = matmul(q, [list(column) for column in zip(*k, strict=True)])
    weights = [softmax([scale * s for s in row[: i + 1]]) + [0.0] * (len(k) - i - 1) for i, row in enumerate(scores)]
    return matmul(weights, v)


def sparse_softmax(values: Rows, kept: list[list[bool]]) -> Rows:
    """In plain Python, over the kept entries of each row; the others are zero."""
    found = []
    for row, mask in zip(values, kept, strict=True):
        places = [place for place, keep in enumerate(mask) if keep]
        out = [0.0] * len(row)
        for place, weight in zip(places, softmax([row[place] for place in places]), strict=True):
            out[place] = weight
        found.append(out)
    return found


def numpy_attention(q: Any, k: Any, v: Any) -> Any:
    """As one writes it with NumPy."""
    import numpy as np

    scores = q @ k.T / np.float32(math.sqrt(q.shape[1]))
    return numpy_sparse_softmax(scores, np.tri(len(q), len(k), dtype=bool)) @ v


def numpy_sparse_softmax(values: Any, kept: Any) -> Any:
    """As one writes it with NumPy."""
    import numpy as np

    masked = np.where(kept, values, np.float32(-np.inf))
    powers = np.exp(masked - masked.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
