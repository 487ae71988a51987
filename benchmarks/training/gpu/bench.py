"""The bench `gpu`: what only a machine with a GPU shows, in under ten minutes, written to docs/evidence/gpu.json."""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from benchmarks.experience_input import bench_input
from benchmarks.output import print_result
from benchmarks.peers import ROOT
from benchmarks.training.gpu.parts import PARTS, Figures
from benchmarks.training.gpu.setting import SHAPES, Setting, write_base
from benchmarks.training.inputs import write_examples
from benchmarks.training.runs import OutOfTime, TrainingFailed
from capibara_assets.errors import InputError
from capibara_assets.storage.jsonfiles import write_json_atomic
from capibara_assets.training.devices import gpus_here

_PACKAGES = ("torch", "transformers", "peft", "bitsandbytes", "deepspeed", "jax")


@click.command("gpu")
@click.option("--part", "parts", multiple=True, type=click.Choice(list(PARTS)), help="Only this; may be repeated.")
@click.option("--shape", default="0.5b", type=click.Choice(list(SHAPES)), show_default=True, help="Of the random base.")
@click.option("--steps", default=20, show_default=True, help="Optimizer steps of a training.")
@click.option("--examples", default=320, show_default=True, help="Examples trained on.")
@click.option("--minutes", default=9.5, show_default=True, help="What is not finished then is named as missing.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Also write the result to this file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def gpu(
    parts: tuple[str, ...], shape: str, steps: int, examples: int, minutes: float, out: Path | None, as_json: bool
) -> None:
    """Training on a GPU: beside TRL, NF4, bf16, fp16, ZeRO-2, a voter on each GPU, resume to the bit, JAX.

    Without a GPU only the shape `tiny` runs, on the processor: it shows that the bench works, and no figure.
    """
    started = time.monotonic()
    gpus = gpus_here()
    if not gpus and shape != "tiny":
        raise InputError(
            "no GPU here that torch can use (`nvidia-smi` lists them; torch must be built for CUDA): run this on a "
            "machine with one, or --shape tiny for a rehearsal on the processor"
        )
    with TemporaryDirectory() as name:
        setting = Setting(Path(name), gpus, steps, started + 60 * minutes)
        write_base(setting.base, shape)
        write_examples(bench_input(None, None), setting.home, examples)
        results = measure({part: PARTS[part] for part in parts or PARTS}, setting)
    result = {
        "machine": machine(len(gpus)),
        "shape": shape,
        "steps": steps,
        "commit": commit(),
        "seconds": round(time.monotonic() - started, 1),
        "ok": all(found["ok"] for found in results.values()),
        "parts": results,
    }
    if out is not None:
        write_json_atomic(out, result)
    print_result(result, as_json)
    if bad := [part for part, found in results.items() if not found["ok"]]:
        click.echo(f"not shown: {', '.join(bad)}", err=True)
        click.get_current_context().exit(1)


def measure(parts: dict[str, Callable[[Setting], Figures]], setting: Setting) -> dict[str, Figures]:
    """Part -> its figures, with `ok` and `seconds`; one that fails or has no time left says why, and the others go on.

    `ok` is None for what could not be tried.
    """
    results: dict[str, Figures] = {}
    for name, part in parts.items():
        began = time.monotonic()
        try:
            setting.left_s  # noqa: B018 - raises when the time is over
            found = part(setting)
        except (OutOfTime, InputError) as missing:
            found = {"ok": None, "missing": str(missing)}
        except (TrainingFailed, RuntimeError) as error:
            found = {"ok": False, "failed": str(error)}
        results[name] = {**found, "seconds": round(time.monotonic() - began, 1)}
        word = {True: "ok ", False: "RED", None: "-- "}[results[name]["ok"]]
        click.echo(f"{word} {name}: {results[name]['seconds']} s", err=True)
    return results


def machine(gpus: int) -> dict[str, Any]:
    """The GPUs by their driver's words, and versions."""
    names: Sequence[str] = ()
    if gpus:
        query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
        try:
            names = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().splitlines()
        except (OSError, subprocess.CalledProcessError) as error:
            names = [f"unknown: nvidia-smi: {error}"]
    return {"gpus": list(names), "usable": gpus, "python": sys.version.split()[0], "versions": versions()}


def versions() -> dict[str, str]:
    """Package -> version, of those that are installed."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """The checkout's commit."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
