"""Attention, matrix product and softmax over masked rows: the library kernels we use beside plain Python loops."""

import math
import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.timing import timed

Rows = list[list[float]]


def measure_kernels(repeats: int, size: int = 64) -> dict[str, Any]:
    """How many times faster each kernel is on `size` x `size` numbers, median of interleaved runs; results compared.

    Raises:
        AssertionError: a kernel and its loop differ by more than rounding.
    """
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)  # as the loops have
    torch.manual_seed(0)
    q, k, v = (torch.randn(size, size) for _ in range(3))
    kept = torch.rand(size, size) < 0.2
    kept.fill_diagonal_(True)
    masked = q.masked_fill(~kept, -math.inf)
    lists = {name: value.tolist() for name, value in {"q": q, "k": k, "v": v, "kept": kept}.items()}

    def attend() -> torch.Tensor:
        return functional.scaled_dot_product_attention(q[None, None], k[None, None], v[None, None], is_causal=True)[
            0, 0
        ]

    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Rows]]] = {
        "attention": (attend, lambda: attention(lists["q"], lists["k"], lists["v"])),
        "matmul": (lambda: q @ k, lambda: matmul(lists["q"], lists["k"])),
        "sparse_softmax": (lambda: masked.softmax(-1), lambda: sparse_softmax(lists["q"], lists["kept"])),
    }
    found: dict[str, Any] = {"size": size}
    for name, (kernel, loop) in pairs.items():
        torch.testing.assert_close(kernel(), torch.tensor(loop()), rtol=1e-3, atol=1e-4)
        ratios = []
        for _ in range(repeats):
            theirs = timed(loop)["wall_s"]
            ours = timed(lambda run=kernel: [run() for _ in range(100)])["wall_s"] / 100  # type: ignore[misc]
            ratios.append(theirs / ours)
        found[name] = round(statistics.median(ratios), 1)
        found[f"{name}_range"] = [round(min(ratios), 1), round(max(ratios), 1)]
    return found


def matmul(left: Rows, right: Rows) -> Rows:
    columns = list(zip(*right, strict=True))
    return [[sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in left]


def softmax(row: list[float]) -> list[float]:
    top = max(row)
    powers = [math.exp(value - top) for value in row]
    total = sum(powers)
    return [power / total for power in powers]


def attention(q: Rows, k: Rows, v: Rows) -> Rows:
    """Causal: row i sees rows 0..i."""
    scale = 1 / math.sqrt(len(q[0]))
    scores = matmul(q, [list(column) for column in zip(*k, strict=True)])
    weights = [softmax([scale * s for s in row[: i + 1]]) + [0.0] * (len(k) - i - 1) for i, row in enumerate(scores)]
    return matmul(weights, v)


def sparse_softmax(values: Rows, kept: list[list[bool]]) -> Rows:
    """Over the kept entries of each row; the others are zero."""
    found = []
    for row, mask in zip(values, kept, strict=True):
        places = [place for place, keep in enumerate(mask) if keep]
        out = [0.0] * len(row)
        for place, weight in zip(places, softmax([row[place] for place in places]), strict=True):
            out[place] = weight
        found.append(out)
    return found
