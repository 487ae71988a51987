"""Lazy public names: an `api` module lists where its names are defined, and imports each module on first use."""

from collections.abc import Callable, Mapping
from importlib import import_module
from sys import modules
from typing import Any


def public_names(api: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of an `api` module, so that importing it does not import torch.

    Args:
        api: `__name__` of that module.
        homes: public name -> the module that defines it, below `capibara_assets`.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {api!r} has no attribute {name!r}")
        value = getattr(import_module(f"capibara_assets.{homes[name]}"), name)
        setattr(modules[api], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(modules[api]), *homes})

    return get, names
