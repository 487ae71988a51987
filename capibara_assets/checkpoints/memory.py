"""Uninitialised CPU memory for tensors that are read from a file."""

import ctypes
import mmap
import sys
from collections.abc import Callable

import torch

_HUGE = 14  # MADV_HUGEPAGE of Linux
_LARGE = 4 << 20  # bytes from which huge pages pay off, the same as NumPy's


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """An uninitialised tensor in CPU memory; large ones use huge pages, if Linux provides them.

    The first access to each page costs a fault: with pages of 2 MiB instead of 4 KiB, reading a file from the page
    cache into new memory takes a fifth of the time.
    """
    tensor = torch.empty(shape, dtype=dtype)
    if tensor.nbytes >= _LARGE and _madvise is not None:
        start = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        _madvise(start, tensor.data_ptr() + tensor.nbytes - start, _HUGE)  # a hint: refused, nothing changes
    return tensor


def _find_madvise() -> Callable[[int, int, int], int] | None:
    """The C library's madvise: Python's own works on its mmap objects only."""
    function = getattr(ctypes.CDLL(None), "madvise", None) if sys.platform == "linux" else None
    if function is not None:
        function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


_madvise = _find_madvise()
