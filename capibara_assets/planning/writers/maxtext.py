"""The MaxText configuration of a plan for decoder models, restricted to keys of MaxText's base.yml."""

from functools import cache
from typing import Any, Literal, NamedTuple

import yaml

from capibara_assets.datasets.layout import split_file
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import Remat
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.recipe import TpuRecipe

# MaxText has no policy that keeps everything; `minimal_with_context` keeps the products and the attention's result.
POLICIES = {Remat.NONE: "minimal_with_context", Remat.MINIMAL: "minimal", Remat.FULL: "full"}
Offload = Literal["activations", "optimizer", "parameters"]
# Architectures of Transformers -> MaxText's decoder blocks; biases, which some others have, are refused below.
BLOCKS = {"llama": "llama2", "mistral": "mistral", "mixtral": "mixtral", "qwen3": "qwen3"}


class MaxTextRun(NamedTuple):
    """Settings of a MaxText fine-tuning run.

    `micro_batches` are those of a pipeline (a multiple of its stages); `offload` lists what is kept in host memory.
    """

    domain: str
    shape: ModelShape
    mesh: Mesh
    per_device_batch: float
    sequence: int
    remat: Remat
    steps: int
    logit_chunks: int
    recipe: TpuRecipe
    micro_batches: int | None = None
    offload: frozenset[Offload] = frozenset()


@cache
def maxtext_keys() -> frozenset[str]:
    """The top-level keys of MaxText's base.yml at the commit named in resources/gin/maxtext_keys.yaml."""
    document = yaml.safe_load((resources_root() / "gin" / "maxtext_keys.yaml").read_text(encoding="utf-8"))
    return frozenset(document["keys"])


def settings(run: MaxTextRun) -> dict[str, Any]:
    """The configuration as a mapping.

    Slices are connected by data parallelism over the data-centre network (`dcn_data_parallelism`); all other axes lie
    inside a slice.

    Raises:
        InputError: an architecture that is not in `BLOCKS`, or layers, micro-batches or offloading that MaxText does
            not support.
    """
    shape, mesh = run.shape, run.mesh
    block = BLOCKS.get(shape.architecture)
    if block is None or shape.qkv_bias or shape.mlp_bias or shape.output_bias:
        raise InputError(
            f"{shape.name} ({shape.architecture}): MaxText files are written for {', '.join(BLOCKS)} without biases"
        )
    return {
        "base_config": "base.yml",
        "run_name": f"capibara-{run.domain}",
        "model_name": "default",
        "base_output_directory": f"{run.recipe.storage_root}/{run.domain}/maxtext",
        "load_parameters_path": f"{run.recipe.storage_root}/base/{shape.name}/0/items",
        "decoder_block": block,
        "base_emb_dim": shape.hidden,
        "base_num_query_heads": shape.heads,
        "base_num_kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "base_mlp_dim": shape.intermediate,
        "base_num_decoder_layers": shape.layers,
        **_mixture(shape),
        **({"use_qk_norm": True} if shape.qk_norm else {}),
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
        "remat_policy": _remat(run),
        "num_vocab_tiling": run.logit_chunks,
        "per_device_batch_size": run.per_device_batch,
        "max_target_length": run.sequence,
        "ici_data_parallelism": mesh.data,
        "ici_fsdp_parallelism": mesh.fsdp,
        "ici_tensor_parallelism": mesh.tensor,
        "ici_expert_parallelism": mesh.expert,
        "ici_pipeline_parallelism": mesh.pipeline,
        "dcn_data_parallelism": mesh.slices,
        "dcn_fsdp_parallelism": 1,
        "dcn_pipeline_parallelism": 1,
        "num_slices": mesh.slices,
        **_pipeline(run),
        **_offload(run),
        "steps": run.steps,
        "learning_rate": run.recipe.learning_rate,
        "use_sft": True,
        "sft_train_on_completion_only": True,
        "packing": True,
        "dataset_type": "hf",
        "hf_path": "json",
        "hf_train_files": split_file(run.recipe.storage_root, run.domain, "train"),
        "hf_eval_files": split_file(run.recipe.storage_root, run.domain, "validation"),
        "train_split": "train",
        "train_data_columns": ["messages"],
        "eval_data_columns": ["messages"],
        "tokenizer_type": "huggingface",
        "tokenizer_path": f"{run.recipe.storage_root}/base/{shape.name}/tokenizer",
        "hardware": "tpu",
    }


def _mixture(shape: ModelShape) -> dict[str, Any]:
    if shape.experts == 1:
        return {}
    return {
        "num_experts": shape.experts,
        "num_experts_per_tok": shape.experts_per_token,
        "base_moe_mlp_dim": shape.intermediate,
    }


def _remat(run: MaxTextRun) -> str:
    """MaxText's name of the recomputation policy; offloaded activations are those that `minimal` keeps."""
    if "activations" not in run.offload:
        return POLICIES[run.remat]
    if run.remat is not Remat.MINIMAL:
        raise InputError(f"MaxText moves activations to the host under remat minimal, not {run.remat}")
    return "minimal_offloaded"


def _pipeline(run: MaxTextRun) -> dict[str, Any]:
    """Keys of a pipeline: equal stages, each passed once, and a multiple of their number of micro-batches."""
    stages = run.mesh.pipeline
    if stages == 1:
        return {}
    micro = run.micro_batches or stages
    if run.shape.layers % stages:
        raise InputError(f"{run.shape.layers} layers of {run.shape.name} do not cut into {stages} pipeline stages")
    if micro % stages:
        raise InputError(f"{micro} micro-batches are no multiple of {stages} pipeline stages, which MaxText needs")
    return {
        "num_layers_per_pipeline_stage": run.shape.layers // stages,
        "num_pipeline_repeats": 1,
        "num_pipeline_microbatches": micro,
    }


def _offload(run: MaxTextRun) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    if "optimizer" in run.offload:
        keys["optimizer_memory_host_offload"] = True
    if "parameters" in run.offload:
        # MaxText asserts this axis for offloaded parameters.
        keys |= {"parameter_memory_host_offload": True, "param_scan_axis": 0}
    return keys


def render_maxtext(run: MaxTextRun) -> str:
    """The configuration as YAML, every key checked against MaxText's.

    Raises:
        InputError: as `settings`; or an unknown key (a defect of this writer).
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
    """Check the keys against those of MaxText's base.yml.

    Raises:
        InputError: keys that MaxText does not have.
    """
    unknown = sorted(set(document) - maxtext_keys() - {"base_config"})
    if unknown:
        raise InputError(f"MaxText has no settings {unknown}")
