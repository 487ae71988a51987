"""The program that a step is for XLA is what `STEP_VERSION` stands for: verdicts are kept under it."""

import hashlib
import re
from importlib.metadata import version
from typing import Any

import pytest

from benchmarks.planning.xla_cases import known_cases
from capibara_assets.modeling.jax.step import STEP_VERSION
from capibara_assets.planning.accounting import Method, Optimizer, Remat
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape, from_config
from capibara_assets.planning.xla.case import XlaCase
from capibara_assets.planning.xla.compile import abstract_mesh, lower
from capibara_assets_tests.late import late
from capibara_assets_tests.planning.shapes import NANO

late("jax", reason="the extra tpu is not installed")
RECORDED_WITH = "0.10.2"  # as constraints.txt pins it; another jax writes the same step otherwise
T5 = from_config(
    {
        "model_type": "t5",
        "d_model": 64,
        "d_kv": 16,
        "d_ff": 128,
        "num_layers": 2,
        "num_decoder_layers": 2,
        "num_heads": 4,
        "vocab_size": 128,
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
        "dropout_rate": 0.0,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 128,
    },
    "t5",
)
SMALL = NANO.model_copy(update={"layers": 2})
BIASED = SMALL.model_copy(update={"qkv_bias": True, "qk_norm": True, "tied": False, "kv_heads": 2})
CASES: dict[str, tuple[ModelShape, dict[str, Any], str]] = {
    "fused": (SMALL, {"sequence": 128}, "b46af894d3e24b27"),
    "packed": (SMALL, {"packed": True, "chunks": 2, "remat": Remat.MINIMAL}, "1ac65e59ece1092f"),
    "adafactor": (BIASED, {"optimizer": Optimizer.ADAFACTOR, "micro_steps": 2, "clip_norm": None}, "01e855f07825691b"),
    "lora": (
        SMALL,
        {"method": Method.LORA, "lora_rank": 4, "lora_modules": ("q_proj", "down_proj")},
        "1070961388d7b0dd",
    ),
    "t5": (T5, {"mesh": Mesh(data=1, fsdp=2, tensor=2), "remat": Remat.NONE}, "0e79b7694e72d265"),
}


def program(name: str) -> str:
    """What XLA is given, less the parameters of the fused kernel, which are jax's own."""
    shape, changes, _ = CASES[name]
    sizes = {"mesh": Mesh(data=2, fsdp=2, tensor=1), "global_batch": 8, "sequence": 64, "remat": Remat.FULL}
    case = XlaCase(shape=shape, topology="v5e:2x2", **(sizes | changes))
    text: str = lower(case, abstract_mesh(case)).as_text()
    return re.sub(r'backend_config = "[^"]*"', "", text)


@pytest.mark.skipif(version("jax") != RECORDED_WITH, reason=f"programs were recorded with jax {RECORDED_WITH}")
@pytest.mark.parametrize("name", CASES)
def test_a_change_of_the_program_raises_the_version(name: str) -> None:
    found = hashlib.sha256(program(name).encode()).hexdigest()[:16]
    assert found == CASES[name][-1], (
        f"The step is another program than STEP_VERSION in modeling/jax/step.py stands for ({name}): raise it there, so"
        " that XLA is asked again, and put this digest here; with it the cases of resources/planning/xla_cases.json"
        " are of the step before (`python -m benchmarks plan-xla --compile` asks for them again)"
    )


def test_the_cases_that_ship_are_of_this_step() -> None:
    assert known_cases().step == STEP_VERSION
