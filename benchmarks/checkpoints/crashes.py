"""Two thousand crashes of a checkpoint store, in batches on two processes, and bits flipped in all of its files."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from capibara_assets.checkpoints.store.codec import Compression
from capibara_assets.storage.jsonfiles import write_json_atomic

Setting = tuple[Compression, bool]
SETTINGS: tuple[Setting, ...] = (("zstd", False), ("none", False), ("zstd", True))
"""(compression, encrypted) of the stores, batch by batch."""

_BATCH = 100
_FILL = 4  # of the crashes that are not kills, one in so many is a full disk
_WORKERS = 2


def measure_crashes(folder: Path, crashes: int, seed: int, keep: Path | None, flips: int) -> dict[str, Any]:
    """Half the crashes are kills of real processes, a quarter of the others full disks, the rest losses of power.

    `corrupt_reads` and `lost_checkpoints` list what went wrong. Finished batches stay in `keep`.
    """
    kills, rest = crashes - crashes // 2, crashes // 2
    batches = [
        (kind, number, count)
        for kind, total in (("kill", kills), ("full", rest // _FILL), ("power", rest - rest // _FILL))
        for number, count in enumerate(_counts(total))
    ]
    batches += [("flip", number, flips) for number in range(len(SETTINGS))]

    def work(batch: tuple[str, int, int]) -> dict[str, Any]:
        kind, number, count = batch
        kept = keep / f"crashes-{seed}-{kind}-{number}-{count}.json" if keep else None
        if kept is not None and kept.is_file():
            return dict(json.loads(kept.read_text()))
        found = _in_process(folder, kind, count, seed * 1000 + number, number % len(SETTINGS))
        if kept is not None:
            write_json_atomic(kept, found)
        return found

    with ThreadPoolExecutor(_WORKERS) as pool:
        done = list(zip(batches, pool.map(work, batches), strict=True))
    found = {kind: [result for (of, _, _), result in done if of == kind] for kind in ("kill", "full", "power", "flip")}
    return _summary(found) | {"crash_seed": seed, "crash_settings": [list(each) for each in SETTINGS]}


def _summary(found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    crashed = [result for kind in ("kill", "full", "power") for result in found[kind]]
    corrupt = [problem for result in crashed for problem in result["corrupt"]]
    lost = [problem for result in crashed for problem in result["lost"]]
    flips = sum(result["flips"] for result in found["flip"])
    missed = [problem for result in found["flip"] for problem in result["missed"]]
    kills, full, power = (_total(found[kind], key) for kind, key in (("kill", "kills"), ("full", "filled"),
                                                                     ("power", "replayed")))  # fmt: skip
    return {
        "crashes": kills + full + power,
        "corrupt_reads": len(corrupt),
        "lost_checkpoints": len(lost),
        "flips": flips,
        "flips_detected": flips - len(missed),
        "kills": kills,
        "kills_while": _sums(found["kill"], "at_work"),
        "reads_beside_writers": _total(found["kill"], "reads"),
        "saved_by_killed": _total(found["kill"], "saved"),
        "full_disks": full,
        "full_disk_first_call": _sums(found["full"], "failed_calls"),
        "power_losses": power,
        "power_losses_by_kind": _sums(found["power"], "by_kind"),
        "power_losses_that_lost_something": _total(found["power"], "damaging"),
        "exhaustive_flips": sum(result["exhaustive"] for result in found["flip"]),
        "problems": (corrupt + lost + missed)[:20],
    }


def run_batch(folder: str, kind: str, count: str, seed: str, setting: str) -> None:
    """The child's part; prints JSON."""
    import torch

    from capibara_assets.checkpoints.store.store import CheckpointStore
    from capibara_assets_tests.checkpoints.drills.flips import flip_bits
    from capibara_assets_tests.checkpoints.drills.kills import kill_writers
    from capibara_assets_tests.checkpoints.drills.replay import fill_disk, replay
    from capibara_assets_tests.checkpoints.drills.states import encrypted_store

    torch.set_num_threads(1)
    logging.getLogger("capibara_assets.checkpoints").setLevel(logging.ERROR)  # torn leases, which are what this makes
    compression, encrypted = SETTINGS[int(setting)]

    def store_at(root: Path) -> CheckpointStore:
        return encrypted_store(root, compression) if encrypted else CheckpointStore(root, compression=compression)

    where, number = Path(folder), int(count)
    if kind == "kill":
        found = kill_writers(where, lambda: store_at(where / "store"), number, int(seed))
    else:
        work: dict[str, Callable[..., dict[str, Any]]] = {"power": replay, "full": fill_disk, "flip": flip_bits}
        found = work[kind](where, store_at, number, int(seed))
    sys.stdout.write(json.dumps(found) + "\n")


def _in_process(folder: Path, kind: str, count: int, seed: int, setting: int) -> dict[str, Any]:
    """`run_batch` in a process of its own; replayed crashes in memory, where there is a file system for it."""
    code = "import sys; from benchmarks.checkpoints.crashes import run_batch; run_batch(*sys.argv[1:])"
    memory = Path("/dev/shm")
    where = memory if kind != "kill" and os.access(memory, os.W_OK) else folder
    with TemporaryDirectory(dir=where, prefix="capibara-bench-") as scratch:
        command = [sys.executable, "-c", code, scratch, kind, str(count), str(seed), str(setting)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"a batch of crashes ({kind}, seed {seed}) failed:\n{done.stderr[-4000:]}")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def _counts(total: int) -> list[int]:
    """Batches of a hundred, the last one smaller."""
    return [min(_BATCH, total - start) for start in range(0, total, _BATCH)]


def _total(results: Sequence[dict[str, Any]], key: str) -> int:
    return sum(result[key] for result in results)


def _sums(results: Sequence[dict[str, Any]], key: str) -> dict[str, int]:
    """Counters of the batches added up."""
    total: dict[str, int] = {}
    for result in results:
        for name, count in result[key].items():
            total[name] = total.get(name, 0) + count
    return total
