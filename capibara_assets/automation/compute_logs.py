"""Dagster's local capture of what steps print, whose helper processes Ctrl-C does not reach.

Dagster mirrors a step's output by `tail`, which a script watches that ends it when the step's process is gone. Ctrl-C
goes to the whole foreground process group: the script printed a traceback, and what a step printed last was lost.
"""

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from dagster._core.instance.ref import InstanceRef
from dagster._core.storage.compute_log_manager import CapturedLogContext
from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager
from dagster._serdes import ConfigurableClassData


class UninterruptedLogManager(LocalComputeLogManager):
    """Captures logs as Dagster's own manager, with helpers that only their step ends."""

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> "UninterruptedLogManager":
        return cls(inst_data=inst_data, **config_value)

    @contextmanager
    def capture_logs(self, log_key: Sequence[str]) -> Iterator[CapturedLogContext]:
        with ExitStack() as stack:
            with _sigint_blocked():  # processes that start meanwhile inherit it; this one gets the signal afterwards
                context = stack.enter_context(super().capture_logs(log_key))
            yield context


def uninterrupted(instance: InstanceRef) -> InstanceRef:
    """An instance with this manager instead of Dagster's local one; another one stays."""
    given = instance.compute_logs_data
    if given.class_name != LocalComputeLogManager.__name__:
        return instance
    own = ConfigurableClassData(__name__, UninterruptedLogManager.__name__, given.config_yaml)
    return instance._replace(compute_logs_data=own)


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
