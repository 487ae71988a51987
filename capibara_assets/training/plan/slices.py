"""Plan and checks of a training on a TPU slice: settings, JAX support, memory and time."""

from dataclasses import replace
from importlib.util import find_spec

from capibara_assets.modeling.jax.optimizers import BETAS, EPSILON
from capibara_assets.modeling.lora.targets import is_expert
from capibara_assets.planning.accounting import size
from capibara_assets.planning.tpu.plan import TpuPlan
from capibara_assets.training.plan.memory import MemoryPlan
from capibara_assets.training.plan.schema import TimePlan, TrainingPlan
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.step.settings import Settings, resolve


def slice_settings(request: TrainingRequest, platform: str) -> Settings:
    """The settings of a request whose steps JAX computes; `auto` precision is bf16 but on a CPU.

    Args:
        platform: of the devices: tpu, gpu or cpu.
    """
    return resolve(request.recipe, request.lora, fastest="fp32" if platform == "cpu" else "bf16")


def slice_problems(request: TrainingRequest) -> list[str]:
    """Unsupported parts of a request for a TPU slice, with remedies; empty if it can run."""
    recipe, problems = request.recipe, list[str]()
    settings = slice_settings(request, "tpu")

    def refuse(when: object, what: str) -> None:
        if when:
            problems.append(what)

    training, lora = recipe.training, recipe.model.lora
    odd = [f"{voter.name} ({voter.strategy.kind})" for voter in recipe.voters if voter.strategy.kind != "plain"]
    refuse(not find_spec("jax"), "jax is not installed: pip install 'capibara-assets[tpu]'")
    refuse(odd, f"strategies that PyTorch alone trains: {', '.join(odd)}; train plain voters, or on a CPU or GPU")
    refuse(settings.dropout, f"the JAX step has no dropout: set model.lora.dropout to 0, not {settings.dropout:g}")
    refuse(lora.use_dora, "the JAX step has no DoRA: leave model.lora.use_dora out")
    refuse([name for name in settings.modules if is_expert(name)], "the JAX step has no experts' LoRA")
    refuse(settings.quantised, f"the JAX step holds the base in bf16, not {settings.quantization}")
    refuse(settings.precision == "fp16", "TPUs have no fp16: set hardware.precision to auto or bf16")
    refuse(training.optimizer != "adamw", f"the JAX step has AdamW in float32, not {training.optimizer}")
    same = (*training.betas, training.epsilon) == (*BETAS, EPSILON)
    refuse(not same, f"the JAX step's AdamW has betas {BETAS} and epsilon {EPSILON:g}: leave yours out")
    refuse(training.early_stopping, "the JAX trainer does not stop early: leave training.early_stopping out")
    refuse(recipe.ema, "the JAX trainer keeps no moving average: leave ema out")
    refuse(recipe.guards.spike, "the JAX trainer does not roll back loss spikes: leave guards.spike out")
    refuse(recipe.hardware.processes > 1, "one process drives all chips of a host: set hardware.processes to 1")
    refuse(request.start or request.resume_from, "a training on a slice goes on from its own newest point alone")
    return problems


def on_the_slice(plan: TrainingPlan, tpu: TpuPlan) -> TrainingPlan:
    """A training's plan with target, memory and time of the slice's plan in place of this machine's."""
    parts = dict(tpu.memory)
    arithmetic = f"{size(parts['total'])} of {size(tpu.memory_budget)} on a chip of {tpu.target}, by tpu_config"
    low, middle, high = tpu.step_time.low, tpu.step_time.middle, tpu.step_time.high
    time = TimePlan(
        seconds=(plan.steps * low, plan.steps * high),
        usd=None,
        source=f"tpu_config's predicted step of {middle:.3g} s; compiling and validation are not in it",
        usd_note=tpu.usd_note,
        tokens_per_s=tpu.tokens_per_second[1],
        each=tuple(voter.steps * middle for voter in plan.voters),
    )
    return replace(
        plan,
        target=tpu.target,
        backend="jax",
        parallel=1,
        memory=MemoryPlan(parts, arithmetic, None, 1),
        budget_bytes=tpu.memory_budget,
        time=time,
    )
