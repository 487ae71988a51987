"""Files of a model folder in Transformers' format: names, checks and digests, without torch."""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from capibara_assets.errors import InputError, named
from capibara_assets.modeling.configs.values import token_problem, value_problem
from capibara_assets.modeling.heads import Head, architectures, head_of, title
from capibara_assets.storage.digests import combine, sha256_file
from capibara_assets.storage.foreign import require_plain
from capibara_assets.storage.jsonfiles import foreign_object, read_foreign_object

CONFIG = "config.json"
GENERATION = "generation_config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER_CONFIG = "adapter_config.json"  # PEFT's names; here, so that their users need no torch
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
_NAMES_CODE = ("auto_map", "custom_generate")  # a module beside the model, a repository that `generate` would load
_LONGEST_NAME = 255  # bytes of a file's name
_LARGEST_HEADER = 100_000_000  # the limit of the safetensors format itself
_MOST_TENSORS = 1 << 18  # of a file; the largest mixtures have 150,000 in all of theirs


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
        heads: accepted kinds of model; only training accepts others than causal language models.

    Raises:
        InputError: a missing folder, config, weight file or tokenizer; a config that is not JSON; a damaged or
            cut weight file; an architecture with another head.
    """
    if not path.is_dir():
        raise InputError(f"base model folder {path} does not exist: give a folder in transformers' format")
    if not (path / CONFIG).is_file():  # asked first: an adapter may name the root of a disk as its base
        raise InputError(f"{path / CONFIG} is missing: {path} is not a model in transformers' format")
    require_plain(path)
    config = read_config(path)
    if (path / GENERATION).is_file():
        require_sane_sizes(read_json_object(path / GENERATION), path / GENERATION)
    require_token_ids(path)
    if head_of(config) not in heads:
        named = ", ".join(architectures(config)) or "none named"
        raise InputError(f"{path / CONFIG}: not a {' or '.join(map(title, heads))} (architectures: {named})")
    if not any((path / name).is_file() for name in _TOKENIZERS):
        raise InputError(f"no tokenizer in {path}: expected one of {', '.join(_TOKENIZERS)}")
    files = list(weight_files(path))
    for file in files:
        check_safetensors(file)
    _require_fitting_embedding(config, path / CONFIG, sum(file.stat().st_size for file in files))


def require_sane_sizes(config: Mapping[str, Any], where: Path) -> None:
    """Check values before a model is built by them: sizes that no model has take minutes and all memory to build.

    Raises:
        InputError: `value_problem` finds one.
    """
    if problem := value_problem(config):
        raise InputError(f"{where}: {problem}: the config is damaged")


def require_token_ids(path: Path) -> None:
    """Check that the tokens which a model's config and its generation config name are of its vocabulary.

    Raises:
        InputError: they are not, or a file is no JSON object.
    """
    config = read_json_object(path / CONFIG)
    stated = {CONFIG: config}
    if (path / GENERATION).is_file():
        stated[GENERATION] = read_json_object(path / GENERATION)
    for name, values in stated.items():
        if problem := token_problem(values, config):
            raise InputError(f"{path / name}: {problem}: the config is damaged, or another model's")


def _require_fitting_embedding(config: Mapping[str, Any], where: Path, weights: int) -> None:
    """Raise for an embedding of more than 8 values to each byte of the weight files."""
    rows, width = config.get("vocab_size"), config.get("hidden_size")
    if isinstance(rows, int) and isinstance(width, int) and rows * width > 8 * weights:
        raise InputError(
            f"{where}: an embedding of {rows:,} x {width:,} does not fit into {weights:,} bytes of weights: the "
            "config is another model's"
        )


def read_config(path: Path) -> dict[str, Any]:
    """The config of a model: its folder's `config.json`, or the file that `path` is.

    Raises:
        InputError: it is missing, not a JSON object, or `value_problem` finds one.
    """
    file = path if path.is_file() else path / CONFIG
    config = read_json_object(file)
    require_sane_sizes(config, file)
    return config


def modeling_module(folder: Path) -> str:
    """The module of Transformers that implements a model, which need not exist. Raises InputError, as `read_config`."""
    kind = read_config(folder).get("model_type", "")
    return f"transformers.models.{kind}.modeling_{kind}"


def read_safetensors_header(file: Path) -> bytes:
    """The JSON header of a safetensors file as raw bytes; the data begins 8 bytes behind its length.

    Raises:
        InputError: the file is shorter than the header length that it states, or that length is impossible; more
            tensors than a model has.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        prefix = stream.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if not 2 <= length <= min(_LARGEST_HEADER, size - 8):
            raise InputError(f"{file} is damaged: no safetensors header; copy or download it again")
        header = stream.read(length)
    if (tensors := header.count(b'"data_offsets"')) > _MOST_TENSORS:
        raise InputError(f"{file} holds {tensors:,} tensors, models have up to {_MOST_TENSORS:,} in a file")
    return header


def check_safetensors(file: Path) -> None:
    """Check a safetensors file's header and that its data is complete (format: 8-byte length, JSON, data).

    Raises:
        InputError: the header is damaged, or the file is shorter or longer than the header says.
    """
    raw = read_safetensors_header(file)
    size = file.stat().st_size
    header = foreign_object(raw, f"{file} is damaged: its safetensors header")
    try:
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        expected = 8 + len(raw) + max(ends, default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise InputError(f"{file} is damaged: its safetensors header is not readable; copy it again") from error
    if size != expected:
        raise InputError(f"{file} is damaged: {size} bytes where its header says {expected}; copy it again")


def without_code(name: str, content: bytes) -> bytes:
    """A file of a model without what names code to run in its config (`auto_map`); others unchanged, byte for byte.

    What is merged of several models runs by the library's own classes; code of one of them would come along unread.
    """
    if not name.endswith("config.json"):
        return content
    try:
        document = json.loads(content)  # not searched for as text: JSON has many spellings of a name
    except (ValueError, RecursionError):
        return content  # whoever reads it says what is wrong
    if not (cut := _without_code(document))[1]:
        return content
    return json.dumps(cut[0], indent=2, ensure_ascii=False).encode() + b"\n"


def _without_code(value: Any) -> tuple[Any, bool]:
    """A JSON value without what names code, also in the configs of its parts, and whether there was some."""
    if isinstance(value, list):
        parts = [_without_code(one) for one in value]
        return [one for one, _ in parts], any(found for _, found in parts)
    if not isinstance(value, dict):
        return value, False
    kept = {key: _without_code(one) for key, one in value.items() if key not in _NAMES_CODE}
    found = len(kept) < len(value) or any(found for _, found in kept.values())
    return {key: one for key, (one, _) in kept.items()}, found


def weight_files(path: Path) -> Iterator[Path]:
    """The weight files of a model, as Transformers chooses them: `model.safetensors`, or those that its index names.

    Raises:
        InputError: there are none, one that the index names is missing, or as `require_one_model`.
    """
    if (path / INDEX).is_file():
        names = sorted(set(weight_map(path / INDEX).values()))
    else:
        names = [WEIGHTS] if (path / WEIGHTS).is_file() else sorted(file.name for file in path.glob("*.safetensors"))
    if not names:
        raise InputError(f"no weights in {path}: expected *.safetensors (other formats are never read)")
    for name in names:
        if PurePosixPath(name).name != name or len(name.encode("utf-8", "surrogatepass")) > _LONGEST_NAME:
            raise InputError(f"{path / INDEX} names {name[:_LONGEST_NAME]!r}, which is no file of the folder")
        if not (path / name).is_file():
            raise InputError(f"{path / name} is missing, though {INDEX} names it: copy the whole model")
    require_one_model(path)
    yield from (path / name for name in names)


def require_one_model(path: Path) -> None:
    """Check that a folder does not hold two models, of which Transformers loads one and others read the other.

    Raises:
        InputError: beside `model.safetensors` lies an index that names other files, or is damaged.
    """
    if not (path / WEIGHTS).is_file() or not (path / INDEX).is_file():
        return
    if others := sorted({*weight_map(path / INDEX).values()} - {WEIGHTS}):
        raise InputError(
            f"{path} holds {WEIGHTS} and {INDEX}, which names {named(others[0])!r}: they are two models, of which "
            "Transformers would load the first; remove what does not belong to yours"
        )


def weight_map(index: Path) -> dict[str, str]:
    """Tensor -> file, as an index of shards says. Raises InputError: it is damaged."""
    places = read_foreign_object(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise InputError(f"{index} is damaged: its weight_map does not name a file for each tensor")
    return {tensor: str(PurePosixPath(name)) for tensor, name in places.items()}  # `./model.safetensors`


def read_json_object(file: Path, kind: str = "a model in transformers' format") -> dict[str, Any]:
    """A JSON object in a file that every folder of this kind has.

    Raises:
        InputError: it is missing, so the folder is not of that kind, or it is not a JSON object (`foreign_json`).
    """
    if not file.is_file():
        raise InputError(f"{file} is missing: {file.parent} is not {kind}")
    return read_foreign_object(file)
