"""A plan as text: settings with their reasons, memory, time, bottleneck, cost."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

GIB = 1024**3
MOST = 6  # rows of the Pareto front that are printed
Lines = Iterator[tuple[str, str]]
_WIDE = 20
_DEEP, _COLUMNS = _WIDE + 5, 118
# Keys of a plan's document that are printed elsewhere, or are files.
_ELSEWHERE = {
    "domain", "model", "target", "shape", "memory", "memory_budget", "estimates", "reasons", "gin", "maxtext", "xla",
    "throughput_target", "seconds", "usd", "usd_note", "step_time", "tokens_per_second", "tflops_per_chip", "feasible",
    "share_of_peak", "front", "refused", "prediction",
}  # fmt: skip


def plan_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a plan's document, wrapped for a terminal."""
    if document["kind"] == "claims":
        for claim in document["claims"]:
            yield from _line(claim["verdict"], f"{claim['claim']}")
            yield from _line("", f"{claim['how']}: {claim['ours']}")
            yield from _reason(claim["why"])
        return
    plan = document["plan"]
    level = f"{plan['domain']}, level {document['level']}"
    yield f"{plan['model']} on {document['target']} ({document['hardware']}), {level}"
    if "assumed" in document:
        yield f"assumed: {document['assumed']}"
    yield ""
    reasons = plan["reasons"]
    for name, value in plan.items():
        if name not in _ELSEWHERE:
            yield from _line(name, _value(value))
            yield from _reason(reasons.get(name))
    for name, reason in reasons.items():
        if name not in plan:
            yield from _line(name, "")
            yield from _reason(reason)
    yield ""
    for name, words in (
        *_memory(plan),
        *_time(plan),
        *_front(plan),
        *_throughput(plan),
        *_xla(plan),
        *_cost(document["cost"]),
    ):
        yield from _line(name, words)
    if document.get("out"):
        yield from _line("files", f"{document['out']}: {', '.join(document['files'])}")


def _line(name: str, words: str) -> list[str]:
    """A name and its text, wrapped."""
    head = f"{name.replace('_', ' '):<{_WIDE}} "
    return textwrap.wrap(words, _COLUMNS, initial_indent=head, subsequent_indent=" " * len(head)) or [head.rstrip()]


def _reason(reason: str | None) -> list[str]:
    return textwrap.wrap(reason or "", _COLUMNS, initial_indent=" " * _DEEP, subsequent_indent=" " * _DEEP)


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


def _memory(plan: Mapping[str, Any]) -> Lines:
    estimates = plan.get("estimates", {})
    parts = plan.get("memory") or estimates.get("memory_bytes_per_device") or {}
    budget = plan.get("memory_budget") or estimates.get("memory_budget_bytes")
    if parts:
        named = sorted(((count, name) for name, count in parts.items() if name != "total" and count > 0), reverse=True)
        sums = " + ".join(f"{_size(count)} {name}" for count, name in named)
        apart = sum(count for count in parts.values() if count < 0)
        less = f" - {_size(-apart)} not at the same time" if apart else ""
        of = f" of {_size(budget)}" if budget else ""
        yield "memory per device", f"{sums}{less} = {_size(parts['total'])}{of}"


def _time(plan: Mapping[str, Any]) -> Lines:
    if step := plan.get("step_time"):
        spent = sorted(step["resources"].items(), key=lambda item: -item[1])
        shares = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in spent if seconds > 0.005 * spent[0][1])
        span = _span((step["low"], step["middle"], step["high"]), "{:.4g}")
        yield "step", f"{span} s, bound by {step['binds']}: {shares}"
    if rates := plan.get("tokens_per_second"):
        yield "tokens per second", _span(rates, "{:,.0f}")
    if rates := plan.get("tflops_per_chip"):
        shares = _span([100 * part for part in plan["share_of_peak"]], "{:.1f}")
        yield "TFLOP/s per chip", f"{_span(rates, '{:.4g}')}: {shares} % of the peak, attention counted in full"


def _front(plan: Mapping[str, Any]) -> Lines:
    """The Pareto front in time, memory and cost; then the settings that do not fit."""
    front = plan.get("front", ())
    for index, one in enumerate(front[:MOST]):
        words = (
            f"{one['setting']}: {one['relative_time']:.2f} times the time, {_size(one['memory'])}, {one['binds']} binds"
        )
        yield ("front" if index == 0 else ""), words
    if len(front) > MOST:
        yield "", f"and {len(front) - MOST} more"
    for index, one in enumerate(plan.get("refused", ())[:2]):
        yield ("does not fit" if index == 0 else ""), f"{one['setting']}: {one['reason']}"


def _throughput(plan: Mapping[str, Any]) -> Lines:
    for index, answer in enumerate(plan.get("throughput_target", ())):
        yield ("throughput" if index == 0 else ""), f"{answer['verdict']}: {answer['arithmetic']}"


def _xla(plan: Mapping[str, Any]) -> Lines:
    if xla := plan.get("xla"):
        yield "XLA", f"{xla['status']}: {xla['detail']}"
        if flops := xla.get("flops"):
            words = (
                f"{_tera(flops['xla'])} TFLOP a step and chip; ours {_tera(flops['same'])} of the same operations"
                f" (recomputation in them, fused attention not); model FLOPs {_tera(flops['model'])}"
            )
            yield "XLA counts", words
        if flags := xla.get("flags"):
            yield "XLA flags", f"{' '.join(flags['flags']) or 'none'}: {flags['detail']}"


def _tera(flops: float) -> str:
    return f"{flops / 1e12:.4g}"


def _cost(cost: Mapping[str, Any]) -> Lines:
    raw, adapter = cost["adapter_raw"], cost["adapter"]
    yield "time", f"{_duration(adapter)}; {adapter['seconds_note']}"
    if raw["seconds"] != adapter["seconds"] and raw["seconds"]:
        yield "", f"before the correction by past runs {_duration(raw)}"
    if adapter["usd"] is None:
        yield "cost", f"not known: {adapter['usd_note']}"
        return
    voters = cost["voters"]
    one = "a training" if voters == 1 else f"an adapter, {_dollars(cost['domain'])} for {voters} of them"
    yield "cost", f"{_dollars(adapter)} {one}; {adapter['usd_note']}"


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
