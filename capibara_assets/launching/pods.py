"""The same as `pipes_live`, for a training in a pod; apart because dagster-k8s is an extra."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dagster_k8s.pipes import PipesK8sPodLogsMessageReader

from capibara_assets.launching.live import ProgressObserver


class LivePodReader(PipesK8sPodLogsMessageReader):  # type: ignore[misc]  # dagster-k8s is untyped here
    """Of a pod, through its log; says the pod's name when it is there."""

    def __init__(self, context: Any, started: Callable[[str, str], None]):
        super().__init__()
        self._run_context, self._started = context, started

    @contextmanager
    def read_messages(self, handler: Any) -> Iterator[Any]:
        """As the parent, through a `ProgressObserver`."""
        with super().read_messages(ProgressObserver(self._run_context, handler)) as parameters:
            yield parameters

    def consume_pod_logs(self, context: Any, core_api: Any, pod_name: str, namespace: str) -> None:
        """As the parent; the pod has started."""
        self._started(pod_name, namespace)
        super().consume_pod_logs(context=context, core_api=core_api, pod_name=pod_name, namespace=namespace)
