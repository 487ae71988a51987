"""Libraries that few tests need: imported when a test first uses them, not in every worker that collects the tests."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest


class Late:
    """A module, imported at the first access to one of its names."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_mock_name":  # pytest asks this of everything that a test module holds
            raise AttributeError(name)
        return getattr(import_module(self._name), name)


def late(name: str, reason: str) -> Any:
    """The module of this name; the tests of the calling module are skipped where its library is not installed."""
    if find_spec(name.split(".")[0]) is None:
        pytest.skip(reason, allow_module_level=True)
    return Late(name)
