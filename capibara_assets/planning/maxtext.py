"""The MaxText configuration of a plan, for decoder models: only keys that MaxText's base.yml has."""

from functools import cache
from typing import Any, NamedTuple

import yaml

from capibara_assets.errors import InputError
from capibara_assets.locations import resources_root
from capibara_assets.planning.accounting import Remat
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.recipe import TpuRecipe

# MaxText has no policy that keeps everything; `minimal_with_context` keeps the products and the attention's result.
POLICIES = {Remat.NONE: "minimal_with_context", Remat.MINIMAL: "minimal", Remat.FULL: "full"}


class MaxTextRun(NamedTuple):
    """What a MaxText fine-tuning run is made of."""

    domain: str
    shape: ModelShape
    mesh: Mesh
    per_device_batch: float
    sequence: int
    remat: Remat
    steps: int
    logit_chunks: int
    recipe: TpuRecipe


@cache
def maxtext_keys() -> frozenset[str]:
    """The top-level keys of MaxText's base.yml at the commit named in resources/gin/maxtext_keys.yaml."""
    document = yaml.safe_load((resources_root() / "gin" / "maxtext_keys.yaml").read_text(encoding="utf-8"))
    return frozenset(document["keys"])


def settings(run: MaxTextRun) -> dict[str, Any]:
    """The configuration as a mapping.

    Raises:
        InputError: an encoder-decoder, a mixture or an architecture with biases, which this writer does not know to be
            the same in MaxText's decoder block.
    """
    shape = run.shape
    if shape.family != "decoder" or shape.experts > 1 or shape.qkv_bias or shape.mlp_bias or shape.qk_norm:
        raise InputError(f"{shape.name} ({shape.architecture}): MaxText files are written for Llama and Mistral shapes")
    return {
        "base_config": "base.yml",
        "run_name": f"capibara-{run.domain}",
        "model_name": "default",
        "base_output_directory": f"{run.recipe.storage_root}/{run.domain}/maxtext",
        "load_parameters_path": f"{run.recipe.storage_root}/base/{shape.name}/0/items",
        "decoder_block": "mistral" if shape.architecture == "mistral" else "llama2",
        "base_emb_dim": shape.hidden,
        "base_num_query_heads": shape.heads,
        "base_num_kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "base_mlp_dim": shape.intermediate,
        "base_num_decoder_layers": shape.layers,
        "vocab_size": shape.vocabulary,
        "mlp_activations": ["silu", "linear"],
        "normalization_layer_epsilon": shape.norm_epsilon,
        "rope_max_timescale": round(shape.rope_theta),
        "logits_via_embedding": shape.tied,
        "normalize_embedding_logits": False,
        "enable_dropout": False,
        "dtype": "bfloat16",
        "weight_dtype": "float32",
        "opt_type": "adamw",
        "scan_layers": True,
        "attention": "autoselected",
        "remat_policy": POLICIES[run.remat],
        "num_vocab_tiling": run.logit_chunks,
        "per_device_batch_size": run.per_device_batch,
        "max_target_length": run.sequence,
        "ici_data_parallelism": run.mesh.data,
        "ici_fsdp_parallelism": run.mesh.fsdp,
        "ici_tensor_parallelism": run.mesh.tensor,
        "ici_pipeline_parallelism": 1,
        "dcn_data_parallelism": 1,
        "dcn_fsdp_parallelism": 1,
        "dcn_pipeline_parallelism": 1,
        "steps": run.steps,
        "learning_rate": run.recipe.learning_rate,
        "use_sft": True,
        "sft_train_on_completion_only": True,
        "packing": True,
        "dataset_type": "hf",
        "hf_path": "json",
        "hf_train_files": f"{run.recipe.storage_root}/{run.domain}/data/train.jsonl",
        "hf_eval_files": f"{run.recipe.storage_root}/{run.domain}/data/validation.jsonl",
        "train_split": "train",
        "train_data_columns": ["messages"],
        "eval_data_columns": ["messages"],
        "tokenizer_type": "huggingface",
        "tokenizer_path": f"{run.recipe.storage_root}/base/{shape.name}/tokenizer",
        "hardware": "tpu",
    }


def render_maxtext(run: MaxTextRun) -> str:
    """The configuration as YAML, every key checked against MaxText's own.

    Raises:
        InputError: see `settings`; or a key that MaxText does not have (a defect of this writer, caught here).
    """
    document = settings(run)
    check_maxtext(document)
    head = (
        f"# MaxText fine-tuning of {run.shape.name} on the domain {run.domain}, computed from a TPU plan.\n"
        "# Convert the weights to MaxText's format first (load_parameters_path). Run it with\n"
        "#   python3 -m maxtext.trainers.post_train.sft.train_sft THIS_FILE\n"
    )
    return head + yaml.safe_dump(document, sort_keys=False, width=120)


def check_maxtext(document: dict[str, Any]) -> None:
    """Hold the keys against those of MaxText's base.yml.

    Raises:
        InputError: keys that MaxText does not have.
    """
    unknown = sorted(set(document) - maxtext_keys() - {"base_config"})
    if unknown:
        raise InputError(f"MaxText has no settings {unknown}")
