"""Renders a training plan as lines of text."""

from capibara_assets.planning.accounting import size
from capibara_assets.training.plan.schema import TimePlan, TrainingPlan


def plan_lines(plan: TrainingPlan) -> list[str]:
    """The plan as aligned lines of text; estimates are marked `about`."""
    share = plan.trainable / plan.parameters
    exact = "" if plan.tokens_exact else "about "
    lines = [
        f"plan        {plan.domain}: recipe {plan.recipe} on {plan.base}, for {plan.target}",
        f"parameters  {plan.trainable:,} trainable of {plan.parameters:,} ({share:.3%}) per voter",
        f"adapters    rank {plan.rank} on {', '.join(plan.modules)} ({plan.adapted} layers): {plan.modules_reason}",
        f"computing   {plan.precision}, frozen weights {plan.quantization}, attention {plan.attention} "
        f"({plan.attention_reason}), backend {plan.backend}, {plan.processes} processes a voter, "
        f"{plan.parallel} voters at a time",
        f"batch       {plan.accumulation}",
        f"data        {plan.examples:,} examples, {plan.examples_left_out:,} left out, longest {exact}{plan.longest} "
        f"tokens, {exact}{plan.supervised_share:.0%} of the tokens supervised ({plan.tokens_source})",
    ]
    for voter in plan.voters:
        several = f" in {voter.trainings} trainings" if voter.trainings > 1 else ""
        lines.append(
            f"{voter.name:<11} {voter.strategy}{several}: {voter.examples:,} examples x {voter.epochs:g} epochs = "
            f"{voter.steps:,} optimizer steps, {exact}{voter.micro_steps:,} micro-steps, {exact}{voter.tokens:,} "
            f"tokens; judged {voter.validations} times by {voter.validation_examples} examples"
        )
    lines.append(
        f"saved       adapter {size(plan.size.adapter)}, optimizer {size(plan.size.optimizer)}, "
        f"resume point {size(plan.size.resume_point)}"
    )
    lines += [f"file        {file.count} x {size(file.bytes_each)}  {file.where}" for file in plan.files]
    lines.append(f"disk        {size(plan.bytes)} at the most")
    together = f", {plan.memory.processes} at once {size(plan.memory.together)}" * (plan.memory.processes > 1)
    lines.append(f"memory      {plan.memory.arithmetic}{together}")
    if plan.smaller:
        lines.append(f"            if it runs out, once: {plan.smaller}")
    if plan.memory.note:
        lines.append(f"            {plan.memory.note}")
    lines.append(f"time        {_seconds(plan.time)}; {plan.time.source}")
    lines.append(f"cost        {_dollars(plan.time)}; {plan.time.usd_note}")
    return lines + [f"warning     {warning}" for warning in plan.warnings]


def _seconds(time: TimePlan) -> str:
    if time.seconds is None:
        return "not known yet"
    low, high = time.seconds
    return _duration(high) if high - low < 0.01 * high else f"{_duration(low)} to {_duration(high)}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _dollars(time: TimePlan) -> str:
    if time.usd is None:
        return "not known"
    low, high = time.usd
    return f"${high:.2f}" if high - low < 0.005 else f"${low:.2f} to ${high:.2f}"
