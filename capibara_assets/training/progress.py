"""Training events as lines for people: a voter's loss, rate, speed and the time that is left."""

from collections.abc import Callable
from typing import Any


def progress_lines(every: int) -> Callable[[dict[str, Any]], str | None]:
    """A function from event to line; None for events that are not worth one (steps between every `every`-th)."""
    spent: dict[str, tuple[float, int]] = {}  # voter → time and step of its start, for the time left

    def line(event: dict[str, Any]) -> str | None:
        name, kind, step = f"{event['domain']}/{event['voter']}", event["event"], event["step"]
        if kind == "started":
            spent[name] = (event["time"], step)
        at = f"{name} {step}/{event['of']}" if "of" in event else name
        match kind:
            case "step" if step % every == 0:
                began, first = spent[name]
                left = (event["time"] - began) / max(1, step - first) * (event["of"] - step)
                return (
                    f"{at} loss {_figure(event['loss'])} lr {event['learning_rate']:.2e} "
                    f"gradient {event['gradient_norm']:.2f} {event['tokens_per_s']:,.0f} tokens/s "
                    f"{left:.0f} s left"
                )
            case "validation":
                return f"{at} validation loss {_figure(event['validation_loss'])}"
            case "started":
                return (
                    f"{name} {event['steps']} steps on {event['examples']} examples, {event['parameters']:,} "
                    f"trainable parameters, {event['precision']}, loaded in {event['load_seconds']:.1f} s"
                )
            case "resumed":
                return f"{name} goes on from step {step} ({event['continuation']})"
            case "skipped":
                return f"{at} skipped: NaN or infinity (loss {_figure(event['loss'])})"
            case "restarted":
                return f"{name} {event['reason']}, started again ({event['restart']}/{event['of']})"
            case "finished":
                return f"{name} finished: validation loss {_figure(event['validation_loss'])}, {event['seconds']:.1f} s"
            case "reused":
                return f"{name} was finished before"
            case "interrupted":
                return f"{name} stopped, resume point at step {step}"
            case "failed":
                return f"{name} failed: {event['error']}"
        return None

    return line


def _figure(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4f}"
