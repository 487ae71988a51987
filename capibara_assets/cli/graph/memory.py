"""How much memory processes hold, sampled while something runs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil


@dataclass
class Peak:
    """Largest memory of the watched processes together so far, in bytes (proportional set size: shared pages once)."""

    bytes: int = 0


@contextmanager
def watched_memory(interval: float = 0.5, itself: bool = True) -> Iterator[Peak]:
    """Samples in a thread while the block runs: this process (unless `itself` is False), its children and theirs."""
    peak, done, me = Peak(), threading.Event(), psutil.Process()

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
