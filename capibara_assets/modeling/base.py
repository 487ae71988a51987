"""Loading of the frozen base model that adapters are trained on."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from logging import ERROR, getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capibara_assets.deployment.documents import LARGEST_DOCUMENT
from capibara_assets.errors import InputError, named
from capibara_assets.modeling.files import CONFIG, base_digest, read_config, read_json_object, validate_base
from capibara_assets.modeling.heads import Head, model_class
from capibara_assets.storage.foreign import read_by_library

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from capibara_assets.modeling.mapped import Loaded
    from capibara_assets.modeling.quantised import QuantisedLoading

_NUMBER = re.compile(r"\b\d+\b")
_OF_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                  "chat_template.jinja")  # fmt: skip
_PLAIN = "TokenizersBackend"  # a tokenizer that is its tokenizer.json
_TRIED = 3  # tokens: some embeddings can be used on one, and not on more
_PROBE = "def f(x):\n    return x + 1"


@dataclass(frozen=True)
class Base:
    """A loaded base model; `model` is in eval mode and none of its parameters requires a gradient.

    Attributes:
        new_layers: parameters that its files lack; initialised at random and never saved.
        unread: tensors of its files that the model does not use.
    """

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    digest: str
    path: Path
    new_layers: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def load_base(
    path: Path,
    dtype: "torch.dtype | None" = None,
    *,
    attention: str = "sdpa",
    head: Head = "causal",
    shared: Path | None = None,
    quantised: "QuantisedLoading | None" = None,
    incomplete: bool = False,
) -> Base:
    """Load model and tokenizer from a local folder, without network access and without running the model's own code.

    Args:
        path: folder in Transformers' format.
        dtype: of the weights in memory; float32 by default, also where they are stored in bfloat16.
        attention: Transformers' attention implementation (`sdpa`, `eager`, `flash_attention_2`).
        head: kind of language model.
        shared: folder through which all processes that load this base on a CPU share one memory-mapped copy of its
            weights (mapped.py); None: each process has its own copy.
        quantised: quantise matrices while they are read; they then stay on their device (quantised.py).
        incomplete: load a language model of which weights are missing, too, for those who say what is wrong with it.

    Raises:
        InputError: as `validate_base`, or the weights do not fit the config: a language model lacks some, which
            would be drawn at random, or its files have more layers than its config says.
    """
    validate_base(path, (head,))
    import torch
    from transformers import AutoConfig
    from transformers.initialization import no_init_weights
    from transformers.utils import logging

    from capibara_assets.modeling.mapped import Loaded, mapped

    logging.disable_progress_bar()  # a bar per load would drown a run's log
    getLogger("bitsandbytes").setLevel(ERROR)  # of a wrong quantization_config it warns, and then fails
    digest, dtype = base_digest(path), dtype or torch.float32
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}

    def load() -> Loaded:
        model, report = model_class(head).from_pretrained(
            path,
            dtype=dtype,
            attn_implementation=attention,
            output_loading_info=True,
            **(quantised.arguments if quantised else {}),
            **local,
        )
        return Loaded(model, tuple(sorted(report["missing_keys"])), tuple(sorted(report["unexpected_keys"])))

    def skeleton() -> Any:
        config = AutoConfig.from_pretrained(path, **local)
        with no_init_weights():  # allocated, but never written
            return model_class(head).from_config(config, dtype=dtype, attn_implementation=attention)

    with read_by_library(f"base model {path} cannot be loaded"), _naming_fields(path):
        if shared is None:
            loaded = load()
        else:
            loaded = mapped(path, shared, f"{digest[:16]}-{head}-{str(dtype).rpartition('.')[2]}", load, skeleton)
    if head == "causal" and not incomplete:
        _require_complete(loaded, path)
    tokenizer = load_tokenizer(path)
    loaded.model.eval()
    loaded.model.requires_grad_(False)
    if quantised:
        quantised.keep_differentiable(loaded.model)
    return Base(loaded.model, tokenizer, digest, path, loaded.new_layers, loaded.unread)


def require_runnable(base: Base) -> None:
    """Run the model on a few tokens: what a config states may fail here first (a rotary embedding, a quantisation).

    Raises:
        InputError: it cannot be run.
    """
    import torch

    tokens = torch.zeros(1, _TRIED, dtype=torch.long, device=next(base.model.parameters()).device)
    with torch.inference_mode(), running(base.path):
        base.model(input_ids=tokens)


def running(path: Path) -> AbstractContextManager[None]:
    """Context of a model's own forward pass: what it raises is told as a fault of the folder's config."""

    def hint() -> str:
        stated = (path / CONFIG).is_file() and "quantization_config" in read_config(path)
        return "; its config states a quantization_config: is it that of its weights?" if stated else ""

    return read_by_library(f"{path}: the model that its config states cannot be run", hint)


def _require_complete(loaded: "Loaded", path: Path) -> None:
    if missing := loaded.new_layers:
        raise InputError(
            f"{path} lacks {len(missing)} weights of the model that its {CONFIG} describes, first {missing[0]}: the "
            "config is another model's, or weights were left out"
        )
    built = {_NUMBER.sub("#", name) for name, _ in loaded.model.named_parameters()}
    if more := [name for name in loaded.unread if _NUMBER.search(name) and _NUMBER.sub("#", name) in built]:
        raise InputError(
            f"{path} holds {len(more)} weights of layers that its {CONFIG} does not have, first {more[0]}: the config "
            "is another model's"
        )


@contextmanager
def _naming_fields(path: Path) -> Iterator[None]:
    """Context in which a name that Transformers looks up in vain is told with the config's field that has it."""
    try:
        yield
    except KeyError as error:
        fields = sorted(_fields_of(read_config(path), error.args[0])) if error.args else []
        if not fields:
            raise
        raise InputError(
            f"{path / CONFIG}: {' and '.join(fields)} is {named(error.args[0])!r}, which Transformers has not"
        ) from error


def _fields_of(config: Mapping[str, Any], value: object) -> Iterator[str]:
    for name, stated in config.items():
        if isinstance(stated, dict):
            yield from (f"{name}.{inner}" for inner in _fields_of(stated, value))
        elif isinstance(stated, str) and stated == value:
            yield name


def load_tokenizer(path: Path) -> "PreTrainedTokenizerBase":
    """Load the tokenizer of a folder, without network access and without running code of the folder.

    Raises:
        InputError: it cannot be loaded or makes no tokens of a text; it names the damaged file, where one is.
    """
    config = read_config(path) if (path / CONFIG).is_file() else {}
    files = ", ".join(name for name in _OF_TOKENIZERS if (path / name).is_file())
    with _naming_files(path), read_by_library(f"the tokenizer of {path} ({files}) cannot be loaded"):
        tokenizer = _tokenizer_class(path, config).from_pretrained(path, local_files_only=True, trust_remote_code=False)
        _require_declared(tokenizer, path / "tokenizer.json")
        ids = tokenizer(_PROBE).input_ids  # one that reads no text fails where it is used, deep in a command
    if not ids or not all(isinstance(token, int) for token in ids):
        raise InputError(f"the tokenizer of {path} ({files}) makes {str(ids)[:40]} of {_PROBE!r}")
    return tokenizer


def _tokenizer_class(path: Path, config: Mapping[str, Any]) -> Any:
    """Transformers' class that loads a folder's tokenizer.

    `AutoTokenizer` chooses it by the config, for which it imports torch and hundreds of modules, for seconds; where
    the choice can only be the plain class, as for the bases that ship, that one is imported alone.
    """
    stated = path / "tokenizer_config.json"
    own = read_json_object(stated) if stated.is_file() else {}
    if config.get("model_type") == "llama" and own.get("tokenizer_class") == _PLAIN and "auto_map" not in own:
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast
    from transformers import AutoTokenizer

    return AutoTokenizer


@contextmanager
def _naming_files(path: Path) -> Iterator[None]:
    """Context in which a tokenizer that cannot be loaded is told by its damaged file, where one is."""
    try:
        yield
    except InputError:
        for name in _OF_TOKENIZERS:
            file = path / name
            if not file.is_file() or file.stat().st_size > LARGEST_DOCUMENT:
                continue
            if name.endswith(".json"):
                read_json_object(file)
            elif (text := file.read_bytes()).decode(errors="replace").encode() != text:
                raise InputError(f"{file} is no text in UTF-8") from None
        raise


def _require_declared(tokenizer: Any, file: Path) -> None:
    """Check the tokens that a template puts around a text: of one without an id, the library panics when it is used."""
    processor = getattr(getattr(tokenizer, "backend_tokenizer", None), "post_processor", None)
    stated = json.loads(processor.__getstate__()) if processor is not None else {}
    for one in (stated, *stated.get("processors", ())):
        parts = [*one.get("single", ()), *one.get("pair", ())] if one.get("type") == "TemplateProcessing" else []
        used = {part["SpecialToken"]["id"] for part in parts if "SpecialToken" in part}
        if undeclared := sorted(used - one.get("special_tokens", {}).keys()):
            raise InputError(f"{file}: post_processor puts {named(undeclared[0])!r} around a text, without its id")


def model_problems(folder: Path) -> list[str]:
    """Problems of a causal language model's folder, in words: it does not load, weights are missing or not finite."""
    try:
        loaded = load_base(folder, incomplete=True)
    except InputError as error:
        return [str(error)]
    problems = []
    for what, names in (("missing, so they are random numbers", loaded.new_layers), ("not read", loaded.unread)):
        if names:
            problems.append(f"{len(names)} weights are {what}: first {names[0]}")
    bad = sorted(name for name, weight in loaded.model.named_parameters() if not bool(weight.isfinite().all()))
    if bad:
        problems.append(f"{len(bad)} weights hold NaN or infinity: first {bad[0]}")
    return problems
