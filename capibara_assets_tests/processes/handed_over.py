"""Ray's map and shuffle without Ray: tasks and results are handed over as bytes, one after the other, here."""

import contextvars
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from capibara_assets.processes.ray_map import RayCluster


def handed_over(value: Any) -> Any:
    """What another process would get."""
    return pickle.loads(pickle.dumps(value))


def map_here(cluster: RayCluster, do: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """As `ray_map`, without the context of who asks, as in another process; the last task ends first."""
    for position in reversed(range(len(tasks))):
        yield position, handed_over(contextvars.Context().run(handed_over(do), handed_over(tasks[position])))


def shuffle_here(
    cluster: RayCluster,
    spread: Callable[[Any], Mapping[int, Any]],
    tasks: Sequence[Any],
    gather: Callable[[list[Any]], Any],
) -> list[Any]:
    """As `ray_shuffle`."""
    parts: dict[int, list[Any]] = {}
    for task in tasks:
        for number, part in handed_over(handed_over(spread)(handed_over(task))).items():
            parts.setdefault(number, []).append(part)
    return [handed_over(handed_over(gather)(handed_over(parts[number]))) for number in sorted(parts)]
