"""Live progress of a training in a pod, as in `live`; a module of its own because dagster-k8s is an extra."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dagster_k8s.pipes import PipesK8sPodLogsMessageReader

from capibara_assets.launching.live import ProgressObserver


class LivePodReader(PipesK8sPodLogsMessageReader):  # type: ignore[misc]  # dagster-k8s is untyped here
    """Message reader of a pod, through its log; calls `started(pod, namespace)` once the pod runs."""

    def __init__(self, context: Any, started: Callable[[str, str], None]):
        super().__init__()
        self._run_context, self._started = context, started

    @contextmanager
    def read_messages(self, handler: Any) -> Iterator[Any]:
        """As in the base class, through a `ProgressObserver`."""
        with super().read_messages(ProgressObserver(self._run_context, handler)) as parameters:
            yield parameters

    def consume_pod_logs(self, context: Any, core_api: Any, pod_name: str, namespace: str) -> None:
        """As in the base class, after reporting that the pod has started."""
        self._started(pod_name, namespace)
        super().consume_pod_logs(context=context, core_api=core_api, pod_name=pod_name, namespace=namespace)
