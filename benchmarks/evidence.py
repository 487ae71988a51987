"""`make evidence`: run what shows each promise, write its figure to docs/evidence/; a missing line is red."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from capibara_assets.storage.jsonfiles import write_json_atomic

ROOT = Path(__file__).resolve().parent.parent
CAPIBARA = (sys.executable, "-m", "capibara_assets.cli")
TESTS = "capibara_assets_tests"


@dataclass(frozen=True)
class Line:
    """One promise: the command that shows it, what to read off its output, and when it holds."""

    promise: str
    command: tuple[str, ...]
    figure: Callable[[Any], Any]
    holds: Callable[[Any], bool]
    needs_shared: bool = False


def bench(*arguments: str) -> tuple[str, ...]:
    return ("capibara", "bench", *arguments, "--json")


def tests(*names: str) -> tuple[str, ...]:
    return ("pytest", "-q", "--no-header", "-p", "no:cacheprovider", *(f"{TESTS}/{name}" for name in names))


def passed(output: str) -> str:
    """The closing line of pytest."""
    return output.strip().splitlines()[-1].strip("= ")


def all_passed(summary: str) -> bool:
    return " passed" in summary and "failed" not in summary and "error" not in summary and "skipped" not in summary


GRAPH = bench("graph", "--seeds", "3", "--drills")
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
        tests("executions/test_ingest.py", "playbooks/test_read.py", "cli/test_errors.py"),
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


def run(command: tuple[str, ...]) -> Any:
    """The output of a command: parsed JSON of a bench, text of a test run."""
    full = (*CAPIBARA, *command[1:]) if command[0] == "capibara" else (sys.executable, "-m", *command)
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "CAPIBARA_HOME": home, "DAGSTER_HOME": ""}
        done = subprocess.run(full, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if command[0] == "pytest":
        return done.stdout
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "evidence" / "graph.json")
    out = parser.parse_args().out
    before = json.loads(out.read_text())["lines"] if out.is_file() else []
    shared = (ROOT.parent / "shared").is_dir()
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    outputs: dict[tuple[str, ...], tuple[Any, float]] = {}
    # An interrupted run goes on: what held at this very commit is not measured again.
    known = {entry["line"]: entry for entry in before if entry["commit"] == commit and entry["holds"]}
    written, red = [], 0
    for line in LINES:
        if line.promise in known:
            written.append(known[line.promise])
            continue
        entry: dict[str, Any] = {"line": line.promise, "command": " ".join(line.command), "commit": commit}
        if line.needs_shared and not shared:
            entry |= {"figure": None, "holds": None, "seconds": None, "missing": "no ../shared beside the repository"}
            red += 1
        else:
            if line.command not in outputs:
                started = time.monotonic()
                outputs[line.command] = (run(line.command), round(time.monotonic() - started, 1))
            output, seconds = outputs[line.command]
            figure = line.figure(output)
            entry |= {"figure": figure, "holds": line.holds(figure), "seconds": seconds}
            red += not entry["holds"]
        written.append(entry)
        print(f"{'ok ' if entry['holds'] else 'RED'} {entry['line']}: {entry['figure']}", flush=True)
        write_json_atomic(out, {"made": datetime.now(UTC).isoformat(), "cores": os.cpu_count(), "lines": written})
    print(f"{len(written) - red} of {len(written)} hold; written to {out}")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
