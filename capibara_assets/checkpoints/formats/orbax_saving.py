"""Orbax's writer for tensors that are not in memory: one tensor at a time, a band of chunks at a time."""

import asyncio
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import tensorstore as ts

from capibara_assets.checkpoints.content import PieceSource, nbytes, numpy_dtype, of_numpy, to_numpy
from capibara_assets.checkpoints.formats import zarr
from capibara_assets.checkpoints.tree import join

_SAVING = "saving"


def save(folder: Path, state: Any, scalars: Collection[str], custom_metadata: dict[str, Any] | None) -> None:
    """Write an item in OCDBT into a folder.

    Args:
        state: nested dictionaries, lists, tuples and plain values with sources as leaves.
        scalars: paths of the leaves that were numpy scalars.

    Raises:
        OSError: of the disk.
        Exception: raised by a source while it was read.
    """
    failures: list[Exception] = []
    scalar = _Scalars(failures)
    registry = ocp.type_handlers.create_type_handler_registry(
        (_Leaf, _Streaming(failures)),
        (int, scalar),
        (float, scalar),
        (np.number, scalar),
        (str, ocp.type_handlers.StringHandler()),
    )
    inside = folder / _SAVING  # Orbax writes a temporary folder beside it and renames it
    handler = ocp.PyTreeCheckpointHandler(type_handler_registry=registry)
    arguments = ocp.args.PyTreeSave(_leaves(state, (), scalars), custom_metadata=custom_metadata)
    with quiet(), zarr.as_os_error(), ocp.Checkpointer(handler) as checkpointer:
        try:
            checkpointer.save(inside.absolute(), args=arguments)
        finally:
            if failures:
                raise failures[0]
    for path in inside.iterdir():
        path.rename(folder / path.name)
    inside.rmdir()


class _Leaf:
    """A tensor as Orbax's writer sees it: an array whose values are read when they are written."""

    def __init__(self, source: PieceSource) -> None:
        self.source = source
        self.shape = source.shape
        self.dtype = numpy_dtype(source.dtype)
        self.ndim = len(source.shape)
        self.nbytes = nbytes(source.dtype, source.shape)
        self.size = self.nbytes // self.dtype.itemsize


class _Streaming(ocp.type_handlers.NumpyHandler):  # type: ignore[misc]
    """Orbax's handler of numpy arrays, for arrays that are not in memory: one at a time, a band of chunks at a time.

    A failure is recorded and raised by `save`: raised here, Orbax would continue with other arrays in its own threads
    while their folder is being removed.
    """

    def __init__(self, failures: list[Exception]) -> None:
        super().__init__(deepcopy_host_arrays=False)
        self._failures = failures
        self._turn = asyncio.Lock()

    async def _open_and_write(self, value: _Leaf, tspec: dict[str, Any], ts_context: ts.Context) -> None:
        chunks = zarr.chunk_shape(value.shape, value.dtype.itemsize, zarr.CHUNK)
        async with self._turn:
            await _write(value.source, chunks, tspec, ts_context, self._failures)


class _Scalars(ocp.type_handlers.ScalarHandler):  # type: ignore[misc]
    """Orbax's handler of numbers, which records failures as `_Streaming` does."""

    def __init__(self, failures: list[Exception]) -> None:
        super().__init__()
        self._failures = failures

    async def _open_and_write(self, value: np.ndarray[Any, Any], tspec: dict[str, Any], ts_context: ts.Context) -> None:
        await _write(of_numpy(value), (), tspec, ts_context, self._failures)


async def _write(
    source: PieceSource, chunks: tuple[int, ...], tspec: dict[str, Any], context: ts.Context, failures: list[Exception]
) -> None:
    if failures:
        return
    metadata = {**tspec["metadata"], "chunks": list(chunks)}  # Orbax's own choice would split rows, or nothing
    try:
        array = await ts.open(ts.Spec({**tspec, "metadata": metadata}), create=True, open=True, context=context)
        for region, block in zarr.blocks(source, zarr.chunks_of(array)):
            await array[region].write(block)
    except Exception as error:  # noqa: BLE001  (whatever a source raises is raised by `save`)
        failures.append(error)


def _leaves(node: Any, keys: tuple[str, ...], scalars: Collection[str]) -> Any:
    if isinstance(node, dict):
        return {key: _leaves(child, (*keys, key), scalars) for key, child in node.items()}
    if isinstance(node, list | tuple):
        return type(node)(_leaves(child, (*keys, str(index)), scalars) for index, child in enumerate(node))
    if node is None or isinstance(node, bool | int | float | str):
        return node
    if not node.shape and join(keys) in scalars and isinstance(value := to_numpy(node)[()], np.number):
        return value
    return _Leaf(node)


@contextmanager
def quiet() -> Iterator[None]:
    """Context without Orbax's log, which has each step of a save, and twice each failure, which is raised anyway."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
