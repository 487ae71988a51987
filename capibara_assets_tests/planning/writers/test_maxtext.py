"""MaxText files: the model's sizes and the plan's mesh, under names that MaxText has."""

from math import prod
from typing import Any

import pytest
import yaml

from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import Remat
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape, read_shape
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.planning.writers.maxtext import MaxTextRun, Offload, check_maxtext, maxtext_keys, render_maxtext


def run(shape: ModelShape | None = None, remat: Remat = Remat.FULL) -> MaxTextRun:
    return MaxTextRun(
        domain="sql",
        shape=shape or read_shape("mistral-7b"),
        mesh=Mesh(data=2, fsdp=16, tensor=2),
        per_device_batch=0.5,
        sequence=1024,
        remat=remat,
        steps=100,
        logit_chunks=8,
        recipe=shipped_recipe("planning", PlanningRecipe).tpu,
    )


def test_sizes_and_mesh_arrive() -> None:
    settings = yaml.safe_load(render_maxtext(run()))
    expected = {
        "decoder_block": "mistral",
        "base_emb_dim": 4096,
        "base_num_kv_heads": 8,
        "base_mlp_dim": 14336,
        "vocab_size": 32000,
        "ici_data_parallelism": 2,
        "ici_fsdp_parallelism": 16,
        "ici_tensor_parallelism": 2,
        "remat_policy": "full",
        "per_device_batch_size": 0.5,
        "max_target_length": 1024,
    }
    assert expected.items() <= settings.items()


@pytest.mark.parametrize("remat", list(Remat))
def test_every_policy_has_a_name_in_maxtext(remat: Remat) -> None:
    assert yaml.safe_load(render_maxtext(run(remat=remat)))["remat_policy"] in {
        "full",
        "minimal",
        "minimal_with_context",
    }


def test_every_axis_of_the_mesh_has_its_key() -> None:
    mesh = Mesh(data=2, fsdp=3, tensor=5, pipeline=4, expert=7, slices=6)
    settings = yaml.safe_load(render_maxtext(run()._replace(mesh=mesh, micro_batches=8)))
    expected = {
        "ici_data_parallelism": 2,
        "ici_fsdp_parallelism": 3,
        "ici_tensor_parallelism": 5,
        "ici_pipeline_parallelism": 4,
        "ici_expert_parallelism": 7,
        "dcn_data_parallelism": 6,
        "num_slices": 6,
        "num_layers_per_pipeline_stage": 8,
        "num_pipeline_repeats": 1,
        "num_pipeline_microbatches": 8,
    }
    assert expected.items() <= settings.items()
    axes = [value for key, value in settings.items() if key.startswith(("ici_", "dcn_"))]
    assert prod(axes) == mesh.chips


def test_a_plan_without_pipeline_or_offload_says_nothing_of_them() -> None:
    text = render_maxtext(run())
    assert "microbatches" not in text and "offload" not in text
    assert "ici_pipeline_parallelism: 1" in text


def test_offload_has_maxtexts_keys() -> None:
    where: frozenset[Offload] = frozenset({"activations", "optimizer", "parameters"})
    settings = yaml.safe_load(render_maxtext(run(remat=Remat.MINIMAL)._replace(offload=where)))
    expected = {
        "remat_policy": "minimal_offloaded",
        "optimizer_memory_host_offload": True,
        "parameter_memory_host_offload": True,
        "param_scan_axis": 0,
    }
    assert expected.items() <= settings.items()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mesh": Mesh(data=1, fsdp=1, tensor=1, pipeline=5)}, "32 layers of mistral-7b do not cut into 5"),
        (
            {"mesh": Mesh(data=1, fsdp=1, tensor=1, pipeline=4), "micro_batches": 6},
            "6 micro-batches are no multiple of 4",
        ),
        ({"offload": frozenset({"activations"})}, "under remat minimal, not full"),
    ],
)
def test_what_maxtext_cannot_run_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        render_maxtext(run()._replace(**change))


def test_mixtures_and_normed_queries_arrive() -> None:
    mixtral = read_shape("mistral-7b").model_copy(
        update={"name": "mixtral-8x7b", "architecture": "mixtral", "experts": 8, "experts_per_token": 2}
    )
    settings = yaml.safe_load(render_maxtext(run(mixtral)))
    assert {"decoder_block": "mixtral", "num_experts": 8, "num_experts_per_tok": 2}.items() <= settings.items()
    qwen = read_shape("mistral-7b").model_copy(update={"architecture": "qwen3", "qk_norm": True})
    settings = yaml.safe_load(render_maxtext(run(qwen)))
    assert {"decoder_block": "qwen3", "use_qk_norm": True}.items() <= settings.items()


def test_a_key_that_maxtext_lacks_is_caught() -> None:
    with pytest.raises(InputError, match=r"\['ici_fsdp_paralelism'\]"):
        check_maxtext({"ici_fsdp_paralelism": 4, "steps": 1})


def test_the_table_of_keys_is_maxtexts() -> None:
    assert {"ici_pipeline_parallelism", "dcn_data_parallelism", "remat_policy", "num_vocab_tiling"} <= maxtext_keys()


@pytest.mark.parametrize("name", ["t5_1_1-small"])
def test_encoder_decoders_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="llama, mistral, mixtral, qwen3"):
        render_maxtext(run(read_shape(name)))
