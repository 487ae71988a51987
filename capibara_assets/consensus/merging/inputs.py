"""Input models of a merge: memory-mapped files, checked for compatibility."""

import fnmatch
import mmap
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from capibara_assets.checkpoints.content import InFile, nbytes, to_bytes
from capibara_assets.checkpoints.formats import huggingface
from capibara_assets.consensus.merging.element_kernels import BF16, F16, F32
from capibara_assets.consensus.merging.stack import MappedTensor
from capibara_assets.errors import InputError, named
from capibara_assets.modeling.files import CONFIG, GENERATION, require_sane_sizes, require_token_ids
from capibara_assets.modeling.heads import architectures
from capibara_assets.storage.foreign import require_plain
from capibara_assets.storage.jsonfiles import foreign_object

FLOATS: Mapping[str, int] = {"F32": F32, "BF16": BF16, "F16": F16}
"""Element types that are merged; integers and booleans are copied where the models agree on them."""

_COPIED = (
    *(CONFIG, GENERATION, "tokenizer*", "chat_template*", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.*", "merges.txt", "spiece.model", "preprocessor_config.json"),
)
# Fields of a config by which a model makes something else of the same tensors.
_DECISIVE = (
    *("model_type", "hidden_act", "hidden_activation", "activation_function", "rms_norm_eps", "layer_norm_eps"),
    *("layer_norm_epsilon", "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "rotary_pct"),
    *("head_dim", "num_attention_heads", "num_key_value_heads", "sliding_window", "use_sliding_window", "layer_types"),
    *("num_hidden_layers", "num_experts_per_tok", "norm_topk_prob", "final_logit_softcapping", "logit_scale"),
    *("attn_logit_softcapping", "query_pre_attn_scalar", "logits_scaling", "embedding_multiplier", "alibi"),
    *("residual_multiplier", "attention_multiplier", "use_parallel_residual", "parallel_attn"),
)
_OF_A_LAYER = re.compile(r"\.\d+\.")
_OTHER_FLOATS = ("F64", "F8_E4M3", "F8_E5M2", "C64")


@dataclass(frozen=True)
class Model:
    """One checkpoint with memory-mapped tensors.

    Attributes:
        path: folder or file it was read from.
        tensors: name -> place of its bytes; tied names included.
        tied: name that is stored under another name only -> that name.
        files: config and tokenizer files.
        config: content of config.json; empty where there is none.
    """

    path: Path
    tensors: Mapping[str, InFile]
    tied: Mapping[str, str]
    files: Mapping[str, Any]
    config: Mapping[str, Any]
    maps: dict[Path, mmap.mmap] = field(default_factory=dict, repr=False)

    def part(self, name: str) -> MappedTensor:
        """A memory-mapped tensor; pages are read on first use."""
        source = self.tensors[name]
        size = nbytes(source.dtype, source.shape)
        if size == 0:
            return MappedTensor(str(source.path), np.empty(0, np.uint8), FLOATS.get(source.dtype, 0))
        if source.path not in self.maps:
            with source.path.open("rb") as file:
                self.maps[source.path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        data = np.frombuffer(self.maps[source.path], np.uint8, size, source.offset)
        return MappedTensor(str(source.path), data, FLOATS.get(source.dtype, 0))


def read_model(path: Path | str) -> Model:
    """Read a Transformers folder (one file or shards with their index) or a single `.safetensors` file.

    Raises:
        InputError: no such folder, damaged or missing files, a config of no model, an adapter, or weights in another
            format.
    """
    path = Path(path)
    require_plain(path)
    content = huggingface.read(path)
    if content.kind == "adapter":
        raise InputError(
            f"{path} is an adapter: averaging the factors of adapters does not average their deltas; "
            "merge adapters by merge_adapters"
        )
    tensors = {name: source for name, source in content.tensors.items() if isinstance(source, InFile)}
    if len(tensors) < len(content.tensors):
        raise InputError(f"{path} holds no safetensors files: convert it first (`capibara checkpoint convert`)")
    tied = {name: tensors[target] for name, target in content.ties.items()}
    config: dict[str, Any] = {}
    if CONFIG in content.files:
        config = foreign_object(to_bytes(content.files[CONFIG]), path / CONFIG)
        require_sane_sizes(config, path / CONFIG)
        require_token_ids(path)
        _require_head(config, {**tensors, **tied}, path)
    files = {
        name: source
        for name, source in content.files.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in _COPIED)
    }
    return Model(path, {**tensors, **tied}, dict(content.ties), files, config)


def _require_head(config: Mapping[str, Any], tensors: Mapping[str, InFile], path: Path) -> None:
    """Raise for a model that predicts tokens and whose output layer is in no file, nor tied to the embedding."""
    generates = any(name.endswith("ForCausalLM") for name in architectures(config))
    embeddings = [tensor for name, tensor in tensors.items() if name.endswith(_EMBEDDINGS)]
    if not generates or config.get("tie_word_embeddings") is not False or len(embeddings) != 1:
        return
    outside = (tensor for name, tensor in tensors.items() if not _OF_A_LAYER.search(name))
    if not any(x.shape == embeddings[0].shape and x is not embeddings[0] for x in outside):
        raise InputError(
            f"{path} has no output layer, and its {CONFIG} does not tie one to the embedding: save it with the class "
            "that it was trained with (AutoModelForCausalLM), or copy the layer from the base"
        )


def untied(models: Sequence[Model]) -> tuple[list[Model], list[str]]:
    """Models with an explicit output layer where others tie it to the embedding, and those layers' names.

    Where every model ties it, nothing changes: the result ties it too.
    """
    names = {name for model in models for name in model.tensors}
    result, given = list(models), []
    for name in sorted(names):
        embedding = next((other for other in sorted(names) if other.endswith(_EMBEDDINGS)), None)
        if not name.endswith("lm_head.weight") or embedding is None:
            continue
        for number, model in enumerate(result):
            if name not in model.tensors and embedding in model.tensors and ties_embeddings(model):
                tensors = {**model.tensors, name: model.tensors[embedding]}
                result[number] = Model(model.path, tensors, model.tied, model.files, model.config, model.maps)
                given.append(name)
    return result, sorted(set(given))


_EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "shared.weight")


def ties_embeddings(model: Model) -> bool:
    """Whether the config ties the output layer to the embedding."""
    return bool(model.config.get("tie_word_embeddings", False))


def check_alike(models: Sequence[Model], base: Model | None, any_dtype: bool) -> list[str]:
    """Check that models have the same tensors; return the names that only the base has, which are copied.

    Args:
        any_dtype: models may differ in element type, since the result's was given.

    Raises:
        InputError: a model lacks a tensor, shapes or element types differ, or the configs make something else of equal
            tensors; names tensor or field, and files.
    """
    everyone = [*models, *([base] if base else [])]
    for model in everyone[1:]:
        _check_configs(everyone[0], model)
    names = sorted({name for model in models for name in model.tensors})
    for name in names:
        missing = [model for model in everyone if name not in model.tensors]
        if missing:
            holder = next(model for model in models if name in model.tensors)
            raise InputError(
                f"{named(name)} is in {holder.path} and not in {missing[0].path}"
                f"{_ties_hint(name, missing[0])}: merge checkpoints of the same architecture"
            )
        first = everyone[0].tensors[name]
        for model in everyone[1:]:
            _check_pair(name, first, model.tensors[name], any_dtype)
    return sorted(base.tensors.keys() - set(names)) if base else []


def _check_configs(one: Model, other: Model) -> None:
    if not (one.config and other.config) or all(one.config.get(name) == other.config.get(name) for name in _DECISIVE):
        return
    first, second = (_completed(model) for model in (one, other))
    for name in _DECISIVE:
        if name in first and name in second and first[name] != second[name]:
            stated, differs = (named(str(config[name])) for config in (first, second))
            raise InputError(
                f"{name} is {stated} in {one.path / CONFIG} and {differs} in {other.path / CONFIG}: "
                "merge checkpoints of the same architecture, whose tensors mean the same"
            )


def _completed(model: Model) -> Mapping[str, Any]:
    """A config as Transformers completes it: with defaults, and the rotation in one spelling of the two it has had."""
    from transformers import CONFIG_MAPPING

    kind = model.config.get("model_type")
    if kind not in CONFIG_MAPPING:
        return model.config
    try:
        made = CONFIG_MAPPING[kind].from_dict({**model.config, "auto_map": None}).to_dict()
    except Exception as error:  # whatever the architecture's own code raises for what it cannot use
        raise InputError(f"{model.path / CONFIG}: Transformers makes no {kind} of it: {error}") from error
    if isinstance(rotation := made.get("rope_parameters"), dict):
        made["rope_parameters"] = {key: value for key, value in rotation.items() if key != "type"}  # of before 4.43
    return {name: value for name, value in made.items() if name not in ("rope_theta", "rope_scaling")}


def _check_pair(name: str, one: InFile, other: InFile, any_dtype: bool) -> None:
    if one.shape != other.shape:
        if name.endswith((*_EMBEDDINGS, "lm_head.weight")) and one.shape[1:] == other.shape[1:]:
            raise InputError(
                f"the vocabularies differ: {named(name)} has {one.shape[0]} rows in {one.path} and {other.shape[0]} in "
                f"{other.path}; give both models the same tokenizer (resize_token_embeddings) before merging"
            )
        raise InputError(
            f"{named(name)} has shape {_shown(one.shape)} in {one.path} and {_shown(other.shape)} in {other.path}: "
            "merge checkpoints of the same architecture"
        )
    for source in (one, other):
        if source.dtype in _OTHER_FLOATS:
            raise InputError(
                f"{named(name)} of {source.path} is {source.dtype}; merged are F32, BF16 and F16: convert the "
                "checkpoint first"
            )
    if one.dtype != other.dtype and not (any_dtype and one.dtype in FLOATS and other.dtype in FLOATS):
        raise InputError(
            f"{named(name)} is {one.dtype} in {one.path} and {other.dtype} in {other.path}: "
            'give the result\'s type, as in dtype="bfloat16"'
        )


def _shown(shape: tuple[int, ...]) -> str:
    return named(str(list(shape)))


def _ties_hint(name: str, model: Model) -> str:
    if name.endswith("lm_head.weight") and CONFIG not in model.files:
        return f" (which has no {CONFIG} beside it that would tie it to the embedding)"
    return ""


def same_place(one: Path | str, other: Path | str) -> bool:
    """Whether two paths lead to the same checkpoint."""
    return os.path.realpath(one) == os.path.realpath(other)
