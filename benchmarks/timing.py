"""Wall-clock and processor seconds of what benches measure in their own process."""

import gc
import resource
import time
from collections.abc import Callable


def timed(work: Callable[[], object]) -> dict[str, float]:
    """Seconds of one run, after a collection of garbage: `wall_s`, and `cpu_s` with threads and kernel included."""
    gc.collect()
    cpu, wall = cpu_seconds(), time.perf_counter()
    work()
    return {"wall_s": time.perf_counter() - wall, "cpu_s": cpu_seconds() - cpu}


def cpu_seconds() -> float:
    """Processor seconds of this process so far, threads and kernel included."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
