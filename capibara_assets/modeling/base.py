"""Loading of the frozen base model that adapters are trained on."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capibara_assets.errors import InputError, named
from capibara_assets.modeling.files import CONFIG, base_digest, read_config, validate_base
from capibara_assets.modeling.heads import Head, model_class
from capibara_assets.modeling.tokenizer import load_tokenizer
from capibara_assets.storage.foreign import read_by_library

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from capibara_assets.modeling.quantised import QuantisedLoading


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

    Raises:
        InputError: as `validate_base`, or the weights do not fit the config.
    """
    validate_base(path, (head,))
    import torch
    from transformers import AutoConfig
    from transformers.initialization import no_init_weights
    from transformers.utils import logging

    from capibara_assets.modeling.mapped import Loaded, mapped

    logging.disable_progress_bar()  # a bar per load would drown a run's log
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
    tokenizer = load_tokenizer(path)
    loaded.model.eval()
    loaded.model.requires_grad_(False)
    if quantised:
        quantised.keep_differentiable(loaded.model)
    return Base(loaded.model, tokenizer, digest, path, loaded.new_layers, loaded.unread)


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


def model_problems(folder: Path) -> list[str]:
    """Problems of a causal language model's folder, in words: it does not load, weights are missing or not finite."""
    try:
        loaded = load_base(folder)
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
