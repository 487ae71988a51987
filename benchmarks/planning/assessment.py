"""The throughput figures of any file of published runs, every run predicted by a fit that never saw its model.

The fit is to the file's runs and to those that the shipped calibration was fitted to, where they are at hand; else the
calibration itself stands for them, for models that it never saw. So a file of one row is judged as a file of hundreds
is, and a chip or a framework that only the file knows is learned from its other models.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from math import ceil, exp
from statistics import median
from typing import Any

import numpy as np

from benchmarks.planning.crossvalidation import (
    COVERAGE,
    HeldOut,
    Label,
    Prior,
    leave_out,
    mfu,
    naive_errors,
    predicted,
    speed_errors,
)
from benchmarks.planning.fit import Array, Problem, problem, step_seconds
from benchmarks.planning.published import PublishedRun, Table, model_groups, model_keys, only_measured, run_digest
from capibara_assets.planning.accounting import Method, Optimizer
from capibara_assets.planning.footprint import footprint, recomputed, tokens_of
from capibara_assets.planning.prediction.calibration import EfficiencyCalibration
from capibara_assets.planning.prediction.step_time import StepPrediction, predict
from capibara_assets.planning.workload import Workload

HEADLINE = ("median_error", "p90_error", "coverage", "naive_median_error", "naive_p90_error", "regret")
LEAN_LOGIT = 2  # bytes: one 16-bit copy, its gradient written over it (fused cross-entropy)
LEAN_STATE = {Optimizer.ADAMW: 2, Optimizer.ADAMW_8BIT: 1, Optimizer.ADAFACTOR: 0}  # 16-bit elements per weight


@dataclass(frozen=True)
class Guess:
    """One run's predicted log step time, and the half-width of its interval."""

    log: float
    half: float


def assess(table: Table, calibration: EfficiencyCalibration, known: Sequence[PublishedRun]) -> dict[str, Any]:
    """Errors, coverage, regret and memory verdicts of every row, as one JSON document (its keys are described in
    docs/planning.md).

    Args:
        table: the rows.
        calibration: what ships; predicts the rows without a measurement, and beside the headline what it never saw.
        known: the runs that it was fitted to; none where they are not at hand.
    """
    runs = only_measured(table.runs)
    direct = [predict(run.workload, run.machine, calibration) for run in table.runs]
    by_row = dict(zip((run.row for run in table.runs), direct, strict=True))
    digests = {run_digest(run) for run in runs}
    pool = [*runs, *(run for run in known if run_digest(run) not in digests)]
    result: dict[str, Any] = {"runs_measured": len(runs), "runs_scored": len(runs)}
    others = "the runs of the shipped calibration" if known else "the shipped calibration where it never saw the model"
    result["headline"] = (
        f"each measured run predicted by a fit to this file and {others}, without all runs of its model"
    )
    result["fitted_runs"] = len(pool)
    result |= dict.fromkeys(HEADLINE)  # null where nothing was measured
    guesses: list[Guess] = []
    if runs:
        groups, task = model_groups(pool), problem(pool)
        held = leave_out(task, groups, len(runs), None if known else _prior(calibration, pool, groups))
        scored = len(runs)
        halves = (held.widths * held.spreads)[:scored]
        logs = held.logs[:scored]
        guesses = [Guess(float(log), float(half)) for log, half in zip(logs, halves, strict=True)]
        result |= _errors(logs, runs)
        measured = np.log([step_seconds(run) for run in runs])
        result["coverage"] = _rounded((np.abs(logs - measured) <= halves).mean())
        result["coverage_aimed_at"] = COVERAGE
        result["interval_half_width_median"] = _rounded(exp(float(np.median(halves))) - 1)
        result |= _naive(logs, runs, naive_errors(pool, groups)[:scored])
        result["by_chip"] = _by(logs, runs, lambda run: run.machine.family)
        result["by_framework"] = _by(logs, runs, lambda run: run.workload.software)
        result |= regret(runs, logs)
        coarse = regret(runs, logs, any_length=True)
        result |= {
            f"{name}_any_length": coarse[name] for name in ("regret", "regret_groups", "regret_within_5_percent")
        }
        shipped = [by_row[run.row] for run in runs]
        result["shipped_on_unseen"] = _unseen(runs, shipped, [saw(calibration, run) for run in runs])
        result["chip_left_out"] = _chips(pool, task, scored, held)
    result |= _memory(table.runs)
    result["rows"] = len(table.runs) + len(table.refused)
    result["rows_predicted"] = len(table.runs)
    result["rows_refused_count"] = len(table.refused)
    result["rows_refused"] = dict(table.refused)
    said = {run.row: guess for run, guess in zip(runs, guesses, strict=True)}
    result["predictions"] = [_row(run, by_row[run.row], said.get(run.row)) for run in table.runs]
    return result


def saw(calibration: EfficiencyCalibration, run: PublishedRun) -> bool:
    """Whether it was fitted to runs of this run's model."""
    return any(key in calibration.provenance.seen for key in model_keys(run))


def _prior(calibration: EfficiencyCalibration, pool: Sequence[PublishedRun], groups: Sequence[Label]) -> Prior:
    seen = {group for run, group in zip(pool, groups, strict=True) if saw(calibration, run)}
    return Prior(calibration, frozenset(groups) - seen)


def _errors(logs: Array, runs: Sequence[PublishedRun]) -> dict[str, Any]:
    return _quantiles(speed_errors(logs, runs))


def _naive(logs: Array, runs: Sequence[PublishedRun], errors: Sequence[float | None]) -> dict[str, Any]:
    """The naive answer's errors, over all runs that have one; and beside ours over those whose source states an MFU."""
    answered = [index for index, error in enumerate(errors) if error is not None]
    stated = [index for index in answered if runs[index].mfu is not None]
    ours, naive = speed_errors(logs, runs), np.array([np.nan if error is None else error for error in errors])
    published: dict[str, Any] = {"runs": len(stated)}
    if stated:
        published |= _quantiles(ours[stated]) | _quantiles(naive[stated], "naive_")
    return {
        "naive": "the median MFU of other models on the same chip, among all runs at hand",
        **(_quantiles(naive[answered], "naive_") if answered else {}),
        "on_runs_with_published_mfu": published,
    }


def _quantiles(errors: Array, prefix: str = "") -> dict[str, float]:
    return {
        f"{prefix}median_error": _rounded(np.median(errors)),
        f"{prefix}p90_error": _rounded(np.quantile(errors, 0.9)),
    }


def _by(logs: Array, runs: Sequence[PublishedRun], group: Any) -> dict[str, Any]:
    groups: dict[str, list[int]] = defaultdict(list)
    for index, run in enumerate(runs):
        groups[group(run)].append(index)
    return {
        name: _errors(logs[rows], [runs[row] for row in rows]) | {"runs": len(rows)}
        for name, rows in sorted(groups.items())
    }


def _unseen(runs: Sequence[PublishedRun], shipped: Sequence[StepPrediction], seen: Sequence[bool]) -> dict[str, Any]:
    new = [index for index, known in enumerate(seen) if not known]
    if not new:
        return {"runs": 0}
    logs = np.log([shipped[index].step_seconds[1] for index in new])
    return _errors(logs, [runs[index] for index in new]) | {"runs": len(new)}


def _chips(pool: Sequence[PublishedRun], task: Problem, scored: int, held: HeldOut) -> dict[str, Any]:
    """Every chip of the first `scored` runs predicted by a fit without that chip; intervals as wide as models need."""
    families = [run.machine.family for run in pool]
    logs, spreads = predicted(task, families, set(families[:scored]))
    runs, logs = pool[:scored], logs[:scored]
    spreads = np.sqrt(spreads[:scored] ** 2 + held.noise**2)
    inside = np.abs(logs - task.logs[:scored]) <= held.width * spreads
    return _errors(logs, runs) | {
        "coverage": _rounded(inside.mean()),
        "by_chip": _by(logs, runs, lambda run: run.machine.family),
    }


def regret(runs: Sequence[PublishedRun], logs: Array, *, any_length: bool = False) -> dict[str, Any]:
    """What following our ranking costs.

    Among runs of one model, length, slice and software in several settings: how much slower per token the setting is
    that we rank first than the fastest one.

    Args:
        runs: measured runs.
        logs: predicted log step times (runs,).
        any_length: runs of different sequence lengths compete too, though they do not do the same work.
    """
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for index, run in enumerate(runs):
        load = run.workload
        machine = run.machine
        length = "any length" if any_length else f"{load.sequence} tokens"
        where = (run.model, machine.family, machine.chips, machine.island, length, load.software, load.generation)
        groups[where].append(index)
    losses = {}
    for where, rows in sorted(groups.items(), key=lambda one: str(one[0])):
        # Seconds a token of one chip are what a setting costs; of runs with the same setting the median.
        cost: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        ours: dict[tuple[Any, ...], float] = {}
        for row in rows:
            setting = (*_setting(runs[row]), runs[row].workload.sequence)
            cost[setting].append(1 / (runs[row].tokens_per_second or 1.0))
            ours[setting] = exp(float(logs[row])) / runs[row].workload.tokens
        if len(cost) < 2:
            continue
        first = min(ours, key=lambda setting: (ours[setting], str(setting)))
        name = f"{where[0]} on {where[2]} x {where[1]}, {where[4]}"
        losses[name] = _rounded(median(cost[first]) / min(median(one) for one in cost.values()) - 1)
    worst = max(losses.values(), default=None)
    return {
        "regret": worst,
        "regret_median": _rounded(np.median(list(losses.values()))) if losses else None,
        "regret_groups": len(losses),
        "regret_within_5_percent": sum(loss <= 0.05 for loss in losses.values()),
        "regret_by_group": losses,
    }


def _setting(run: PublishedRun) -> tuple[Any, ...]:
    load = run.workload
    return (
        str(load.mesh),
        load.global_batch,
        load.micro_steps,
        load.recompute,
        load.precision,
        load.eager,
        load.overlapped_tensor,
        load.replicated_weights,
        load.weight_bytes,
    )


def _memory(runs: Sequence[PublishedRun]) -> dict[str, Any]:
    """Memory verdicts: impossible is what even the leanest program with the stated settings could not do."""
    judged, impossible, refused = 0, [], []
    for run in runs:
        # Without length, batch or mesh nothing can be said of memory.
        unknown = "seq_len" in run.unstated or {"per_device_batch", "global_batch"} <= run.unstated
        unknown |= {"fsdp", "tensor"} <= run.unstated or any(one.startswith("mesh") for one in run.assumed)
        if unknown:
            continue
        judged += 1
        if least_bytes(run.workload, run.unstated) > run.machine.memory_bytes:
            impossible.append(run.row)
        if footprint(run.workload).total > run.machine.memory_bytes:
            refused.append(run.row)
    return {
        "false_oom": len(impossible),
        "false_oom_of": judged,
        "false_oom_rows": impossible,
        "memory_not_judged": len(runs) - judged,
        "planner_would_avoid": len(refused),
    }


def _row(run: PublishedRun, direct: StepPrediction, guess: Guess | None) -> dict[str, Any]:
    """One row's prediction; where it is scored, by the way it is scored."""
    load = run.workload
    low, middle, high = direct.step_seconds
    way = "shipped calibration"
    if guess is not None:
        middle, way = exp(guess.log), "fit without its model"
        low, high = middle / exp(guess.half), middle * exp(guess.half)
    share = load.tokens / load.chips
    rate = {"full": share * load.flops_per_token(causal=False), "causal": share * load.flops_per_token(causal=True)}
    measured: Mapping[str, Any] = {}
    if run.tokens_per_second is not None:
        actual = step_seconds(run)
        measured = {
            "measured_step_s": _rounded(actual),
            "measured_from": run.measured_from,
            "measured_mfu": _rounded(mfu(run)),
            "error": _rounded(abs(actual / middle - 1)),
            "inside": low <= actual <= high,
        }
    return {
        "row": run.row,
        "model": run.model,
        "chip": run.machine.family,
        "chips": run.machine.chips,
        "mesh": str(load.mesh),
        "by": way,
        "step_time_s": _rounded(middle),
        "step_time_low_s": _rounded(low),
        "step_time_high_s": _rounded(high),
        "tokens_per_s_per_chip": _rounded(share / middle),
        "tflops_per_s_per_chip": _rounded(rate["causal" if run.causal else "full"] / middle / 1e12),
        "attention_counted": "causal" if run.causal else "full",
        "mfu_full": _rounded(rate["full"] / middle / run.machine.peak("bf16")),
        "mfu_causal": _rounded(rate["causal"] / middle / run.machine.peak("bf16")),
        "binds": direct.binds,
        "memory_gib": _rounded(footprint(load).total / 2**30),
        "assumed": list(run.assumed),
        **measured,
    }


def _rounded(value: float) -> float:
    return float(f"{float(value):.5g}")


def least_bytes(load: Workload, unstated: Set[str] = frozenset()) -> int:
    """Lower bound of the memory that a program with these settings needs on one chip, in bytes.

    Weights, gradients and moments sharded over every possible axis, in 16 bits unless the run states 32; layer inputs
    kept under recomputation (none where they are offloaded), results of products kept without it; one 16-bit copy of a
    chunk's logits.

    Args:
        load: the run.
        unstated: columns that its source leaves open; the leanest choice is assumed for each.
    """
    mesh, shape = load.mesh, load.shape
    cut = mesh.fsdp * mesh.tensor * mesh.pipeline * mesh.expert
    held = shape.parameters / cut
    stored = 2 if "weight_dtype" in unstated else load.weight_bytes
    optimizer = Optimizer.ADAFACTOR if "optimizer" in unstated else load.optimizer
    trained = held if load.method is Method.FULL else 0.0
    if load.replicated_weights:
        state = held * 2 + trained * (stored + 2 + 2 * LEAN_STATE[optimizer]) / mesh.data
    else:
        # Moments have the stored format; gradients live in 16 bits; both can be cut over what repeats the weights.
        state = held * stored + trained * (2 + stored * LEAN_STATE[optimizer]) / (mesh.data * mesh.slices)
    tokens, layers = tokens_of(load), shape.layers + shape.encoder_layers
    if "per_device_batch" in unstated and load.micro_steps == 1:  # the batch may have come in passes
        tokens = min(tokens, float(load.sequence + load.inputs))
    remade = "remat_policy" in unstated or recomputed(load) >= 1
    kept = 0.0
    if remade:
        kept = 0.0 if load.recompute.offloaded else float(shape.hidden)
    elif recomputed(load) == 0:
        attention = (shape.heads + 2 * shape.kv_heads + shape.heads) * shape.head_dim
        kept = attention + 2 * shape.hidden + shape.intermediate * shape.experts_per_token
    else:
        kept = float(shape.hidden)
    activations = tokens * layers * kept * 2 / (mesh.tensor * mesh.pipeline)
    logits = ceil(tokens / max(1, load.logit_chunks)) * shape.vocabulary * LEAN_LOGIT / mesh.tensor
    return round(state + activations + logits)
