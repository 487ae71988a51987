"""The throughput figures of any file of published runs, every run predicted by a fit that never saw it.

Runs that the shipped calibration was not fitted on are predicted by it, as a user's would be. Runs that it was fitted
on are predicted by a fit to this file without their whole model. The headline is over all measured runs, each by the
one of the two that is honest for it; both ways are also printed for themselves.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median
from typing import Any

import numpy as np

from capibara_assets.planning.calibration import Array, Calibration, seen_by, step_seconds
from capibara_assets.planning.crossvalidation import (
    COVERAGE,
    ENOUGH_MODELS,
    ENOUGH_RUNS,
    HeldOut,
    leave_out,
    mfu,
    naive_errors,
    speed_errors,
)
from capibara_assets.planning.footprint import footprint, least_bytes
from capibara_assets.planning.prediction import Prediction, predict
from capibara_assets.planning.published import PublishedRun, Table, only_measured

HEADLINE = ("median_error", "p90_error", "coverage", "naive_median_error", "naive_p90_error", "regret")
WAYS = ("shipped calibration", "leave one model out")


@dataclass(frozen=True)
class Guess:
    """One run's predicted log step time, the half-width of its interval, and how it was come by."""

    log: float
    half: float
    way: str


def assess(table: Table, calibration: Calibration) -> dict[str, Any]:
    """Errors, coverage, regret and memory verdicts of every row, as one JSON document (its keys are described in
    docs/planning.md).

    Args:
        table: the rows.
        calibration: what ships; says which runs it was fitted on.
    """
    runs = only_measured(table.runs)
    direct = [predict(run.workload, run.machine, calibration) for run in table.runs]
    by_row = dict(zip((run.row for run in table.runs), direct, strict=True))
    shipped = [by_row[run.row] for run in runs]
    seen = seen_by(calibration, runs)
    refit = len(runs) >= ENOUGH_RUNS and len({run.model for run in runs}) >= ENOUGH_MODELS
    by_model = leave_out(runs, lambda run: run.model) if refit else None
    guesses = [
        _guess(index, one, known, by_model) for index, (one, known) in enumerate(zip(shipped, seen, strict=True))
    ]
    honest = [index for index, guess in enumerate(guesses) if guess is not None]
    scored, chosen = [runs[index] for index in honest], [guess for guess in guesses if guess is not None]
    result: dict[str, Any] = {"runs_measured": len(runs), "runs_scored": len(scored)}
    result["headline"] = (
        "each measured run predicted by a fit that never saw it: the shipped calibration for runs it was not fitted on,"
        " a fit to this file without the run's model for the others"
    )
    result["predicted_by"] = {way: sum(guess.way == way for guess in chosen) for way in WAYS}
    result["in_calibration_but_too_few_to_refit"] = len(runs) - len(scored)
    result |= dict.fromkeys(HEADLINE)  # null where nothing honest can be said
    if scored:
        logs = np.array([guess.log for guess in chosen])
        result |= _errors(logs, scored)
        measured = np.log([step_seconds(run) for run in scored])
        inside = np.abs(logs - measured) <= np.array([guess.half for guess in chosen])
        result["coverage"] = _rounded(inside.mean())
        result["coverage_aimed_at"] = COVERAGE
        result["interval_half_width_median"] = _rounded(exp(float(np.median([guess.half for guess in chosen]))) - 1)
        result |= _naive(logs, scored)
        result["by_chip"] = _by(logs, scored, lambda run: run.machine.family)
        result["by_framework"] = _by(logs, scored, lambda run: run.workload.software)
        result |= regret(scored, logs)
        coarse = regret(scored, logs, any_length=True)
        result |= {
            f"{name}_any_length": coarse[name] for name in ("regret", "regret_groups", "regret_within_5_percent")
        }
    if runs:
        result["shipped_on_unseen"] = _unseen(runs, shipped, seen)
    if by_model is not None:
        result["leave_one_model_out"] = _errors(by_model.logs, runs) | {"runs": len(runs)}
        if len({run.machine.family for run in runs}) > 1:
            result["chip_left_out"] = _chips(runs, by_model.width)
    result |= _memory(table.runs)
    result["rows"] = len(table.runs) + len(table.refused)
    result["rows_predicted"] = len(table.runs)
    result["rows_refused"] = dict(table.refused)
    said = {run.row: guess for run, guess in zip(runs, guesses, strict=True)}
    result["predictions"] = [_row(run, by_row[run.row], said.get(run.row)) for run in table.runs]
    return result


def _guess(index: int, direct: Prediction, known: bool, by_model: HeldOut | None) -> Guess | None:
    """None for a run of the calibration in a file too small to refit: nothing honest can be said of it."""
    if not known:
        low, middle, _ = direct.step_seconds
        return Guess(log(middle), log(middle / low), WAYS[0])
    if by_model is None:
        return None
    half = float(by_model.widths[index] * by_model.spreads[index])
    return Guess(float(by_model.logs[index]), half, WAYS[1])


def _errors(logs: Array, runs: Sequence[PublishedRun]) -> dict[str, Any]:
    errors = speed_errors(logs, runs)
    return {"median_error": _rounded(np.median(errors)), "p90_error": _rounded(np.quantile(errors, 0.9))}


def _naive(logs: Array, runs: Sequence[PublishedRun]) -> dict[str, Any]:
    """The median MFU of other models on the chip, over all scored runs; and over those whose source states an MFU."""
    errors = naive_errors(runs)
    result = _both(speed_errors(logs, runs), errors, range(len(runs)))
    stated = _both(speed_errors(logs, runs), errors, [index for index, run in enumerate(runs) if run.mfu is not None])
    return {
        "naive": "the median MFU of other models on the same chip in this file",
        "naive_runs": result["runs"],
        "naive_median_error": result["naive_median_error"],
        "naive_p90_error": result["naive_p90_error"],
        "on_runs_with_published_mfu": stated,
    }


def _both(ours: Array, naive: Sequence[float | None], which: Iterable[int]) -> dict[str, Any]:
    chosen = [index for index in which if naive[index] is not None]
    if not chosen:
        return {"runs": 0, "naive_median_error": None, "naive_p90_error": None}
    theirs = [float(naive[index] or 0.0) for index in chosen]
    return {
        "runs": len(chosen),
        "median_error": _rounded(np.median(ours[chosen])),
        "p90_error": _rounded(np.quantile(ours[chosen], 0.9)),
        "naive_median_error": _rounded(np.median(theirs)),
        "naive_p90_error": _rounded(np.quantile(theirs, 0.9)),
    }


def _by(logs: Array, runs: Sequence[PublishedRun], group: Any) -> dict[str, Any]:
    groups: dict[str, list[int]] = defaultdict(list)
    for index, run in enumerate(runs):
        groups[group(run)].append(index)
    return {
        name: _errors(logs[rows], [runs[row] for row in rows]) | {"runs": len(rows)}
        for name, rows in sorted(groups.items())
    }


def _unseen(runs: Sequence[PublishedRun], shipped: Sequence[Prediction], seen: Sequence[bool]) -> dict[str, Any]:
    new = [index for index, known in enumerate(seen) if not known]
    if not new:
        return {"runs": 0}
    logs = np.log([shipped[index].step_seconds[1] for index in new])
    return _errors(logs, [runs[index] for index in new]) | {"runs": len(new)}


def _chips(runs: Sequence[PublishedRun], width: float) -> dict[str, Any]:
    """Every chip's runs predicted by a fit without that chip; intervals by the width that models need."""
    held = leave_out(runs, lambda run: run.machine.family)
    measured = np.log([step_seconds(run) for run in runs])
    inside = np.abs(held.logs - measured) <= width * held.spreads
    return _errors(held.logs, runs) | {
        "coverage": _rounded(inside.mean()),
        "by_chip": _by(held.logs, runs, lambda run: run.machine.family),
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


def _row(run: PublishedRun, direct: Prediction, guess: Guess | None) -> dict[str, Any]:
    """One row's prediction; where it is scored, by the way it is scored."""
    load = run.workload
    low, middle, high = direct.step_seconds
    way = WAYS[0]
    if guess is not None:
        middle, way = exp(guess.log), guess.way
        low, high = middle / exp(guess.half), middle * exp(guess.half)
    elif run.tokens_per_second is not None:
        way = "shipped calibration, fitted on this run: not scored"
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
