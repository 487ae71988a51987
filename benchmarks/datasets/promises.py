"""The promises about datasets: speed, near-duplicates, splits, decontamination, tokenising and packing."""

from benchmarks.promises import Line, all_passed, bench, passed, tests

DEDUP = bench("dedup")
DATASET = bench("dataset")
SPLIT = bench("split")
TOKENIZE = bench("tokenize")

LINES = (
    Line(
        "data to datasets for the whole experience under 60 s on two cores without re-execution",
        DATASET,
        lambda r: {name: r[name] for name in ("seconds", "cpu_seconds", "executions", "experience")},
        lambda f: f["seconds"] < 60,
        needs_shared=True,
    ),
    Line(
        "re-execution of their examples: its seconds, and the share that could be done",
        DATASET,
        lambda r: {name: r[name] for name in ("reexecution_seconds", "reexecution_share", "isolation")},
        lambda f: f["reexecution_share"] > 0,
    ),
    Line(
        "one new log file: code is parsed in proportion to the file; its share of a whole look's processor time beside",
        DATASET,
        lambda r: {name: r[name] for name in ("one_file_share_of_text", "one_file_read_share", "one_file_cpu_share")},
        lambda f: f["one_file_read_share"] <= 2 * f["one_file_share_of_text"],
    ),
    Line(
        "the same data versions and bytes in other files, orders and numbers of workers",
        DATASET,
        lambda r: {"same": r["same"], "tables": r["compared_tables"]},
        lambda f: f["same"] and f["tables"] > 0,
    ),
    Line(
        "near-duplicates: at least 20 times datatrove's MinHash pipeline in documents per second (20,000 documents)",
        DEDUP,
        lambda r: r["ratio"],
        lambda f: f >= 20,
    ),
    Line(
        "the same at least 5 times text-dedup",
        DEDUP,
        lambda r: r["ratio_text_dedup"],
        lambda f: f >= 5,
    ),
    Line(
        "near-duplicates: recall of true pairs (exact Jaccard, brute force) not below the peers'",
        DEDUP,
        lambda r: {"recall": r["recall"], "peers": r["peer_recall"]},
        lambda f: f["recall"] >= f["peers"],
    ),
    Line(
        "near-duplicates of a million documents, spilled: time linear (within a quarter), memory under 2 GiB",
        bench("dedup", "--alone", "--documents", "1000000"),
        lambda r: {"linearity": r["linearity"], "peak_memory_mib": r["peak_memory_mib"]},
        lambda f: f["linearity"] <= 1.25 and f["peak_memory_mib"] < 2048,
    ),
    Line(
        "splits: 5,000 near-duplicates planted across problems, none straddles train and test",
        SPLIT,
        lambda r: {"straddling": r["straddling"], "planted": r["planted"]},
        lambda f: f["straddling"] == 0 and f["planted"] == 5000,
    ),
    Line(
        "decontamination: items planted in prompt or answer, renamed or re-formatted, are found; no false alarm",
        tests("datasets/duplicates/test_decontamination.py"),
        passed,
        all_passed,
    ),
    Line(
        "tokenising, masks and packing: at least 95 % of the raw speed of tokenizers on the same text",
        TOKENIZE,
        lambda r: {"ratio": r["speed_ratio"], "range": r["speed_ratio_range"], "same_tokens": r["same_tokens"]},
        lambda f: f["ratio"] >= 0.95 and f["same_tokens"],
    ),
    Line(
        "packing: at least 98 % of the tokens of a pack are no padding",
        TOKENIZE,
        lambda r: r["packing_efficiency"],
        lambda f: f >= 0.98,
    ),
    Line(
        "packed with block-diagonal attention, an example gets the logits and the loss that it gets alone",
        tests("datasets/tokens/test_packing.py"),
        passed,
        all_passed,
    ),
    Line(
        "loss on the assistant's tokens and ends of turns only, under the published chat templates",
        tests(
            "datasets/tokens/test_templates.py",
            "datasets/tokens/test_preprocessing.py",
            "datasets/tokens/test_tokenising.py",
        ),
        passed,
        all_passed,
    ),
)
