"""The bench `train`: our training beside TRL's SFTTrainer, on the same base, tokens, LoRA, batch and schedule."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from benchmarks.experience_input import bench_input
from benchmarks.output import print_result
from benchmarks.peers import peer_environment
from benchmarks.training.inputs import (
    ALPHA,
    MAX_LENGTH,
    MODULES,
    NANO,
    RANK,
    SEED,
    make_request,
    write_examples,
    write_wide_base,
)
from capibara_assets.planning.claims.kernels import measure_kernels

PARTS = ("speed", "memory", "start", "voters", "overhead", "kernels")
PACKAGES = ("trl", "transformers", "peft", "accelerate", "torch", "datasets")
BATCH, RATE, WARM = 8, 3e-3, 4
_PLAIN = {
    "micro_batch": BATCH, "packing": False, "grouped": False, "bf16": True, "base_bf16": False, "workers": 0,
    "checkpointing": False,
}  # fmt: skip
# TRL's best is the fastest of these, each tried for a few steps. Packing: two packs of 512 tokens hold about as many
# examples as a batch of five; it then takes fewer, larger steps.
GRID: tuple[Mapping[str, Any], ...] = (
    {"grouped": True},
    {"grouped": True, "base_bf16": True},
    {},
    {"grouped": True, "bf16": False},
    {"grouped": True, "micro_batch": 4},
    {"grouped": True, "micro_batch": 2},
    {"grouped": True, "workers": 1},
    {"packing": True, "micro_batch": 4},
)


@dataclass(frozen=True)
class Bench:
    """What every part needs: the folder with examples, tokens and bases, threads, repeats."""

    home: Path
    threads: int
    repeats: int
    steps: int

    def ours(
        self, base: Path, changes: Mapping[str, Any] | None = None, *, seed: int = 0, voters: int = 1, **job: Any
    ) -> dict[str, Any]:
        """One training of ours in a process of its own; its adapter lies in `ours` until the next."""
        work = self.home / "ours"
        shutil.rmtree(work, ignore_errors=True)
        changes = {"hardware": {"threads": self.threads}, **(changes or {})}
        request = make_request(base, self.home / "examples.parquet", work, changes, voters, seed)
        letter = {"request": request.model_dump(mode="json"), "folder": str(work), "warm_steps": WARM} | job
        return self._run([sys.executable, "-m", "benchmarks.training.ours"], letter)

    def peer(
        self, base: Path, setting: Mapping[str, Any], *, seed: int = 0, steps: int | None = None, warm: int = WARM,
        batch: int = BATCH,
    ) -> dict[str, Any]:  # fmt: skip
        """One training of TRL's; its adapter lies in `peer` until the next."""
        out = self.home / "peer"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        python, script = peer_environment("training/peer_train.py")
        letter = {
            "base": str(base), "tokens": str(self.home / "tokens.parquet"), "out": str(out), "setting": dict(setting),
            "lora": {"r": RANK, "lora_alpha": ALPHA, "target_modules": list(MODULES)}, "learning_rate": RATE,
            "warmup": round(0.1 * self.steps), "epochs": 1, "steps": steps, "global_batch": batch,
            "threads": self.threads, "seed": SEED + seed, "max_length": MAX_LENGTH, "warm_steps": warm,
        }  # fmt: skip
        return self._run([str(python), str(script)], letter)

    def _run(self, command: list[str], letter: dict[str, Any]) -> dict[str, Any]:
        file = self.home / "job.json"
        file.write_text(json.dumps(letter | {"started": time.time()}), "utf-8")
        root = str(Path(__file__).resolve().parents[2])
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
        environment |= {"OMP_NUM_THREADS": str(self.threads)}
        done = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed ({done.returncode}):\n{done.stderr[-2000:]}")
        return dict(json.loads(done.stdout.strip().splitlines()[-1]))


@click.command("train")
@click.option("--experience", help="Folder of experience; default: the shared collection, else what ships.")
@click.option("--part", "parts", multiple=True, type=click.Choice(PARTS), help="Only this; may be given repeatedly.")
@click.option("--examples", default=400, show_default=True, help="Examples trained on, once.")
@click.option("--repeats", default=5, show_default=True, help="Interleaved runs.")
@click.option("--threads", default=2, show_default=True, help="Processor threads of either side.")
@click.option("--voters", default=4, show_default=True, help="Voters of the batched run.")
@click.option("--quick", is_flag=True, help="72 examples, one run, no grid: under two minutes, and rough figures.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def train(
    experience: str | None, parts: tuple[str, ...], examples: int, repeats: int, threads: int, voters: int,
    quick: bool, as_json: bool,
) -> None:  # fmt: skip
    """Tokens per second, loss, memory and start beside TRL's SFTTrainer; many voters in one pass; the loop's share."""
    chosen = parts or PARTS
    with TemporaryDirectory() as name:
        bench = Bench(Path(name), threads, repeats, -(-examples // BATCH))
        given = bench_input(experience, None)
        if set(chosen) != {"kernels"}:
            write_examples(given, bench.home, examples)
        result: dict[str, Any] = {}
        setting: Mapping[str, Any] = {**_PLAIN, **GRID[0]}
        if "speed" in chosen:
            result |= measure_speed(bench, GRID[:1] if quick else GRID)
            setting = result["peer_setting"]
        if "memory" in chosen:
            result |= measure_memory(bench, setting, quick)
        if "start" in chosen:
            result |= measure_start(bench, setting)
        if "voters" in chosen:
            result |= measure_voters(bench, voters, (1,) if quick else (1, 4))
        if "overhead" in chosen:
            result |= measure_overhead(bench)
        if "kernels" in chosen:
            result |= {"kernels_over_python": measure_kernels(repeats)}
    result |= {
        "examples": examples, "repeats": repeats, "threads": threads, "experience": given.name, "base": NANO.name,
        "global_batch": BATCH, "learning_rate": RATE, "lora": {"rank": RANK, "alpha": ALPHA, "modules": MODULES},
        "max_length": MAX_LENGTH, "cores": os.cpu_count(), "load_average": os.getloadavg()[0],
    }  # fmt: skip
    print_result(result, as_json)


def measure_speed(bench: Bench, grid: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Non-padding tokens per second of the steps after the first few, one epoch; adapters judged by one evaluator.

    The peer's best setting is found first, by the wall clock, with a few steps of each; one that cannot run is noted
    and left out. Each run has other seeds: `loss_gap` compares the medians, ours over theirs minus one.
    """
    tried = {}
    for change in grid:
        setting = {**_PLAIN, **change}
        try:
            tried[json.dumps(setting)] = rate(bench.peer(NANO, setting, steps=2 + 2 * WARM))
        except RuntimeError as error:
            tried[json.dumps(setting)] = 0.0
            click.echo(f"TRL with {change} cannot run: {str(error).strip().splitlines()[-1]}", err=True)
    best = json.loads(max(tried, key=lambda key: tried[key]))
    runs: dict[str, list[dict[str, Any]]] = {"ours": [], "peer": []}
    for turn in range(bench.repeats):
        for side in ("ours", "peer") if turn % 2 == 0 else ("peer", "ours"):
            run = bench.ours(NANO, seed=turn) if side == "ours" else bench.peer(NANO, best, seed=turn)
            runs[side].append(run | {"loss": validation_loss(bench.home, run["adapter"], bench.threads)})
    wall = [rate(a) / rate(b) for a, b in zip(runs["ours"], runs["peer"], strict=True)]
    cpu = [rate(a, "cpu_s") / rate(b, "cpu_s") for a, b in zip(runs["ours"], runs["peer"], strict=True)]
    losses = {side: statistics.median(run["loss"] for run in found) for side, found in runs.items()}
    return {
        "ratio": round(statistics.median(wall), 3),
        "ratio_range": _range(wall),
        "cpu_ratio": round(statistics.median(cpu), 3),
        "cpu_ratio_range": _range(cpu),
        "loss_gap": round(losses["ours"] / losses["peer"] - 1, 5),
        "losses": {side: [round(run["loss"], 4) for run in found] for side, found in runs.items()},
        "tokens_per_s": {side: round(statistics.median(map(rate, found))) for side, found in runs.items()},
        "peer_setting": best,
        "peer_grid_tokens_per_s": {key: round(value) for key, value in tried.items()},
        "peer_versions": peer_versions(),
    }


def measure_memory(bench: Bench, setting: Mapping[str, Any], quick: bool) -> dict[str, Any]:
    """Most resident memory of a short training on a base with 32,000 tokens, imports included."""
    wide = write_wide_base(bench.home / "wide")
    runs: dict[str, list[float]] = {"ours": [], "peer": [], "peer_checkpointing": []}
    steps = 2 * WARM
    for _ in range(1 if quick else min(3, bench.repeats)):
        runs["ours"].append(bench.ours(wide, {"training": {"max_steps": steps}})["peak_mib"])
        runs["peer"].append(bench.peer(wide, setting, steps=steps)["peak_mib"])
        smaller = {**setting, "checkpointing": True}
        runs["peer_checkpointing"].append(bench.peer(wide, smaller, steps=steps)["peak_mib"])
    peaks = {side: statistics.median(found) for side, found in runs.items()}
    return {
        "memory_ratio": round(peaks["ours"] / peaks["peer"], 3),
        "memory_ratio_of_checkpointing": round(peaks["ours"] / peaks["peer_checkpointing"], 3),
        "peak_mib": peaks,
    }


def measure_start(bench: Bench, setting: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds from asking for the process to the end of its first optimizer step.

    Ours tokenises the examples and validates before the first step; the peer is given tokens and does neither.
    """
    runs: dict[str, list[dict[str, Any]]] = {"ours": [], "peer": []}
    for _ in range(bench.repeats):
        runs["ours"].append(bench.ours(NANO, {"training": {"max_steps": 2}}, warm_steps=1))
        runs["peer"].append(bench.peer(NANO, setting, steps=2, warm=1))
    ratios = [a["first_step_s"] / b["first_step_s"] for a, b in zip(runs["ours"], runs["peer"], strict=True)]
    return {
        "start_ratio": round(statistics.median(ratios), 3),
        "start_ratio_range": _range(ratios),
        "first_step_s": {
            side: round(statistics.median(run["first_step_s"] for run in found), 2) for side, found in runs.items()
        },
        "imports_s": {
            side: round(statistics.median(run["imports_s"] for run in found), 2) for side, found in runs.items()
        },
    }


def measure_voters(bench: Bench, voters: int, micro_batches: Sequence[int]) -> dict[str, Any]:
    """All voters in one pass over one base beside the same voters one after the other, by examples per pass."""
    found: dict[str, Any] = {}
    for micro in micro_batches:
        changes = {"training": {"micro_batch": micro, "max_steps": 2 * WARM}}
        wall, cpu, peaks = [], [], []
        for _ in range(bench.repeats if micro == 1 else 1):
            alone = bench.ours(NANO, changes, voters=voters)
            together = bench.ours(NANO, changes, voters=voters, batched=True)
            wall.append(rate(together) / rate(alone))
            cpu.append(rate(together, "cpu_s") / rate(alone, "cpu_s"))
            peaks.append(together["peak_mib"])
        found[str(micro)] = {
            "ratio": round(statistics.median(wall), 3),
            "range": _range(wall),
            "cpu_ratio": round(statistics.median(cpu), 3),
            "peak_mib": statistics.median(peaks),
        }
    return {"voters_ratio": found[str(micro_batches[0])]["ratio"], "voters": voters, "voters_by_micro_batch": found}


def measure_overhead(bench: Bench) -> dict[str, Any]:
    """Share of a step outside the forward pass, the backward pass and the optimizer."""
    shares = [bench.ours(NANO, stopwatch=True)["overhead"] for _ in range(min(3, bench.repeats))]
    return {"loop_overhead": round(statistics.median(shares), 4), "loop_overhead_range": _range(shares)}


def rate(run: Mapping[str, Any], clock: str = "wall_s") -> float:
    """Non-padding tokens per second."""
    return float(run["tokens"] / run[clock])


def validation_loss(home: Path, adapter: str, threads: int) -> float:
    """Nats per supervised token of the validation split, in float32, the adapter added to the base's weights."""
    import polars as pl
    import torch

    from capibara_assets.datasets.tokens.tokenising import IGNORED, Encoded
    from capibara_assets.modeling.adapters import applied, read_adapter
    from capibara_assets.modeling.base import load_base
    from capibara_assets.modeling.losses import assistant_losses

    torch.set_num_threads(threads)
    rows = pl.read_parquet(home / "tokens.parquet").filter(pl.col("split") == "validation")
    examples = [
        Encoded(ids, [token if kept else IGNORED for token, kept in zip(ids, mask, strict=True)], sum(mask))
        for ids, mask in zip(rows["input_ids"].to_list(), rows["completion_mask"].to_list(), strict=True)
    ]
    base = load_base(NANO)
    with applied(base.model, read_adapter(Path(adapter))) as model:
        return assistant_losses(model, examples).mean


def peer_versions() -> dict[str, str]:
    code = f"import json, importlib.metadata as m; print(json.dumps({{p: m.version(p) for p in {PACKAGES!r}}}))"
    done = subprocess.run(
        [str(peer_environment("training/peer_train.py")[0]), "-c", code], capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout))


def _range(values: Sequence[float]) -> list[float]:
    return [round(min(values), 4), round(max(values), 4)]
