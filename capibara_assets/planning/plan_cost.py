"""What a LoRA plan or a TPU plan costs: its FLOPs and predicted seconds put into `planning/cost.py`."""

from collections.abc import Mapping, Sequence

from capibara_assets.planning.accounting import flops_per_token
from capibara_assets.planning.cost import Cost, CostPlan, Outcome, Span, plan_cost
from capibara_assets.planning.lora import LoraPlan
from capibara_assets.planning.target import HardwareTarget
from capibara_assets.planning.tpu import TpuPlan


def lora_cost(
    plan: LoraPlan,
    target: HardwareTarget,
    *,
    voters: int = 1,
    outcomes: Sequence[Outcome] = (),
    others: Mapping[str, Cost] | None = None,
    domains: Sequence[str] = (),
) -> CostPlan:
    """Of one adapter of a LoRA plan, of its domain's voters, and of all domains; arguments as in `cost.plan_cost`."""
    estimates = plan.estimates
    return plan_cost(
        target=target.name,
        model=plan.model,
        flops=float(estimates["flops_per_token"]) * float(estimates["tokens_at_most"]),
        predicted=_span(estimates["seconds"]),
        predicted_note=str(estimates["seconds_note"]),
        price=target.price,
        voters=voters,
        outcomes=outcomes,
        others=others,
        domain=plan.domain,
        domains=domains,
    )


def tpu_cost(
    plan: TpuPlan,
    target: HardwareTarget,
    *,
    voters: int = 1,
    others: Mapping[str, Cost] | None = None,
    domains: Sequence[str] = (),
) -> CostPlan:
    """Of one training on the slice; a TPU plan trains one model a domain."""
    tokens = plan.global_batch * plan.sequence * plan.steps
    return plan_cost(
        target=target.name,
        model=plan.model,
        flops=tokens * flops_per_token(plan.shape, plan.sequence),
        predicted=_span(plan.seconds),
        predicted_note="predicted step time x steps; start and compilation are not in it",
        price=target.price,
        voters=voters,
        others=others,
        domain=plan.domain,
        domains=domains,
    )


def _span(seconds: Sequence[float] | None) -> Span | None:
    """Low, middle and high; of two ends the middle is their geometric mean."""
    if seconds is None:
        return None
    low, *middle, high = map(float, seconds)
    return (low, middle[0] if middle else (low * high) ** 0.5, high)
