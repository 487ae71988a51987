"""Model shapes read from a Transformers `config.json` or a preset, with exact parameter counts."""

import difflib
import json
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from capibara_assets.errors import InputError, in_words
from capibara_assets.modeling.configs.numbers import real_number, whole_number
from capibara_assets.modeling.files import read_config
from capibara_assets.modeling.lora.targets import is_expert
from capibara_assets.modeling.skeleton import Skeleton, skeleton
from capibara_assets.planning.presets import PRESETS

Family = Literal["decoder", "t5"]
DECODERS = frozenset(
    {"llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "phi3", "gpt_neox"}
)
ENCODER_DECODERS = frozenset({"t5", "mt5", "umt5"})
_GEMMAS = frozenset({"gemma", "gemma2", "gemma3_text"})
# Architectures whose queries, keys and values (and whose gate) are one matrix, and how they call their layers.
_FUSED = {
    "phi3": ("qkv_proj", "o_proj", "gate_up_proj", "down_proj"),
    "gpt_neox": ("query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"),
}


class LinearModule(NamedTuple):
    """A kind of linear layer: its name in Transformers, its sizes, and how many copies the model has."""

    name: str
    inputs: int
    outputs: int
    copies: int

    @property
    def parameters(self) -> int:
        return self.inputs * self.outputs * self.copies


class CountedLayers(BaseModel):
    """The matrices of an architecture that the formulas below do not know, counted on an empty model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    linear: tuple[LinearModule, ...] = Field(description="linear layers and experts of the blocks, by PEFT's names")
    left_out: tuple[str, ...] = Field(default=(), description="of them those that PEFT cannot adapt as linear layers")
    others: int = Field(description="parameters besides those, the embedding and the head")


class ModelShape(BaseModel):
    """The sizes of a transformer, from which a plan computes parameters, FLOPs and memory."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(description="name of the model in the plan")
    architecture: str = Field(description="`model_type` of the config")
    layers: int = Field(gt=0, description="decoder layers")
    encoder_layers: int = Field(default=0, ge=0, description="encoder layers; 0 for decoder-only models")
    hidden: int = Field(gt=0, description="width of the residual stream")
    heads: int = Field(gt=0, description="query heads")
    kv_heads: int = Field(gt=0, description="key/value heads (grouped-query attention when fewer than heads)")
    head_dim: int = Field(gt=0)
    intermediate: int = Field(gt=0, description="width of the MLP")
    vocabulary: int = Field(gt=0)
    context: int | None = Field(default=None, description="longest sequence; None where positions are relative")
    tied: bool = Field(default=False, description="output head shares the input embedding")
    gated: bool = Field(default=True, description="gated MLP (three matrices) or plain (two)")
    qkv_bias: bool = False
    output_bias: bool = Field(default=False, description="bias on the attention's output projection")
    mlp_bias: bool = False
    qk_norm: bool = Field(default=False, description="RMSNorm on queries and keys (two vectors of head_dim a layer)")
    norms_per_layer: int = Field(default=2, ge=0, description="norms of the residual stream's width in a decoder layer")
    norm_bias: bool = Field(default=False, description="LayerNorm (weight and bias) rather than RMSNorm")
    experts: int = Field(default=1, ge=1, description="experts of a mixture; 1 = dense")
    experts_per_token: int = Field(default=1, ge=1)
    position_buckets: int = Field(default=0, ge=0, description="T5's relative position buckets")
    position_bias_in_every_layer: bool = Field(default=False, description="umT5: a bias table in each layer")
    rope_theta: float = Field(default=10_000.0, description="base of the rotary embedding")
    norm_epsilon: float = 1e-6
    counted: CountedLayers | None = Field(
        default=None,
        exclude_if=lambda counted: counted is None,
        description="of architectures besides DECODERS and ENCODER_DECODERS; activations are then estimates",
    )

    @property
    def family(self) -> Family:
        return "t5" if self.architecture in ENCODER_DECODERS else "decoder"

    @property
    def linear_modules(self) -> tuple[LinearModule, ...]:
        """Linear layers of the blocks (no embedding, head or router), under their names in Transformers."""
        if self.counted is not None:
            return self.counted.linear
        return _t5_modules(self) if self.family == "t5" else _decoder_modules(self)

    @property
    def lora_targets(self) -> tuple[str, ...]:
        """Names of the linear layers that adapters are put on: all of the blocks', as PEFT's `all-linear`."""
        left_out = self.counted.left_out if self.counted is not None else ()
        names = (one.name for one in self.linear_modules if not is_expert(one.name) and one.name not in left_out)
        return tuple(dict.fromkeys(names))

    @property
    def mlp_width(self) -> int:
        """MLP width that one token passes through: in a mixture, of all its active experts together."""
        return self.intermediate * self.experts_per_token

    @property
    def embedding_parameters(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def head_parameters(self) -> int:
        """Weights of the output projection, whether or not they are shared with the embedding."""
        return self.vocabulary * self.hidden

    @property
    def vector_parameters(self) -> int:
        """Parameters of norms, biases, router and relative-position tables: neither block matrices nor embeddings."""
        if self.counted is not None:
            return self.counted.others
        return _t5_vectors(self) if self.family == "t5" else _decoder_vectors(self)

    @property
    def parameters(self) -> int:
        """All parameters, exactly as `model.num_parameters()` counts them (shared ones once)."""
        blocks = sum(module.parameters for module in self.linear_modules)
        return self.embedding_parameters + blocks + self.vector_parameters + (0 if self.tied else self.head_parameters)

    @property
    def matmul_parameters(self) -> int:
        """Weights that multiply each token: blocks (in a mixture the active experts), router and head, no embedding."""
        return (
            sum(self.active_parameters(module) for module in self.linear_modules) + self._router + self.head_parameters
        )

    @property
    def _router(self) -> int:
        if self.counted is not None:
            return 0  # among its linear layers, where it is one
        return self.layers * self.experts * self.hidden if self.experts > 1 else 0

    def active_parameters(self, module: LinearModule) -> int:
        """Parameters of `module` that one token passes through."""
        if self.experts == 1 or not module.name.startswith("experts."):
            return module.parameters
        return module.parameters // self.experts * self.experts_per_token

    def modules(self, names: tuple[str, ...]) -> tuple[LinearModule, ...]:
        """The linear modules with these names.

        Raises:
            InputError: the architecture has no linear layer of one of the names.
        """
        known = {module.name for module in self.linear_modules}
        unknown = [name for name in names if name not in known]
        if unknown:
            raise InputError(
                f"{self.name} ({self.architecture}) has no linear layers {unknown}; it has {sorted(known)}"
            )
        return tuple(module for name in names for module in self.linear_modules if module.name == name)

    def lora_parameters(self, rank: int, names: tuple[str, ...]) -> int:
        """Trainable parameters of a LoRA of this rank on these modules: r·(in + out) for each (Hu et al. 2021)."""
        return sum(rank * (module.inputs + module.outputs) * module.copies for module in self.modules(names))


@cache
def _decoder_modules(shape: ModelShape) -> tuple[LinearModule, ...]:
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    layers, hidden, width = shape.layers, shape.hidden, shape.intermediate
    if shape.architecture in _FUSED:
        qkv, out, up, down = _FUSED[shape.architecture]
        return (
            LinearModule(qkv, hidden, query + 2 * key, layers),
            LinearModule(out, query, hidden, layers),
            LinearModule(up, hidden, 2 * width if shape.gated else width, layers),
            LinearModule(down, width, hidden, layers),
        )
    attention = (
        LinearModule("q_proj", hidden, query, layers),
        LinearModule("k_proj", hidden, key, layers),
        LinearModule("v_proj", hidden, key, layers),
        LinearModule("o_proj", query, hidden, layers),
    )
    if shape.experts > 1:
        copies = layers * shape.experts
        return (
            *attention,
            LinearModule("experts.gate_up_proj", hidden, 2 * width, copies),
            LinearModule("experts.down_proj", width, hidden, copies),
        )
    gate = (LinearModule("gate_proj", hidden, width, layers),) if shape.gated else ()
    return (
        *attention,
        *gate,
        LinearModule("up_proj", hidden, width, layers),
        LinearModule("down_proj", width, hidden, layers),
    )


def _decoder_vectors(shape: ModelShape) -> int:
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    norm = 2 * shape.hidden if shape.norm_bias else shape.hidden
    per_layer = shape.norms_per_layer * norm
    per_layer += 2 * shape.head_dim if shape.qk_norm else 0
    per_layer += query + 2 * key if shape.qkv_bias else 0
    per_layer += shape.hidden if shape.output_bias else 0
    per_layer += (2 if shape.gated else 1) * shape.intermediate + shape.hidden if shape.mlp_bias else 0
    per_layer += shape.experts * shape.hidden if shape.experts > 1 else 0
    return shape.layers * per_layer + norm


@cache
def _t5_modules(shape: ModelShape) -> tuple[LinearModule, ...]:
    inner = shape.heads * shape.head_dim
    # An encoder layer attends once, a decoder layer twice (itself and the encoder).
    attentions = shape.encoder_layers + 2 * shape.layers
    blocks = shape.encoder_layers + shape.layers
    first = ("wi_0", "wi_1") if shape.gated else ("wi",)
    return (
        *(LinearModule(name, shape.hidden, inner, attentions) for name in ("q", "k", "v")),
        LinearModule("o", inner, shape.hidden, attentions),
        *(LinearModule(name, shape.hidden, shape.intermediate, blocks) for name in first),
        LinearModule("wo", shape.intermediate, shape.hidden, blocks),
    )


def _t5_vectors(shape: ModelShape) -> int:
    norms = 2 * shape.encoder_layers + 3 * shape.layers + 2
    tables = shape.encoder_layers + shape.layers if shape.position_bias_in_every_layer else 2
    return norms * shape.hidden + tables * shape.position_buckets * shape.heads


def from_config(config: Mapping[str, Any], name: str) -> ModelShape:
    """The shape described by a Transformers configuration.

    Of an architecture without a formula here Transformers builds an empty model (which imports it and torch).

    Raises:
        InputError: Transformers does not know the architecture or cannot build it, or a key is missing.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise InputError(f"{name}: config.json names no model_type: give a model in Transformers' format")
    try:
        if kind in DECODERS:
            return _decoder(config, name)
        if kind in ENCODER_DECODERS:
            return _t5(config, name)
    except KeyError as missing:
        raise InputError(f"{name}: config.json ({kind}) has no {missing}: give a complete configuration") from missing
    except ValueError as error:  # a size for each layer, where the formulas take one
        said = in_words(error) if isinstance(error, ValidationError) else error
        raise InputError(f"{name}: config.json ({kind}) does not state the shape of a model: {said}") from error
    return _counted(json.dumps(config, sort_keys=True), name)


@lru_cache(maxsize=8)
def _counted(config: str, name: str) -> ModelShape:
    """The shape of any other architecture that Transformers knows, from a config as JSON."""
    kind = str(json.loads(config)["model_type"])
    found = skeleton(json.loads(config), name)
    sizes, (vocabulary, hidden) = found.sizes, found.embedding
    heads = sizes.get("num_attention_heads", 1)
    latent = sizes.get("qk_nope_head_dim", 0) + sizes.get("qk_rope_head_dim", 0)  # DeepSeek's keys have two parts
    experts, active = _counted_experts(found)
    width = _counted_width(found, hidden)
    up = [one for one in found.experts or found.linear if one.outputs in (width, 2 * width)]
    matrices = (*found.linear, *found.experts)
    linear = tuple(LinearModule(*one) for one in matrices)
    ends = vocabulary * hidden * (1 if found.tied else 2)
    return ModelShape(
        name=name,
        architecture=kind,
        layers=found.blocks,
        hidden=hidden,
        heads=heads,
        kv_heads=min(heads, sizes.get("num_key_value_heads", heads)),
        head_dim=latent or sizes.get("head_dim") or max(1, hidden // heads),
        intermediate=width,
        vocabulary=vocabulary,
        context=sizes.get("max_position_embeddings"),
        tied=found.tied,
        gated=sum(one.outputs * one.copies for one in up) > width * sum(one.copies for one in up) or len(up) > 1,
        experts=experts,
        experts_per_token=active,
        counted=CountedLayers(
            linear=linear,
            left_out=found.left_out,
            others=found.parameters - ends - sum(one.parameters for one in linear),
        ),
    )


def _counted_experts(found: Skeleton) -> tuple[int, int]:
    """Experts of a layer, and those that a token passes through."""
    if not found.experts:
        return 1, 1
    names = ("n_routed_experts", "num_local_experts", "num_experts")
    experts = next((found.sizes[name] for name in names if name in found.sizes), 1)
    chosen = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk")
    return experts, next((min(experts, found.sizes[name]) for name in chosen if name in found.sizes), 1)


def _counted_width(found: Skeleton, hidden: int) -> int:
    """The width of the MLP: the widest input of a matrix that leads back to the residual stream."""
    back = [one.inputs for one in found.experts or found.linear if one.outputs == hidden]
    return max(back, default=4 * hidden)


def _decoder(config: Mapping[str, Any], name: str) -> ModelShape:
    kind, heads = str(config["model_type"]), whole_number(config, "num_attention_heads")
    experts = _experts(config, kind, name)
    neox = kind == "gpt_neox"
    bias = bool(config.get("attention_bias", neox)) and kind in {"llama", "qwen3", "qwen3_moe", "gpt_neox", *_GEMMAS}
    rope = config.get("rope_parameters") or {}
    return ModelShape(
        name=name,
        architecture=kind,
        layers=whole_number(config, "num_hidden_layers"),
        hidden=whole_number(config, "hidden_size"),
        heads=heads,
        kv_heads=whole_number(config, "num_key_value_heads", heads),
        head_dim=whole_number(config, "head_dim", whole_number(config, "hidden_size") // heads),
        intermediate=whole_number(config, "moe_intermediate_size" if kind == "qwen3_moe" else "intermediate_size"),
        vocabulary=whole_number(config, "vocab_size"),
        context=config.get("max_position_embeddings"),
        tied=bool(config.get("tie_word_embeddings", kind in _GEMMAS)),
        gated=not neox,
        qkv_bias=bias or kind == "qwen2",
        output_bias=bias,
        mlp_bias=neox or (bool(config.get("mlp_bias", False)) and kind == "llama"),
        qk_norm=kind in {"qwen3", "qwen3_moe", "gemma3_text"},
        norms_per_layer=4 if kind in {"gemma2", "gemma3_text"} else 2,
        norm_bias=neox,
        experts=experts,
        experts_per_token=whole_number(config, "num_experts_per_tok") if experts > 1 else 1,
        rope_theta=real_number(rope, "rope_theta", real_number(config, "rope_theta", 10_000.0)),
        norm_epsilon=real_number(config, "rms_norm_eps", real_number(config, "layer_norm_eps", 1e-6)),
    )


def _experts(config: Mapping[str, Any], kind: str, name: str) -> int:
    """Experts of each layer; 1 for dense models."""
    if kind == "mixtral":
        return whole_number(config, "num_local_experts")
    if kind != "qwen3_moe":
        return 1
    if config.get("mlp_only_layers") or whole_number(config, "decoder_sparse_step", 1) != 1:
        raise InputError(f"{name}: some layers have no experts (mlp_only_layers, decoder_sparse_step): not planned")
    # Transformers writes the count under either name.
    return whole_number(config, "num_experts" if "num_experts" in config else "num_local_experts")


def _t5(config: Mapping[str, Any], name: str) -> ModelShape:
    layers = whole_number(config, "num_layers")
    projection = str(config.get("feed_forward_proj", "relu"))
    return ModelShape(
        name=name,
        architecture=str(config["model_type"]),
        layers=whole_number(config, "num_decoder_layers", layers),
        encoder_layers=layers,
        hidden=whole_number(config, "d_model"),
        heads=whole_number(config, "num_heads"),
        kv_heads=whole_number(config, "num_heads"),
        head_dim=whole_number(config, "d_kv"),
        intermediate=whole_number(config, "d_ff"),
        vocabulary=whole_number(config, "vocab_size"),
        tied=bool(config.get("tie_word_embeddings", True)),
        gated=projection.startswith("gated"),
        position_buckets=whole_number(config, "relative_attention_num_buckets", 32),
        position_bias_in_every_layer=config["model_type"] == "umt5",
        norm_epsilon=real_number(config, "layer_norm_epsilon", 1e-6),
    )


def read_shape(model: str | Path) -> ModelShape:
    """The shape of a preset (`mistral-7b`, `t5_1_1-small`, …) or of a model directory or `config.json`.

    Raises:
        InputError: neither a preset nor a readable configuration.
    """
    if isinstance(model, str) and model in PRESETS:
        return from_config(PRESETS[model], model)
    path = Path(model)
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        presets = ", ".join(sorted(PRESETS))
        near = difflib.get_close_matches(str(model).rpartition("/")[2].lower(), PRESETS, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise InputError(f"no model configuration at {file}{hint}; give a model directory or a preset: {presets}")
    return from_config(read_config(file), file.parent.name)
