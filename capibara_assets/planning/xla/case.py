"""The input of an XLA check: one training step for one slice; equal descriptions give equal programs."""

import hashlib
import json
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from capibara_assets.errors import InputError
from capibara_assets.modeling.jax.attention import LANES
from capibara_assets.modeling.jax.sizes import StepSettings
from capibara_assets.modeling.jax.step import STEP_VERSION
from capibara_assets.planning.accounting import Method, Optimizer, Remat
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.tpu.plan import TpuPlan

PACKAGES = ("jax", "jaxlib", "libtpu")


class XlaCase(BaseModel):
    """A training step, its mesh, and the slice that it is compiled for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: ModelShape
    topology: str = Field(description="name for jax.experimental.topologies")
    topology_options: dict[str, str] = Field(default_factory=dict)
    mesh: Mesh
    global_batch: int = Field(gt=0, description="sequences a step, over all chips")
    sequence: int = Field(gt=0, description="tokens (of inputs and of targets, each, for encoder-decoders)")
    remat: Remat
    method: Method = Method.FULL
    optimizer: Optimizer = Optimizer.ADAMW
    chunks: int = Field(default=1, ge=1, description="vocabulary tiling: parts of the sequence whose logits coexist")
    micro_steps: int = Field(default=1, ge=1, description="passes whose gradients are summed before the update")
    packed: bool = Field(default=False, description="several examples in a row; decoders")
    clip_norm: float | None = Field(default=1.0, gt=0, description="None: gradients are not clipped")
    lora_rank: int = 0
    lora_modules: tuple[str, ...] = ()

    @property
    def settings(self) -> StepSettings:
        """The step's settings: bfloat16 on float32 weights, fused attention where possible.

        Raises:
            InputError: the JAX step does not support the optimizer.
        """
        if self.optimizer is Optimizer.ADAMW_8BIT:
            raise InputError("the JAX step has AdamW and Adafactor; 8-bit AdamW is not among them")
        return StepSettings(
            method="lora" if self.method is Method.LORA else "full",
            remat=_REMATS[self.remat],
            optimizer="adafactor" if self.optimizer is Optimizer.ADAFACTOR else "adamw",
            chunks=self.chunks,
            compute="bfloat16",
            attention="splash" if self.fused else "plain",
            clip_norm=self.clip_norm,
            micro_steps=self.micro_steps,
            packed=self.packed,
            lora_rank=self.lora_rank,
            lora_modules=self.lora_modules,
        )

    @property
    def fused(self) -> bool:
        """Whether attention runs in the splash kernel: decoders (T5 adds a bias to its scores) with whole lanes."""
        return self.shape.family == "decoder" and self.sequence % LANES == 0

    def document(self) -> dict[str, Any]:
        """The case as JSON types, without the shape's name, which does not affect the program."""
        return self.model_dump(mode="json", exclude={"shape": {"name"}})


_REMATS: dict[Remat, Literal["none", "minimal", "full"]] = {
    Remat.NONE: "none",
    Remat.MINIMAL: "minimal",
    Remat.FULL: "full",
}


def case_of(plan: TpuPlan) -> XlaCase:
    """The training step of a plan.

    Raises:
        InputError: the target declares no XLA topology.
    """
    target = find_target(plan.target)
    if target.xla_topology is None:
        raise InputError(f"{target.name} declares no xla_topology: XLA cannot compile for it")
    return XlaCase(
        shape=plan.shape,
        topology=target.xla_topology,
        topology_options=target.xla_options,
        mesh=plan.mesh,
        global_batch=plan.global_batch,
        sequence=plan.sequence,
        remat=plan.remat,
        method=plan.method,
        lora_rank=plan.lora.rank if plan.lora else 0,
        lora_modules=plan.lora.modules if plan.lora else (),
        optimizer=plan.optimizer,
        chunks=plan.logit_chunks,
        packed=plan.packed and plan.shape.family == "decoder",
    )


def case_digest(case: XlaCase, versions: dict[str, str]) -> str:
    """SHA-256 of the case, the compiler's versions and the step's version: the key of a verdict."""
    whole = {"case": case.document(), "versions": versions, "step": STEP_VERSION}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def versions() -> dict[str, str]:
    """Versions of the installed packages among PACKAGES."""
    installed = {}
    for package in PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed
