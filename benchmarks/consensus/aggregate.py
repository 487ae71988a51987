"""The bench `aggregate`: robust rules beside ByzFL's and Flower's, on the same vectors in memory."""

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np

from benchmarks.output import print_result
from benchmarks.peers import peer_environment

FIVEFOLD = ("krum", "multi_krum", "bulyan", "geometric_median")
RULES = (*FIVEFOLD, "trimmed_mean", "median", "mean")
BACKENDS = {
    **dict.fromkeys(RULES, ("byzfl-numpy", "byzfl-torch", "flower")),
    "geometric_median": ("byzfl-numpy", "byzfl-torch"),
    "bulyan": ("flower",),
}
_CONVERGED = 1e-5  # length of the geometric median's gradient per voter at which a peer counts as converged
_MOST_STEPS = 256
_PILOT = 500_000  # columns of the runs that tell which back end is a rule's fastest
_STEPS_PILOT = 100_000  # columns of the search for a peer's number of steps: the geometry decides it
_NEAR_BEST = 2.0  # back ends within this factor of the pilot's fastest are tried on all columns


@click.command("aggregate")
@click.option("-n", "voters", default=16, show_default=True, help="Voters.")
@click.option("-d", "columns", default=50_000_000, show_default=True, help="Length of their vectors, float32.")
@click.option("-f", "faults", default=3, show_default=True, help="Voters that may be arbitrary.")
@click.option("--repeats", default=5, show_default=True, help="Interleaved runs.")
@click.option("--rules", default=",".join(RULES), show_default=True)
@click.option("--seconds", default=900.0, show_default=True, help="A rule's peer gets as many columns as fit in it.")
@click.option("--quick", is_flag=True, help="Vectors of 2 million.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def aggregate_command(
    voters: int, columns: int, faults: int, repeats: int, rules: str, seconds: float, quick: bool, as_json: bool
) -> None:
    """Seconds of each rule beside the fastest back end of ByzFL and Flower, and beside one read of the vectors."""
    size = 2_000_000 if quick else columns
    print_result(measure(voters, size, faults, repeats, tuple(rules.split(",")), seconds), as_json)


def measure(n: int, d: int, f: int, repeats: int, rules: tuple[str, ...], limit: float) -> dict[str, Any]:
    """Both sides map the same file of vectors, which is in memory; only the aggregation is timed.

    Ours takes turns with each rule's fastest peer. A peer that needs more memory or more time than there is gets
    fewer columns, and ours the same ones: `columns` of the rule says how many.
    """
    peer_environment("consensus/peer_aggregate.py")  # missing peers are said before anything is written
    from capibara_assets.consensus.aggregation import kernels
    from capibara_assets.processes.cores import cores_here

    with TemporaryDirectory(dir=roomy(4 * n * d)) as name:
        path = Path(name, "vectors.bin")
        rows = write_vectors(path, n, d, f)
        load = [round(os.getloadavg()[0], 2)]
        kernels.gram(list(rows[:, :1]))  # compiled code is loaded before any clock runs
        kernels.reduce_sorted(list(rows[:, :1]), np.empty((0, 2), np.int64), 0, n, 0, np.empty(1))
        kernels.combination(list(rows[:, :1]), np.zeros(n), np.empty(1))
        bandwidth = bandwidth_of(rows, repeats)
        with Peers(path, n, d, f) as peers:
            path.unlink()  # both sides have mapped it: a run that is killed leaves no gigabytes behind
            found = {rule: one_rule(rule, rows, f, repeats, limit, peers) for rule in rules}
            versions, threads = peers.versions, peers.threads
        load.append(round(os.getloadavg()[0], 2))
    ratios = {f"ratio_{rule}": found[rule]["ratio"] for rule in rules}
    return {
        "ratio": min((found[rule]["ratio"] for rule in rules if rule in FIVEFOLD), default=None),
        **ratios,
        **bandwidth,
        "n": n,
        "d": d,
        "f": f,
        "rules": found,
        "repeats": repeats,
        "threads": cores_here(),
        "peer_threads": threads,
        "load": load,
        "peer_versions": versions,
        "versions": {package: version(package) for package in ("numpy", "numba", "llvmlite")},
    }


def write_vectors(path: Path, n: int, d: int, f: int) -> np.ndarray:
    """(n, d) float32 in a file that is mapped: honest voters around a common vector, f of them flipped and long."""
    rows = np.memmap(path, np.float32, "w+", shape=(n, d))
    common = np.random.default_rng(0).standard_normal(d, dtype=np.float32)
    for i in range(n):
        noise = np.random.default_rng(1 + i).standard_normal(d, dtype=np.float32)
        noise *= 0.5 + i / n
        rows[i] = noise
        rows[i] += common if i < n - f else -4 * common
    return np.asarray(rows)


def bandwidth_of(rows: np.ndarray, repeats: int) -> dict[str, Any]:
    """The mean and the Gram matrix beside one read of the vectors by as many threads, in turn."""
    from capibara_assets.consensus.aggregation import kernels
    from capibara_assets.consensus.aggregation.aggregate import aggregate

    read, mean, gram = [], [], []
    for _ in range(repeats):
        read.append(seconds_of(lambda: read_once(rows))[0])
        mean.append(seconds_of(lambda: aggregate(rows, "mean"))[0])
        gram.append(seconds_of(lambda: kernels.gram(list(rows)))[0])
    once = statistics.median(read)
    return {
        "mean_over_read": round(statistics.median(mean) / once, 2),
        "gram_over_bandwidth": round(statistics.median(gram) / once, 2),
        "read_s": round(once, 4),
        "read_gb_per_s": round(rows.nbytes / once / 1e9, 1),
        "ranges_s": {
            name: [round(min(values), 4), round(max(values), 4)]
            for name, values in (("read", read), ("mean", mean), ("gram", gram))
        },
    }


def read_once(rows: np.ndarray) -> None:
    from capibara_assets.processes.cores import cores_here

    flat = rows.reshape(-1).view(np.int32)
    parts = np.array_split(flat, 8 * cores_here())
    with ThreadPoolExecutor(cores_here()) as pool:
        list(pool.map(np.max, parts))


def one_rule(rule: str, rows: np.ndarray, f: int, repeats: int, limit: float, peers: "Peers") -> dict[str, Any]:
    from capibara_assets.consensus.aggregation.aggregate import aggregate

    def ours(backend: str, part: np.ndarray) -> Any:
        options: dict[str, Any] = {"neighbours": "n-f-1"} if "krum" in rule and backend.startswith("byzfl") else {}
        return aggregate(part, rule, f=f, **options)

    pilot = min(_PILOT, rows.shape[1])
    steps = {"byzfl-numpy": 0, "byzfl-torch": 0}
    if rule == "geometric_median":
        for backend in BACKENDS[rule]:
            sample = rows[:, : min(_STEPS_PILOT, pilot)]
            steps[backend] = peers.steps_to_converge(backend, sample)
    first = {b: peers.run(b, rule, pilot, steps.get(b, 0)) for b in BACKENDS[rule]}
    seconds = {backend: found for backend, found in first.items() if found is not None}
    near = [backend for backend, found in seconds.items() if found <= _NEAR_BEST * min(seconds.values())]
    columns, notes = rows.shape[1], []
    while (expected := min(seconds.values()) * columns / pilot * (repeats + len(near))) > limit and columns > pilot:
        notes.append(f"{columns} columns would take the peer {expected:.0f} s: half of them")
        columns = max(pilot, columns // 2)
    while True:
        tried = {b: peers.run(b, rule, columns, steps.get(b, 0)) for b in near}
        fits = {backend: found for backend, found in tried.items() if found is not None}
        if fits or columns <= pilot:
            break
        notes.append(f"{columns} columns: {peers.failure}")
        columns = max(pilot, columns // 2)
    best = min(fits, key=lambda backend: fits[backend])
    part = rows if columns == rows.shape[1] else np.ascontiguousarray(rows[:, :columns])
    own, peer = [], []
    for _ in range(repeats):
        taken, result = seconds_of(lambda: ours(best, part))
        own.append(taken)
        found = peers.run(best, rule, columns, steps.get(best, 0))
        if found is None:
            raise RuntimeError(f"{best} {rule}: {peers.failure}")
        peer.append(found)
    theirs = peers.result(best, rule)
    scale = float(np.abs(result.vector).max())
    answer = {
        "ratio": round(statistics.median(peer) / statistics.median(own), 2),
        "ratio_range": [round(min(peer) / max(own), 2), round(max(peer) / min(own), 2)],
        "seconds": round(statistics.median(own), 4),
        "range_s": [round(min(own), 4), round(max(own), 4)],
        "peer": best,
        "peer_s": round(statistics.median(peer), 4),
        "peer_range_s": [round(min(peer), 4), round(max(peer), 4)],
        "peers_once_s": {f"{b} ({pilot} columns)": round(s, 4) for b, s in seconds.items()}
        | {f"{b} ({columns} columns)": round(s, 4) for b, s in fits.items()},
        "columns": columns,
        "notes": notes,
        "largest_difference": float(np.abs(result.vector - theirs).max()) / scale,
    }
    if rule == "geometric_median":
        answer["residual"] = {"ours": residual(part, result.vector), "peer": residual(part, theirs)}
        answer["peer_steps"], answer["peer_residual_wanted"] = steps[best], _CONVERGED
    return answer


def residual(rows: np.ndarray, centre: np.ndarray) -> float:
    """Length of the sum of the unit vectors from `centre` to the voters, over their number: 0 at the median."""
    width = 1 << 16
    parts = [slice(start, start + width) for start in range(0, rows.shape[1], width)]
    squares = sum(np.square(rows[:, part] - centre[part].astype(np.float64)).sum(axis=1) for part in parts)
    inverse = 1 / np.sqrt(squares)
    total = sum(np.square(inverse @ (rows[:, part] - centre[part].astype(np.float64))).sum() for part in parts)
    return float(np.sqrt(total) / len(rows))


def fewest_steps(left_after: Callable[[int], float]) -> int | None:
    """The fewest iterations after which at most `_CONVERGED` is left; None where `_MOST_STEPS` do not suffice.

    Doubled until they suffice, then halved: each try starts anew, so one after the other would take their square.

    Args:
        left_after: iterations -> residual, which more of them never raise.
    """
    enough = 1
    while left_after(enough) > _CONVERGED:
        if enough >= _MOST_STEPS:
            return None
        enough *= 2
    few = enough // 2
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if left_after(middle) <= _CONVERGED else (middle, enough)
    return enough


def seconds_of(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def roomy(needed: int) -> str | None:
    """The memory file system where it has twice the room, else the usual folder for temporary files."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        return None
    free = os.statvfs(shared)
    return str(shared) if free.f_bavail * free.f_frsize > 2 * needed else None


class Peers:
    """The process of the peers' environment that answers one call at a time."""

    def __init__(self, path: Path, n: int, d: int, f: int) -> None:
        python, script = peer_environment("consensus/peer_aggregate.py")
        self.folder, self.f, self.failure = path.parent, f, ""
        self._process = subprocess.Popen(
            [str(python), str(script), str(path), str(n), str(d), str(self.folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        hello = self._read()
        self.versions, self.threads = hello["versions"], hello["threads"]

    def __enter__(self) -> "Peers":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, backend: str, rule: str, columns: int, steps: int = 0) -> float | None:
        """Seconds; None where memory does not suffice, and `failure` says so."""
        assert self._process.stdin is not None
        asked = {"backend": backend, "rule": rule, "f": self.f, "columns": columns, "steps": steps}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        if "failed" in answer:
            self.failure = answer["failed"]
            return None
        return float(answer["seconds"])

    def result(self, backend: str, rule: str) -> np.ndarray:
        return np.asarray(np.load(self.folder / f"{backend}-{rule}.npy"))

    def steps_to_converge(self, backend: str, rows: np.ndarray) -> int:
        """The fewest of its iterations that reach `_CONVERGED`."""

        def left_after(steps: int) -> float:
            if self.run(backend, "geometric_median", rows.shape[1], steps) is None:
                raise RuntimeError(f"{backend} geometric_median: {self.failure}")
            return residual(rows, self.result(backend, "geometric_median"))

        found = fewest_steps(left_after)
        if found is None:
            raise RuntimeError(f"{backend}'s geometric median needs more than {_MOST_STEPS} iterations")
        return found

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the peers' process ended with {self._process.wait()}")
        return dict(json.loads(line))
