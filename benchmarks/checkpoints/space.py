"""Disk: voters' epochs on one base beside full copies, and bfloat16 weights compressed without loss."""

import hashlib
import shutil
import statistics
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import zstandard
from safetensors.torch import load_file

from benchmarks.checkpoints.speed import Timings, medians, settle, spread, write_synced
from benchmarks.timing import timed
from capibara_assets.checkpoints.content import of_torch
from capibara_assets.checkpoints.store.codec import encode
from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets.checkpoints.tree import flatten
from capibara_assets.deployment.locations import resources_root
from capibara_assets_tests.checkpoints.drills.states import disk_bytes, large_state, same, tensors_of, throwaway_vault

# TinyLlama-1.1B (arXiv 2401.02385): its widths, two of its 22 layers and as much of its vocabulary, so that base,
# adapter and moments are to each other as in the whole model.
_WIDTH, _INNER, _KEYS, _LAYERS, _WORDS = 2048, 5632, 256, 2, 2912
_LINEARS = {
    "q_proj": (_WIDTH, _WIDTH), "k_proj": (_KEYS, _WIDTH), "v_proj": (_KEYS, _WIDTH), "o_proj": (_WIDTH, _WIDTH),
    "gate_proj": (_INNER, _WIDTH), "up_proj": (_INNER, _WIDTH), "down_proj": (_WIDTH, _INNER),
}  # fmt: skip
_RANK, _STEPS = 16, 4

DISTINCT_SETTINGS = {"none": ("none", False), "zstd": ("zstd", False), "encrypted_zstd": ("zstd", True)}


def measure_dedup(folder: Path, voters: int, epochs: int) -> dict[str, Any]:
    """`dedup_ratio`: disk of full copies over ours; `distinct_ratio`: our disk over the bytes of distinct tensors.

    Every checkpoint is handed over whole, base, adapter and AdamW's moments in float32, as a training would save it.
    Disk is counted as `du` does, manifests and all. A full copy is one safetensors file of the same tensors, really
    written once for its size. Both ratios without compression; `zstd_*` with it, `encrypted_zstd_*` sealed as well.
    """
    stores = {
        name: CheckpointStore(folder / name, vault=throwaway_vault() if sealed else None, compression=compression)  # type: ignore[arg-type]
        for name, (compression, sealed) in DISTINCT_SETTINGS.items()
    }
    distinct: dict[str, int] = {}
    known: dict[int, str] = {}  # the base's tensors are the same objects each time
    copy = 0
    base = base_weights()
    last: tuple[Any, dict[str, str]] | None = None
    for voter in range(voters):
        for epoch, state in enumerate(epochs_of(voter, epochs, base)):
            ids = {name: store.save(state, epoch, f"voter-{voter}") for name, store in stores.items()}
            last = (state, ids)
            for tensor in tensors_of(state):
                frozen = any(tensor is each for each in base.values())
                if frozen and id(tensor) in known:
                    continue
                digest = _digest(tensor)
                distinct[digest] = tensor.nbytes
                if frozen:
                    known[id(tensor)] = digest
            copy = copy or _full_copy(folder, state)
    if last is None:
        raise ValueError("no voter and no epoch: nothing to measure")
    for name, store in stores.items():
        if not same(store.load(last[1][name]), last[0]):
            raise RuntimeError(f"{name}: what was loaded is not what was saved")
    ours = {name: disk_bytes(folder / name) for name in stores}
    checkpoints, tensors = voters * epochs, sum(distinct.values())
    result: dict[str, Any] = {}
    for name, used in ours.items():
        prefix = "" if name == "none" else f"{name}_"
        result[f"{prefix}dedup_ratio"] = round(copy * checkpoints / used, 2)
        result[f"{prefix}distinct_ratio"] = round(used / tensors, 4)
    return result | {
        "dedup_disk_mib": {name: round(used / 2**20, 1) for name, used in ours.items()},
        "full_copy_mib": round(copy / 2**20, 1),
        "distinct_tensors_mib": round(tensors / 2**20, 1),
        "base_mib": round(sum(tensor.nbytes for tensor in base.values()) / 2**20, 1),
        "dedup_checkpoints": checkpoints,
        "dedup_shape": f"TinyLlama-1.1B's widths, {_LAYERS} of 22 layers, vocabulary in proportion; bfloat16 base, "
        f"LoRA rank {_RANK} on all linear layers in float32, AdamW, {_STEPS} steps an epoch",
    }


def base_weights() -> dict[str, torch.Tensor]:
    """A frozen base in bfloat16, some 200 MB."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator) * 0.02).bfloat16()

    weights = {"embed_tokens": drawn(_WORDS, _WIDTH), "lm_head": drawn(_WORDS, _WIDTH)}
    for layer in range(_LAYERS):
        weights |= {f"layers.{layer}.{name}": drawn(*shape) for name, shape in _LINEARS.items()}
        weights |= {f"layers.{layer}.{name}": torch.ones(_WIDTH).bfloat16() for name in ("attention_norm", "mlp_norm")}
    return weights


def epochs_of(voter: int, epochs: int, base: dict[str, torch.Tensor]) -> Iterator[dict[str, Any]]:
    """The state after each epoch of one voter: real AdamW steps on noisy gradients; voters start from the same A."""
    initial, noise = torch.Generator().manual_seed(42), torch.Generator().manual_seed(1000 + voter)
    adapter: dict[str, torch.nn.Parameter] = {}
    for layer in range(_LAYERS):
        for name, (rows, columns) in _LINEARS.items():
            down = torch.empty(_RANK, columns).uniform_(-(columns**-0.5), columns**-0.5, generator=initial)
            adapter[f"layers.{layer}.{name}.lora_A"] = torch.nn.Parameter(down)
            adapter[f"layers.{layer}.{name}.lora_B"] = torch.nn.Parameter(torch.zeros(rows, _RANK))
    optimizer = torch.optim.AdamW(adapter.values(), lr=2e-4)
    trend = [torch.randn(weight.shape, generator=noise) * 1e-4 for weight in adapter.values()]
    for epoch in range(epochs):
        for _ in range(_STEPS):
            for weight, direction in zip(adapter.values(), trend, strict=True):
                weight.grad = direction + torch.randn(weight.shape, generator=noise) * 1e-3
            optimizer.step()
        weights = {name: weight.detach() for name, weight in adapter.items()}
        yield {"base": base, "adapter": weights, "optimizer": optimizer.state_dict(), "epoch": epoch}


def _digest(tensor: torch.Tensor) -> str:
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode() + data.tobytes()).hexdigest()


def _full_copy(folder: Path, state: dict[str, Any]) -> int:
    """Disk of one checkpoint with everything in it, as safetensors writes it."""
    where = folder / "copy"
    where.mkdir()
    tensors, _, _ = flatten(state)
    write_synced(where / "all.safetensors", {name: tensor.contiguous() for name, tensor in tensors.items()})
    used = disk_bytes(where)
    shutil.rmtree(where)
    return used


def measure_compression(folder: Path, size: int, repeats: int) -> dict[str, Any]:
    """`compression`: bytes of bfloat16 weights over our disk for them, the worse of trained and drawn ones.

    `restore_ratio`: seconds of loading a compressed checkpoint over those of SHA-256 of the stored bytes and zstd's
    decompression of the byte planes that compress, alone, one after the other, page cache warm on both sides and
    nothing put together; `restore_ratio_two_threads` gives that work two threads, as we take.
    """
    nano = load_file(resources_root() / "base_models" / "capibara-nano" / "model.safetensors")
    trained = {name: tensor.bfloat16() for name, tensor in nano.items()}
    drawn = large_state(size)
    result: dict[str, Any] = {}
    for name, weights in (("trained", trained), ("drawn", drawn)):
        store = CheckpointStore(folder / name, compression="zstd")
        if not same(store.load(store.save(weights, 1, name)), weights):
            raise RuntimeError(f"{name}: compression is not lossless")
        plain = sum(tensor.nbytes for tensor in weights.values())
        result[f"compression_{name}"] = round(plain / disk_bytes(folder / name), 3)
    store = CheckpointStore(folder / "drawn", compression="zstd")
    frames = folder / "planes"
    planes = write_planes(frames, drawn)
    runs: Timings = {"ours": [], "alone": [], "two": []}
    work: dict[str, Callable[[], object]] = {
        "ours": partial(store.load, "drawn@latest"),
        "alone": partial(read_planes, frames, planes, 1),
        "two": partial(read_planes, frames, planes, 2),
    }
    for turn in range(-1, repeats):  # the first turn is not counted
        for side in sorted(runs, reverse=turn % 2 == 1):
            settle(2 * size)
            seconds = timed(work[side])
            if turn >= 0:
                runs[side].append(seconds)
    return (
        {"compression": min(result["compression_trained"], result["compression_drawn"])}
        | result
        | spread("restore_ratio", runs["ours"], runs["alone"])
        | spread("restore_ratio_two_threads", runs["ours"], runs["two"])
        | {
            "restore_s": {side: medians(found) for side, found in runs.items()},
            "planes_compression": round(size / frames.stat().st_size, 3),
            "restore_mib": size >> 20,
            "restore_repeats": repeats,
            "trained_weights": "capibara-nano, in bfloat16",
            "trained_parameters": sum(tensor.numel() for tensor in trained.values()),
            "cpu_share_of_ours": round(statistics.median(run["cpu_s"] / run["wall_s"] for run in runs["ours"]), 2),
        }
    )


@dataclass(frozen=True)
class Planes:
    """One stored piece: where it begins, its bytes, and (offset in it, bytes) of each plane that is a zstd frame."""

    start: int
    stored: int
    elements: int
    frames: tuple[tuple[int, int], ...]


def write_planes(path: Path, weights: dict[str, torch.Tensor]) -> list[Planes]:
    """What our store would write of these weights, and nothing else: the pieces as `codec.encode` makes them.

    Raises:
        RuntimeError: they are not in byte planes, the one form this bench can read without our code.
    """
    found, start = [], 0
    with path.open("wb") as file:
        for name, tensor in weights.items():
            source = of_torch(tensor, name)
            for piece in source.pieces():
                encoding, stored = encode(piece, source.dtype, "zstd")
                if encoding != "planes2-zstd":
                    raise RuntimeError(f"{name}: stored as {encoding}, not as byte planes")
                file.write(stored)
                elements, lengths = len(piece) // 2, struct.unpack_from("<2I", stored)
                frames = tuple(
                    (8 + sum(lengths[:plane]), length) for plane, length in enumerate(lengths) if length < elements
                )
                found.append(Planes(start, len(stored), elements, frames))
                start += len(stored)
    return found


def read_planes(path: Path, planes: list[Planes], threads: int) -> np.ndarray[Any, Any]:
    """Read into private memory, take SHA-256 of what is stored, decompress the frames: the exponents of all pieces."""
    places = np.cumsum([0, *(each.elements * len(each.frames) for each in planes)]).tolist()
    out = np.empty(places[-1], np.uint8).data
    private = np.empty(planes[-1].start + planes[-1].stored, np.uint8).data

    def read(part: int) -> None:
        decompressor = zstandard.ZstdDecompressor()
        with path.open("rb", buffering=0) as file:
            for each, place in list(zip(planes, places, strict=False))[part::threads]:
                stored = private[each.start : each.start + each.stored]
                file.seek(each.start)
                if file.readinto(stored) != len(stored):
                    raise RuntimeError(f"{path} is cut off")
                hashlib.sha256(stored).digest()
                for offset, length in each.frames:
                    plane = decompressor.decompress(stored[offset : offset + length], max_output_size=each.elements)
                    out[place : place + each.elements] = plane
                    place += each.elements

    if threads == 1:
        read(0)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(read, range(threads)))
    return np.asarray(out)
