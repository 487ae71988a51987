"""Check weight files before loading: truncated, not finite, head untied, vocabulary resized, quantised."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from capibara_assets.errors import InputError
from capibara_assets.evaluation.diagnosis.catalogue import Diagnosis
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.files import (
    ADAPTER_WEIGHTS,
    check_safetensors,
    read_config,
    read_safetensors_header,
    weight_files,
)

_EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "embed_in.weight", "shared.weight", "word_embeddings.weight")
_HEADS = ("lm_head.weight", "embed_out.weight")
_PIECE = 1 << 24  # elements checked at once


def files_of(folder: Path, *, adapter: bool) -> list[Path]:
    """Weight files of a model or adapter. Raises InputError: there are none, or one named by the index is missing."""
    if not adapter:
        return list(weight_files(folder))
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise InputError(f"{folder / ADAPTER_WEIGHTS} is missing: {folder} is not a LoRA adapter in PEFT's format")
    return [folder / ADAPTER_WEIGHTS]


def check_whole(folder: Path, *, adapter: bool) -> list[Diagnosis]:
    """Check that headers can be read, and that files are as long as they say."""
    try:
        files = files_of(folder, adapter=adapter)
    except InputError as error:
        return [Diagnosis("weights_torn", str(error), {"file": str(folder)})]
    diagnoses = []
    for file in files:
        try:
            check_safetensors(file)
        except InputError as error:
            diagnoses.append(Diagnosis("weights_torn", str(error), {"file": file.name, "bytes": file.stat().st_size}))
    return diagnoses


def check_finite(folder: Path, *, adapter: bool) -> list[Diagnosis]:
    """Check every tensor for NaN and infinity."""
    bad: dict[str, dict[str, int]] = {}
    for name, tensor in _tensors(folder, adapter=adapter):
        if not tensor.is_floating_point():
            continue
        flat = tensor.reshape(-1)
        nan = infinite = 0
        for start in range(0, flat.numel(), _PIECE):
            piece = flat[start : start + _PIECE].float()
            if not math.isfinite(float(piece.sum())):
                nan += int(torch.isnan(piece).sum())
                infinite += int(torch.isinf(piece).sum())
        if nan or infinite:
            bad[name] = {"nan": nan, "infinite": infinite, "of": flat.numel()}
    if not bad:
        return []
    first = ", ".join(f"{name} ({one['nan']} NaN, {one['infinite']} infinite)" for name, one in list(bad.items())[:4])
    more = f" and {len(bad) - 4} more" if len(bad) > 4 else ""
    return [Diagnosis("weights_not_finite", f"{len(bad)} tensors are not finite: {first}{more}", {"tensors": bad})]


def check_vocabulary(folder: Path, tokenizer: Any) -> list[Diagnosis]:
    """Check that embedding and head have a row for every token of config and tokenizer."""
    rows = {name: shape[0] for name, (shape, _) in shapes_of(folder).items() if name.endswith(_EMBEDDINGS + _HEADS)}
    stated = read_config(folder).get("vocab_size")
    highest = max(tokenizer.get_vocab().values(), default=-1)
    wrong = {name: count for name, count in rows.items() if stated is not None and count != stated}
    outside = [token for token, number in tokenizer.get_vocab().items() if rows and number >= min(rows.values())]
    if not wrong and not outside:
        return []
    parts = ", ".join(f"{name} has {count} rows" for name, count in rows.items())
    finding = f"{parts}; config.json says {stated}, the tokenizer's highest id is {highest}"
    if outside:
        finding += f" ({len(outside)} tokens have no row: {', '.join(map(repr, sorted(outside)[:3]))})"
    evidence = {"rows": rows, "vocab_size": stated, "highest_id": highest, "tokens_without_row": len(outside)}
    return [Diagnosis("vocabulary_resized", finding, evidence)]


def check_ties(folder: Path) -> list[Diagnosis]:
    """Check that embedding and head are equal where the config ties them."""
    if not read_config(folder).get("tie_word_embeddings", False):
        return []
    held = {name: tensor for name, tensor in _tensors(folder, adapter=False, only=_EMBEDDINGS + _HEADS) if tensor.ndim}
    embedding = next((name for name in held if name.endswith(_EMBEDDINGS)), None)
    head = next((name for name in held if name.endswith(_HEADS)), None)
    if embedding is None or head is None or held[embedding].shape != held[head].shape:
        return []
    apart = float((held[embedding].float() - held[head].float()).abs().max())
    if apart == 0:
        return []
    finding = f"config.json ties {head} to {embedding}, but they differ by up to {apart:.3g}"
    return [Diagnosis("tied_weights_differ", finding, {"embedding": embedding, "head": head, "largest": apart})]


def check_token_rows(folder: Path, tokens: dict[str, int]) -> list[Diagnosis]:
    """Check for control tokens with untrained rows: all zero, or equal to another one's.

    Args:
        tokens: control tokens of the chat template, and their ids.
    """
    held = [tensor for _, tensor in _tensors(folder, adapter=False, only=_EMBEDDINGS) if tensor.ndim == 2]
    if not held or not tokens or not held[0].is_floating_point():
        return []
    rows = {token: held[0][number].float() for token, number in tokens.items() if number < len(held[0])}
    names = sorted(rows)
    bad = {name for name in names if not bool(rows[name].any())}
    bad |= {name for name in names for other in names if name != other and torch.equal(rows[name], rows[other])}
    if not bad:
        return []
    listed = ", ".join(sorted(bad))
    finding = f"embedding rows of {listed} are zero or equal to one another: they were added and never trained"
    return [Diagnosis("token_rows_untrained", finding, {"tokens": sorted(bad), "ids": sorted(tokens[t] for t in bad)})]


def check_quantised(whole: Path, adapter: LoraAdapter | None, *, merged: bool) -> list[Diagnosis]:
    """Check for a quantised model that an adapter was, or would be, merged into.

    Args:
        whole: folder of the model, or of the adapter's base.
        adapter: the adapter that would be merged; None: none.
        merged: whether the model's own card says that it is a merge.
    """
    settings = read_config(whole).get("quantization_config")
    if not settings or (adapter is None and not merged):
        return []
    kind = settings.get("quant_method", "unknown")
    bits = 4 if settings.get("load_in_4bit") else settings.get("bits") or (8 if settings.get("load_in_8bit") else None)
    evidence: dict[str, Any] = {"quant_method": kind, "bits": bits}
    if adapter is None:
        finding = f"{whole} is a merged model kept in few bits ({kind}, {bits or 'unknown'} bits)"
        return [Diagnosis("quantised_merge", finding, evidence)]
    change = {module: float(delta.abs().mean()) for module, delta in adapter.deltas().items()}
    evidence["mean_change"] = sum(change.values()) / len(change)
    finding = (
        f"the base is kept in {bits or 'few'} bits ({kind}); the adapter's change is {evidence['mean_change']:.2g} per "
        "weight in the mean, and a merge rounds it to the base's few levels"
    )
    return [Diagnosis("quantised_merge", finding, evidence)]


def is_merge(folder: Path) -> bool:
    """Whether the model's card calls it a merge, or mergekit's settings lie beside it."""
    card = folder / "README.md"
    head = card.read_text("utf-8").split("\n---", 1)[0] if card.is_file() else ""
    return "\n- merge\n" in f"{head}\n" or (folder / "mergekit_config.yml").is_file()


def shapes_of(folder: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Tensor → (shape, dtype) of all weight files of a model."""
    shapes = {}
    for file in weight_files(folder):
        for name, entry in json.loads(read_safetensors_header(file)).items():
            if name != "__metadata__":
                shapes[name] = (tuple(entry["shape"]), str(entry["dtype"]))
    return shapes


def _tensors(folder: Path, *, adapter: bool, only: tuple[str, ...] | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    for file in files_of(folder, adapter=adapter):
        try:
            with safe_open(file, framework="pt") as opened:
                for name in sorted(opened.keys()):
                    if only is None or name.endswith(only):
                        yield name, opened.get_tensor(name)
        except SafetensorError as error:
            raise InputError(f"{file} cannot be read: {error}") from error
