"""Table of the checkpoint merge methods: what each needs, and its options with their defaults.

A method is a small function on one tensor of all models: it scans the tensor as often as it needs, and returns the
computation of each block of the result. Names and defaults of the options are mergekit's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from capibara_assets.consensus.merging.combinations import (
    convex,
    karcher,
    linear,
    model_stock,
    multislerp,
    nuslerp,
    slerp,
    task_arithmetic,
)
from capibara_assets.consensus.merging.interface import Merge, Recipe
from capibara_assets.consensus.merging.sparsification import (
    arcee_fusion,
    breadcrumbs,
    breadcrumbs_ties,
    dare_linear,
    dare_ties,
    della,
    sce,
    ties,
)
from capibara_assets.consensus.merging.stack import Stack

Build = Callable[[Stack, Recipe], Merge]


@dataclass(frozen=True)
class RegisteredMethod:
    """A merge method, its requirements and its options.

    Attributes:
        build: returns the merge of one tensor.
        base: `required`; `optional`; `first`: the base is the first of two ends; `unused`: only its config counts.
        models: least and largest number of models, the base not counted (for `first`: counted).
        options: name -> default.
    """

    build: Build
    base: Literal["required", "optional", "first", "unused"]
    models: tuple[int, int | None]
    options: Mapping[str, Any] = field(default_factory=dict)


_TASK = MappingProxyType({"weights": 1.0, "lambda_": 1.0, "normalize": False})
_SPARSE = MappingProxyType({**_TASK, "density": 1.0, "rescale": False})
_RANDOM = MappingProxyType({**_SPARSE, "rescale": True, "seed": 0})
METHODS: Mapping[str, RegisteredMethod] = MappingProxyType(
    {
        "linear": RegisteredMethod(linear, "unused", (1, None), {"weights": 1.0, "normalize": True}),
        "slerp": RegisteredMethod(slerp, "first", (2, 2), {"t": None, "eps": 1e-8}),
        "nuslerp": RegisteredMethod(
            nuslerp, "optional", (2, 2), {"weights": 1.0, "flatten": True, "row_wise": False, "eps": 1e-8}
        ),
        "multislerp": RegisteredMethod(
            multislerp, "optional", (1, None), {"weights": 1.0, "normalize_weights": True, "eps": 1e-8}
        ),
        "task_arithmetic": RegisteredMethod(task_arithmetic, "required", (1, None), _TASK),
        "ties": RegisteredMethod(ties, "required", (1, None), {**_SPARSE, "normalize": True}),
        "dare_linear": RegisteredMethod(dare_linear, "required", (1, None), _RANDOM),
        "dare_ties": RegisteredMethod(dare_ties, "required", (1, None), _RANDOM),
        "della": RegisteredMethod(della, "required", (1, None), {**_RANDOM, "normalize": True, "epsilon": 0.15}),
        "breadcrumbs": RegisteredMethod(breadcrumbs, "required", (1, None), {**_SPARSE, "gamma": 0.01}),
        "breadcrumbs_ties": RegisteredMethod(breadcrumbs_ties, "required", (1, None), {**_SPARSE, "gamma": 0.01}),
        "model_stock": RegisteredMethod(model_stock, "required", (2, None), {"filter_wise": False}),
        "karcher": RegisteredMethod(karcher, "unused", (1, None), {"max_iter": 10, "tol": 1e-5}),
        "sce": RegisteredMethod(sce, "required", (1, None), {"select_topk": 1.0}),
        "arcee_fusion": RegisteredMethod(arcee_fusion, "required", (1, 1)),
        "convex": RegisteredMethod(convex, "unused", (1, None), {"weights": None}),
    }
)
"""Every method by name. A default of None: the option must be given."""
