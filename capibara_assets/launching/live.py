"""Live progress of a training in Dagster, from its Pipes messages.

Dagster holds a process's custom messages back until it has ended. Here those about the voters' progress become an
observation of the asset as they arrive: its numbers are plotted on the asset's page, its table is in the run's log.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg

from capibara_assets.escaping.languages import markdown_table
from capibara_assets.training.monitoring.progress import duration
from capibara_assets.training.supervisor.reporting import PROGRESS

_PLOTTED = {
    "loss": "loss",
    "perplexity": "perplexity",
    "gradient_norm": "gradient norm",
    "learning_rate": "learning rate",
    "tokens_per_s": "tokens per second",
    "of_plan": "tokens per second, share of the plan's",
    "memory_mib": "memory (MiB)",
    "cpu_percent": "processor (% of a core)",
    "gpu_percent": "GPU (%)",
    "share_of_peak": "share of the chips' peak",
    "seconds_left": "seconds left",
}
_COLUMNS = (
    *("voter", "state", "step", "loss", "perplexity", "gradient", "rate", "tokens/s", "of plan", "samples/s", "MiB"),
    "in use",
    *("left", "steps left", "micro-steps left"),
)


class ProgressObserver:
    """A Pipes message handler that turns progress messages into observations and hands all others on.

    `errors` gets what the process logs as errors: the last one is why it failed.
    """

    def __init__(self, context: Any, handler: Any, errors: list[str] | None = None):
        self._context, self._handler = context, handler
        self.errors: list[str] = [] if errors is None else errors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handler, name)

    def handle_message(self, message: Mapping[str, Any]) -> None:
        """Handle one message; called by the reader, in its thread."""
        params = message.get("params") or {}
        if message["method"] == "log" and str(params.get("level", "")).upper() == "ERROR":
            self.errors.append(str(params.get("message", "")))
        payload = params.get("payload") if message["method"] == "report_custom_message" else None
        if isinstance(payload, Mapping) and payload.get("kind") == PROGRESS:
            observe(self._context, payload)
        else:
            self._handler.handle_message(message)


class LiveFileReader(dg.PipesTempFileMessageReader):  # type: ignore[misc]  # dagster is untyped here
    """Message reader of a process on this machine that reports progress live."""

    def __init__(self, context: Any):
        super().__init__()
        self._context = context
        self.errors: list[str] = []

    @contextmanager
    def read_messages(self, handler: Any) -> Iterator[Any]:
        """As in the base class, through a `ProgressObserver`."""
        with super().read_messages(ProgressObserver(self._context, handler, self.errors)) as parameters:
            yield parameters


class LiveSharedFileReader(dg.PipesFileMessageReader):  # type: ignore[misc]  # dagster is untyped here
    """Message reader of pods that write to a file on a shared volume, including successors of preempted pods."""

    def __init__(self, context: Any, path: Path):
        super().__init__(str(path))
        self._context = context
        self.errors: list[str] = []

    @contextmanager
    def read_messages(self, handler: Any) -> Iterator[Any]:
        """As in the base class, through a `ProgressObserver`; several pods count as one process."""
        attempts = _Attempts(handler)
        with super().read_messages(ProgressObserver(self._context, attempts, self.errors)) as parameters:
            yield parameters
        attempts.close()


class _Attempts:
    """A Pipes message handler to which the attempts of a training are one process: it opens once and closes last."""

    def __init__(self, handler: Any):
        self._handler, self._opened = handler, False
        self._closed: Mapping[str, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handler, name)

    def handle_message(self, message: Mapping[str, Any]) -> None:
        if message["method"] == "closed":
            self._closed = message
            return
        if message["method"] == "opened" and self._opened:
            return
        self._opened |= message["method"] == "opened"
        self._handler.handle_message(message)

    def close(self) -> None:
        """Hand on that the last attempt has closed, if it has."""
        if self._closed is not None:
            self._handler.handle_message(self._closed)


def observe(context: Any, progress: Mapping[str, Any]) -> None:
    """Log the voters' progress as an observation of the asset that the run materializes."""
    if not getattr(context, "has_assets_def", True):
        context.log.info(progress_table(progress["voters"]))
        return
    context.log_event(
        dg.AssetObservation(
            asset_key=context.asset_key,
            partition=context.partition_key if context.has_partition_key else None,
            description=f"how the voters of {progress['domain']} stand",
            metadata=progress_metadata(progress["voters"]),
        )
    )


def progress_metadata(voters: list[dict[str, Any]]) -> dict[str, Any]:
    """Metadata of an observation: a table of all voters, and plotted figures of each one that is training."""
    plotted = {
        f"{name} {row['voter']}": float(row[key])
        for key, name in _PLOTTED.items()
        for row in voters
        if row["state"] == "training" and isinstance(row.get(key), int | float)
    }
    return {"voters": dg.MetadataValue.md(progress_table(voters)), **plotted}


def progress_table(voters: list[dict[str, Any]]) -> str:
    """Markdown table with a row per voter; the remaining steps are given in optimizer steps and micro-steps."""
    return markdown_table(_COLUMNS, map(_row, voters), right=range(2, len(_COLUMNS)))


def _row(voter: Mapping[str, Any]) -> list[str]:
    def shown(key: str, form: str) -> str:
        value = voter.get(key)
        return "–" if value is None else value if isinstance(value, str) else format(value, form)

    goes_on = "seconds_left" in voter and voter["state"] == "training"
    return [
        voter["voter"],
        voter["state"],
        f"{voter['step']}/{voter['steps']}" if "steps" in voter else "–",
        shown("loss", ".4f"),
        shown("perplexity", ".2f"),
        shown("gradient_norm", ".3f"),
        shown("learning_rate", ".2e"),
        shown("tokens_per_s", ",.0f"),
        shown("of_plan", ".0%"),
        shown("samples_per_s", ".1f"),
        shown("memory_mib", ",.0f"),
        _use(voter),
        *(
            (duration(voter["seconds_left"]), str(voter["steps"] - voter["step"]), str(voter["micro_steps_left"]))
            if goes_on
            else ("–", "–", "–")
        ),
    ]


def _use(voter: Mapping[str, Any]) -> str:
    """What is in use, of the dearest device that is measured: the chips' peak, the GPU, or cores."""
    if "share_of_peak" in voter:
        return f"{voter['share_of_peak']:.0%} of peak"
    if "gpu_percent" in voter:
        return f"GPU {voter['gpu_percent']:.0f} %"
    return f"CPU {voter['cpu_percent']:.0f} %" if "cpu_percent" in voter else "–"
