"""The promises about plans: throughput and memory against published runs and XLA, the choice, quick answers, files."""

from benchmarks.promises import Line, all_passed, bench, passed, tests

# Without --rows the bench reads the open rows beside the repository.
ROWS = bench("plan")
# The compiler's answers as they ship; `--compile` asks it again (hours).
XLA = bench("plan-xla")
LEAST_COVERAGE, MOST_COVERAGE = 0.80, 0.95

LINES = (
    Line(
        "throughput of published runs, their model left out of the fit: median error at most 6 %, 90th percentile 18 %",
        ROWS,
        lambda r: {
            name: r[name] for name in ("median_error", "p90_error", "naive_median_error", "runs_scored", "by_chip")
        },
        lambda f: f["median_error"] <= 0.06 and f["p90_error"] <= 0.18,
        needs_shared=True,
    ),
    Line(
        "the same with a whole chip left out: median error at most 15 %",
        ROWS,
        lambda r: r["chip_left_out"],
        lambda f: f["median_error"] <= 0.15,
        needs_shared=True,
    ),
    Line(
        "intervals hold 80 to 95 % of the published runs",
        ROWS,
        lambda r: r["coverage"],
        lambda f: LEAST_COVERAGE <= f <= MOST_COVERAGE,
        needs_shared=True,
    ),
    Line(
        "of the published runs none is called impossible",
        ROWS,
        lambda r: {name: r[name] for name in ("false_oom", "false_oom_of", "memory_not_judged")},
        lambda f: f["false_oom"] == 0,
        needs_shared=True,
    ),
    Line(
        "of several published settings of one model and slice, our first costs at most 5 % more than the best",
        ROWS,
        lambda r: {name: r[name] for name in ("regret", "regret_groups", "regret_within_5_percent")},
        lambda f: f["regret_groups"] > 0 and f["regret"] <= 0.05,
        needs_shared=True,
    ),
    Line(
        "memory per chip within 10 % of XLA's on at least 12 compiled cases from 0.1 B to 70 B",
        XLA,
        lambda r: r["memory"],
        lambda f: f["cases"] >= 12 and f["within_10_percent"] == f["cases"],
    ),
    Line(
        "fits or does not fit: right in at least 95 % of at least 40 XLA verdicts near the limit",
        XLA,
        lambda r: r["verdicts"],
        lambda f: f["cases"] >= 40 and f["share_right"] >= 0.95,
    ),
    Line(
        "the chosen plan compiles at first try in at least 90 % of at least 15 model and slice cases",
        XLA,
        lambda r: r["choice"],
        lambda f: f["cases"] >= 15 and f["taken_at_first_try"] >= 0.9 * f["cases"],
    ),
    Line(
        "capibara plan answers in under 2 s",
        ("capibara", "plan", "--model", "llama2-7b", "--hardware", "tpu-v5e-64", "--json"),
        lambda r: r["seconds"],
        lambda seconds: seconds < 2,
    ),
    Line(
        "capibara plan loads neither Dagster nor torch nor jax",
        tests("cli/training/test_plan.py"),
        passed,
        all_passed,
    ),
    Line(
        "gin, MaxText and JAX files fit the plan and the trainers' own names; a mistyped one does not pass",
        tests("planning/tpu/test_files.py", "planning/writers/test_maxtext.py", "planning/writers/test_jax_config.py"),
        passed,
        all_passed,
    ),
    Line(
        "launch files: Kubernetes accepts them, a fake gcloud runs them, the slice is given back whatever happens",
        tests("planning/writers/test_launch.py"),
        passed,
        all_passed,
    ),
    Line(
        "costs are corrected by what past runs took: stored, shown, and shrunk towards the prediction",
        tests("planning/test_cost.py", "assets/test_plans.py"),
        passed,
        all_passed,
    ),
)
