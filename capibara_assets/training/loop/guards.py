"""Guards against spikes, divergence and broken resumes: pure functions of the curve, so a resumed run decides alike."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

from capibara_assets.training.recipe import ContinuityChoice, EarlyStopping, GuardChoice, SpikeChoice
from capibara_assets.training.resume.points import Progress
from capibara_assets.training.step.settings import Settings

# After so many halvings in a row a loss scale of 2^16 scales no more: the gradients themselves are not finite.
_HALVINGS = 24


class TrainingDiverged(Exception):
    """Training gave up on NaN, infinity or spikes; a restart would repeat it."""


def is_spike(loss: float | None, curve: Sequence[dict[str, Any]], choice: SpikeChoice | None) -> bool:
    """Whether a step's loss stands far above those of the steps before it.

    Both the standard deviations and the share of the mean must be exceeded: with a flat curve a tiny step is many
    deviations, with a wild one half as much again is nothing.

    Args:
        curve: of the progress; points with `loss` count, the newest `window` of them. Fewer than half a window: no.
    """
    if choice is None or loss is None or not math.isfinite(loss):
        return False
    known: list[float] = []
    for point in reversed(curve):
        if "loss" in point:
            known.append(point["loss"])
            if len(known) == choice.window:
                break
    if len(known) < choice.window // 2:
        return False
    mean = fmean(known)
    return loss > max(mean + choice.sigmas * pstdev(known), mean * (1 + choice.relative))


def should_stop(curve: Sequence[dict[str, Any]], choice: EarlyStopping | None) -> bool:
    """Whether none of the last `patience` validations was better than the best before them.

    Args:
        curve: points with `validation_loss` count, the one before the first step left out.
    """
    if choice is None:
        return False
    losses = [point["validation_loss"] for point in curve if "validation_loss" in point and point["step"] > 0]
    if len(losses) <= choice.patience:
        return False
    recent, before = min(losses[-choice.patience :]), min(losses[: -choice.patience])
    return bool(recent > before - choice.min_delta)


def discontinuity(
    curve: Sequence[dict[str, Any]], resumed_at: int | None, choice: ContinuityChoice | None
) -> dict[str, float] | None:
    """The jump of the loss at a resume, or None: the means `before` and `since`, and how many `steps` since.

    Each new step is judged by the mean of those since, whose standard error shrinks with their number: one odd batch
    is forgiven, weights or an optimizer that came back wrong are not.

    Args:
        curve: points with `loss` count.
        resumed_at: step of the resume in another environment; None: there was none.
    """
    if choice is None or resumed_at is None:
        return None
    losses = [(point["step"], point["loss"]) for point in curve if "loss" in point]
    since = [loss for step, loss in losses if step > resumed_at]
    before = [loss for step, loss in losses if step <= resumed_at][-choice.window :]
    if not since or len(since) > choice.steps or len(before) < 2:
        return None
    mean, error = fmean(before), pstdev(before) / math.sqrt(len(since))
    if fmean(since) <= max(mean + choice.sigmas * error, mean * (1 + choice.relative)):
        return None
    return {"before": mean, "since": fmean(since), "steps": len(since), "resumed_at": resumed_at}


def too_many_left_out(
    skipped: Sequence[dict[str, Any]], rollbacks: Sequence[dict[str, Any]], choice: GuardChoice
) -> bool:
    """Whether more steps went wrong than the recipe allows.

    With a dynamic loss scale some steps overflow by design, when the scale is searched and when it grows. They count
    only if they do not end.

    Args:
        skipped: those with `loss_scale` are steps whose scaled gradients overflowed.
    """
    ordinary = sum(not left_out.get("loss_scale") for left_out in skipped)
    spikes = choice.spike.max_rollbacks if choice.spike else 0
    tail = skipped[-_HALVINGS:]
    endless = (
        len(tail) == _HALVINGS
        and all(left_out.get("loss_scale") for left_out in tail)
        and tail[-1]["step"] - tail[0]["step"] == _HALVINGS - 1
    )
    return ordinary > choice.max_skipped_steps or len(rollbacks) > spikes or endless


def diagnosis(progress: Progress, settings: Settings, rate: float) -> str:
    """Error message for a diverged run: how often it happened, and what to change."""
    problems = []
    if progress.skipped:
        steps = ", ".join(str(skipped["step"]) for skipped in progress.skipped)
        problems.append(f"{len(progress.skipped)} steps gave NaN or infinity (steps {steps})")
    if progress.rollbacks:
        steps = ", ".join(str(rolled["step"]) for rolled in progress.rollbacks)
        problems.append(
            f"{len(progress.rollbacks)} steps had a loss far above the ones before and were rolled back ({steps})"
        )
    last = max([*progress.skipped, *progress.rollbacks], key=lambda left_out: left_out["step"], default=None)
    examples = ", ".join(last["examples"][:8]) if last else ""
    return (
        f"{'; '.join(problems) or 'no step went wrong'}; learning rate {rate:.3g} of peak "
        f"{settings.learning_rate:.3g}, precision {settings.precision}: lower learning_rate, or set precision: "
        f"fp32; examples of the last one: {examples or 'none'}"
    )


def discontinued(jump: Mapping[str, float], differs: list[str]) -> str:
    """The error message for a resume after which the loss jumped."""
    return (
        f"the loss jumped when training was resumed at step {jump['resumed_at']} in another environment "
        f"({', '.join(differs)}): {jump['before']:.4g} before, {jump['since']:.4g} over {jump['steps']} steps since. "
        "Resume where the points were made, remove them to start anew, or set guards.continuity: null to go on"
    )
