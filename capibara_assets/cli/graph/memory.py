"""Peak memory of a process tree, sampled while a block runs."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

_SHARE = 0.02  # of one core: the kernel walks every page of the tree for a sample


@dataclass
class PeakMemory:
    """Largest memory of the watched processes together so far, in bytes (proportional set size: shared pages once)."""

    bytes: int = 0


@contextmanager
def watched_memory(interval: float = 0.5, itself: bool = True) -> Iterator[PeakMemory]:
    """Sample the memory of this process (unless not `itself`) and all its descendants while the block runs.

    Args:
        interval: seconds between samples; longer where a large tree would take more than 2 % of a core.
        itself: whether this process counts.
    """
    peak, done, me = PeakMemory(), threading.Event(), psutil.Process()

    def sample() -> None:
        pause = interval
        while not done.wait(pause):
            total, started = 0, time.thread_time()
            for process in [*([me] if itself else []), *me.children(recursive=True)]:
                try:
                    total += process.memory_full_info().pss
                except psutil.Error:  # it ended meanwhile: it holds no memory
                    continue
            peak.bytes = max(peak.bytes, total)
            pause = max(interval, (time.thread_time() - started) / _SHARE)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
