"""What a merge method is given for one tensor, and what it gives back: the way each block of the result is made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capibara_assets.consensus.merging.stack import Block

Emit = Callable[[int, int, Any], None]
Write = Callable[[int, int, np.uint64, int], bool]


@dataclass(frozen=True)
class Recipe:
    """The options as they hold for one tensor; those per model have one entry for each of the stack's parts."""

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
    """How a tensor's result is made: `emit(start, stop, out)` writes the elements of one of `blocks`, as float32.

    With `spreads` a value of an input that is not finite makes one in the result, and need not be looked for before.
    `write(start, stop, address, kind)` puts the same, rounded to float32 or bfloat16, where it is to be written from,
    and says False where a value is not finite there.
    """

    blocks: Sequence[Block]
    emit: Emit
    spreads: bool = False
    write: Write | None = None
