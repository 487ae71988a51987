"""Fewer garbage collections while trees are built by the thousand."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_ALLOCATIONS, _YOUNG, _MIDDLE = 20_000, 50, 100


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collects garbage some thirty times less often, and as before afterwards.

    Trees of programs are freed by their reference counts; looking for cycles in all that is kept (facts, idioms)
    every 700 objects takes a quarter of the time of reading them. SQL trees have cycles, so collections go on.
    """
    before = gc.get_threshold()
    gc.set_threshold(_ALLOCATIONS, _YOUNG, _MIDDLE)
    try:
        yield
    finally:
        gc.set_threshold(*before)
