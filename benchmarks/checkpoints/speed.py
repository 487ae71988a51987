"""Saving and loading beside safetensors + fsync + SHA-256 on the same bytes, interleaved in one process."""

import gc
import hashlib
import os
import shutil
import statistics
import threading
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from benchmarks.timing import timed
from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets_tests.checkpoints.drills.states import disk_bytes, large_state, same, throwaway_vault

Seconds = dict[str, float]
Timings = dict[str, list[Seconds]]
_READ = 8 << 20

OURS = {"none": ("none", False), "zstd": ("zstd", False), "encrypted": ("none", True), "encrypted_zstd": ("zstd", True)}
SAVERS = ("reread", "memory", "threads")
READERS = ("whole", "pieces")


def measure_speed(folder: Path, size: int, repeats: int) -> dict[str, Any]:
    """`save_ratio`, `load_ratio`, `encrypted_ratio`: the peer's seconds over ours, above 1 is faster than the peer.

    The peer writes with `safetensors.torch.save_file`, syncs the file and takes SHA-256 of its bytes with hashlib, at
    its best of two: reading the file again, or from the memory that was written. It reads into fresh private memory
    and takes SHA-256, at its best of two: all of it first, or in pieces of 8 MiB while they are in the cache; it makes
    no tensors of what it read. `threads` is the same peer with hashing beside writing: no promise, for comparison.

    `cold` has every file dropped from the page cache before (posix_fadvise), `warm` is read again at once.
    """
    state = large_state(size)
    saves: Timings = {side: [] for side in (*SAVERS, *OURS)}
    loads: dict[str, Timings] = {cache: {side: [] for side in (*READERS, *OURS)} for cache in ("cold", "warm")}
    sizes: dict[str, int] = {}
    for turn in range(-1, repeats):  # the first turn is not counted
        order = sorted(saves, reverse=turn % 2 == 1)
        ids: dict[str, str] = {}
        for side in order:
            settle(size + size // 2)
            seconds = timed(_saver(side, folder / side, state, ids))
            if turn >= 0:
                saves[side].append(seconds)
            sizes[side] = disk_bytes(folder / side)
        for cache, kept in loads.items():
            for side in sorted(kept, reverse=turn % 2 == 1):
                where = folder / (side if side in OURS else "reread")
                settle(size + size // 2)
                if cache == "cold":
                    drop(where)
                loaded: list[Any] = []
                seconds = timed(_reader(side, where, ids, loaded))
                if turn >= 0:
                    kept[side].append(seconds)
                elif side in OURS and not same(loaded[0], state):
                    raise RuntimeError(f"{side}: what was loaded is not what was saved")
                loaded.clear()
        for side in saves:
            shutil.rmtree(folder / side)
    return _figures(size, repeats, saves, loads, sizes)


def _figures(
    size: int, repeats: int, saves: Timings, loads: Mapping[str, Timings], sizes: Mapping[str, int]
) -> dict[str, Any]:
    peer = best(saves, ("reread", "memory"))
    readers = {cache: best(kept, READERS) for cache, kept in loads.items()}
    result: dict[str, Any] = {}
    for name, ours in (("", "none"), ("default_", "zstd")):
        result |= spread(f"{name}save_ratio", saves[peer], saves[ours])
        for cache, kept in loads.items():
            key = "load_ratio" if cache == "cold" else "warm_load_ratio"
            result |= spread(name + key, kept[readers[cache]], kept[ours])
    for name, ours in (("encrypted", "encrypted"), ("default_encrypted", "encrypted_zstd")):
        result |= spread(f"{name}_save_ratio", saves[peer], saves[ours])
        result |= spread(f"{name}_load_ratio", loads["cold"][readers["cold"]], loads["cold"][ours])
        result |= spread(f"{name}_warm_load_ratio", loads["warm"][readers["warm"]], loads["warm"][ours])
        theirs = _sum(saves[peer], loads["cold"][readers["cold"]])
        result |= spread(f"{name}_ratio", theirs, _sum(saves[ours], loads["cold"][ours]))
    result |= spread("threaded_peer_save_ratio", saves["threads"], saves["none"])
    return result | {
        "save_s": {side: medians(found) for side, found in saves.items()},
        "load_s": {cache: {side: medians(found) for side, found in kept.items()} for cache, kept in loads.items()},
        "peer_save": peer,
        "peer_load": readers,
        "mib": size >> 20,
        "disk_mib": {side: round(found / 2**20, 1) for side, found in sizes.items()},
        "repeats": repeats,
        "settings": "ours: save_ratio and load_ratio with compression none, default_* with zstd, the store's default; "
        "load_ratio from a dropped page cache, warm_* from a warm one",
        "cores": os.cpu_count(),
        "versions": {name: version(name) for name in ("safetensors", "torch", "zstandard", "cryptography")},
    }


def _saver(side: str, folder: Path, state: dict[str, torch.Tensor], ids: dict[str, str]) -> Callable[[], object]:
    if side in OURS:
        compression, encrypted = OURS[side]
        vault = throwaway_vault() if encrypted else None
        store = CheckpointStore(folder, vault=vault, compression=compression)  # type: ignore[arg-type]

        def ours() -> None:
            ids[side] = store.save(state, 1, "bench")

        return ours
    folder.mkdir(parents=True)
    return lambda: peer_save(side, folder / "model.safetensors", state)


def peer_save(side: str, path: Path, state: dict[str, torch.Tensor]) -> str:
    """Written by safetensors, synced, and hashed from `memory`, by reading it again, or on another thread meanwhile."""
    if side == "threads":
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.append(_hash_memory(state)))
        thread.start()
        write_synced(path, state)
        thread.join()
        return found[0]
    write_synced(path, state)
    if side == "memory":
        return _hash_memory(state)
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_synced(path: Path, state: dict[str, torch.Tensor]) -> None:
    """One safetensors file, on disk when this returns."""
    save_file(state, path)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hash_memory(state: dict[str, torch.Tensor]) -> str:
    """The bytes safetensors writes but the header's few: elements of the tensors, by name."""
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(state[name].view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _reader(side: str, folder: Path, ids: Mapping[str, str], loaded: list[Any]) -> Callable[[], None]:
    if side in OURS:
        compression, encrypted = OURS[side]
        vault = throwaway_vault() if encrypted else None
        store = CheckpointStore(folder, vault=vault, compression=compression)  # type: ignore[arg-type]
        return lambda: loaded.append(store.load(ids[side]))
    return lambda: loaded.append(peer_load(side, folder / "model.safetensors"))


def peer_load(side: str, path: Path) -> tuple[np.ndarray[Any, Any], str]:
    """Read into memory of its own and hashed: the `whole` first, or `pieces` of 8 MiB."""
    buffer = np.empty(path.stat().st_size, np.uint8)
    view, digest, at = buffer.data, hashlib.sha256(), 0
    step = len(view) if side == "whole" else _READ
    with path.open("rb", buffering=0) as file:
        while at < len(view):
            got = file.readinto(view[at : at + step])
            if side == "pieces":
                digest.update(view[at : at + got])
            at += got
    if side == "whole":
        digest.update(view)
    return buffer, digest.hexdigest()


def settle(size: int) -> None:
    """Garbage is gone, and so much memory has just been in use, which a virtual machine then need not ask its host for.

    Without it whoever runs first after files were removed pays for all: up to two seconds of the kernel's for 512 MiB.
    What was written before is on disk: both sides end with fsync.
    """
    gc.collect()
    np.ones(size, np.uint8)


def drop(folder: Path) -> None:
    """Take the (synced) files below a folder out of the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def best(timings: Timings, sides: tuple[str, ...]) -> str:
    return min(sides, key=lambda side: statistics.median(run["wall_s"] for run in timings[side]))


def _sum(left: list[Seconds], right: list[Seconds]) -> list[Seconds]:
    return [{key: a[key] + b[key] for key in a} for a, b in zip(left, right, strict=True)]


def medians(runs: list[Seconds]) -> Seconds:
    return {key: round(statistics.median(run[key] for run in runs), 3) for key in ("wall_s", "cpu_s")}


def spread(key: str, theirs: list[Seconds], ours: list[Seconds]) -> dict[str, Any]:
    """Their seconds over ours, pair by pair: `key` the median, `key`_range least and largest, `key`_cpu processor's."""
    found = {each: [a[each] / b[each] for a, b in zip(theirs, ours, strict=True)] for each in ("wall_s", "cpu_s")}
    wall = found["wall_s"]
    return {
        key: round(statistics.median(wall), 3),
        f"{key}_range": [round(min(wall), 3), round(max(wall), 3)],
        f"{key}_cpu": round(statistics.median(found["cpu_s"]), 3),
    }
