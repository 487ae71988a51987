"""Orbax's own writer, given tensors that are not in memory: it asks for one at a time, a band of chunks at a time."""

import asyncio
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import tensorstore as ts

from capibara_assets.checkpoints.content import Source, nbytes, numpy_dtype, to_numpy
from capibara_assets.checkpoints.formats import zarr
from capibara_assets.checkpoints.tree import join

_SAVING = "saving"


def save(folder: Path, state: Any, scalars: Collection[str], custom_metadata: dict[str, Any] | None) -> None:
    """Fill a folder with an item in OCDBT.

    Args:
        state: nested dictionaries, lists, tuples and plain values with sources as leaves.
        scalars: paths of the leaves that were numpy scalars.

    Raises:
        OSError: the disk refused it.
    """
    scalar = ocp.type_handlers.ScalarHandler()
    registry = ocp.type_handlers.create_type_handler_registry(
        (_Leaf, _Streaming()),
        (int, scalar),
        (float, scalar),
        (np.number, scalar),
        (str, ocp.type_handlers.StringHandler()),
    )
    item = _leaves(state, (), scalars)
    inside = folder / _SAVING  # Orbax makes a folder of its own beside it and renames that
    handler = ocp.PyTreeCheckpointHandler(type_handler_registry=registry)
    arguments = ocp.args.PyTreeSave(item, save_args=_save_args(item), custom_metadata=custom_metadata)
    with quiet(), zarr.as_os_error(), ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(inside.absolute(), args=arguments)
    for path in inside.iterdir():
        path.rename(folder / path.name)
    inside.rmdir()


class _Leaf:
    """A tensor as Orbax sees it while it writes: an array whose values come when they are asked for."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.shape = source.shape
        self.dtype = numpy_dtype(source.dtype)
        self.ndim = len(source.shape)
        self.nbytes = nbytes(source.dtype, source.shape)
        self.size = self.nbytes // self.dtype.itemsize


class _Streaming(ocp.type_handlers.NumpyHandler):  # type: ignore[misc]
    """Orbax's handler of numpy arrays, for arrays that are not in memory: one at a time, a band of chunks at a time."""

    def __init__(self) -> None:
        super().__init__(deepcopy_host_arrays=False)
        self._turn = asyncio.Lock()

    async def _open_and_write(self, value: _Leaf, tspec: dict[str, Any], ts_context: ts.Context) -> None:
        async with self._turn:
            array = await ts.open(ts.Spec(tspec), create=True, open=True, context=ts_context)
            for region, block in zarr.blocks(value.source, zarr.chunks_of(array)):
                await array[region].write(block)


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


def _save_args(node: Any) -> Any:
    """Orbax's arguments for each leaf: large tensors in chunks of rows where their number divides evenly."""
    if isinstance(node, dict):
        return {key: _save_args(child) for key, child in node.items()}
    if isinstance(node, list | tuple):
        return type(node)(_save_args(child) for child in node)
    if not isinstance(node, _Leaf) or node.nbytes <= zarr.CHUNK:
        return ocp.SaveArgs()
    rows, *rest = zarr.chunk_shape(node.shape, node.dtype.itemsize)
    if node.shape[0] % rows or rest != list(node.shape[1:]):
        return ocp.SaveArgs()  # one chunk: Orbax would cut it into rows of one element where the length is prime
    return ocp.SaveArgs(chunk_byte_size=rows * (node.nbytes // node.shape[0]), shard_axes=(0,))


@contextmanager
def quiet() -> Iterator[None]:
    """Orbax logs each step of a save at INFO and its failures twice; what fails is raised, too."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
