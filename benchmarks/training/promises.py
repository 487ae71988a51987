"""The promises about training: speed at equal loss, memory and start beside TRL, batched voters, the loop's share."""

from benchmarks.promises import Line, all_passed, bench, passed, tests
from capibara_assets.planning.claims.kernels import KERNELS

TRAIN = bench("train")

LINES = (
    Line(
        "training: at least 2 times the non-padding tokens per second of TRL's best setting",
        TRAIN,
        lambda r: {name: r[name] for name in ("ratio", "ratio_range", "cpu_ratio", "tokens_per_s", "peer_setting")},
        lambda f: f["ratio"] >= 2,
    ),
    Line(
        "the same: final validation loss within 0.5 % of TRL's",
        TRAIN,
        lambda r: {name: r[name] for name in ("loss_gap", "losses")},
        lambda f: abs(f["loss_gap"]) <= 0.005,
    ),
    Line(
        "peak memory at a vocabulary of 32,000: at most 0.7 times TRL's",
        TRAIN,
        lambda r: {name: r[name] for name in ("memory_ratio", "memory_ratio_of_checkpointing", "peak_mib")},
        lambda f: f["memory_ratio"] <= 0.7,
    ),
    Line(
        "start to first optimizer step: at most 0.6 times TRL's",
        TRAIN,
        lambda r: {name: r[name] for name in ("start_ratio", "start_ratio_range", "first_step_s", "imports_s")},
        lambda f: f["start_ratio"] <= 0.6,
    ),
    Line(
        "batched LoRA at micro-batch 1: at least 2 times the voters one after the other",
        TRAIN,
        lambda r: {name: r[name] for name in ("voters_ratio", "voters", "voters_by_micro_batch")},
        lambda f: f["voters_ratio"] >= 2,
    ),
    Line(
        "less than 2 % of a step outside forward pass, backward pass and optimizer",
        TRAIN,
        lambda r: {name: r[name] for name in ("loop_overhead", "loop_overhead_range")},
        lambda f: f["loop_overhead"] < 0.02,
    ),
    Line(
        "attention, matrix product, softmax of masked rows: at least 10 times plain Python",
        TRAIN,
        lambda r: r["kernels_over_python"],
        lambda f: min(f[name] for name in KERNELS) >= 10,
    ),
    Line(
        "the same: at least 10 times NumPy",
        TRAIN,
        lambda r: r["kernels_over_python"]["over_numpy"],
        lambda f: min(ratio for side in f.values() for ratio in side.values()) >= 10,
    ),
    Line(
        "each voter of a batch has the losses of its training alone, within 1e-4; fused layers are the same function",
        tests("benchmarks/training/test_batched.py", "modeling/fused/test_layers.py", without="cuda"),
        passed,
        all_passed,
    ),
)
