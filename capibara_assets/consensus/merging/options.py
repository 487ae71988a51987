"""Options of a checkpoint merge: aliases resolved, values checked, and their values for each tensor."""

import fnmatch
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from capibara_assets.consensus.merging.interface import Recipe
from capibara_assets.consensus.merging.methods import METHODS, RegisteredMethod
from capibara_assets.errors import nearest

DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
_COMMON = {"base": None, "dtype": None, "max_shard_size": "500MB", "threads": None}
_ALIASES = {
    "weight": "weights",
    "lambda": "lambda_",
    "scale": "lambda_",
    "base_model": "base",
    "random_seed": "seed",
    "out_shard_size": "max_shard_size",
    "nuslerp_row_wise": "row_wise",
    "nuslerp_flatten": "flatten",
}
_LARGEST = 1e30  # of an option: sums and products of some, and of weights, are numbers too
PER_MODEL = ("weights", "density", "gamma", "epsilon")
_FLAGS = ("normalize", "rescale", "normalize_weights", "row_wise", "flatten", "filter_wise")
_COUNTS = ("seed", "max_iter")


def known_method(method: str) -> RegisteredMethod:
    """Look up a method by name. Raises ValueError for an unknown one, naming the nearest and all known."""
    if method not in METHODS:
        raise ValueError(f"unknown merge method {method!r}: known are {', '.join(METHODS)}{nearest(method, METHODS)}")
    return METHODS[method]


def read_options(method: str, known: RegisteredMethod, options: Mapping[str, Any]) -> dict[str, Any]:
    """Validate the options and fill in defaults. Raises ValueError: unknown, repeated or invalid options."""
    given = {**_COMMON, **known.options}
    seen: set[str] = set()
    for name, value in options.items():
        own = name if name in given else _ALIASES.get(name, name)
        if own not in given:
            near = nearest(name, [*given, *_ALIASES])
            raise ValueError(f"{method} has no option {name!r}: it knows {', '.join(sorted(given))}{near}")
        if own in seen:
            raise ValueError(f"{own} was given twice, the second time as {name}: give one of the two")
        seen.add(own)
        if value is not None:
            given[own] = value
    missing = [name for name, default in known.options.items() if default is None and given[name] is None]
    if missing:
        raise ValueError(f"{method} needs the option {missing[0]}, which has no default: give it")
    for name in _FLAGS:
        if name in given and not isinstance(given[name], bool):
            raise ValueError(f"{name} has to be true or false, not {given[name]!r}")
    for name in _COUNTS:
        if name in given and (isinstance(given[name], bool) or not isinstance(given[name], int) or given[name] < 0):
            raise ValueError(f"{name} is a whole number from 0 on, not {given[name]!r}")
    for name in ("select_topk", "t"):
        if name in given and not 0.0 <= _number(name, given[name]) <= 1.0:
            raise ValueError(f"{name} lies between 0 and 1, not {given[name]}")
    for name in ("lambda_", "tol", "eps"):
        if name in given:
            _number(name, given[name])
    if given["dtype"] is not None:
        dtype = str(given["dtype"]).removeprefix("torch.")
        if dtype not in DTYPES:
            raise ValueError(f"dtype {dtype!r} cannot be written: give one of {', '.join(DTYPES)}")
        given["dtype"] = dtype
    threads = given["threads"]
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise ValueError(f"threads is a whole number from 1 on, not {threads!r}")
    return given


def recipes(method: str, given: Mapping[str, Any], count: int) -> Callable[[str], Recipe]:
    """A function from a tensor's name to its options; it raises ValueError where a value is out of range."""
    known = METHODS[method]
    shared = {name: given[name] for name in known.options if name not in PER_MODEL}
    lists = {name: _per_model(name, given[name], count) for name in PER_MODEL if name in known.options}
    for name in ("t", "lambda_", "tol", "eps", "select_topk"):
        if name in shared:
            shared[name] = float(shared[name])

    def recipe(tensor: str) -> Recipe:
        values: dict[str, Any] = {
            name: tuple(_resolved(name, entry, tensor) for entry in entries) for name, entries in lists.items()
        }
        _check_values(method, shared, values, tensor)
        return Recipe(**shared, **values)

    return recipe


def _check_values(name: str, shared: Mapping[str, Any], values: Mapping[str, tuple[float, ...]], tensor: str) -> None:
    weights = values.get("weights", ())
    if name == "convex" and (min(weights) < 0.0 or abs(math.fsum(weights) - 1.0) > 1e-6):
        raise ValueError(f"convex weights are non-negative and sum to 1; {list(weights)} sum to {math.fsum(weights)}")
    divides = (name == "linear" and shared["normalize"]) or (name == "multislerp" and shared["normalize_weights"])
    if divides and abs(math.fsum(weights)) < 1e-8:
        raise ValueError(f"the weights of {tensor} sum to 0: they cannot be normalised; give others or normalize=False")
    for option in ("density", "gamma", "epsilon"):
        if any(not 0.0 <= value <= 1.0 for value in values.get(option, ())):
            raise ValueError(f"{option} lies between 0 and 1, not {list(values[option])}")
    for density, epsilon in zip(values.get("density", ()), values.get("epsilon", ()), strict=False):
        if 0.0 < density < 1.0 and not 0.0 < density - epsilon <= density + epsilon < 1.0:
            raise ValueError(
                f"density ± epsilon has to lie within 0 and 1; {density} ± {epsilon} does not: give a smaller epsilon"
            )


def _per_model(name: str, value: Any, count: int) -> list[Any]:
    if isinstance(value, list | tuple | np.ndarray):
        if len(value) != count:
            raise ValueError(f"{len(value)} values of {name} for {count} models: give one for each, or a single number")
        return list(value)
    return [value] * count


def _resolved(option: str, value: Any, tensor: str) -> float:
    """A number, or from a mapping of name patterns the number of the first that fits the tensor."""
    if isinstance(value, Mapping):
        for pattern, number in value.items():
            if fnmatch.fnmatchcase(tensor, pattern):
                return _number(option, number)
        raise ValueError(f"no pattern of {option} fits {tensor}: add a last one, '*'")
    return _number(option, value)


def _number(option: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool | str) or not math.isfinite(number):
        raise ValueError(f"{option} is a number, not {value!r}")
    if abs(number) > _LARGEST:
        raise ValueError(f"{option} is a number of at most {_LARGEST:g}, not {value!r}")
    return number
