"""The promises about datasets: near-duplicates, splits, decontamination."""

from benchmarks.promises import Line, all_passed, bench, passed, tests

DEDUP = bench("dedup")
SPLIT = bench("split")

LINES = (
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
        tests("datasets/test_decontamination.py"),
        passed,
        all_passed,
    ),
)
