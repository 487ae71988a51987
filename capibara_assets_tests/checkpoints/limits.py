"""A full disk without one: the kernel itself refuses to let files grow."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file of this process becomes larger than `size` bytes: writes beyond fail in the middle (RLIMIT_FSIZE).

    Python ignores the signal that comes with it. Nothing that this process writes meanwhile may need more.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
