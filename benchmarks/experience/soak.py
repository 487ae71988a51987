"""The bench `soak`: hours of arriving executions under faults; memory, disk, pages and records, each with a limit.

The daemon and Dagster's webserver are real processes on a home of their own. Every look at them is one row of samples,
written as it is taken, so that a soak that is stopped has its curve.
"""

import json
import os
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
import psutil

from benchmarks.experience.drops import Dropper
from benchmarks.experience.sensor import (
    Daemon,
    descendants,
    is_run,
    kill_in_turn,
    kill_with_descendants,
    own_home,
    running_daemon,
    storm_environment,
)
from benchmarks.experience.soak_faults import clock_library, halves, misses
from benchmarks.output import print_result
from capibara_assets.cli.terminal.exits import FOUND

if TYPE_CHECKING:
    import dagster as dg

    from capibara_assets.storage.artifact import Artifact
    from capibara_assets.storage.store import ArtifactStore

LOCATION = "benchmarks.experience.soak_location"
_LOOK_S = 15.0
_CLEAN_S = 600.0  # between two clean-ups; at night only, in a deployment
_TORN_EVERY = 50  # files
_MIB = 1 << 20
_RUNS = "{ runsOrError(limit: 25) { ... on Runs { results { runId status tags { key value } } } } }"
_ASSET = (
    '{ assetOrError(assetKey: {path: ["e2b_logs"]}) '
    "{ ... on Asset { assetMaterializations(limit: 20) { runId metadataEntries { label } } } } }"
)
QUESTIONS = {"runs": _RUNS, "asset": _ASSET}


@dataclass(frozen=True)
class Sample:
    """What the processes held and how long the pages took at one moment.

    Attributes:
        s: seconds since the first file.
        executions: in the files that have arrived.
        daemon_mib: resident memory of the daemon, its code server and what else is no run.
        run_mib: of the run at work and its processes; 0: there was none.
        webserver_mib: of the webserver and its code server.
        runs_s: the answer to what the page of runs asks; None: no answer in 30 s.
        asset_s: the same of the page of `e2b_logs`.
        staging_mib: what is being published, and what killed runs left of that.
    """

    s: float
    executions: int
    daemon_mib: float
    run_mib: float
    webserver_mib: float
    runs_s: float | None
    asset_s: float | None
    staging_mib: float = 0.0


@click.command("soak")
@click.option("--executions", default=1_000_000, show_default=True, type=click.IntRange(min=1))
@click.option("--hours", default=2.0, show_default=True, help="How long the executions take to arrive.")
@click.option("--a-file", default=100, show_default=True, type=click.IntRange(min=1), help="Executions in a file.")
@click.option("--kills", default=60, show_default=True, help="kill -9 of runs and of the daemon, in turn.")
@click.option("--wait", default=1800.0, show_default=True, help="Most seconds after the last file.")
@click.option("--seed", default=1, show_default=True)
@click.option("--samples", type=click.Path(path_type=Path, dir_okay=False), help="JSON lines: a row for each look.")
@click.option("--home", type=click.Path(path_type=Path, file_okay=False), help="Folder of the deployment, which stays.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def soak(
    executions: int,
    hours: float,
    a_file: int,
    kills: int,
    wait: float,
    seed: int,
    samples: Path | None,
    home: Path | None,
    as_json: bool,
) -> None:
    """Hours of arriving executions under faults: what is lost, held, freed and shown, each within its limit?

    Runs and the daemon are killed, the disk of runs is full, and the daemon's clock jumps, in turn. Exit code 1: beyond
    a limit.
    """
    with TemporaryDirectory(prefix="capibara-soak-") as temporary:
        home = home or Path(temporary)
        folder = home / "experience" / "e2b_logs"
        folder.mkdir(parents=True)
        (folder.parent / "playbooks").mkdir()
        # every fifth file holds its lines twice, which counts once
        dropper = Dropper(folder, -(-executions // a_file), hours * 3600, seed, lines=a_file, torn_every=_TORN_EVERY)
        log = samples or home / "samples.jsonl"
        result = measure(home, dropper, hours * 3600, kills, wait, seed, log)
        result["beyond_limits"] = misses(result)
        print_result(result, as_json)
        if result["beyond_limits"]:
            raise SystemExit(FOUND)


def measure(
    home: Path, dropper: Dropper, seconds: float, kills: int, wait: float, seed: int, log: Path
) -> dict[str, Any]:
    """missed, doubled, changed, torn: of the records; then memory, pages, disk."""
    from capibara_assets.cli.graph.instance import open_instance
    from capibara_assets.deployment.environment import Deployment
    from capibara_assets.resources import Store

    environment = storm_environment(home)
    deployment = Deployment.from_environment(environment)
    with own_home(environment), open_instance(deployment) as instance:
        store = Store(root=deployment.store, work=str(deployment.work)).open()
        began, staging = time.monotonic(), Path(store.root.path) / "staging"
        with (
            running_daemon(home, environment, LOCATION) as daemon,
            webserver(home, environment) as (port, server),
            in_turn(lambda: clean_up(home, environment, _CLEAN_S), _CLEAN_S),
            looking(log, lambda: look(time.monotonic() - began, dropper, daemon, server, port, staging)),
        ):
            arriving = threading.Thread(target=dropper.run, daemon=True)
            arriving.start()
            killed = kill_in_turn(daemon, kills, seconds, seed, clock_library(home), round(seconds / 20))
            arriving.join()
            arrived = time.monotonic()
            table = read_whole(instance, store, dropper, arrived + wait)
            settled = time.monotonic()
        clean_up(home, environment, 0.0)
        runs = [run.status.value for run in instance.get_runs()]
        return {
            "hours": round((settled - began) / 3600, 2),
            "settle_s": round(settled - arrived, 1),
            "kills": killed,
            "runs": {status: runs.count(status) for status in sorted(set(runs))},
            **records(table, dropper),
            **curves([Sample(**json.loads(line)) for line in log.read_text().splitlines()]),
            **disk(home / "state", table),
            **kept(store),
        }


@contextmanager
def webserver(home: Path, environment: dict[str, str]) -> Iterator[tuple[int, "subprocess.Popen[bytes]"]]:
    """Dagster's webserver on a free port, and its process."""
    from capibara_assets_tests.served import free_port

    port = free_port()
    command = [sys.executable, "-m", "dagster_webserver", "-m", LOCATION, "-p", str(port)]
    with (home / "webserver.log").open("ab") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield port, process
    finally:
        kill_with_descendants(process)


@contextmanager
def in_turn(do: Callable[[], Any], every_s: float) -> Iterator[None]:
    """Does something again and again beside the block; what it raises is raised at the block's end."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(every_s):
            do()

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        try:
            yield
        finally:
            over.set()
        working.result()


@contextmanager
def looking(log: Path, take: Callable[[], Sample]) -> Iterator[None]:
    """Writes a sample every few seconds beside the block."""
    log.write_text("")

    def write() -> None:
        with log.open("a") as file:
            file.write(json.dumps(asdict(take())) + "\n")

    with in_turn(write, _LOOK_S):
        yield


def clean_up(home: Path, environment: dict[str, str], seconds: float) -> None:
    """The job `clean_up`, which removes what was superseded this many seconds ago."""
    config = json.dumps({"ops": {"remove_unneeded": {"config": {"result_days": seconds / 86_400}}}})
    command = [sys.executable, "-m", "dagster", "job", "execute", "-m", LOCATION, "-j", "clean_up"]
    (home / "clean_up.yaml").write_text(config)
    with (home / "clean_up.log").open("ab") as output:
        subprocess.run(
            [*command, "-c", str(home / "clean_up.yaml")],
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=True,
        )


def look(
    seconds: float, dropper: Dropper, daemon: Daemon, server: "subprocess.Popen[bytes]", port: int, staging: Path
) -> Sample:
    """One sample."""
    below = descendants(daemon.process.pid)
    runs = {process.pid for worker in below if is_run(worker) for process in [worker, *descendants(worker.pid)]}
    runs_s, asset_s = (answer_s(port, question) for question in QUESTIONS.values())
    return Sample(
        s=round(seconds, 1),
        executions=len(dropper.expected),
        daemon_mib=resident([daemon.process.pid, *(process.pid for process in below if process.pid not in runs)]),
        run_mib=resident(runs),
        webserver_mib=resident([server.pid, *(process.pid for process in descendants(server.pid))]),
        runs_s=runs_s,
        asset_s=asset_s,
        staging_mib=round(size(staging), 1),
    )


def resident(pids: Iterable[int]) -> float:
    """MiB that the processes hold in memory, shared pages counted in each."""
    total = 0
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            total += psutil.Process(pid).memory_info().rss
    return round(total / _MIB, 1)


def answer_s(port: int, question: str) -> float | None:
    """Seconds until the webserver has answered; None: it has not in 30."""
    data = json.dumps({"query": question}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/graphql", data=data, headers={"Content-Type": "application/json"}
    )
    start = time.perf_counter()
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            if "errors" in json.load(answer):
                return None
    except OSError:
        return None
    return round(time.perf_counter() - start, 3)


def read_whole(
    instance: "dg.DagsterInstance", store: "ArtifactStore", dropper: Dropper, deadline: float
) -> "Artifact | None":
    """The latest table of executions, once it is complete, or what there is at the deadline."""
    from capibara_assets.assets.inputs import latest_digest

    table, seen = None, None
    while time.monotonic() < deadline:
        if (digest := latest_digest(instance, "e2b_logs")) is not None and digest != seen:
            seen, table = digest, store.open("e2b_logs", None, digest)
            if len(table.frame("executions")) >= len(dropper.expected):
                break
        time.sleep(2.0)
    return table


def records(table: "Artifact | None", dropper: Dropper) -> dict[str, int]:
    """Of the executions that were written: lost, there twice, with other code, and never written; and torn lines."""
    rows = table.frame("executions").select("execution_id", "code").rows() if table else []
    found = dict(rows)
    return {
        "executions": len(dropper.expected),
        "missed": len(dropper.expected.keys() - found.keys()),
        "doubled": len(rows) - len(found),
        "unexpected": len(found.keys() - dropper.expected.keys()),
        "changed": sum(found.get(name, code) != code for name, code in dropper.expected.items()),
        "torn": dropper.torn,
        "quarantined": len(table.frame("quarantine")) if table else 0,
    }


def curves(samples: Sequence[Sample]) -> dict[str, Any]:
    """Most of the second tenth of the time beside that of the last, and how the pages answered.

    Most, since the daemon has another code server for a while after each kill. Until the webserver's first answer it
    starts, which is not counted.
    """
    samples = samples[next((place for place, one in enumerate(samples) if one.runs_s is not None), 0) :]
    tenth = max(1, len(samples) // 10)
    early, late = samples[tenth : 2 * tenth] or samples, samples[-tenth:]
    held = {
        name: [max(getattr(one, name) for one in part) for part in (early, late)]
        for name in ("daemon_mib", "webserver_mib")
    }
    peaks = [max((one.run_mib for one in part), default=0.0) for part in (samples[: len(samples) // 2], samples)]
    answers = [getattr(one, f"{name}_s") for one in samples for name in QUESTIONS]
    given = sorted(one for one in answers if one is not None)
    return {
        "samples": len(samples),
        "memory_halves": {name: halves([getattr(one, name) for one in samples]) for name in held},
        "staging_mib_most": max(one.staging_mib for one in samples),
        "early_and_late": held,
        "run_mib_half_and_all": peaks,
        "answers": len(given),
        "no_answer": len(answers) - len(given),
        "answer_median_s": round(statistics.median(given), 3) if given else None,
        "answer_p99_s": given[int(0.99 * (len(given) - 1))] if given else None,
    }


def disk(state: Path, table: "Artifact | None") -> dict[str, Any]:
    """MiB by folder of the deployment's state, and of the latest table, which is all of the artifacts that is alive."""
    sizes = {str(folder.relative_to(state)): size(folder) for folder in _folders(state)}
    live = sum(entry.bytes for entry in table.manifest.files.values()) / _MIB if table else 0.0
    return {"latest_table_mib": round(live, 1), "disk_mib": {name: round(mib, 1) for name, mib in sizes.items()}}


def kept(store: "ArtifactStore") -> dict[str, float]:
    """MiB of artifacts, staging and ledgers, and of what of them is alive: the latest artifacts and generations."""
    from capibara_assets.executions.ingest.ledger import Ledger

    ledgers = [folder for folder in (store.work / "e2b_logs").glob("*/*") if folder.is_dir()]
    root = Path(store.root.path)
    latest = [artifact for name in store.names() if (artifact := store.latest(name, None)) is not None]
    live = sum(entry.bytes for artifact in latest for entry in artifact.manifest.files.values()) / _MIB
    live += sum(size(last.folder) for ledger in ledgers if (last := Ledger(ledger).last()) is not None)
    total = sum(size(folder) for folder in (root / "artifacts", root / "staging", *ledgers))
    return {"live_mib": round(live, 1), "kept_mib": round(total, 1)}


def _folders(state: Path) -> list[Path]:
    return sorted(path for pattern in ("*", "store/*", "work/*") for path in state.glob(pattern) if path.is_dir())


def size(folder: Path) -> float:
    """MiB of the files below a folder."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total / _MIB
