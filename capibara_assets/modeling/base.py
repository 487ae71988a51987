"""The base model that adapters are trained on: checked without torch, loaded once, known by its digest."""

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capibara_assets.errors import InputError
from capibara_assets.modeling.heads import Head, head_of, model_class, title
from capibara_assets.storage.digests import combine, sha256_file

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from capibara_assets.modeling.quantised import FewBits

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
ADAPTER_CONFIG = "adapter_config.json"  # PEFT's names, here because what needs only these needs no torch
ADAPTER_WEIGHTS = "adapter_model.safetensors"
# What decides the outputs: weights, config, tokenizer and template. A model card or a licence does not.
_IDENTITY = (
    "*.safetensors",
    CONFIG,
    INDEX,
    "tokenizer*",
    "chat_template*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
)
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
_LARGEST_HEADER = 100_000_000  # the limit of the safetensors format itself


@dataclass(frozen=True)
class Base:
    """A loaded base model; `model` is in eval mode and none of its parameters requires a gradient.

    Attributes:
        new_layers: parameters that its files do not hold: drawn at random, and never saved.
        unread: tensors of its files that the model has no place for.
    """

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    digest: str
    path: Path
    new_layers: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def base_digest(path: Path) -> str:
    """SHA-256 over names and bytes of the files that decide the model's outputs; the folder's name does not count.

    Raises:
        InputError: the folder does not exist or holds no model.
    """
    files = sorted({file for pattern in _IDENTITY for file in path.glob(pattern) if file.is_file()})
    if not files:
        raise InputError(f"no base model in {path}: expected {CONFIG} and *.safetensors (transformers' format)")
    return combine({file.name: sha256_file(file) for file in files})


def validate_base(path: Path, heads: Sequence[Head] = ("causal",)) -> None:
    """Check that a folder is a language model in Transformers' format; reads config and headers only.

    Args:
        heads: what it may be; only training knows others than causal language models.

    Raises:
        InputError: a missing folder, config, weight file or tokenizer; a config that is not JSON; a damaged or
            cut weight file; an architecture with another head.
    """
    if not path.is_dir():
        raise InputError(f"base model folder {path} does not exist: give a folder in transformers' format")
    config = read_config(path)
    if head_of(config) not in heads:
        named = ", ".join(config.get("architectures") or []) or "none named"
        raise InputError(f"{path / CONFIG}: not a {' or '.join(map(title, heads))} (architectures: {named})")
    if not any((path / name).is_file() for name in _TOKENIZERS):
        raise InputError(f"no tokenizer in {path}: expected one of {', '.join(_TOKENIZERS)}")
    for file in weight_files(path):
        check_safetensors(file)


def read_config(path: Path) -> dict[str, Any]:
    """The model's `config.json`.

    Raises:
        InputError: it is missing or not a JSON object.
    """
    return read_json_object(path / CONFIG)


def read_safetensors_header(file: Path) -> bytes:
    """The JSON at the beginning of a safetensors file, as it stands there; the data begins 8 bytes behind its length.

    Raises:
        InputError: the file is too short for the length that it states, or that is none of a header.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        prefix = stream.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if not 2 <= length <= min(_LARGEST_HEADER, size - 8):
            raise InputError(f"{file} is damaged: no safetensors header; copy or download it again")
        return stream.read(length)


def check_safetensors(file: Path) -> None:
    """Check a safetensors file's header and that its data is complete (format: 8-byte length, JSON, data).

    Raises:
        InputError: the header is damaged, or the file is shorter or longer than the header says.
    """
    raw = read_safetensors_header(file)
    size = file.stat().st_size
    try:
        header = json.loads(raw)
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise InputError(f"{file} is damaged: its safetensors header is not readable; copy it again") from error
    expected = 8 + len(raw) + max(ends, default=0)
    if size != expected:
        raise InputError(f"{file} is damaged: {size} bytes where its header says {expected}; copy it again")


def load_base(
    path: Path,
    dtype: "torch.dtype | None" = None,
    *,
    attention: str = "sdpa",
    head: Head = "causal",
    shared: Path | None = None,
    in_few_bits: "FewBits | None" = None,
) -> Base:
    """Load model and tokenizer from a local folder; never goes to the network, never runs the model's own code.

    Args:
        path: folder in Transformers' format.
        dtype: of the weights in memory; float32 by default, also where they are stored in bfloat16.
        attention: Transformers' attention implementation (`sdpa`, `eager`, `flash_attention_2`).
        head: what kind of language model it is.
        shared: folder for all processes that load this base on a CPU: they map its weights and hold them together
            once (mapped.py); None: each process has its own.
        in_few_bits: matrices are quantised as they are read; they stay where they are then put (quantised.py).

    Raises:
        InputError: as `validate_base`, or the weights do not fit the config.
    """
    validate_base(path, (head,))
    import torch
    from transformers import AutoConfig, AutoTokenizer
    from transformers.initialization import no_init_weights
    from transformers.utils import logging

    from capibara_assets.modeling.mapped import Loaded, mapped

    logging.disable_progress_bar()  # a bar per load would drown a run's log
    digest, dtype = base_digest(path), dtype or torch.float32
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}

    def load() -> Loaded:
        model, said = model_class(head).from_pretrained(
            path,
            dtype=dtype,
            attn_implementation=attention,
            output_loading_info=True,
            **(in_few_bits.arguments if in_few_bits else {}),
            **local,
        )
        return Loaded(model, tuple(sorted(said["missing_keys"])), tuple(sorted(said["unexpected_keys"])))

    def skeleton() -> Any:
        config = AutoConfig.from_pretrained(path, **local)
        with no_init_weights():  # memory that is asked for, but never touched
            return model_class(head).from_config(config, dtype=dtype, attn_implementation=attention)

    try:
        if shared is None:
            loaded = load()
        else:
            loaded = mapped(path, shared, f"{digest[:16]}-{head}-{str(dtype).rpartition('.')[2]}", load, skeleton)
        tokenizer = AutoTokenizer.from_pretrained(path, **local)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"base model {path} cannot be loaded: {error}") from error
    loaded.model.eval()
    loaded.model.requires_grad_(False)
    if in_few_bits:
        in_few_bits.settle(loaded.model)
    return Base(loaded.model, tokenizer, digest, path, loaded.new_layers, loaded.unread)


def weight_files(path: Path) -> Iterator[Path]:
    """The weight files of a model, as its index names them.

    Raises:
        InputError: there are none, or one that the index names is missing.
    """
    if (path / INDEX).is_file():
        names = sorted(set(read_json_object(path / INDEX).get("weight_map", {}).values()))
    else:
        names = sorted(file.name for file in path.glob("*.safetensors"))
    if not names:
        raise InputError(f"no weights in {path}: expected *.safetensors (other formats are never read)")
    for name in names:
        if not (path / name).is_file():
            raise InputError(f"{path / name} is missing, though {INDEX} names it: copy the whole model")
        yield path / name


def read_json_object(file: Path, kind: str = "a model in transformers' format") -> dict[str, Any]:
    """A file that every folder of this kind has.

    Raises:
        InputError: it is missing, so the folder is not of that kind, or it is not a JSON object.
    """
    if not file.is_file():
        raise InputError(f"{file} is missing: {file.parent} is not {kind}")
    try:
        value = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise InputError(f"{file} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError(f"{file}: expected a JSON object, found {type(value).__name__}")
    return value
