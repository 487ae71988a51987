"""Conversion of T5 models of any size between T5X's parameter names and Transformers'.

T5 v1.1 and mT5 (gated, `t5x/examples/t5`), umT5 (a relative position bias in each layer, `t5x/examples/scalable_t5`,
its layers also scanned, that is stacked in one array), and T5 v1.0 (no gate, logits from the embedding). T5X stores
kernels as (in, out), Transformers as (out, in). Sources: t5x/examples/t5/network.py, its twin in scalable_t5, and
transformers/models/t5/modeling_t5.py.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from capibara_assets.checkpoints.content import Content, PieceSource, of_bytes, of_numpy, to_bytes
from capibara_assets.checkpoints.formats.limits import listed
from capibara_assets.checkpoints.formats.t5_arrays import same, stacked, turned, unturned
from capibara_assets.checkpoints.tree import split
from capibara_assets.errors import InputError

CONFIG = "config.json"

_EMBEDDING, _HEAD, _BIAS = "token_embedder/embedding", "decoder/logits_dense/kernel", "relpos_bias/rel_embedding"
_THEIR_BIAS = "layer.0.SelfAttention.relative_attention_bias.weight"
_ALIASES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_SUFFIX, _WO = "relative_attention_bias.weight", "encoder.block.0.layer.1.DenseReluDense.wo.weight"
_ATTENTION = (("query", "q"), ("key", "k"), ("value", "v"), ("out", "o"))
_LAYER: Mapping[str, Mapping[str, str]] = {
    "encoder": {
        **{f"attention/{ours}/kernel": f"layer.0.SelfAttention.{theirs}.weight" for ours, theirs in _ATTENTION},
        "pre_attention_layer_norm/scale": "layer.0.layer_norm.weight",
        **{f"mlp/{name}/kernel": f"layer.1.DenseReluDense.{name}.weight" for name in ("wi", "wi_0", "wi_1", "wo")},
        "pre_mlp_layer_norm/scale": "layer.1.layer_norm.weight",
        _BIAS: _THEIR_BIAS,
    },
    "decoder": {
        **{f"self_attention/{ours}/kernel": f"layer.0.SelfAttention.{theirs}.weight" for ours, theirs in _ATTENTION},
        "pre_self_attention_layer_norm/scale": "layer.0.layer_norm.weight",
        **{
            f"encoder_decoder_attention/{ours}/kernel": f"layer.1.EncDecAttention.{theirs}.weight"
            for ours, theirs in _ATTENTION
        },
        "pre_cross_attention_layer_norm/scale": "layer.1.layer_norm.weight",
        **{f"mlp/{name}/kernel": f"layer.2.DenseReluDense.{name}.weight" for name in ("wi", "wi_0", "wi_1", "wo")},
        "pre_mlp_layer_norm/scale": "layer.2.layer_norm.weight",
        _BIAS: _THEIR_BIAS,
    },
}
"""Stack -> parameter of a layer in T5X -> the same in a block of Transformers."""


def to_transformers(content: Content, *, optimizer: Literal["refuse", "leave out"] = "refuse") -> Content:
    """Convert a T5X checkpoint's model to Transformers' names, with a `config.json` if it has none.

    Settings that do not follow from shapes are T5's defaults in that config: 128 as the largest relative position, gelu
    in the gate.

    Args:
        content: names `target/encoder/layers_0/...`, or `target/encoder/encoder/...` where the layers are scanned.
        optimizer: what to do with optimizer state, which a Transformers model cannot hold.

    Raises:
        InputError: not a T5 encoder-decoder (it names missing, unknown or misshapen parameters), or optimizer state.
    """
    others = [name for name in content.tensors if not name.startswith("target/") and name != "state/step"]
    if others and optimizer == "refuse":
        raise InputError(
            f"Transformers has no place for {len(others)} tensors of optimizer state, {listed(others)}: leave them "
            "out, or choose a format that keeps them"
        )
    target = {
        name.removeprefix("target/"): content.tensors[content.ties.get(name, name)]
        for name in (*content.tensors, *content.ties)
        if name.startswith("target/")
    }
    if _EMBEDDING not in target:
        raise InputError(f"this is no T5 of T5X: target/{_EMBEDDING} is not in it")
    parameters = {"shared.weight": target.pop(_EMBEDDING)}
    if head := target.pop(_HEAD, None):
        parameters["lm_head.weight"] = turned(head)
    for stack in _LAYER:
        parameters |= _their_stack(stack, target)
    if target:
        raise InputError(
            f"T5 has no parameters {listed(f'target/{name}' for name in target)}: other models are not mapped"
        )
    _check(parameters)
    files = dict(content.files)
    files.setdefault(CONFIG, of_bytes(json.dumps(_config(parameters), indent=2).encode()))
    return Content(parameters, kind="model", files=files)


def to_t5x(content: Content, *, step: int = 0, scan: bool = False) -> Content:
    """Convert a Transformers T5 to T5X's names: `target`, and a `state` with the step and no optimizer state.

    Args:
        content: flat names, as `T5ForConditionalGeneration` and `UMT5ForConditionalGeneration` save them.
        step: training steps done.
        scan: stack the layers along axis 1, the default of scalable_t5; needs a position bias in each layer (umT5).

    Raises:
        InputError: parameters that are missing, unknown or misshapen; shared embeddings that differ.
    """
    known = dict(content.tensors) | {name: content.tensors[other] for name, other in content.ties.items()}
    shared = known.get("shared.weight")
    for name in _ALIASES:
        if shared is not None and name in known and not same(known.pop(name), shared):
            raise InputError(f"{name} differs from shared.weight: T5X has one embedding for both")
    if known.get("lm_head.weight") is shared:
        known.pop("lm_head.weight", None)
    _check(known)
    _check_scale(content, "lm_head.weight" not in known)
    each = f"encoder.block.1.{_THEIR_BIAS}" in known or (scan and _layers(known, "encoder") == 1)
    if scan and not each:
        raise InputError("only block 0 has a relative position bias: T5X's scanned layers have one each (as umT5's do)")
    target = {_EMBEDDING: known["shared.weight"]}
    if "lm_head.weight" in known:
        target[_HEAD] = turned(known["lm_head.weight"])
    for stack in _LAYER:
        target |= _our_stack(stack, known, each, scan)
    tensors = {f"target/{name}": source for name, source in target.items()}
    tensors["state/step"] = of_numpy(np.asarray(step, np.int32))
    return Content(tensors, tree=_tree(tensors), files=content.files)


def _their_stack(stack: str, target: dict[str, PieceSource]) -> dict[str, PieceSource]:
    """A stack's parameters under Transformers' names, removed from `target`."""
    norm = target.pop(f"{stack}/{stack}_norm/scale", None)
    if norm is None:
        raise InputError(f"target/{stack}/{stack}_norm/scale is missing: only encoder-decoders are mapped")
    parameters: dict[str, PieceSource] = {f"{stack}.final_layer_norm.weight": norm}
    if bias := target.pop(f"{stack}/{_BIAS}", None):
        parameters[f"{stack}.block.0.{_THEIR_BIAS}"] = turned(bias)
    scale = target.get(f"{stack}/{stack}/pre_mlp_layer_norm/scale")
    axis = 0 if scale is not None and scale.shape[0] != norm.shape[0] else 1
    layered = re.compile(rf"{stack}/(?:layers_(\d+)|{stack})/(.+)")
    for name in list(target):
        match = layered.fullmatch(name)
        if not match or match[2] not in _LAYER[stack]:
            continue
        source, theirs = target.pop(name), _LAYER[stack][match[2]]
        rows = None if match[2].endswith("/scale") else -1 if match[2].endswith("/out/kernel") else 1
        if match[1] is not None:
            parameters[f"{stack}.block.{int(match[1])}.{theirs}"] = unturned(source, None, rows=rows)
        else:
            for index in range(source.shape[axis]):
                parameters[f"{stack}.block.{index}.{theirs}"] = unturned(source, (axis, index), rows=rows)
    return parameters


def _our_stack(stack: str, known: Mapping[str, PieceSource], each: bool, scan: bool) -> dict[str, PieceSource]:
    """A stack's parameters under T5X's names.

    Args:
        each: scalable_t5's layout, with position biases and split heads in each layer.
        scan: stack the layers in one array.
    """
    parameters: dict[str, PieceSource] = {f"{stack}/{stack}_norm/scale": known[f"{stack}.final_layer_norm.weight"]}
    bias = known[f"{stack}.block.0.{_THEIR_BIAS}"]
    if not each:
        parameters[f"{stack}/{_BIAS}"] = turned(bias)
    for ours, theirs in _LAYER[stack].items():
        if f"{stack}.block.0.{theirs}" not in known or (ours == _BIAS and not each):
            continue
        layers = tuple(
            _ours(ours, known[f"{stack}.block.{index}.{theirs}"], bias.shape[1] if each else None)
            for index in range(_layers(known, stack))
        )
        if scan:
            parameters[f"{stack}/{stack}/{ours}"] = stacked(layers)
        else:
            parameters |= {f"{stack}/layers_{index}/{ours}": layer for index, layer in enumerate(layers)}
    return parameters


def _ours(name: str, source: PieceSource, heads: int | None) -> PieceSource:
    if name.endswith("/scale"):
        return source
    columns, rows = source.shape
    if heads is None or "attention/" not in name:
        return turned(source)
    if name.endswith("/out/kernel"):
        return turned(source, (heads, rows // heads, columns))
    return turned(source, (rows, heads, columns // heads))


def _layers(known: Mapping[str, PieceSource], stack: str) -> int:
    numbers = {int(name.split(".")[2]) for name in known if re.match(rf"{stack}\.block\.\d+\.", name)}
    return max(numbers, default=-1) + 1


def _check(known: Mapping[str, PieceSource]) -> None:
    """Raises InputError unless this is a complete T5; it names missing, unknown or misshapen parameters."""
    first = "encoder.block.0.layer.0.SelfAttention"
    needed = ("shared.weight", f"{first}.q.weight", f"{first}.{_SUFFIX}", _WO)
    if poor := [name for name in needed if name not in known or len(known[name].shape) != 2]:
        raise InputError(f"this is no T5 encoder-decoder: {listed(poor)} is missing or no matrix")
    (vocabulary, width), inner = known["shared.weight"].shape, known[f"{first}.q.weight"].shape[0]
    ff = known[_WO].shape[1]
    gated = "encoder.block.0.layer.1.DenseReluDense.wi_0.weight" in known
    expected: dict[str, tuple[int, ...]] = {"shared.weight": (vocabulary, width)}
    if "lm_head.weight" in known:
        expected["lm_head.weight"] = (vocabulary, width)
    buckets = known[f"{first}.{_SUFFIX}"].shape
    each = f"encoder.block.1.{_THEIR_BIAS}" in known
    for stack, layer in _LAYER.items():
        expected[f"{stack}.final_layer_norm.weight"] = (width,)
        for index in range(max(1, _layers(known, stack))):
            for ours, theirs in layer.items():
                if ours == _BIAS and index and not each:
                    continue
                if ours.startswith("mlp/wi") and (ours == "mlp/wi/kernel") == gated:
                    continue
                expected[f"{stack}.block.{index}.{theirs}"] = _shape(ours, width, inner, ff, buckets)
    absent = [name for name in expected if name not in known]
    unknown = [name for name in known if name not in expected]
    wrong = [
        f"{n} {list(known[n].shape)} for {list(s)}" for n, s in expected.items() if n in known and known[n].shape != s
    ]
    for what, names in (("misses", absent), ("does not know", unknown), ("has another shape for", wrong)):
        if names:
            raise InputError(f"this is no whole T5 encoder-decoder: it {what} {listed(names)}")


def _shape(name: str, width: int, inner: int, ff: int, buckets: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of a layer's parameter in Transformers."""
    if name.endswith("/scale"):
        return (width,)
    if name == _BIAS:
        return buckets
    if name.startswith("mlp/"):
        return (width, ff) if name == "mlp/wo/kernel" else (ff, width)
    return (width, inner) if name.endswith("/out/kernel") else (inner, width)


def _config(known: Mapping[str, PieceSource]) -> dict[str, Any]:
    buckets, heads = known[f"encoder.block.0.{_THEIR_BIAS}"].shape
    inner, width = known["encoder.block.0.layer.0.SelfAttention.q.weight"].shape
    each = f"encoder.block.1.{_THEIR_BIAS}" in known
    gated = "encoder.block.0.layer.1.DenseReluDense.wi_0.weight" in known
    return {
        "architectures": ["UMT5ForConditionalGeneration" if each else "T5ForConditionalGeneration"],
        "model_type": "umt5" if each else "t5",
        "vocab_size": known["shared.weight"].shape[0],
        "d_model": width,
        "d_kv": inner // heads,
        "d_ff": known[_WO].shape[1],
        "num_heads": heads,
        "num_layers": _layers(known, "encoder"),
        "num_decoder_layers": _layers(known, "decoder"),
        "relative_attention_num_buckets": buckets,
        "relative_attention_max_distance": 128,
        "feed_forward_proj": "gated-gelu" if gated else "relu",
        "tie_word_embeddings": "lm_head.weight" not in known,
        "layer_norm_epsilon": 1e-6,
        "dropout_rate": 0.1,
        "is_encoder_decoder": True,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
    }


def _check_scale(content: Content, tied: bool) -> None:
    """Raises InputError where the model's config scales the decoder's outputs otherwise than T5X does.

    T5X scales them where logits come from the embedding. Transformers has a switch, set by the value of
    `tie_word_embeddings` when the config was made (true for v1.0 only).
    """
    if CONFIG not in content.files:
        return
    try:
        config = json.loads(to_bytes(content.files[CONFIG]))
        scales = config.get("scale_decoder_outputs", config.get("tie_word_embeddings") is not False)
    except (ValueError, AttributeError) as error:
        raise InputError(f"the checkpoint's {CONFIG} is no JSON object: {error}") from error
    if config.get("model_type", "t5") == "t5" and bool(scales) != tied:
        raise InputError(
            f"{CONFIG} {'scales' if scales else 'does not scale'} the decoder's outputs and lm_head.weight is "
            f"{'missing' if tied else 'there'}: T5X scales them where the embedding gives the logits, and only there"
        )


def _tree(tensors: Mapping[str, PieceSource]) -> Any:
    """The tree of nested dictionaries whose paths are the tensors' names."""
    nested: dict[str, Any] = {}
    for name in tensors:
        *above, last = split(name)
        inner = nested
        for key in above:
            inner = inner.setdefault(key, {})
        inner[last] = name

    def node(value: Any) -> Any:
        return (
            {"tensor": value}
            if isinstance(value, str)
            else {"dict": [[key, node(child)] for key, child in value.items()]}
        )

    return node(nested)
