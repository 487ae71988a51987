"""Export what is served to a folder for servers: adapters for multi-LoRA, merged model, router, digests.

    README.md          the model card
    promoted.json      digests of every file, what was promoted, how to start a server
    adapters/<domain>/ PEFT adapters of one rank and scale each (vLLM: --lora-modules <domain>=adapters/<domain>)
    router/            router.json, router.safetensors
    merged/            the merged model, where it is served (Transformers, vLLM)
    quantised/<kind>/  the merged model quantised, where asked for

The folder is created atomically.
"""

import os
import shlex
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pydantic
import torch
from pydantic import Field

from capibara_assets.errors import InputError, IntegrityError, in_words
from capibara_assets.modeling.adapters import LoraAdapter, read_adapter, write_adapter
from capibara_assets.storage.commit import replace_folder
from capibara_assets.storage.digests import sha256_file, tree_files
from capibara_assets.storage.foreign import read_document, require_plain
from capibara_assets.storage.jsonfiles import user_json, write_bytes_atomic, write_json_atomic

PROMOTED = "promoted.json"
SCHEMA_VERSION = 1
VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM accepts as --max-lora-rank."""
_OF_PEOPLE = (".md", ".txt")  # files that people write in
_ANEW = "export it again with `capibara promote --export`"


class _Part(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="allow")


class _File(_Part):
    sha256: str


class _Adapter(_Part):
    path: str
    rank: int = Field(ge=1, le=VLLM_RANKS[-1])


class _Base(_Part):
    name: str


class _Written(_Part):
    """What `promoted.json` is checked for."""

    schema_version: Literal[1]
    base_model: _Base
    adapters: dict[str, _Adapter]
    merged: dict[str, str] | None
    quantised: dict[str, dict[str, Any]]
    vllm: dict[str, str]
    files: dict[str, _File]


@dataclass(frozen=True)
class ExportParts:
    """Content of an export.

    Attributes:
        promotion: the pointer document.
        number: number of its move in the promotion log; 0: none.
        adapters: domain -> (digest of its consensus checkpoint, folder in PEFT's format).
        merged, router: digest and folder; None: none is served.
    """

    promotion: Mapping[str, Any]
    number: int
    base_name: str
    base_digest: str
    adapters: Mapping[str, tuple[str, Path]] = field(default_factory=dict)
    merged: tuple[str, Path] | None = None
    router: tuple[str, Path] | None = None


@dataclass(frozen=True)
class ServedAdapter:
    """An adapter in the form that multi-LoRA servers accept.

    Attributes:
        adapter: the rewritten adapter; None: its files can be served unchanged.
    """

    rank: int
    targets: tuple[str, ...]
    adapter: LoraAdapter | None


def write_export(
    parts: ExportParts,
    target: Path,
    card: str,
    quantise: Mapping[str, Callable[[Path, Path], Mapping[str, Any]]] | None = None,
) -> dict[str, Any]:
    """Write an export to `target`, a folder that does not exist or holds an earlier export.

    Large unchanged files are hard-linked where the file system can, not copied: do not write into them.

    Args:
        card: text of README.md.
        quantise: kind -> function that quantises the merged model (first folder) into the second, and returns a
            description.

    Returns:
        The document promoted.json.

    Raises:
        InputError: the folder holds something else, an adapter that no multi-LoRA server takes, or a quantised model
            is asked for where no merged one serves.
    """
    if target.exists() and any(target.iterdir()):
        _require_former(target)
    if quantise and parts.merged is None:
        raise InputError(
            "quantised exports are made of the merged model, and none serves: it does as soon as every domain is "
            "promoted, or by hand: capibara promote --domain merged --reason TEXT"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        beside.mkdir()
        document = _write(parts, beside, card, quantise or {})
        replace_folder(beside, target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return document


def check_export(folder: Path) -> dict[str, Any]:
    """Check every file of an export against its digest, and return the export's document.

    Raises:
        InputError: the folder is not an export.
        IntegrityError: a file is missing, has other bytes, or does not belong to it; names the file.
    """
    require_plain(folder)
    document, written = _read_document(folder)
    here = tree_files(folder)
    if odd := sorted(written.files.keys() ^ (here.keys() - {PROMOTED})):
        raise IntegrityError(f"{folder / odd[0]} is missing or does not belong there: {_ANEW}")
    for name, stated in sorted(written.files.items()):
        if sha256_file(here[name]) != stated.sha256:
            raise IntegrityError(f"{folder / name} is not the file that was exported: {_ANEW}")
    ranks = {domain: entry.rank for domain, entry in written.adapters.items()}
    commands = vllm_commands(ranks, written.base_model.name, written.merged is not None, sorted(written.quantised))
    moved = [domain for domain, entry in written.adapters.items() if entry.path != f"adapters/{domain}"]
    if moved or commands != written.vllm:
        what = f"the path of adapter {moved[0]}" if moved else "a command that starts a server"
        raise IntegrityError(f"{folder / PROMOTED}: {what} is not what was exported: {_ANEW}")
    return document


def _require_former(target: Path) -> None:
    """Refuse to replace a folder that holds anything which no export wrote, or a text that somebody changed.

    Raises InputError. What is damaged of the rest, such as a model that a copy cut off, a new export mends.
    """
    other = f"{target} holds something else than a former export: name a new folder"
    if not (target / PROMOTED).is_file():
        raise InputError(other)
    try:
        _, written = _read_document(target)
    except InputError as error:
        raise InputError(f"{other} ({error})") from error
    if odd := sorted(tree_files(target).keys() - written.files.keys() - {PROMOTED}):
        raise InputError(
            f"{target / odd[0]} was not exported, and a new export would remove it: move it, or name a new folder"
        )
    here = tree_files(target)
    changed = (name for name, stated in sorted(written.files.items()) if name.endswith(_OF_PEOPLE) and name in here)
    if mine := next((name for name in changed if sha256_file(here[name]) != written.files[name].sha256), None):
        raise InputError(f"{target / mine} was changed since it was exported: move it, or name a new folder")


def _read_document(folder: Path) -> tuple[dict[str, Any], _Written]:
    """What an export says of itself. Raises InputError: it has no such file, or another one's."""
    try:
        what = f"{folder} is not what `capibara promote --export` writes: {PROMOTED}"
        document: dict[str, Any] = user_json(read_document(folder / PROMOTED), what)
        return document, _Written.model_validate(document)
    except FileNotFoundError as error:
        raise InputError(
            f"{folder} has no {PROMOTED}: give the folder that `capibara promote --export` wrote"
        ) from error
    except pydantic.ValidationError as error:
        raise InputError(f"{folder} is not what `capibara promote --export` writes: {in_words(error)}") from error
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{folder} is not what `capibara promote --export` writes: {error}") from error


def servable_adapter(folder: Path) -> ServedAdapter:
    """Convert an adapter for multi-LoRA servers, which support one rank and one scale per adapter.

    Where ranks or scales differ between modules, smaller ranks are padded with zeros and the scale is multiplied into
    B: the same change of the weights, in the same precision.

    Raises:
        InputError: a DoRA or anything but LoRA pairs, or a rank above what servers support.
    """
    adapter = read_adapter(folder)
    ranks = {module: len(adapter.a(module)) for module in adapter.modules}
    scales = {module: adapter.scale(module) for module in adapter.modules}
    rank = max(ranks.values())
    if rank > VLLM_RANKS[-1]:
        raise InputError(
            f"{folder}: rank {rank} is above {VLLM_RANKS[-1]}, the most that vLLM serves: agree on a smaller one "
            "(consensus recipe), or serve the merged model"
        )
    targets = tuple(sorted({module.rpartition(".")[2] for module in adapter.modules}))
    plain = len(set(ranks.values())) == 1 and len(set(scales.values())) == 1 and rank == adapter.config["r"]
    if plain and not adapter.config.get("rank_pattern") and not adapter.config.get("alpha_pattern"):
        return ServedAdapter(rank, targets, None)
    tensors = {}
    for module in adapter.modules:
        a, b = adapter.a(module), scales[module] * adapter.b(module).float()
        missing = rank - ranks[module]
        tensors[f"base_model.model.{module}.lora_A.weight"] = torch.nn.functional.pad(a, (0, 0, 0, missing))
        tensors[f"base_model.model.{module}.lora_B.weight"] = torch.nn.functional.pad(b.to(a.dtype), (0, missing))
    config = {
        **adapter.config,
        "r": rank,
        "lora_alpha": rank,
        "use_rslora": False,
        "rank_pattern": {},
        "alpha_pattern": {},
    }
    return ServedAdapter(rank, targets, LoraAdapter(config, tensors))


def max_lora_rank(ranks: Sequence[int]) -> int:
    """The smallest value of vLLM's --max-lora-rank that fits all ranks."""
    return next(allowed for allowed in VLLM_RANKS if allowed >= max(ranks, default=1))


def vllm_commands(adapters: Mapping[str, int], base: str, merged: bool, quantised: Sequence[str]) -> dict[str, str]:
    """Commands that serve the export from its folder: name -> command.

    Args:
        adapters: domain -> rank.
    """
    commands = {}
    if adapters:
        modules = " ".join(f"{domain}=adapters/{domain}" for domain in sorted(adapters))
        rank = max_lora_rank(list(adapters.values()))
        commands["experts"] = (
            f"vllm serve ${{BASE_MODEL:-{shlex.quote(base)}}} --enable-lora --max-loras {len(adapters)} "
            f"--max-lora-rank {rank} --lora-modules {modules}"
        )
    if merged:
        commands["merged"] = "vllm serve merged --served-model-name merged"
    for kind in quantised:
        commands[kind] = f"vllm serve quantised/{kind} --served-model-name merged-{kind}"
    return commands


def _write(
    parts: ExportParts, folder: Path, card: str, quantise: Mapping[str, Callable[[Path, Path], Mapping[str, Any]]]
) -> dict[str, Any]:
    adapters: dict[str, Any] = {}
    for domain, (digest, source) in sorted(parts.adapters.items()):
        fit = servable_adapter(source)
        where = folder / "adapters" / domain
        _place(source, where, leave=("adapter_model.safetensors", "adapter_config.json") if fit.adapter else ())
        if fit.adapter:
            write_adapter(fit.adapter, where)
        adapters[domain] = {
            "path": f"adapters/{domain}",
            "digest": digest,
            "rank": fit.rank,
            "target_modules": list(fit.targets),
            "rewritten": fit.adapter is not None,
        }
    if parts.router is not None:
        _place(parts.router[1], folder / "router", link=False)
    if parts.merged is not None:
        _place(parts.merged[1], folder / "merged")
    made = {kind: dict(write(folder / "merged", folder / "quantised" / kind)) for kind, write in quantise.items()}
    ranks = {domain: entry["rank"] for domain, entry in adapters.items()}
    write_bytes_atomic(folder / "README.md", card.encode())
    document = {
        "schema_version": SCHEMA_VERSION,
        "number": parts.number,
        "base_model": {"name": parts.base_name, "digest": parts.base_digest},
        "serving": parts.promotion["serving"],
        "adapters": adapters,
        "router": None if parts.router is None else {"path": "router", "digest": parts.router[0]},
        "merged": None if parts.merged is None else {"path": "merged", "digest": parts.merged[0]},
        "quantised": {kind: {"path": f"quantised/{kind}", **said} for kind, said in sorted(made.items())},
        "max_lora_rank": max_lora_rank(list(ranks.values())) if ranks else None,
        "vllm": vllm_commands(ranks, parts.base_name, parts.merged is not None, sorted(made)),
        "files": {
            name: {"sha256": sha256_file(path), "bytes": path.stat().st_size}
            for name, path in sorted(tree_files(folder).items())
        },
    }
    write_json_atomic(folder / PROMOTED, document)
    return document


def _place(source: Path, target: Path, leave: Sequence[str] = (), link: bool = True) -> None:
    """Hard-link every file of a folder into another, or copy it where that is impossible."""
    for name, path in tree_files(source).items():
        if name in leave:
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            if not link:
                raise OSError
            os.link(path, target / name)
        except OSError:  # another file system, or one without links
            shutil.copyfile(path, target / name)
