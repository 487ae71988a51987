"""Pages of `lora_config` and `tpu_config`: settings with reasons, charts of memory and roofline, costs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from capibara_assets.escaping.languages import markdown_block, markdown_table, markdown_text
from capibara_assets.metadata.page import AssetPage, Entries, KeyFigure, Level, PageVerdict
from capibara_assets.metadata.plan_charts import (
    GIB,
    FrontPoint,
    MemoryBar,
    RooflinePoint,
    figures_table,
    front_chart,
    memory_chart,
    reasons_table,
    roofline_chart,
)
from capibara_assets.metadata.tables import document, plot

if TYPE_CHECKING:
    from capibara_assets.planning.choice import ChosenPlan
    from capibara_assets.planning.cost import Cost, CostPlan
    from capibara_assets.planning.hardware.targets import HardwareTarget
    from capibara_assets.planning.tpu.plan import FrontEntry, TpuPlan
    from capibara_assets.planning.xla.verdict import XlaVerdict

COST = "cost"  # metadata key of a plan's cost, read by the plans of other domains
# Parts of a plan that are shown as charts or files, or are too long for a table.
_APART = ("shape", "memory", "estimates", "reasons", "gin", "maxtext", "xla", "front", "refused")


def lora_page(chosen: "ChosenPlan", cost: "CostPlan") -> AssetPage:
    """Page of `lora_config`: memory beside the target's, settings with reasons, the choice of hardware, and cost."""
    plan, target = chosen.plan, chosen.target
    values = plan.model_dump(mode="json")
    estimates = plan.estimates
    held, budget = estimates["memory_bytes_per_device"], estimates["memory_budget_bytes"]
    device = {"cpu": "CPU", "gpu": "GPU", "tpu": "chip"}[target.kind]
    memory = _memory([MemoryBar("planned", _parts(held), held["total"])], target, budget, device)
    verdict, figure = _fit(held["total"], budget, device, target)
    return AssetPage(
        verdict,
        figure,
        pictures={"memory": memory},
        contents={
            "target": target.name,
            "reasons": dg.MetadataValue.md(reasons_table(_shown(values), plan.reasons)),
            **_choice_entries(chosen),
        },
        cost={"costs": costs_table(cost)},
        records={
            "plan": document(values, ("estimates", "reasons"), "in the artifact's plan.json"),
            COST: dg.MetadataValue.json(cost.model_dump(mode="json")),
        },
    )


def _choice_entries(chosen: "ChosenPlan") -> Entries:
    """Table of the targets in order of preference; empty where the deployment names one, without a budget."""
    if not chosen.options.chosen:
        return {}
    said = dict.fromkeys(chosen.usable, "goes on where the one before is taken away") | {
        chosen.target.name: "the plan is for it",
        **chosen.refused,
    }
    rows = [(target.name, said[target.name]) for target in chosen.options.targets]
    return {"hardware": dg.MetadataValue.md(markdown_table(("target", "decision"), rows))}


def tpu_page(
    plan: "TpuPlan",
    target: "HardwareTarget",
    cost: "CostPlan",
    files: Mapping[str, str],
    verdict: "XlaVerdict | None" = None,
) -> AssetPage:
    """Page of `tpu_config`: roofline, Pareto front, memory beside XLA's, settings with reasons, files, and cost."""
    values = plan.model_dump(mode="json")
    bars = [MemoryBar("ours", _parts(plan.memory), plan.memory["total"])]
    if allotted := plan.xla.get("memory"):
        bars.append(MemoryBar("XLA", _allotted(allotted), total=_whole(allotted)))
    fits, figure = _fit(plan.memory["total"], plan.memory_budget, "chip", target)
    words = f"{fits.words}; XLA: {plan.xla['status']}, {plan.xla['detail']}"
    return AssetPage(
        PageVerdict("bad" if plan.xla["status"] in _REFUSED else fits.level, words),
        figure,
        pictures={
            "roofline": roofline(plan, target),
            "front": front(plan),
            "memory": _memory(bars, target, plan.memory_budget, "chip"),
        },
        contents={
            "target": target.name,
            "reasons": dg.MetadataValue.md(reasons_table(_shown(values), plan.reasons)),
            "xla": dg.MetadataValue.md(xla_table(plan, verdict)),
            "files": ", ".join(sorted(files)),
            "gin": dg.MetadataValue.md(markdown_block(plan.gin)),
        },
        cost={"costs": costs_table(cost)},
        records={
            "plan": document(values, _APART, "in the artifact's plan.json"),
            COST: dg.MetadataValue.json(cost.model_dump(mode="json")),
        },
    )


_REFUSED = ("does not fit", "does not lower")  # by XLA
CLOSE = 0.95  # share of the memory that a plan may fill, above which it deserves a look


def _fit(held: float, budget: float, device: str, target: "HardwareTarget") -> tuple[PageVerdict, KeyFigure]:
    """Whether the planned memory fits, and the share of the budget that it takes."""
    share = held / budget
    words = f"{_gib(held)} of the {_gib(budget)} that a plan may fill on one {device} of {target.name} ({share:.0%})"
    level: Level = "bad" if share > 1 else "look" if share > CLOSE else "good"
    return PageVerdict(level, words), KeyFigure("share_of_memory", round(share, 4), "")


def roofline(plan: "TpuPlan", target: "HardwareTarget") -> dg.MetadataValue:
    """Roofline chart of the plan and the rest of its Pareto front."""
    from capibara_assets.planning.hardware.machine import machine_of
    from capibara_assets.planning.prediction.step_time import intensity, roof_of
    from capibara_assets.planning.tpu.configuration import SOFTWARE
    from capibara_assets.planning.workload import Workload, policy

    machine = machine_of(target)
    roof = roof_of(machine)
    points = []
    for entry in plan.front:
        load = Workload(
            shape=plan.shape,
            sequence=entry.sequence,
            inputs=entry.sequence if plan.shape.family == "t5" else 0,
            global_batch=entry.global_batch,
            mesh=entry.mesh,
            recompute=policy(entry.remat, SOFTWARE),
            optimizer=plan.optimizer,
            method=plan.method,
            lora_rank=plan.lora.rank if plan.lora else 0,
            lora_modules=plan.lora.modules if plan.lora else (),
            software=SOFTWARE,
            logit_chunks=plan.logit_chunks,
        )
        low, middle, high = entry.step_seconds
        rate = entry.tflops_per_chip
        points.append(
            RooflinePoint(
                entry.setting,
                intensity(load, machine),
                rate,
                rate * middle / high,
                rate * middle / low,
                chosen=_chosen(plan, entry),
            )
        )
    title = f"{plan.model} on {plan.target}: predicted, under the roof of one chip"
    return plot(roofline_chart(points, roof.tflops, roof.gb_per_s, title))


def front(plan: "TpuPlan") -> dg.MetadataValue:
    """Chart of the Pareto front: time to the same loss against memory."""
    points = [
        FrontPoint(entry.setting, float(entry.memory), entry.relative_time, chosen=_chosen(plan, entry))
        for entry in plan.front
    ]
    title = "the Pareto front: time to the same loss (best = 1) against memory of a chip"
    return plot(front_chart(points, title, limit=float(plan.memory_budget), unit="times the best"))


def _chosen(plan: "TpuPlan", entry: "FrontEntry") -> bool:
    same = ("mesh", "remat", "global_batch", "sequence", "packed")
    return all(getattr(plan, name) == getattr(entry, name) for name in same)


def xla_table(plan: "TpuPlan", verdict: "XlaVerdict | None" = None) -> str:
    """Markdown table of XLA's figures beside ours; "not compiled" if XLA did not run."""
    xla = plan.xla
    allotted = xla.get("memory", {})
    rows = [
        ("verdict", "fits", f"{xla['status']}: {xla['detail']}"),
        ("memory of a chip", _gib(plan.memory["total"]), _gib(_whole(allotted))),
        ("arguments", "", _gib(allotted.get("arguments"))),
        ("temporaries", "", _gib(allotted.get("temporaries"))),
    ]
    if flops := xla.get("flops"):
        rows += [
            ("FLOPs of a step and chip, recomputation counted", _tera(flops["same"]), _tera(flops["xla"])),
            ("attention in a fused kernel", _tera(flops["kernel"]), "not counted" if flops["kernel"] else "none"),
            ("model FLOPs of a step and chip, attention in full", _tera(flops["model"]), ""),
        ]
    rows += [(kind, "", str(count)) for kind, count in (xla.get("collectives") or {}).items()]
    rows += [(f"version of {name}", "", version) for name, version in (xla.get("versions") or {}).items()]
    if flags := xla.get("flags"):
        rows.append(("flags", " ".join(flags["flags"]), f"{flags['status']}: {flags['detail']}"))
    if verdict is not None and verdict.compile_seconds is not None:
        rows.append(("compile time", "", f"{verdict.compile_seconds:.1f} s" + (", kept" if verdict.cached else "")))
    if verdict is not None and verdict.host_peak_bytes is not None:
        rows.append(("memory of the compiler", "", _gib(verdict.host_peak_bytes)))
    return figures_table(rows)


def costs_table(cost: "CostPlan") -> dg.MetadataValue:
    """Hours and dollars per adapter, domain and backfill."""
    costs = {
        "an adapter, as predicted": cost.adapter_raw,
        f"an adapter, corrected by {cost.correction.runs} runs": cost.adapter,
        f"the domain: {cost.voters} adapters": cost.domain,
        "a backfill of all domains": cost.backfill,
    }
    rows = [(name, _hours(one), _dollars(one)) for name, one in costs.items()]
    table = markdown_table(("", "hours", "dollars"), rows, right=(1, 2))
    notes = f"{cost.adapter.seconds_note}. {cost.adapter.usd_note}. {cost.backfill_note}."
    return dg.MetadataValue.md(f"{table}\n\n{markdown_text(notes)}")


def _memory(bars: Sequence[MemoryBar], target: "HardwareTarget", budget: float, device: str) -> dg.MetadataValue:
    limits = {"usable": float(target.usable_bytes), "budget": float(budget)}
    return plot(memory_chart(bars, limits, f"memory of one {device} of {target.name}"))


def _parts(memory: Mapping[str, int]) -> dict[str, float]:
    return {name: float(count) for name, count in memory.items() if name != "total"}


def _allotted(memory: Mapping[str, int]) -> dict[str, float]:
    """XLA's memory by part; outputs alias arguments and are not counted."""
    return {name: float(memory[name]) for name in ("arguments", "temporaries") if name in memory}


def _whole(memory: Mapping[str, int]) -> float | None:
    """Bytes that XLA allocated on a chip, or its peak if the verdict has only that."""
    return memory.get("allotted", memory.get("peak"))


def _shown(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in _APART}


def _gib(count: float | None) -> str:
    return "not compiled" if count is None else f"{count / GIB:.2f} GiB"


def _tera(flops: float) -> str:
    return f"{flops / 1e12:.4g} TFLOP"


def _hours(cost: "Cost") -> str:
    if cost.hours is None:
        return "not known"
    low, middle, high = cost.hours
    return f"{middle:.3g} [{low:.3g}, {high:.3g}]"


def _dollars(cost: "Cost") -> str:
    if cost.usd is None:
        return "not known"
    low, middle, high = cost.usd
    return f"{middle:,.2f} [{low:,.2f}, {high:,.2f}]"
