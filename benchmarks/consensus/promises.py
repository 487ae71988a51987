"""The promises about consensus: speed of rules and merges beside their peers, and what liars can do."""

from typing import Any

from benchmarks.promises import Line, all_passed, bench, passed, tests

# Peers get as many columns as they can do in this time (the figure says how many), else a rule alone takes a quarter of
# an hour. Games take hours: those that were played here are kept and gone on from.
AGGREGATE, MERGE = bench("aggregate", "--seconds", "150"), bench("merge")
KEPT = ("--pool", ".capibara/bench-vote", "--games", ".capibara/vote-games.jsonl")
VOTE = bench("vote", *KEPT, "--precision", "bf16", "--compiled")
ATTACKED = ("worst_loss_increase", "max_loss_increase", "least_share_within", "backdoor_points")
FIVE_TIMES = ("krum", "multi_krum", "bulyan", "geometric_median")


def ratios(result: dict[str, Any], *rules: str) -> dict[str, dict[str, Any]]:
    """Times the fastest peer, its name, and the columns that it could do in the time; ratio 0 where no peer could."""
    found = {rule: result["rules"][rule] for rule in rules}
    return {
        rule: {"ratio": one["ratio"] or 0, **{name: one.get(name) for name in ("ratio_range", "peer", "columns")}}
        for rule, one in found.items()
    }


LINES = (
    Line(
        "aggregation, n = 16, d = 50 M: Krum, Multi-Krum, Bulyan, geometric median at least 5 times the faster peer",
        AGGREGATE,
        lambda r: ratios(r, *FIVE_TIMES),
        lambda f: all(rule["ratio"] >= 5 for rule in f.values()),
    ),
    Line(
        "the same: trimmed mean at least 4 times, median at least 3 times",
        AGGREGATE,
        lambda r: ratios(r, "trimmed_mean", "median"),
        lambda f: f["trimmed_mean"]["ratio"] >= 4 and f["median"]["ratio"] >= 3,
    ),
    Line(
        "the same: mean within 1.3 times one read of the data; inner products within 2 times",
        AGGREGATE,
        lambda r: {name: r.get(name) for name in ("mean_over_read", "gram_over_bandwidth")},
        lambda f: f["mean_over_read"] <= 1.3 and f["gram_over_bandwidth"] <= 2,
    ),
    Line(
        "merges of 1 GB checkpoints: TIES, DELLA, model stock, SLERP at least 5 times mergekit",
        MERGE,
        lambda r: {name: value for name, value in r.items() if name == "ratio" or name.startswith("ratio_")},
        lambda f: f["ratio"] >= 5,
    ),
    Line(
        "the same: linear at least 2 times mergekit, and within 1.3 times reading, writing, syncing and hashing",
        MERGE,
        lambda r: {name: r[name] for name in ("linear_ratio", "copy_ratio")},
        lambda f: f["linear_ratio"] >= 2 and f["copy_ratio"] <= 1.3,
    ),
    Line(
        "the same: anonymous memory under 256 MB + 3 of the largest tensor",
        MERGE,
        lambda r: {name: r[name] for name in ("peak_rss_mb", "peak_rss_allowed_mb")},
        lambda f: f["peak_rss_mb"] <= f["peak_rss_allowed_mb"],
    ),
    Line(
        "under each attack the consensus loses at most 2 % in 95 % of the seeds; a back door gains at most 2 points",
        VOTE,
        lambda r: {name: r[name] for name in ATTACKED},
        lambda f: f["worst_loss_increase"] <= 0.02 and f["backdoor_points"] <= 2,
    ),
    Line(
        "bit-identical whatever the order of voters, the threads, the shard layout; f liars neither push nor block",
        tests(
            "consensus/aggregation/test_kernels.py", "consensus/aggregation/test_large_aggregation.py",
            "consensus/merging/test_checkpoint_merge.py",
            "consensus/election/test_ballots.py", "consensus/election/test_voting.py",
        ),
        passed,
        all_passed,
    ),
)  # fmt: skip
