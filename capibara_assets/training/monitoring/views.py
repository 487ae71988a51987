"""The current view of an event log: where a later attempt repeated steps, only its events count.

Pure functions of events; exporters and `metrics.json` are made of this view.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Event = dict[str, Any]

_BEGINS = ("resumed", "started")
FIGURES = "figures"
"""Event whose `figures` are finite numbers under the names that they are exported by."""
MEASURED = ("step", "validation", "skipped", "rolled_back", FIGURES)
_BOOKKEEPING = frozenset({"run", "attempt", "step", "event", "time", "of", "domain", "voter", "part"})
_NAMES = {
    "tokens_per_s": "speed/tokens_per_s",
    "samples_per_s": "speed/samples_per_s",
    "compute_s": "speed/compute_s",
    "memory_mib": "hardware/memory_mib",
    "cpu_percent": "hardware/cpu_percent",
    "gpu_percent": "hardware/gpu_percent",
    "gpu_memory_mib": "hardware/gpu_memory_mib",
    "share_of_peak": "hardware/share_of_peak",
    "tflops_per_chip": "hardware/tflops_per_chip",
    "validation_loss": "loss",
}


@dataclass(frozen=True)
class MetricPoint:
    """Figures measured at one step: finite values by name, such as `train/loss`.

    Attributes:
        step: optimizer steps done.
        time: seconds since 1970.
    """

    step: int
    time: float
    values: dict[str, float]


def current_view(events: Iterable[Event], run: str | None = None) -> list[Event]:
    """The events that count, in the order of attempts and writing.

    An attempt that resumes at step r replaces all that earlier ones did after r, even before it gets as far: their
    weights are gone. What was measured again at step r itself, from the same weights, counts once, as first measured.
    The parts of a voter (federated clients, seeds) have attempts and steps of their own.

    Args:
        run: whose events; None: the last event's, in each part.
    """
    streams: dict[str, list[tuple[int, Event]]] = {}
    for index, event in enumerate(events):
        if "run" in event and "attempt" in event and run in (None, event["run"]):
            streams.setdefault(event.get("part", ""), []).append((index, event))
    views = [one for stream in streams.values() for one in _current(stream)]
    if len(streams) > 1:
        views.sort(key=lambda numbered: numbered[0])
    return [event for _, event in views]


def _current(stream: list[tuple[int, Event]]) -> list[tuple[int, Event]]:
    """The events of one part that count, with their places in the log."""
    run = stream[-1][1]["run"]
    keyed = sorted(
        (numbered for numbered in stream if numbered[1]["run"] == run), key=lambda numbered: numbered[1]["attempt"]
    )
    begun: dict[int, int] = {}  # attempt → step at which it resumed
    for _, event in keyed:
        if event["event"] in _BEGINS:
            begun.setdefault(event["attempt"], event["step"])
    view, measured = [], set[tuple[str, int]]()
    for index, event in keyed:
        if any(later > event["attempt"] and step < event["step"] for later, step in begun.items()):
            continue
        key = event["event"], event["step"]
        if event["event"] in MEASURED and key in measured:
            continue
        measured.add(key)
        view.append((index, event))
    return view


class PointBuilder:
    """Makes points of the events of a view; counts skipped and rolled-back steps, and knows the planned speed."""

    def __init__(self) -> None:
        self._left_out = Counter[tuple[str, str]]()
        self._planned: dict[str, float] = {}  # tokens per second, of each part

    def point(self, event: Event) -> MetricPoint | None:
        """The point of an event; None if it has no figures. Figures of a part are prefixed with its name."""
        part = event.get("part", "")
        match event["event"]:
            case "started":
                self._planned |= {part: event["planned_tokens_per_s"]} if event.get("planned_tokens_per_s") else {}
                return None
            case "step":
                values = _figures(event, "train")
                if (planned := self._planned.get(part)) and "tokens_per_s" in event:
                    values |= {"speed/planned_tokens_per_s": planned, "speed/of_plan": event["tokens_per_s"] / planned}
            case "validation":
                values = _figures(event, "validation")
            case "skipped" | "rolled_back" as kind:
                self._left_out[part, kind] += 1
                values = {f"guards/{kind}_steps": float(self._left_out[part, kind])}
            case "figures":  # FIGURES
                values = dict(event["figures"])
            case _:
                return None
        if part:
            values = {f"{part}/{name}": value for name, value in values.items()}
        return MetricPoint(event["step"], event["time"], values)


def points_of(view: Iterable[Event]) -> list[MetricPoint]:
    """The points of a view, in order."""
    measured = PointBuilder()
    return [point for event in view if (point := measured.point(event)) is not None]


def series_of(points: Sequence[MetricPoint]) -> dict[str, list[tuple[int, float]]]:
    """Figure's name → its steps and values, sorted by name."""
    series: dict[str, list[tuple[int, float]]] = {}
    for point in points:
        for name, value in point.values.items():
            series.setdefault(name, []).append((point.step, value))
    return dict(sorted(series.items()))


def perplexity(loss: float) -> float | None:
    """e to the loss (nats per token); None if that is not finite."""
    try:
        value = math.exp(loss)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def _figures(event: Event, group: str) -> dict[str, float]:
    """The finite numbers of an event by their exported names; NaN and infinity are strings in the log and left out."""
    values = {}
    for key, value in event.items():
        if key in _BOOKKEEPING or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if math.isfinite(value):
            name = _NAMES.get(key, key)
            values[name if "/" in name else f"{group}/{name}"] = float(value)
    if (loss := values.get(f"{group}/loss")) is not None and (value := perplexity(loss)) is not None:
        values[f"{group}/perplexity"] = value
    return values
