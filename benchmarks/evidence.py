"""`make evidence`: run what shows each promise, write its figure to docs/evidence/; a missing line is red."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.checkpoints import promises as checkpoint_promises
from benchmarks.consensus import promises as consensus_promises
from benchmarks.datasets import promises as dataset_promises
from benchmarks.evaluation import promises as evaluation_promises
from benchmarks.experience import promises as experience_promises
from benchmarks.graph import promises as graph_promises
from benchmarks.planning import promises as plan_promises
from benchmarks.promises import Line
from benchmarks.training import promises as train_promises
from capibara_assets.storage.jsonfiles import write_json_atomic

ROOT = Path(__file__).resolve().parent.parent
CAPIBARA = (sys.executable, "-m", "capibara_assets.cli")
STAGES = {
    "graph": graph_promises.LINES,
    "experience": experience_promises.LINES,
    "datasets": dataset_promises.LINES,
    "checkpoints": checkpoint_promises.LINES,
    "plans": plan_promises.LINES,
    "training": train_promises.LINES,
    "consensus": consensus_promises.LINES,
    "evaluation": evaluation_promises.LINES,
}


class CommandFailed(Exception):
    """A command that shows a promise ended with an error: its lines are red."""


def run(command: tuple[str, ...]) -> Any:
    """The output of a command: parsed JSON of a bench, text of a test run. Raises CommandFailed."""
    full = (*CAPIBARA, *command[1:]) if command[0] == "capibara" else (sys.executable, "-m", *command)
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "CAPIBARA_HOME": home, "DAGSTER_HOME": ""}
        done = subprocess.run(full, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if command[0] == "pytest":
        return done.stdout
    if done.returncode:
        raise CommandFailed(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def measured(line: Line, shared: bool, outputs: dict[tuple[str, ...], tuple[Any, float]]) -> dict[str, Any]:
    """Figure, whether it holds, and the command's seconds; `outputs` keeps what commands printed for other lines."""
    if line.needs_shared and not shared:
        return {"figure": None, "holds": None, "seconds": None, "missing": "no ../shared beside the repository"}
    if line.command not in outputs:
        started = time.monotonic()
        try:
            output = run(line.command)
        except CommandFailed as error:
            return {"figure": None, "holds": False, "seconds": None, "missing": str(error)}
        outputs[line.command] = (output, round(time.monotonic() - started, 1))
    output, seconds = outputs[line.command]
    figure = line.figure(output)
    return {"figure": figure, "holds": line.holds(figure), "seconds": seconds}


def write_stage(stage: str, commit: str, shared: bool) -> int:
    """Write docs/evidence/<stage>.json line by line; the number of red lines.

    An interrupted run goes on: what held at this very commit is not measured again.
    """
    out = ROOT / "docs" / "evidence" / f"{stage}.json"
    before = json.loads(out.read_text())["lines"] if out.is_file() else []
    known = {entry["line"]: entry for entry in before if entry["commit"] == commit and entry["holds"]}
    outputs: dict[tuple[str, ...], tuple[Any, float]] = {}
    written: list[dict[str, Any]] = []
    for line in STAGES[stage]:
        entry = known.get(line.promise)
        if entry is None:
            entry = {"line": line.promise, "command": " ".join(line.command), "commit": commit}
            entry |= measured(line, shared, outputs)
        written.append(entry)
        print(f"{'ok ' if entry['holds'] else 'RED'} {entry['line']}: {entry['figure']}", flush=True)
        write_json_atomic(out, {"made": datetime.now(UTC).isoformat(), "cores": os.cpu_count(), "lines": written})
    red = sum(not entry["holds"] for entry in written)
    print(f"{len(written) - red} of {len(written)} hold; written to {out}")
    return red


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="*", default=list(STAGES), choices=list(STAGES), metavar="STAGE")
    stages = parser.parse_args().stages
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    shared = (ROOT.parent / "shared").is_dir()
    return 1 if sum(write_stage(stage, commit, shared) for stage in stages) else 0


if __name__ == "__main__":
    sys.exit(main())
