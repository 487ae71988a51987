"""The promises about datasets: tokenising and packing."""

from benchmarks.promises import Line, all_passed, bench, passed, tests

TOKENIZE = bench("tokenize")

LINES = (
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
        tests("datasets/test_packing.py"),
        passed,
        all_passed,
    ),
    Line(
        "loss on the assistant's tokens and ends of turns only, under the published chat templates",
        tests("datasets/test_templates.py", "datasets/test_preprocessing.py", "datasets/test_tokenising.py"),
        passed,
        all_passed,
    ),
)
