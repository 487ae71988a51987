"""MaxText files: the model's sizes and the plan's mesh, under names that MaxText has."""

import pytest
import yaml

from capibara_assets.declarations import shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import Remat
from capibara_assets.planning.maxtext import MaxTextRun, check_maxtext, maxtext_keys, render_maxtext
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape, read_shape
from capibara_assets.planning.recipe import PlanningRecipe


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


def test_a_key_that_maxtext_lacks_is_caught() -> None:
    with pytest.raises(InputError, match=r"\['ici_fsdp_paralelism'\]"):
        check_maxtext({"ici_fsdp_paralelism": 4, "steps": 1})


def test_the_table_of_keys_is_maxtexts() -> None:
    assert {"ici_pipeline_parallelism", "dcn_data_parallelism", "remat_policy", "num_vocab_tiling"} <= maxtext_keys()


@pytest.mark.parametrize("name", ["t5_1_1-small"])
def test_encoder_decoders_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="Llama and Mistral"):
        render_maxtext(run(read_shape(name)))
