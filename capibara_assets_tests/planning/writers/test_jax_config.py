"""The JAX trainer's configuration: read back equal, strict, and refused where it does not add up."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.errors import InputError
from capibara_assets.planning.models import read_shape
from capibara_assets.planning.writers.jax_config import JaxConfig, jax_config, read_jax_config, render_jax_config
from capibara_assets_tests.planning.shapes import NANO

VALUES: dict[str, Any] = {
    "domain": "sql",
    "model": NANO.model_dump(mode="json"),
    "base": "base",
    "data": "train.jsonl",
    "output": "out",
    "mesh": {"data": 1, "fsdp": 4, "tensor": 2},
    "sequences": 16,
    "sequence": 256,
    "remat": "full",
    "method": "lora",
    "lora": {"rank": 8, "alpha": 16.0, "modules": ["q_proj", "v_proj"]},
    "schedule": {"peak": 1e-4, "warmup_steps": 2},
    "steps": 10,
    "save_every": 5,
    "logit_chunks": 8,
}


@pytest.mark.parametrize("render", [render_jax_config, JaxConfig.model_dump_json], ids=["yaml", "json"])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"schedule": {"peak": 2e-05, "kind": "constant"}, "seed": 2**31, "clip_norm": None},
        {"xla_flags": ["--xla_tpu_enable_async_collective_fusion=true", "--xla_tpu_scoped_vmem_limit_kib=65536"]},
        {"method": "full", "lora": None, "optimizer": "adafactor", "mesh": {"data": 1, "fsdp": 1, "tensor": 1}},
        {"model": read_shape("t5_1_1-small").model_dump(mode="json"), "target_sequence": 64},
    ],
)
def test_what_is_written_is_read_back(
    change: dict[str, Any], render: Callable[[JaxConfig], str], tmp_path: Path
) -> None:
    config = jax_config(VALUES | change)
    file = tmp_path / "job.yaml"
    file.write_text(render(config), encoding="utf-8")
    assert read_jax_config(file) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"remmat": "full"}, "did you mean 'remat'"),
        ({"lora": None}, "method lora needs lora settings"),
        ({"method": "full"}, "method full has no lora settings"),
        ({"sequences": 10}, "sequences 10 is no multiple of 4 batch shards x 1 micro-steps = 4"),
        ({"target_sequence": 64}, "belongs to encoder-decoders"),
        ({"model": read_shape("t5_1_1-small").model_dump(mode="json")}, "and they need it"),
        ({"schedule": {"peak": 1e-4, "warmup_steps": 11}}, "warmup_steps 11 exceed steps 10"),
        ({"schedule": {"peak": 1e-4, "final": 1e-3}}, "above peak"),
        ({"logit_chunks": 7}, "sequence 256 is no multiple of logit_chunks 7"),
        ({"xla_flags": ["xla_tpu_x"]}, "xla_flags.0"),
        ({"mesh": {"data": 0, "fsdp": 4, "tensor": 2}}, "mesh.data"),
    ],
)
def test_what_does_not_add_up_is_refused(change: dict[str, Any], message: str) -> None:
    assert isinstance(jax_config(VALUES), JaxConfig)
    with pytest.raises(InputError) as refused:
        jax_config(VALUES | change, "job.yaml")
    assert message in str(refused.value)
    assert str(refused.value).startswith("job.yaml: ")
