"""Peak memory of a process tree, sampled while a block runs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil


@dataclass
class PeakMemory:
    """Largest memory of the watched processes together so far, in bytes (proportional set size: shared pages once)."""

    bytes: int = 0


@contextmanager
def watched_memory(interval: float = 0.5, itself: bool = True) -> Iterator[PeakMemory]:
    """Sample the memory of this process (unless not `itself`) and all its descendants while the block runs."""
    peak, done, me = PeakMemory(), threading.Event(), psutil.Process()

    def sample() -> None:
        while not done.wait(interval):
            total = 0
            for process in [*([me] if itself else []), *me.children(recursive=True)]:
                try:
                    total += process.memory_full_info().pss
                except psutil.Error:  # it ended meanwhile: it holds no memory
                    continue
            peak.bytes = max(peak.bytes, total)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
