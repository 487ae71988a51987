"""Progress reports of a running training: lines for its events, and a table with the state of each voter."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from capibara_assets.training.monitoring.views import perplexity

EVERY_S = 10.0
_AT_MOST_EVERY_S = 2.0  # a step of a tiny model takes milliseconds, too fast to read a line for each


@dataclass
class _Pace:
    """How fast a voter is, measured from its own start.

    Attributes:
        began, first: time and step of the start.
        said, said_step: time and step of its last line.
        micro_steps, steps: counted since the start.
    """

    began: float
    first: int
    said: float
    said_step: int
    micro_steps: int = 0
    steps: int = 0

    def remaining(self, event: dict[str, Any]) -> tuple[float, int]:
        """Seconds and micro-steps to the last step, at the measured speed and the measured micro-steps per step."""
        ahead = event["of"] - event["step"]
        seconds = (event["time"] - self.began) / max(1, event["step"] - self.first) * ahead
        return seconds, round(self.micro_steps / max(1, self.steps) * ahead)


class Paces:
    """The pace of each voter, measured from its events."""

    def __init__(self) -> None:
        self._of: dict[str, _Pace] = {}

    def follow(self, event: dict[str, Any]) -> _Pace | None:
        """Count an event; returns the pace of its voter, None before its start."""
        name, kind = _name(event), event["event"]
        if kind == "started":
            self._of[name] = _Pace(event["time"], event["step"], event["time"], event["step"])
        pace = self._of.get(name)
        if pace and kind == "step":
            pace.micro_steps += event.get("micro_steps", 1)
            pace.steps += 1
        return pace


def progress_lines(every: int) -> Callable[[dict[str, Any]], str | None]:
    """A function from an event to its progress line; None for events without one.

    Steps have a line after `every` steps or ten seconds, whichever comes first, but at most every two seconds.
    """
    paces = Paces()

    def line(event: dict[str, Any]) -> str | None:
        name, kind, step = _name(event), event["event"], event["step"]
        pace = paces.follow(event)
        at = f"{name} {step}/{event['of']}" if "of" in event else name
        match kind:
            case "step" if pace and _due(pace, event, every):
                pace.said, pace.said_step = event["time"], step
                seconds, micro_steps = pace.remaining(event)
                has_loss = "loss" in event  # a private training does not report it
                loss = f"loss {_figure(event['loss'])} perplexity {_perplexity(event['loss'])} " if has_loss else ""
                # The JAX trainer has neither of these; it says what a chip does.
                norm = f"gradient {event['gradient_norm']:.2f} " if "gradient_norm" in event else ""
                held = f" {event['memory_mib']:,.0f} MiB" if "memory_mib" in event else ""
                rate = f" {event['tflops_per_chip']:.3g} TFLOP/s a chip" if "tflops_per_chip" in event else ""
                return (
                    f"{at} {loss}lr {event['learning_rate']:.2e} {norm}"
                    f"{event['tokens_per_s']:,.0f} tokens/s{held}{rate}, "
                    f"{event['of'] - step} steps ({micro_steps} micro-steps), {duration(seconds)} left"
                )
            case "validation":
                return f"{at} validation loss {_figure(event['validation_loss'])}"
            case "round":
                return f"{name} round {event['round']}: validation loss {_figure(event['validation_loss'])}"
            case "warning":
                return f"{name} {event['text']}"
            case "started":
                return (
                    f"{name} {event['steps']} steps on {event['examples']} examples, {event['parameters']:,} "
                    f"trainable parameters beside {event['base_parameters']:,} on {', '.join(event['modules'])}, "
                    f"{event['precision']}, loaded in {event['load_seconds']:.1f} s{_unusual(event)}"
                )
            case "compiled":
                return f"{name} compiled its step for {event['device']} in {event['seconds']:.1f} s"
            case "resumed":
                differs = f": another {', '.join(event['differs'])}" if event.get("differs") else ""
                return f"{name} goes on from step {step} ({event['continuation']}{differs})"
            case "damaged":
                return f"{name} passed over damaged resume points: {', '.join(event['points'])}"
            case "extended":
                return f"{name} was made longer at step {step}: {event['to']} steps in place of {event['from']}"
            case "skipped":
                return f"{at} skipped: NaN or infinity (loss {_figure(event['loss'])})"
            case "rolled_back":
                return f"{at} rolled back: loss {_figure(event['loss'])} is far above the ones before"
            case "stopped_early":
                return f"{at} stopped early: best validation at step {event['best_step']}"
            case "restarted":
                return f"{name} {event['reason']}, started again ({event['restart']}/{event['of']})"
            case "made_smaller":
                return f"{name} {event['reason']}; tried once more with {event['setting']}"
            case "finished" | "part_finished":
                return f"{name} finished: validation loss {_figure(event['validation_loss'])}, {event['seconds']:.1f} s"
            case "reused":
                return f"{name} was finished before"
            case "interrupted":
                return f"{name} stopped, resume point at step {step}"
            case "failed":
                return f"{name} failed: {event['error']}"
        return None

    return line


def _due(pace: _Pace, event: dict[str, Any], every: int) -> bool:
    waited = event["time"] - pace.said
    if pace.said_step == pace.first:
        return bool(event["step"] - pace.first >= every or waited >= EVERY_S)  # the first line comes early
    return bool(waited >= EVERY_S or (event["step"] - pace.said_step >= every and waited >= _AT_MOST_EVERY_S))


class VoterTable:
    """The state of each voter of a domain, a row each, updated by every event."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, Any]] = {}
        self._paces = Paces()

    def notice(self, event: dict[str, Any]) -> None:
        """Update the row of an event's voter."""
        row = self._rows.setdefault(event["voter"], {"voter": event["voter"], "state": "starting"})
        pace = self._paces.follow(event)
        match event["event"]:
            case "started":
                row |= {"state": "training", "step": event["step"], "steps": event["steps"]}
                if planned := event.get("planned_tokens_per_s"):
                    row["planned_tokens_per_s"] = planned
            case "step":
                row |= {key: event[key] for key in _STEP_FIGURES if key in event}
                row |= {"state": "training", "steps": event["of"]}
                loss = event.get("loss")
                if isinstance(loss, float) and (value := perplexity(loss)) is not None:
                    row["perplexity"] = round(value, 4)
                if "planned_tokens_per_s" in row and "tokens_per_s" in event:
                    row["of_plan"] = round(event["tokens_per_s"] / row["planned_tokens_per_s"], 3)
                if pace:
                    seconds, row["micro_steps_left"] = pace.remaining(event)
                    row["seconds_left"] = round(seconds, 1)
            case "validation":
                row["validation_loss"] = event["validation_loss"]
            case "finished" | "failed" | "interrupted" | "restarted" | "made_smaller" | "reused" as kind:
                row["state"] = kind

    def rows(self) -> list[dict[str, Any]]:
        """The rows, sorted by voter; figures not measured yet are absent."""
        return [dict(self._rows[name]) for name in sorted(self._rows)]


_STEP_FIGURES = (
    *("step", "loss", "gradient_norm", "learning_rate", "tokens_per_s", "samples_per_s", "memory_mib"),
    *("cpu_percent", "gpu_percent", "share_of_peak"),
)


def duration(seconds: float) -> str:
    """A duration for people, such as `40 s`, `12 min` or `3.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _name(event: dict[str, Any]) -> str:
    return "/".join(filter(None, (event["domain"], event["voter"], event.get("part"))))


def _unusual(event: dict[str, Any]) -> str:
    """Remarks on missing or unread weights of the base, and on examples left out; empty if there are none."""
    layers = [
        (event["new_layers"], "layers that its files lack, drawn at random"),
        (event["unread_layers"], "tensors of its files that it has no place for"),
    ]
    parts = [f"{len(names)} {what} ({', '.join(names[:3])})" for names, what in layers if names]
    parts += [f"{event[key]} examples {key.replace('_', ' ')}" for key in ("left_out", "truncated") if event[key]]
    return f"; {'; '.join(parts)}" if parts else ""


def _figure(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4f}"


def _perplexity(loss: float | str) -> str:
    value = None if isinstance(loss, str) else perplexity(loss)
    return "-" if value is None else f"{value:.2f}"
