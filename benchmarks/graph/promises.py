"""The promises of the whole graph."""

from benchmarks.promises import Line, all_passed, bench, passed, tests

GRAPH = bench("graph", "--seeds", "3", "--drills")
LAPTOP = bench("graph", "--seeds", "3", "--profile", "laptop", "--homes", ".capibara/laptop")  # hours: it goes on there
SHARED = bench("graph", "--seeds", "1", "--experience", "../shared/data/experience")

LINES = (
    Line(
        "make run on the shipped experience: under 6 minutes (slowest of 3 seeds)",
        GRAPH,
        lambda r: max(s["seconds"] for s in r["seeds"]),
        lambda f: f < 360,
    ),
    Line(
        "make run on the shipped experience: peak memory under 4 GiB",
        GRAPH,
        lambda r: max(s["peak_memory_gib"] for s in r["seeds"]),
        lambda f: f < 4,
    ),
    Line(
        "the real experience: under 30 minutes",
        SHARED,
        lambda r: max(s["seconds"] for s in r["seeds"]),
        lambda f: f < 1800,
        needs_shared=True,
    ),
    Line(
        "the real experience: peak memory under 4 GiB",
        SHARED,
        lambda r: max(s["peak_memory_gib"] for s in r["seeds"]),
        lambda f: f < 4,
        needs_shared=True,
    ),
    Line(
        "loading the definitions takes at most 1.6 times `import dagster`, and imports no torch",
        bench("load"),
        lambda r: {"ratio": r["ratio"], "heavy": r["heavy"]},
        lambda f: f["ratio"] <= 1.6 and not f["heavy"],
    ),
    Line(
        "10,000 partitions on PostgreSQL: definitions load in under 5 s, backfills are planned in 60 s, ticks take 5 s",
        bench("partitions"),
        lambda r: {name: r[name] for name in r if name.endswith(("tick_s", "plan_s", "definitions_s"))},
        lambda f: (
            f["definitions_s"] < 5
            and f["dagster_plan_s"] + f["backfill_plan_s"] < 60
            and max(seconds for name, seconds in f.items() if name.endswith("tick_s")) < 5
        ),
    ),
    Line(
        "a history of 5,000 runs: every page of Dagster's UI can be used within 3 s on SQLite, 2 s on PostgreSQL",
        bench("pages"),
        lambda r: {history: r[history]["slowest_s"] for history in ("sqlite", "postgres")},
        lambda f: f["sqlite"] <= 3 and f["postgres"] <= 2,
    ),
    Line(
        "the definitions load from an installed wheel in an empty folder",
        tests("test_definitions.py::test_loads_from_an_installed_wheel_in_an_empty_folder"),
        passed,
        all_passed,
    ),
    Line(
        "every domain's consensus test loss at least 10 % under the base's (smallest gain, 3 seeds)",
        GRAPH,
        lambda r: r["smallest_consensus_gain"],
        lambda f: f >= 0.10,
    ),
    Line(
        "the merged checkpoint's test loss under the base's in every domain (smallest gain, 3 seeds)",
        GRAPH,
        lambda r: r["smallest_merged_gain"],
        lambda f: f > 0,
    ),
    Line(
        "consensus under one adapter trained on all domains, same steps: at least five of six (fewest, 3 seeds)",
        GRAPH,
        lambda r: min(s["domains_under_joint"] for s in r["seeds"]),
        lambda f: f >= 5,
    ),
    Line(
        "loss matrix: best entry on the diagonal in at least five of six (fewest, 3 seeds)",
        GRAPH,
        lambda r: min(s["diagonal_best"] for s in r["seeds"]),
        lambda f: f >= 5,
    ),
    Line(
        "profile laptop: pass@1 of the consensus above the base's, 95 % interval above zero, in four of six (3 seeds)",
        LAPTOP,
        lambda r: r["domains_that_learn"],
        lambda f: f >= 4,
    ),
    Line(
        "real experience: smallest consensus gain over the base",
        SHARED,
        lambda r: r["smallest_consensus_gain"],
        lambda f: f >= 0.10,
        needs_shared=True,
    ),
    Line(
        "real experience: smallest merged gain over the base",
        SHARED,
        lambda r: r["smallest_merged_gain"],
        lambda f: f > 0,
        needs_shared=True,
    ),
    Line(
        "real experience: domains in which consensus is under the joint adapter",
        SHARED,
        lambda r: min(s["domains_under_joint"] for s in r["seeds"]),
        lambda f: f >= 5,
        needs_shared=True,
    ),
    Line(
        "real experience: best entry on the diagonal",
        SHARED,
        lambda r: min(s["diagonal_best"] for s in r["seeds"]),
        lambda f: f >= 5,
        needs_shared=True,
    ),
    Line(
        "a sign-flipped, a NaN and a 100x-norm voter is named in the certificate, in every domain",
        GRAPH,
        lambda r: {"runs": r["faults"]["runs"], "named": r["faults"]["named"]},
        lambda f: f["runs"] == f["named"] > 0,
    ),
    Line(
        "with such a voter the consensus test loss stays within 2 % of the honest run's (largest change)",
        GRAPH,
        lambda r: r["faults"]["largest_change"],
        lambda f: f <= 0.02,
    ),
    Line(
        "repeated with nothing changed: same data versions; one new sql execution: no other domain's partition changes",
        tests("test_whole_graph.py"),
        passed,
        all_passed,
    ),
    Line(
        "malformed experience ends as expected.json says; the run goes on",
        tests("executions/ingest/test_ingest.py", "playbooks/formats/test_read.py", "cli/test_errors.py"),
        passed,
        all_passed,
        needs_shared=True,
    ),
    Line(
        "missing folder, unknown domain, unreadable base model: one sentence, exit code 2",
        tests("cli/test_errors.py"),
        passed,
        all_passed,
    ),
    Line(
        "Ctrl-C in the middle of training, run again: goes on; nothing half-written visible",
        tests("reliability/test_interrupt.py"),
        passed,
        all_passed,
    ),
    Line(
        "the sensor over dropped files",
        tests("automation/test_sensors.py", "automation/test_conditions.py"),
        passed,
        all_passed,
    ),
    Line(
        "a dropped file goes to new consensus checkpoints of its domains alone, with no click",
        tests("reliability/test_automation.py"),
        passed,
        all_passed,
    ),
    Line(
        "a real browser: the graph, a partition turns green, an adapter's lineage up to e2b_logs",
        tests("ui/test_browser.py"),
        passed,
        all_passed,
    ),
)
