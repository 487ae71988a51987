"""Saving beside the work: the caller waits for a copy in host memory, one thread writes it to the store.

What is handed to a store must not change while it is written, and an optimizer changes weights and moments in place.
So a save copies first, into buffers that it keeps, and the next save waits until they are free again: never more than
one copy in memory, never more than one write.
"""

import os
import sys
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from copy import deepcopy
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from capibara_assets.checkpoints.content import of_torch
from capibara_assets.checkpoints.tree import flatten, unflatten


class Saves(Protocol):
    """What is needed of a store; `CheckpointStore` has it."""

    def save(
        self, state: Any, step: int, model_name: str, *, files: Mapping[str, bytes | Path] = ..., **about: Any
    ) -> str:
        """Write a nested state; returns the checkpoint's id."""
        ...


class AsyncSaver:
    """Saves to a store in the background, one checkpoint at a time; used by one thread, in the process that made it.

    A save that failed is raised, as the very error, by the next call of `save`, `check` or `close`, once. Leaving the
    `with` block closes; an error that is on its way then is not replaced by a failed save's, which is noted on it.
    """

    def __init__(self, store: Saves):
        self._store = store
        self._copies = _HostCopies()
        self._pending = _Pending()
        self._process = os.getpid()
        self._closed = False
        # Forgotten savers and ended interpreters have nobody left to raise at.
        weakref.finalize(self, _tell, self._pending, self._process)

    def save(
        self, state: Any, step: int, model_name: str, *, files: Mapping[str, bytes | Path] | None = None, **about: Any
    ) -> Future[str]:
        """Copy the state, begin to write it, and return; waits for the save before this one.

        Args:
            state: nested tensors and plain values, on any device; may be changed as soon as this returns. Ties stay.
            files: name -> bytes or a local file, which is read now.
            about: as of `CheckpointStore.save`.

        Returns:
            The checkpoint's id, once it is published and durable.

        Raises:
            InputError: something in the state that no checkpoint can hold.
            Exception: whatever the save before this one failed with; this one has not begun.
        """
        self._require_usable()
        self._wait(None)
        copy = self._copies.of(state)
        contents = {
            name: data if isinstance(data, bytes) else data.read_bytes() for name, data in (files or {}).items()
        }
        future = Future[str]()
        future.set_running_or_notify_cancel()
        arguments = (future, self._store, copy, step, model_name, contents, deepcopy(about))
        # No daemon: an interpreter that ends waits for the write.
        Thread(target=_write, args=arguments, name=f"saves {model_name} {step}").start()
        self._pending.save = future
        return future

    def check(self) -> None:
        """Raise what the last save failed with, if it has ended; never waits. Call it at every step.

        Raises:
            Exception: that error.
        """
        if self._process == os.getpid() and self._pending.save is not None and self._pending.save.done():
            self._wait(None)

    def close(self, timeout: float | None = None) -> None:
        """Wait until the running save has ended; further saves are refused.

        Args:
            timeout: seconds to wait at most (a process that was told to stop has a budget). The write goes on after
                it, and `close` may be called again; whoever leaves all the same leaves nothing half there.

        Raises:
            TimeoutError: the save has not ended in time.
            Exception: whatever it failed with.
        """
        self._closed = True
        if self._process == os.getpid():  # after a fork the write is the parent's
            self._wait(timeout)

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
            error.add_note(f"{'; '.join(failed.__notes__)}: {type(failed).__name__}: {failed}")

    def _wait(self, timeout: float | None) -> None:
        """Wait for the running save, if any; raise its error, once."""
        if self._pending.save is None:
            return
        if not wait_for([self._pending.save], timeout).done:
            raise TimeoutError(f"a checkpoint is still being written after {timeout} s: the store is slow")
        ended, self._pending.save = self._pending.save, None
        ended.result()

    def _require_usable(self) -> None:
        if self._process != os.getpid():
            raise RuntimeError("this AsyncSaver was made before a fork: its thread is the parent's; make one here")
        if self._closed:
            raise RuntimeError("this AsyncSaver is closed")


class _Pending:
    """The save whose end nobody has asked for yet."""

    save: Future[str] | None = None


class _HostCopies:
    """Buffers in host memory that hold the last state copied; pinned for what comes from a GPU."""

    def __init__(self) -> None:
        self._buffers: dict[_Place, Tensor] = {}

    def of(self, state: Any) -> Any:
        """A copy of a nested state that shares nothing with it; the one before is overwritten.

        Raises:
            InputError: something that is neither a tensor with plain bytes nor plain data; the message names it.
        """
        tensors, tree, ties = flatten(state)
        places = {name: _place(name, tensor) for name, tensor in tensors.items()}
        kept = self._buffers.keys() & places.values()
        self._buffers = {place: self._buffers[place] for place in kept}  # the others go before new ones come
        for name, place in places.items():
            if place not in self._buffers:
                self._buffers[place] = torch.empty(place.shape, dtype=place.dtype, pin_memory=place.pinned)
            self._buffers[place].copy_(tensors[name], non_blocking=True)
        for device in {tensor.device for tensor in tensors.values() if tensor.is_cuda}:
            torch.cuda.current_stream(device).synchronize()
        return unflatten(tree, lambda name: self._buffers[places[name]], ties)


class _Place(NamedTuple):
    """What a buffer is for: a tensor of another shape or type needs another one."""

    name: str
    shape: torch.Size
    dtype: torch.dtype
    pinned: bool


def _place(name: str, tensor: Tensor) -> _Place:
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        of_torch(tensor, name)  # raises: says what is wrong with it
    return _Place(name, tensor.shape, tensor.dtype, tensor.is_cuda)


def _write(
    future: Future[str],
    store: Saves,
    state: Any,
    step: int,
    model_name: str,
    files: Mapping[str, bytes | Path],
    about: Mapping[str, Any],
) -> None:
    """Body of the writing thread: one save, whose id or error goes into the future."""
    try:
        future.set_result(store.save(state, step, model_name, files=files, **about))
    except BaseException as error:  # noqa: BLE001 - raised by the next call, whatever it is
        error.add_note(f"while the checkpoint of {model_name} at step {step} was saved in the background")
        future.set_exception(error)


def _tell(pending: _Pending, process: int) -> None:
    """A failure that no call is left to raise goes to stderr, now or when the save ends."""
    if process == os.getpid() and pending.save is not None:
        pending.save.add_done_callback(_print_error)


def _print_error(save: Future[str]) -> None:
    if (error := save.exception()) is not None:
        sys.excepthook(type(error), error, error.__traceback__)
