"""A plan as lines for people: settings with their reasons, memory, time, what binds, cost."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

GIB = 1024**3
_WIDE = 20
_DEEP, _COLUMNS = _WIDE + 5, 118
# Of a plan's document: shown elsewhere, or files.
_ELSEWHERE = {
    "domain", "model", "target", "shape", "memory", "memory_budget", "estimates", "reasons", "gin", "maxtext", "xla",
    "throughput_target", "seconds", "usd", "usd_note", "step_time", "tokens_per_second", "tflops_per_chip", "feasible",
    "share_of_peak", "front", "refused", "prediction",
}  # fmt: skip


def plan_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Lines of what `capibara plan` found."""
    plan = document["plan"]
    level = f"{plan['domain']}, level {document['level']}"
    yield f"{plan['model']} on {document['target']} ({document['hardware']}), {level}"
    yield ""
    reasons = plan["reasons"]
    for name, value in plan.items():
        if name not in _ELSEWHERE:
            yield from _lines(name, _value(value), reasons.get(name))
    for name, reason in reasons.items():
        if name not in plan:
            yield from _lines(name, "", reason)
    yield ""
    yield from _memory(plan)
    yield from _time(plan)
    yield from _front(plan)
    yield from _throughput(plan)
    yield from _xla(plan)
    yield from _cost(document["cost"])
    if document.get("out"):
        yield f"{'files':<{_WIDE}} {document['out']}: {', '.join(document['files'])}"


def _lines(name: str, value: str, reason: str | None = None) -> Iterator[str]:
    """A setting, and below it why."""
    yield f"{name.replace('_', ' '):<{_WIDE}} {value}".rstrip()
    if reason:
        yield from textwrap.wrap(reason, _COLUMNS, initial_indent=" " * _DEEP, subsequent_indent=" " * _DEEP)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return " x ".join(f"{name} {part}" for name, part in value.items() if part != 1) or "1"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_value, value))
    return str(value)


def _memory(plan: Mapping[str, Any]) -> Iterator[str]:
    estimates = plan.get("estimates", {})
    parts = plan.get("memory") or estimates.get("memory_bytes_per_device") or {}
    budget = plan.get("memory_budget") or estimates.get("memory_budget_bytes")
    if parts:
        named = sorted(((count, name) for name, count in parts.items() if name != "total" and count > 0), reverse=True)
        sums = " + ".join(f"{_size(count)} {name}" for count, name in named)
        apart = sum(count for count in parts.values() if count < 0)
        less = f" - {_size(-apart)} not at the same time" if apart else ""
        of = f" of {_size(budget)}" if budget else ""
        yield f"{'memory per device':<{_WIDE}} {sums}{less} = {_size(parts['total'])}{of}"


def _time(plan: Mapping[str, Any]) -> Iterator[str]:
    step = plan.get("step_time")
    if step:
        yield f"{'step':<{_WIDE}} {step['low']:.4g} to {step['high']:.4g} s, bound by {step['binds']}"
    if rates := plan.get("tokens_per_second"):
        yield f"{'tokens per second':<{_WIDE}} {_span(rates, '{:,.0f}')}"
    if rates := plan.get("tflops_per_chip"):
        share = plan["share_of_peak"]
        shares = _span([100 * part for part in share], "{:.1f}")
        yield f"{'TFLOP/s per chip':<{_WIDE}} {_span(rates, '{:.4g}')}: {shares} % of the peak"


def _front(plan: Mapping[str, Any]) -> Iterator[str]:
    for index, one in enumerate(plan.get("front", ())):
        yield f"{'front' if index == 0 else '':<{_WIDE}} {one}"


def _throughput(plan: Mapping[str, Any]) -> Iterator[str]:
    for answer in plan.get("throughput_target", ()):
        yield f"{'throughput ' + answer['verdict'].split()[0]:<{_WIDE}} {answer['arithmetic']}"


def _xla(plan: Mapping[str, Any]) -> Iterator[str]:
    if xla := plan.get("xla"):
        yield f"{'XLA':<{_WIDE}} {xla['status']}: {xla['detail']}"
        if flags := xla.get("flags"):
            yield f"{'XLA flags':<{_WIDE}} {' '.join(flags['flags']) or 'none'}: {flags['detail']}"


def _cost(cost: Mapping[str, Any]) -> Iterator[str]:
    raw, adapter = cost["adapter_raw"], cost["adapter"]
    yield f"{'time':<{_WIDE}} {_duration(adapter)}; {adapter['seconds_note']}"
    if raw["seconds"] != adapter["seconds"] and raw["seconds"]:
        yield f"{'':<{_WIDE}} before the correction by past runs {_duration(raw)}"
    if adapter["usd"] is None:
        yield f"{'cost':<{_WIDE}} not known: {adapter['usd_note']}"
        return
    voters = cost["voters"]
    one = "a training" if voters == 1 else f"an adapter, {_dollars(cost['domain'])} for {voters} of them"
    yield f"{'cost':<{_WIDE}} {_dollars(adapter)} {one}; {adapter['usd_note']}"


def _duration(cost: Mapping[str, Any]) -> str:
    if cost["seconds"] is None:
        return "not known"
    unit, size = next(
        (u, s) for u, s in (("h", 3600.0), ("min", 60.0), ("s", 1.0)) if cost["seconds"][1] >= s or u == "s"
    )
    low, middle, high = (part / size for part in cost["seconds"])
    return f"{middle:.3g} {unit} [{low:.3g}, {high:.3g}]"


def _dollars(cost: Mapping[str, Any]) -> str:
    if cost["usd"] is None:
        return "not known"
    low, middle, high = cost["usd"]
    return f"${middle:,.2f} [{low:,.2f}, {high:,.2f}]"


def _span(values: Sequence[float], form: str) -> str:
    ends = [form.format(value) for value in values]
    return f"{ends[0]} to {ends[1]}" if len(ends) == 2 else f"{ends[1]} [{ends[0]}, {ends[2]}]"


def _size(count: float) -> str:
    return f"{count / GIB:.2f} GiB" if count >= GIB else f"{count / 2**20:.1f} MiB"
