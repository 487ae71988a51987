"""The bench `checkpoint`: the store beside safetensors + fsync + SHA-256, and what crashes leave of it."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from benchmarks.output import print_result
from capibara_assets.storage.jsonfiles import write_json_atomic

PARTS = ("save", "memory", "dedup", "compression", "stall", "crashes")


@click.command("checkpoint")
@click.option("--part", "parts", multiple=True, type=click.Choice(PARTS), help="Only this; may be given repeatedly.")
@click.option("--mib", default=512, show_default=True, help="Bytes of the tensors that are saved and loaded.")
@click.option("--memory-mib", default="512,2048", show_default=True, help="Sizes whose memory is watched.")
@click.option("--repeats", default=5, show_default=True)
@click.option("--voters", default=4, show_default=True)
@click.option("--epochs", default=20, show_default=True)
@click.option("--crashes", default=2000, show_default=True, help="Half of them kills of real processes.")
@click.option("--flips", default=300, show_default=True, help="Bits flipped at random in each setting of the store.")
@click.option("--seed", default=1, show_default=True, help="Of the crashes and flipped bits.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where to write; default: the temporary folder.")
@click.option("--keep", type=click.Path(path_type=Path), help="Folder of finished parts, to go on from.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def checkpoint(
    parts: tuple[str, ...],
    mib: int,
    memory_mib: str,
    repeats: int,
    voters: int,
    epochs: int,
    crashes: int,
    flips: int,
    seed: int,
    folder: Path | None,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Saving, loading, memory, disk, stall of a training step, and crashes; ratios, both sides in one run."""
    sizes = tuple(int(each) << 20 for each in memory_mib.split(","))
    settings = {"mib": mib, "memory": sizes, "repeats": repeats, "voters": voters, "epochs": epochs}
    settings |= {"crashes": crashes, "flips": flips, "seed": seed}
    print_result(measure(parts or PARTS, settings, folder, keep), as_json)


def measure(parts: tuple[str, ...], settings: dict[str, Any], folder: Path | None, keep: Path | None) -> dict[str, Any]:
    """The figures of these parts, as `python -m benchmarks checkpoint --json` prints them.

    With `keep`, what a part found is kept there and not measured again, as long as the settings are the same.
    """
    result: dict[str, Any] = {}
    for part in PARTS:
        if part not in parts:
            continue
        kept = keep / f"{part}.json" if keep else None
        known = json.loads(kept.read_text()) if kept is not None and kept.is_file() else None
        if known is not None and known["settings"] == json.loads(json.dumps(settings)):
            result |= known["result"]
            continue
        click.echo(f"measuring: {part}", err=True)
        with TemporaryDirectory(dir=folder) as scratch:
            found = _measures()[part](Path(scratch), settings, keep)
        if kept is not None:
            write_json_atomic(kept, {"settings": settings, "result": found})
        result |= found
    return result


def _measures() -> dict[str, Callable[[Path, dict[str, Any], Path | None], dict[str, Any]]]:
    """Part -> its measurement in a scratch folder; torch is imported from here on."""
    from benchmarks.checkpoints.crashes import measure_crashes
    from benchmarks.checkpoints.memory import measure_memory
    from benchmarks.checkpoints.space import measure_compression, measure_dedup
    from benchmarks.checkpoints.speed import measure_speed
    from benchmarks.checkpoints.stall import measure_stall

    return {
        "save": lambda folder, s, _: measure_speed(folder, s["mib"] << 20, s["repeats"]),
        "memory": lambda folder, s, _: measure_memory(folder, s["memory"]),
        "dedup": lambda folder, s, _: measure_dedup(folder, s["voters"], s["epochs"]),
        "compression": lambda folder, s, _: measure_compression(folder, (s["mib"] << 20) // 2, s["repeats"]),
        "stall": lambda folder, s, _: measure_stall(folder, s["repeats"]),
        "crashes": lambda folder, s, keep: measure_crashes(folder, s["crashes"], s["seed"], keep, s["flips"]),
    }
