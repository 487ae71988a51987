"""Heavy libraries that others import on the chance that they are used, kept from being imported."""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without(name: str) -> Iterator[bool]:
    """Context in which a library that is not imported yet cannot be; True if it is hidden.

    A None in `sys.modules` is how Python marks a module that must not be imported.
    """
    if name in sys.modules or importlib.util.find_spec(name) is None:
        yield False
        return
    sys.modules[name] = None  # type: ignore[assignment]  # as documented: importing it is then a ModuleNotFoundError
    try:
        yield True
    finally:
        del sys.modules[name]


@contextmanager
def without_bitsandbytes() -> Iterator[None]:
    """Context in which PEFT finds no bitsandbytes, unless it was imported before, as a quantised base does.

    It costs over a second of every start and only quantised bases need it. PEFT's cached answers are cleared before and
    after, so that a later quantised base gets its layers.
    """
    with without("bitsandbytes") as hidden:
        if hidden:
            _forget()
        yield
    if hidden:
        _forget()


def _forget() -> None:
    """Clear PEFT's cached answers about bitsandbytes, where PEFT is imported already."""
    if remembered := sys.modules.get("peft.import_utils"):
        remembered.is_bnb_available.cache_clear()
        remembered.is_bnb_4bit_available.cache_clear()
