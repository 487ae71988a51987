"""What is written beside a merge's numbers: headers of its shards, their index, the manifest."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from huggingface_hub import split_state_dict_into_shards_factory

from capibara_assets.checkpoints.content import nbytes
from capibara_assets.checkpoints.formats.safetensors_file import header, layout
from capibara_assets.storage.jsonfiles import readable_json


class Shape(NamedTuple):
    """Element type and shape of a tensor to write; the bytes come later."""

    dtype: str
    shape: tuple[int, ...]


def shards(tensors: Mapping[str, Shape], max_shard_size: str | int, ties: Mapping[str, str]) -> dict[str, str]:
    """File name -> safetensors header, in the layout that Transformers writes.

    Args:
        ties: name that is left out -> the name under which it is stored; noted in the header.
    """
    split = split_state_dict_into_shards_factory(
        dict(tensors),
        get_storage_size=lambda tensor: nbytes(tensor.dtype, tensor.shape),
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=max_shard_size,
    )
    return {
        file: header(
            cast(Any, {name: tensors[name] for name in names}),  # of a source, a header takes type and shape only
            {"format": "pt", **{name: to for name, to in ties.items() if name not in tensors and to in names}},
        )
        for file, names in sorted(split.filename_to_tensors.items())
    }


def index(headers: Mapping[str, str], tensors: Mapping[str, Shape]) -> bytes:
    """The index of a checkpoint in shards."""
    places = {name: file for file, text in headers.items() for name in layout(text)}
    size = sum(nbytes(tensors[name].dtype, tensors[name].shape) for name in places)
    return readable_json({"metadata": {"total_size": size}, "weight_map": places})


def manifest_bytes(value: Mapping[str, Any]) -> bytes:
    """The manifest as it is written. Raises ValueError: NaN or infinity in it."""
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n"
