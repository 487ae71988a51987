"""The promises about datasets: speed, near-duplicates, splits, decontamination, tokenising and packing."""

from collections.abc import Iterator
from typing import Any

from benchmarks.promises import Line, all_passed, bench, passed, tests

DEDUP = bench("dedup")
DATASET = bench("dataset")
SPLIT = bench("split")
TOKENIZE = bench("tokenize")
POISON = bench("poison", "--trained", "")  # what training learns of them takes hours; docs/datasets.md has it


def _rates(kind: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What the bench found of a kind of back door, at each rate."""
    return (figures for figures in kind.values() if isinstance(figures, dict))


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
        "back doors of ten kinds planted at 10 % of an agent's tasks: all are held back, and at no rate an honest one",
        POISON,
        lambda r: {
            "found": {half: shares["0.1"] for half, shares in r["found_share"].items()},
            "honest_lost": sum(one["honest_lost"] for kind in r["kinds"].values() for one in _rates(kind)),
            "held_back_of_unplanted": sum(one["held_back"] for one in r["honest"].values()),
        },
        lambda f: min(f["found"].values()) == 1 and not f["honest_lost"] and not f["held_back_of_unplanted"],
    ),
    Line(
        "the same at 5 %: all of the five kinds that were looked at, and at least 75 % of those that were not",
        POISON,
        lambda r: {half: shares["0.05"] for half, shares in r["found_share"].items()},
        lambda f: f["A"] == 1 and f["B"] >= 0.75,
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
