"""`python -m benchmarks evidence`: run what shows each promise and write its figure to docs/evidence/; or check them.

A line is red when its figure does not hold, when its command failed, and when it was not run. A figure of more than
100 commits ago is stale.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

import click

from benchmarks.checkpoints import promises as checkpoints
from benchmarks.consensus import promises as consensus
from benchmarks.datasets import promises as datasets
from benchmarks.evaluation import promises as evaluation
from benchmarks.experience import promises as experience
from benchmarks.graph import promises as graph
from benchmarks.peers import ROOT
from benchmarks.planning import promises as planning
from benchmarks.promises import Line, bench
from benchmarks.registry import BENCHES
from benchmarks.registry import STAGES as STAGE_NAMES
from benchmarks.training import promises as training
from capibara_assets.storage.jsonfiles import write_json_atomic

FOLDER = ROOT / "docs" / "evidence"
STALE_COMMITS = 100
STAGES: dict[str, tuple[Line, ...]] = {
    "experience": experience.LINES,
    "datasets": datasets.LINES,
    "planning": planning.LINES,
    "checkpoints": checkpoints.LINES,
    "training": training.LINES,
    "consensus": consensus.LINES,
    "evaluation": evaluation.LINES,
    "graph": graph.LINES,
}


class CommandFailed(Exception):
    """A command that shows a promise ended with an error: its lines are red."""


def run(command: tuple[str, ...]) -> Any:
    """The output of a command: parsed JSON of a bench or of `capibara`, text of a test run. Raises CommandFailed."""
    programs = {
        "python": (sys.executable,),
        "capibara": (sys.executable, "-m", "capibara_assets.cli"),
        "pytest": (sys.executable, "-m", "pytest"),
    }
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "CAPIBARA_HOME": home, "DAGSTER_HOME": ""}
        full = (*programs[command[0]], *command[1:])
        done = subprocess.run(full, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if command[0] == "pytest":
        return done.stdout
    if done.returncode:
        raise CommandFailed(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def measured(
    line: Line, left_out: Callable[[Line], str | None], outputs: dict[tuple[str, ...], tuple[Any, float]]
) -> dict[str, Any]:
    """Figure, whether it holds, and the command's seconds, or why it was left out.

    `outputs` keeps what commands printed for other lines.
    """
    reason = left_out(line)
    if reason is not None:
        return {"figure": None, "holds": None, "seconds": None, "missing": reason}
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


def reason_to_leave_out(line: Line, without: Sequence[str] = (), only: str = "") -> str | None:
    """Why a line is not run here: what it needs is absent, or it was left out by name. None: it is run."""
    if only not in line.promise:
        return f"left out by --only {only!r}"
    if line.needs_shared and not (ROOT.parent / "shared").is_dir():
        return "no ../shared beside the repository"
    named = next((name for name in without if line.command[: len(bench(name)) - 1] == bench(name)[:-1]), None)
    return named and f"left out by --without {named}"


def write_stage(stage: str, commit: str, left_out: Callable[[Line], str | None] = reason_to_leave_out) -> int:
    """Write docs/evidence/<stage>.json line by line; the number of lines that do not hold, left out ones included.

    An interrupted run goes on: what held at this very commit is not measured again. A line that is left out or not
    reached keeps the figure that it had, with its commit.
    """
    out = FOLDER / f"{stage}.json"
    entries = {entry["line"]: entry for entry in _written(stage)}
    outputs: dict[tuple[str, ...], tuple[Any, float]] = {}
    for line in STAGES[stage]:
        entry = entries.get(line.promise)
        if entry is None or (
            not left_out(line) and ("missing" in entry or (entry["commit"], entry["holds"]) != (commit, True))
        ):
            entry = {"line": line.promise, "command": " ".join(line.command), "commit": commit}
            entries[line.promise] = entry | measured(line, left_out, outputs)
        entry = entries[line.promise]
        said = f"not run: {entry['missing']}" if "missing" in entry else entry["figure"]
        of = "" if entry["commit"] == commit else f" (at {entry['commit'][:8]}; left out now)"
        click.echo(f"{'ok ' if entry['holds'] else 'RED'} {entry['line']}: {said}{of}")
        lines = [entries[one.promise] for one in STAGES[stage] if one.promise in entries]
        write_json_atomic(out, {"made": datetime.now(UTC).isoformat(), "cores": os.cpu_count(), "lines": lines})
    red = sum(not entries[line.promise]["holds"] for line in STAGES[stage])
    click.echo(f"{len(STAGES[stage]) - red} of {len(STAGES[stage])} hold; written to {out}")
    return red


def _written(stage: str) -> list[dict[str, Any]]:
    """The lines of docs/evidence/<stage>.json; none where it was never written."""
    file = FOLDER / f"{stage}.json"
    return list(json.loads(file.read_text())["lines"]) if file.is_file() else []


@dataclass(frozen=True)
class State:
    """What is known of a promise.

    Attributes:
        stage, promise: which one.
        word: "ok", "stale", "RED" or "not run".
        why: the figure, and how old it is; or why there is none.
    """

    stage: str
    promise: str
    word: str
    why: str


def states(stages: Sequence[str]) -> Iterator[State]:
    """Every promise of these stages against what docs/evidence says of it."""
    for stage in stages:
        entries = {entry["line"]: entry for entry in _written(stage)}
        for line in STAGES[stage]:
            yield State(stage, line.promise, *_judged(entries.get(line.promise)))


def _judged(entry: dict[str, Any] | None) -> tuple[str, str]:
    if entry is None:
        return "not run", "no figure in docs/evidence"
    if "missing" in entry:
        return ("not run" if entry["holds"] is None else "RED"), entry["missing"]
    age = commits_since(entry["commit"])
    at = f"{json.dumps(entry['figure'])} at {entry['commit'][:8]}"
    if not entry["holds"]:
        return "RED", at
    if age is None:
        return "stale", f"{at}, which is not in this history"
    return ("stale" if age > STALE_COMMITS else "ok"), f"{at}, {age} commits ago"


@cache
def commits_since(commit: str) -> int | None:
    """Commits between a commit and the checkout's; None for one that its history does not hold."""
    command = ["git", "rev-list", "--count", f"{commit}..HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 else None


def check(stages: Sequence[str]) -> int:
    """Print the state of every promise; how many are not shown by a figure that holds and is recent."""
    found = list(states(stages))
    for stage in stages:
        click.echo(stage)
        for state in (one for one in found if one.stage == stage):
            click.echo(f"  {state.word:8}{state.promise}\n          {state.why}")
    counts = {word: sum(one.word == word for one in found) for word in ("ok", "stale", "RED", "not run")}
    click.echo(", ".join(f"{count} {word}" for word, count in counts.items()) + f"; of {len(found)} lines")
    return len(found) - counts["ok"]


def run_quick(stages: Sequence[str]) -> int:
    """Run every bench of these stages with --quick and print its seconds; how many failed. Writes nothing."""
    failed = 0
    for name, one in BENCHES.items():
        if one.stage not in stages:
            continue
        started = time.monotonic()
        try:
            result = run(("python", "-m", "benchmarks", name, "--quick", "--json"))
            said = f"ok  {name}: {len(result)} keys, {time.monotonic() - started:.0f} s"
        except CommandFailed as error:
            failed += 1
            said = f"RED {name}: not run: {error}"
        click.echo(said)
    return failed


@click.command("evidence")
@click.argument("stages", nargs=-1, type=click.Choice(STAGE_NAMES), metavar="[STAGE]...")
@click.option("--check", "checking", is_flag=True, help="Run nothing: which lines are red, not run or stale.")
@click.option("--quick", is_flag=True, help="Every bench once with --quick; nothing is written.")
@click.option(
    "--without",
    multiple=True,
    type=click.Choice(tuple(BENCHES)),
    metavar="BENCH",
    help="Leave a bench out: its lines keep their figures or are not run (repeatable; `vote` takes hours).",
)
@click.option("--only", default="", metavar="TEXT", help="Only promises that hold TEXT; the others keep their figures.")
def evidence(stages: tuple[str, ...], checking: bool, quick: bool, without: tuple[str, ...], only: str) -> None:
    """Run what shows each promise of the stages (default: all eight) and write docs/evidence/<stage>.json."""
    chosen = stages or STAGE_NAMES
    if checking:
        bad = check(chosen)
    elif quick:
        bad = run_quick(chosen)
    else:
        command = ["git", "rev-parse", "HEAD"]
        commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        leave_out = partial(reason_to_leave_out, without=without, only=only)
        bad = sum(write_stage(stage, commit, leave_out) for stage in chosen)
    if bad:
        click.get_current_context().exit(1)
