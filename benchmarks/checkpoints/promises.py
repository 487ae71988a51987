"""The promises about checkpoints: speed, memory, disk, encryption, the stall of a step, crashes and flipped bits."""

from benchmarks.promises import Line, all_passed, bench, passed, tests

SAVE = bench("checkpoint", "--part", "save")
MEMORY = bench("checkpoint", "--part", "memory")
DEDUP = bench("checkpoint", "--part", "dedup")
COMPRESSION = bench("checkpoint", "--part", "compression")
STALL = bench("checkpoint", "--part", "stall")
CRASHES = bench("checkpoint", "--part", "crashes", "--crashes", "2000")

LINES = (
    Line(
        "save: at least 1.2 times safetensors + fsync + SHA-256 of the same bytes",
        SAVE,
        lambda r: {name: r[name] for name in ("save_ratio", "save_ratio_range", "default_save_ratio", "peer_save")},
        lambda f: f["save_ratio"] >= 1.2,
    ),
    Line(
        "load: at least 1.2 times reading into private memory + SHA-256",
        SAVE,
        lambda r: {
            name: r[name] for name in ("load_ratio", "load_ratio_range", "warm_load_ratio", "default_load_ratio")
        },
        lambda f: min(f["load_ratio"], f["warm_load_ratio"]) >= 1.2,
    ),
    Line(
        "encrypted: at least 0.6 times the same unencrypted peer",
        SAVE,
        lambda r: {
            name: r[name]
            for name in ("encrypted_ratio", "encrypted_ratio_range", "encrypted_save_ratio", "encrypted_load_ratio")
        },
        lambda f: min(f["encrypted_ratio"], f["encrypted_save_ratio"], f["encrypted_load_ratio"]) >= 0.6,
    ),
    Line(
        "anonymous memory of saving and loading at most 256 MiB over the tensors, whatever their size",
        MEMORY,
        lambda r: {name: r[name] for name in ("memory_over_tensors_mib", "memory_by_action_and_size_mib")},
        lambda f: f["memory_over_tensors_mib"] <= 256,
    ),
    Line(
        "4 voters x 20 epochs with optimizer state on one base: at least 10 times less disk than full copies",
        DEDUP,
        lambda r: {name: r[name] for name in ("dedup_ratio", "zstd_dedup_ratio", "encrypted_zstd_dedup_ratio")},
        lambda f: f["dedup_ratio"] >= 10,
    ),
    Line(
        "the same: at most 1.02 times the bytes of the distinct tensors",
        DEDUP,
        lambda r: {name: r[name] for name in ("distinct_ratio", "zstd_distinct_ratio")},
        lambda f: f["distinct_ratio"] <= 1.02,
    ),
    Line(
        "bf16 weights compressed without loss by at least 1.3 times, trained ones and drawn ones",
        COMPRESSION,
        lambda r: {name: r[name] for name in ("compression", "compression_trained", "compression_drawn")},
        lambda f: f["compression"] >= 1.3,
    ),
    Line(
        "restoring a compressed checkpoint within 1.5 times zstd + SHA-256 alone",
        COMPRESSION,
        lambda r: {name: r[name] for name in ("restore_ratio", "restore_ratio_range", "restore_ratio_two_threads")},
        lambda f: f["restore_ratio"] <= 1.5,
    ),
    Line(
        "an asynchronous save holds a step up for less than 5 % of it",
        STALL,
        lambda r: {name: r[name] for name in ("stall_share", "stall_share_range", "interval_ratio", "stall")},
        lambda f: f["stall_share"] < 0.05,
    ),
    Line(
        "2,000 crashes: no corrupt read, no published checkpoint lost",
        CRASHES,
        lambda r: {
            name: r[name]
            for name in ("crashes", "corrupt_reads", "lost_checkpoints", "kills", "full_disks", "power_losses")
        },
        lambda f: f["crashes"] >= 2000 and f["corrupt_reads"] == 0 and f["lost_checkpoints"] == 0,
    ),
    Line(
        "single flipped bits in any file: all found, file and tensor named",
        CRASHES,
        lambda r: {name: r[name] for name in ("flips", "flips_detected")},
        lambda f: f["flips"] > 0 and f["flips_detected"] == f["flips"],
    ),
    Line(
        "whole checkpoints only, beside writers, readers, kills and full disks (the suite's own part)",
        tests("checkpoints/store/test_crashes.py"),
        passed,
        all_passed,
    ),
)
