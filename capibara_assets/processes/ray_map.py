"""A map over the workers of a Ray cluster, by Ray Data: what a worker had under way when it died is done by another.

What is passed to workers and back lies in Ray's object store, in memory and where that is full in files of Ray's own:
callers pass paths, digests and redacted text, never what was read and not yet redacted.
"""

import logging
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from capibara_assets.errors import InputError

LOCAL = "local"
_DEATHS = 3  # of workers with one task under way, after which the task is at fault
_STORE = 256 << 20  # bytes of the object store of a cluster of this machine
_MISSING = "data.engine is ray, and Ray is not installed: pip install 'capibara-assets[ray]'"
_THREADS = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}

_lasting: ContextVar[list[Callable[[], None]] | None] = ContextVar("_lasting", default=None)

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class RayCluster:
    """The Ray cluster that data stages work on.

    Attributes:
        address: `local`: processes of this machine that end with the block; `auto`, HOST:PORT or `ray://…`: one that
            runs, whose nodes have this package and mount the deployment's `storage.work`.
        workers: tasks that run at a time, one processor each.
        memory_gib: what Ray reserves for each; None: nothing.
        from_mib: text of logs from which workers are asked; less is read here, sooner.
    """

    address: str = LOCAL
    workers: int = 2
    memory_gib: float | None = None
    from_mib: float = 24


@contextmanager
def lasting() -> Iterator[None]:
    """What is connected first in this block stays connected until its end; nothing is started before it is needed."""
    started = list[Callable[[], None]]()
    token = _lasting.set(started)
    try:
        yield
    finally:
        _lasting.reset(token)
        for end in started:
            end()


@contextmanager
def connected(cluster: RayCluster) -> Iterator[None]:
    """Meanwhile this process is connected to the cluster; one of this machine starts and ends with the outermost block.

    Raises:
        InputError: Ray is not installed, or no cluster answers at the address.
    """
    try:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
        import ray
    except ImportError as error:
        raise InputError(_MISSING) from error
    if ray.is_initialized():
        yield
        return
    quiet = {"log_to_driver": False, "logging_level": logging.WARNING}
    try:
        if cluster.address == LOCAL:
            ray.init("local", num_cpus=cluster.workers, include_dashboard=False, object_store_memory=_STORE, **quiet)
        else:
            ray.init(cluster.address, **quiet)
    except Exception as error:  # Ray raises plain ones, too
        raise InputError(
            f"no Ray cluster answers at {cluster.address!r} (data.address): start one by `ray start --head`, or give"
            f" its address, or `local`: {str(error).partition(chr(10))[0]}"
        ) from error
    if (started := _lasting.get()) is not None:
        started.append(ray.shutdown)
        yield
        return
    try:
        yield
    finally:
        ray.shutdown()


def ray_map(cluster: RayCluster, do: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
    """Yields (position, result) of each task, as they end.

    A task may run more than once, and a run of it that was given up may still go on: only what its result names counts.

    Args:
        do: does one task in a worker; pickled, as tasks and results are.

    Raises:
        InputError: as `connected`, or raised by a task.
        RuntimeError: workers died several times with the same task under way, or a task failed.
    """
    if not tasks:
        return
    with connected(cluster):
        import ray.data
        from ray.exceptions import RayError

        ray.data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.WARNING)
        items = [{"position": at, "task": pickle.dumps(task)} for at, task in enumerate(tasks)]
        mapped = ray.data.from_items(items, override_num_blocks=len(items)).map(
            partial(_done, pickle.dumps(do)),
            compute=ray.data.TaskPoolStrategy(size=cluster.workers),
            num_cpus=1,
            memory=None if cluster.memory_gib is None else cluster.memory_gib * 2**30,
            runtime_env={"env_vars": _THREADS},
            ray_remote_args_fn=lambda: {"max_retries": _DEATHS},
        )
        try:
            for row in mapped.iter_rows():
                done = pickle.loads(row["result"])
                if isinstance(done, InputError):
                    raise done
                yield row["position"], done
        except RayError as error:
            raise RuntimeError(
                f"a worker of Ray failed, or {_DEATHS + 1} died with the same task under way: {error}"
            ) from error


def _done(do: bytes, row: dict[str, Any]) -> dict[str, Any]:
    """What a worker of Ray does with one task."""
    try:
        done = pickle.loads(do)(pickle.loads(row["task"]))
    except InputError as error:  # raised again by `ray_map`, as itself
        done = error
    return {"position": row["position"], "result": pickle.dumps(done)}


def divided(values: Sequence[Task], cluster: RayCluster, *, each: int = 16) -> list[list[Task]]:
    """The values dealt into about `each` tasks a worker, so that none is waited for long and little is done twice."""
    count = min(len(values), each * cluster.workers)
    return [list(values[at::count]) for at in range(count)]
