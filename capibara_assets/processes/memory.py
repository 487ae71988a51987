"""Memory of this process that nothing uses, back to the system."""

import ctypes


def return_free_memory() -> None:
    """Return memory that the C library holds in reserve to the system; only glibc does so."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
