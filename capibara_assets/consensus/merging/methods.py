"""Every method that merges checkpoints, by name: what it asks for, and which options it knows with which defaults.

A method is a small function on one tensor of all models. It makes whatever passes over the tensor it needs, and returns
how each block of the result is made. Names and defaults of the options are those that mergekit's users know.
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
class Method:
    """A method and what it asks for.

    Attributes:
        build: makes the merge of one tensor.
        base: `required`; `optional`; `first`: the base is the first of two ends; `unused`: only its config counts.
        models: least and largest number of models, the base not counted (for `first`: counted).
        options: those that it knows -> the default.
    """

    build: Build
    base: Literal["required", "optional", "first", "unused"]
    models: tuple[int, int | None]
    options: Mapping[str, Any] = field(default_factory=dict)


_TASK = MappingProxyType({"weights": 1.0, "lambda_": 1.0, "normalize": False})
_SPARSE = MappingProxyType({**_TASK, "density": 1.0, "rescale": False})
_RANDOM = MappingProxyType({**_SPARSE, "rescale": True, "seed": 0})
METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "linear": Method(linear, "unused", (1, None), {"weights": 1.0, "normalize": True}),
        "slerp": Method(slerp, "first", (2, 2), {"t": None, "eps": 1e-8}),
        "nuslerp": Method(
            nuslerp, "optional", (2, 2), {"weights": 1.0, "flatten": True, "row_wise": False, "eps": 1e-8}
        ),
        "multislerp": Method(
            multislerp, "optional", (1, None), {"weights": 1.0, "normalize_weights": True, "eps": 1e-8}
        ),
        "task_arithmetic": Method(task_arithmetic, "required", (1, None), _TASK),
        "ties": Method(ties, "required", (1, None), {**_SPARSE, "normalize": True}),
        "dare_linear": Method(dare_linear, "required", (1, None), _RANDOM),
        "dare_ties": Method(dare_ties, "required", (1, None), _RANDOM),
        "della": Method(della, "required", (1, None), {**_RANDOM, "normalize": True, "epsilon": 0.15}),
        "breadcrumbs": Method(breadcrumbs, "required", (1, None), {**_SPARSE, "gamma": 0.01}),
        "breadcrumbs_ties": Method(breadcrumbs_ties, "required", (1, None), {**_SPARSE, "gamma": 0.01}),
        "model_stock": Method(model_stock, "required", (2, None), {"filter_wise": False}),
        "karcher": Method(karcher, "unused", (1, None), {"max_iter": 10, "tol": 1e-5}),
        "sce": Method(sce, "required", (1, None), {"select_topk": 1.0}),
        "arcee_fusion": Method(arcee_fusion, "required", (1, 1)),
        "convex": Method(convex, "unused", (1, None), {"weights": None}),
    }
)
"""Every method by name. A default of None: the option must be given."""
