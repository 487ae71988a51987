"""Compilation of kernels: loops that Numba compiles once and keeps in its cache, for as long as no kernel changes.

A kernel is compiled together with those that it calls and with the constants that it uses. Numba's own cache compares
the kernel's file alone: it would go on with what was compiled of a callee in another module before that was changed.
Here the sources of all kernels of the package count, modules with "kernel" in their name, in whichever folder they are.
"""

import functools
import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types  # type: ignore[attr-defined]
from numba.core.caching import FunctionCache
from numba.extending import intrinsic

_intrinsic: Callable[..., Any] = intrinsic


def compiled(**flags: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: `njit` with these flags, without the interpreter's lock, cached."""

    def decorate(function: Callable[..., Any]) -> Any:
        kernel = njit(nogil=True, **flags)(function)
        # As `cache=True` does with Numba's own
        kernel._cache = _KernelCache(function)  # type: ignore[no-untyped-call]
        return kernel

    return decorate


class _KernelCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of one function's compiled code, with the sources of all kernels in its key."""

    def _index_key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
        key = super()._index_key(signature, codegen)  # type: ignore[no-untyped-call]
        return (*key, _sources(_package(Path(inspect.getfile(self._py_func)).parent)))


def _package(folder: Path) -> Path:
    """The folder of the outermost package that a module in `folder` belongs to; `folder` where it is of none."""
    while (folder.parent / "__init__.py").exists():
        folder = folder.parent
    return folder


@functools.cache
def _sources(folder: Path) -> str:
    """SHA-256 of the kernels in a folder and below."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*kernel*.py")):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@_intrinsic
def pointer(typing_context: Any, address: Any) -> Any:
    """An address (an integer) as a pointer that `carray` makes an array of."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(address), generate
