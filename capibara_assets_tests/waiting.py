"""Tests wait for conditions, never for a fixed time."""

import time
from collections.abc import Callable


def until(holds: Callable[[], object], seconds: float = 60.0, said: str = "it did not come") -> None:
    """Wait until it holds; after so many seconds, which only a failure takes, the test fails with what is said."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, said
        time.sleep(0.01)
