"""Interface of merge methods: the options for one tensor, and the function that computes a block of the result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capibara_assets.consensus.merging.stack import Block

Emit = Callable[[int, int, Any], None]
Write = Callable[[int, int, np.uint64, int], bool]


@dataclass(frozen=True)
class Recipe:
    """Options of a method for one tensor; tuples have one entry for each of the stack's models."""

    weights: tuple[float, ...] = ()
    density: tuple[float, ...] = ()
    gamma: tuple[float, ...] = ()
    epsilon: tuple[float, ...] = ()
    t: float = 0.5
    lambda_: float = 1.0
    normalize: bool = True
    rescale: bool = False
    seed: int = 0
    select_topk: float = 1.0
    max_iter: int = 10
    tol: float = 1e-5
    eps: float = 1e-8
    normalize_weights: bool = True
    row_wise: bool = False
    flatten: bool = True
    filter_wise: bool = False


@dataclass(frozen=True)
class Merge:
    """The computation of one tensor's result: `emit(start, stop, out)` writes elements of one of `blocks`, as float32.

    With `spreads` a non-finite input makes the result non-finite, so that inputs need no check beforehand.
    `write(start, stop, address, kind)` writes the same elements, rounded to float32 or bfloat16, to an address, and
    returns False where a value is not finite.
    """

    blocks: Sequence[Block]
    emit: Emit
    spreads: bool = False
    write: Write | None = None
