"""Asynchronous saving: the caller waits for a copy to host memory, and a thread writes it to the store.

A state must not change while it is written, and an optimizer changes weights and moments in place. So a save copies
first, into buffers that it keeps, and the next save waits until they are free: at most one copy in memory, and at most
one write at a time.
"""

import os
import sys
import weakref
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from copy import deepcopy
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from capibara_assets.checkpoints.content import of_torch
from capibara_assets.checkpoints.tree import flatten, unflatten


class Saves(Protocol):
    """The method of a store that `AsyncSaver` needs; `CheckpointStore` has it."""

    def save(self, state: Any, step: int, model_name: str, *, files: Mapping[str, bytes], **about: Any) -> str:
        """Write a nested state; returns the checkpoint's id."""
        ...


class AsyncSaver:
    """Saver to a store in the background, one checkpoint at a time; used by one thread, in the process that made it.

    The error of a failed save is raised, once, by the next `save`, `check`, `wait` or `close`. Leaving the `with` block
    closes; an error already being raised is not replaced by a failed save's, which is added to it as a note. Close it:
    an interpreter that exits before that waits for the write but allows no new threads, so that a large write fails,
    which is printed to stderr; nothing is half published.
    """

    def __init__(self, store: Saves):
        self._store = store
        self._copies = _HostCopies()
        # One waiting thread: starting one for each save would hand it Python's lock in the middle of a step
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending = _Pending()
        self._process = os.getpid()
        self._closed = False
        # A saver that was never closed, or an interpreter that exits, has no caller left to raise to
        weakref.finalize(self, _report_failure, self._pending, self._process)

    def save(
        self, state: Any, step: int, model_name: str, *, files: Mapping[str, bytes | Path] | None = None, **about: Any
    ) -> Future[str]:
        """Copy the state, start writing it, and return; waits for the previous save first.

        Args:
            state: nested tensors and plain values, on any device; may be changed as soon as this returns. Ties stay.
            files: name -> bytes, or a local file, which is read now.
            about: as of `CheckpointStore.save`.

        Returns:
            The checkpoint's id, once it is published and durable.

        Raises:
            InputError: the state holds something that a checkpoint cannot.
            Exception: the error of the previous save; this one was not started.
        """
        self._require_usable()
        self.wait()
        copy = self._copies.of(state)
        contents = {
            name: data if isinstance(data, bytes) else data.read_bytes() for name, data in (files or {}).items()
        }
        self._pending.save = self._writer.submit(
            _write, self._store, copy, step, model_name, files=contents, **deepcopy(about)
        )
        return self._pending.save

    def check(self) -> None:
        """Raise the error of the last save, if it has ended; never waits. Call it at every step."""
        if self._pending.save is not None and self._pending.save.done():
            self.wait()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the running save, if any, has ended; at most `timeout` seconds.

        Returns:
            Whether it has ended; if not, the write continues.

        Raises:
            Exception: the error of the save.
        """
        if self._process != os.getpid() or self._pending.save is None:
            return True  # after a fork the write is the parent's
        if not wait_for([self._pending.save], timeout).done:
            return False
        ended, self._pending.save = self._pending.save, None
        ended.result()
        return True

    def close(self, timeout: float | None = None) -> bool:
        """Refuse further saves and `wait`.

        A process that has to stop passes its remaining time as `timeout`: exiting after it leaves nothing half
        published, and `close` may be called again.
        """
        self._closed = True
        self._writer.shutdown(wait=False)
        return self.wait(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception as failed:
            if error is None:
                raise
            if error is not failed:
                error.add_note(f"{'; '.join(getattr(failed, '__notes__', []))}: {type(failed).__name__}: {failed}")

    def _require_usable(self) -> None:
        if self._process != os.getpid():
            raise RuntimeError("this AsyncSaver was made before a fork: its thread is the parent's; make one here")
        if self._closed:
            raise RuntimeError("this AsyncSaver is closed")


class _Pending:
    """The save whose result has not been checked yet."""

    save: Future[str] | None = None


class _HostCopies:
    """Buffers in host memory with the last copied state; pinned for tensors of a GPU."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.Size, torch.dtype, bool], Tensor] = {}

    def of(self, state: Any) -> Any:
        """A copy of a nested state that shares no memory with it; the previous copy is overwritten.

        Raises:
            InputError: something that is neither a tensor with plain bytes nor plain data; the message names it.
        """
        tensors, tree, ties = flatten(state)
        places = {name: (name, tensor.shape, tensor.dtype, tensor.is_cuda) for name, tensor in tensors.items()}
        self._buffers = {place: self._buffers[place] for place in places.values() if place in self._buffers}
        for name, place in places.items():  # buffers of other shapes and types are freed before new ones are allocated
            if place not in self._buffers:
                self._buffers[place] = _buffer(name, tensors[name])
        copies = {name: self._buffers[place] for name, place in places.items()}
        if tensors:
            torch._foreach_copy_(list(copies.values()), list(tensors.values()), non_blocking=True)
        for device in {tensor.device for tensor in tensors.values() if tensor.is_cuda}:
            torch.cuda.current_stream(device).synchronize()
        return unflatten(tree, copies.__getitem__, ties)


def _buffer(name: str, tensor: Tensor) -> Tensor:
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        of_torch(tensor, name)  # raises, with the reason
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)


def _write(store: Saves, state: Any, step: int, model_name: str, **rest: Any) -> str:
    """One save, in the writing thread."""
    try:
        return store.save(state, step, model_name, **rest)
    except BaseException as error:
        error.add_note(f"while the checkpoint of {model_name} at step {step} was saved in the background")
        raise


def _report_failure(pending: _Pending, process: int) -> None:
    """Print the error of an unchecked save to stderr, now or when it ends."""
    if process == os.getpid() and pending.save is not None:
        pending.save.add_done_callback(_print_error)


def _print_error(save: Future[str]) -> None:
    if (error := save.exception()) is not None:
        sys.excepthook(type(error), error, error.__traceback__)
