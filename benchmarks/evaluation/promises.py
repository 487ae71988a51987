"""The promises about evaluation: throughput, honest statistics, a grader that cannot be fooled."""

from benchmarks.promises import Line, all_passed, bench, passed, tests

EVALUATE = bench("evaluate")

LINES = (
    Line(
        "batched generation at least 1.2 times Transformers' own batched generate, the same greedy answers",
        EVALUATE,
        lambda r: r["batched_ratio"],
        lambda ratio: ratio >= 1.2,
    ),
    Line(
        "a planted zero difference is called significant in at most 6 % of 2,000",
        EVALUATE,
        lambda r: r["false_positive_rate"],
        lambda rate: rate <= 0.06,
    ),
    Line(
        "a planted 5-point difference on 1,000 items with 15 % discordance is found in at least 95 % of 200 seeds",
        EVALUATE,
        lambda r: r["statistics"]["power"],
        lambda power: power >= 0.95,
    ),
    Line(
        "30 hostile programs: none passes",
        EVALUATE,
        lambda r: r["hostile_passed"],
        lambda count: count == 0,
    ),
    Line(
        "known answers: pass@k, perplexity, paired intervals; training items refused; a killed evaluation resumes",
        tests(
            "evaluation/statistics/test_scores.py", "evaluation/statistics/test_paired.py",
            "evaluation/statistics/test_bootstrap.py",
            "evaluation/decision/test_decide.py", "evaluation/items/test_leaks.py",
            "evaluation/contenders/test_contenders.py",
            "evaluation/answering/test_answer.py", "evaluation/grading/test_grade.py", "evaluation/test_evaluate.py",
        ),
        passed,
        all_passed,
    ),
)  # fmt: skip
