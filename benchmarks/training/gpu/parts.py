"""The parts of the bench `gpu`: each says what it found, and whether that is what was promised (`ok`)."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.peers import ROOT
from benchmarks.training.gpu.setting import BF16, Setting
from benchmarks.training.inputs import ALPHA, MODULES, RANK
from benchmarks.training.runs import WARM, OutOfTime, TrainingFailed, learnt
from benchmarks.training.train import BATCH, Bench, peer_versions, rate
from capibara_assets.training.monitoring.events import read_events
from capibara_assets.training.request import TrainingRequest

_LARGE_BATCH = 64  # the step of a user who fills a GPU; of BATCH short examples it does little but start kernels
_PEER = {"bf16": True, "base_bf16": True, "workers": 0, "checkpointing": False}

Figures = dict[str, Any]


def speed(setting: Setting) -> Figures:
    """Tokens per second and memory beside TRL's SFTTrainer, in bf16 on one GPU, on the same tokens, at two batches."""
    small, large = (_beside_trl(setting, batch) for batch in (BATCH, _LARGE_BATCH))
    return {**small, "ok": small["ok"] and large["ok"], "large_batch": large, "peer_versions": peer_versions()}


def _beside_trl(setting: Setting, batch: int) -> Figures:
    """Our speed at a global batch, its examples in one pass, and that of TRL's fastest setting."""
    bench = Bench(setting.home, threads=1, repeats=1, steps=setting.steps)
    length = {"max_steps": setting.steps, "epochs": 64.0, "global_batch": batch, "micro_batch": batch}
    ours = bench.ours(setting.base, {**BF16, "training": length})
    peers: tuple[Mapping[str, Any], ...] = (
        {**_PEER, "micro_batch": batch, "grouped": True, "packing": False},
        {**_PEER, "micro_batch": batch // 2, "grouped": False, "packing": True},
    )
    tried = []
    for peer in peers:
        setting.left_s  # noqa: B018 - raises when the time is over
        try:
            tried.append((peer, bench.peer(setting.base, peer, steps=setting.steps, batch=batch)))
        except RuntimeError as error:
            tried.append((peer, {"failed": str(error).strip().splitlines()[-1]}))
    ran = [(peer, run) for peer, run in tried if "failed" not in run]
    if not ran:
        raise TrainingFailed(f"TRL ran with no setting: {tried[0][1]['failed']}")
    best, fastest = max(ran, key=lambda one: rate(one[1]))
    memory = {"ours": ours["gpu_peak_mib"], "peer": fastest["gpu_peak_mib"]}
    return {
        "ok": rate(ours) > rate(fastest),
        "global_batch": batch,
        "ratio": round(rate(ours) / rate(fastest), 3),
        "tokens_per_s": {"ours": round(rate(ours)), "peer": round(rate(fastest))},
        "gpu_peak_mib": memory,
        "memory_ratio": round(memory["ours"] / memory["peer"], 3) if memory["peer"] else None,
        "peer_setting": best,
        "peer_settings_tried": len(tried),
    }


def precisions(setting: Setting) -> Figures:
    """Training in bf16, and in fp16 with a loss scale: both learn."""
    bf16 = setting.plain.figures()
    half = {"model": {"quantization": "none"}, "hardware": {"precision": "fp16"}}
    scaled = setting.train("fp16", half)
    fp16 = scaled.figures()
    overflows = [event for event in scaled.events["voter-0"] if event["event"] == "skipped" and event.get("loss_scale")]
    fp16["steps_skipped_by_the_loss_scale"] = len(overflows)
    ok = learnt(bf16) and learnt(fp16) and (bf16["precision"], fp16["precision"]) == ("bf16", "fp16")
    return {"ok": ok, "bf16": bf16, "fp16": fp16}


def nf4(setting: Setting) -> Figures:
    """A base held in four bits: it learns, in less memory than one in bf16."""
    four = setting.train("nf4", {"model": {"quantization": "nf4"}, "hardware": {"precision": "bf16"}}).figures()
    sixteen = setting.plain.figures()
    ok = learnt(four) and four["memory_mib"] < sixteen["memory_mib"]
    return {
        "ok": ok,
        "nf4": four,
        "bf16": sixteen,
        "memory_ratio": round(four["memory_mib"] / sixteen["memory_mib"], 3),
    }


def zero2(setting: Setting) -> Figures:
    """DeepSpeed ZeRO-2 on all GPUs: it learns, and ends where one process ends."""
    processes = max(1, len(setting.gpus))
    hardware = {"backend": "zero2", "processes": processes, "precision": "bf16"}
    batch = {"max_steps": setting.steps, "epochs": 8.0, "global_batch": 8 * -(-processes // 8)}
    done = setting.train("zero2", {"hardware": hardware, "training": batch}).figures()
    alone = setting.train("zero2-beside", {"hardware": {"precision": "bf16"}, "training": batch}).figures()
    gap = done["validation_loss"] / alone["validation_loss"] - 1
    ok = learnt(done) and abs(gap) <= 0.02
    return {"ok": ok, "processes": processes, "zero2": done, "one_process": alone, "loss_gap": round(gap, 5)}


def voters(setting: Setting) -> Figures:
    """A voter on each GPU, side by side, against the same voters one after the other on the first."""
    count = max(2, min(4, len(setting.gpus)))
    spread = setting.train("voters", BF16, voters=count)
    series: dict[str, Mapping[str, Any]] = {**BF16, "hardware": {**BF16["hardware"], "parallel": 1}}
    one = setting.train("voters-beside", series, voters=count, gpus=setting.gpus[:1])
    seconds = {"side_by_side": spread.summary["seconds"], "one_after_the_other": one.summary["seconds"]}
    placement = spread.summary["placement"]
    own = [[gpu] for gpu in setting.gpus]
    names = spread.summary["finished"]
    ok = placement["gpus"] == own and len(names) == count and all(spread.adapter(n) == one.adapter(n) for n in names)
    return {
        "ok": ok,
        "voters": count,
        "gpus": len(setting.gpus),
        "placement": placement,
        "seconds": seconds,
        "faster": round(seconds["one_after_the_other"] / seconds["side_by_side"], 2),
    }


def resume(setting: Setting) -> Figures:
    """Killed with -9 in the middle, the training ends with the adapter of one that was not disturbed, to the bit."""
    whole = setting.plain
    at = setting.steps // 2

    def kill(request: TrainingRequest, process: "subprocess.Popen[bytes]") -> None:
        log = request.folder(request.recipe.voters[0]) / "events.jsonl"
        while process.poll() is None:
            setting.left_s  # noqa: B018 - raises when the time is over
            events = read_events(log) if log.is_file() else []
            if any(event["event"] == "step" and event["step"] >= at for event in events):
                started = next(event for event in events if event["event"] == "started")
                os.kill(started["pid"], signal.SIGKILL)
                return
            time.sleep(0.02)

    cut = setting.train("cut", BF16, beside=kill)
    resumed = [event["step"] for event in cut.events["voter-0"] if event["event"] == "resumed"]
    equal = whole.adapter() == cut.adapter()
    return {"ok": bool(resumed) and equal, "resumed_at": resumed, "equal_to_the_bit": equal, "steps": setting.steps}


def jax(setting: Setting) -> Figures:
    """The JAX trainer's LoRA on the same base: on the GPU, and it learns."""
    job = {
        "base": str(setting.base), "examples": str(setting.home / "examples.parquet"), "out": str(setting.home / "jax"),
        "steps": setting.steps, "sequences": BATCH, "rank": RANK, "alpha": ALPHA, "modules": list(MODULES),
        "warm": WARM,
    }  # fmt: skip
    file = setting.home / "jax.json"
    file.write_text(json.dumps(job), "utf-8")
    environment = {**os.environ, **({"CUDA_VISIBLE_DEVICES": setting.gpus[0]} if setting.gpus else {})}
    command = [sys.executable, "-m", "benchmarks.training.gpu.jax_side", str(file)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=setting.left_s
        )
    except subprocess.TimeoutExpired as error:
        raise OutOfTime("the JAX trainer was not finished in time") from error
    if done.returncode:
        raise TrainingFailed(f"the JAX trainer ended with {done.returncode}: {done.stderr.strip()[-600:]}")
    found: Figures = json.loads(done.stdout.strip().splitlines()[-1])
    wanted = "gpu" if setting.gpus else "cpu"
    return {"ok": found["platform"] == wanted and found["last_loss"] < found["first_loss"], **found}


PARTS: dict[str, Callable[[Setting], Figures]] = {
    "resume": resume,
    "voters": voters,
    "precisions": precisions,
    "nf4": nf4,
    "zero2": zero2,
    "speed": speed,
    "jax": jax,
}
"""In this order, so that what needs nothing beside the package comes first."""
