"""The bench `ingest`: reading, checking, redacting, ledger and writing beside datatrove, on the same records."""

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from benchmarks.experience_input import bench_input
from benchmarks.output import print_result
from benchmarks.peers import peer_environment
from capibara_assets.cli.graph.memory import watched_memory

PARSE = """
import gzip, sys
import orjson
for path in sys.argv[1:]:
    with gzip.open(path, "rb") as lines:
        for line in lines:
            try:
                orjson.loads(line)
            except orjson.JSONDecodeError:
                pass  # a bare NaN
"""
INGEST = """
import json, resource, sys, time
from datetime import UTC, datetime
from pathlib import Path
from capibara_assets.executions.ingest.ingest import ingest
started, worked = time.perf_counter(), time.process_time()
labelled = sys.argv[3] == "labelled"
with ingest(Path(sys.argv[1]), now=datetime.now(UTC), ledger=Path(sys.argv[2]), labelled=labelled) as tables:
    seconds, rows = time.perf_counter() - started, tables.summary["executions"]
others = resource.getrusage(resource.RUSAGE_CHILDREN)
cpu = time.process_time() - worked + others.ru_utime + others.ru_stime
print(json.dumps({"seconds": seconds, "cpu_s": cpu, "rows": rows, "quarantined": tables.summary["quarantined"]}))
"""


@click.command("ingest")
@click.option(
    "--experience",
    help="Folder the records are copied from; default: the shared collection, else what ships.",
)
@click.option("--records", default=100_000, show_default=True, help="Perturbed copies to read.")
@click.option("--repeats", default=5, show_default=True, help="Interleaved runs.")
@click.option("--alone", is_flag=True, help="Only ours: seconds, CPU and memory, for many records.")
@click.option("--files", type=int, help="Only ours: what one new file costs among so many, with labels.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def ingest(experience: str | None, records: int, repeats: int, alone: bool, files: int | None, as_json: bool) -> None:
    """Records per second of read + check + redact + ledger + write, beside datatrove and beside parsing alone."""
    if files is not None:
        result = measure_one_more(experience, records, files)
    else:
        result = (measure_alone if alone else measure)(experience, records, repeats)
    print_result(result, as_json)


def measure_one_more(experience: str | None, records: int, files: int) -> dict[str, Any]:
    """Processor time of a look at one new file among many, beside that of the look at all others."""
    from benchmarks.experience.corpus import write_corpus
    from capibara_assets.executions.formats.lines import LineReader

    with TemporaryDirectory() as folder:
        packed, corpus, ledger = (Path(folder) / name for name in ("packed", "corpus", "ledger"))
        write_corpus(bench_input(experience, None).folder, packed, records)
        corpus.mkdir()
        lines = (line.data + b"\n" for path in sorted(packed.iterdir()) for line in LineReader(path))
        for number in range(files):
            chunk = b"".join(itertools.islice(lines, -(-records // files)))
            (corpus / f"executions-{number:06d}.jsonl").write_bytes(chunk)
        held, shown = Path(folder) / "held", corpus / f"executions-{files // 2:06d}.jsonl"
        shown.rename(held)
        whole = _ours(corpus, ledger, "labelled")
        held.rename(shown)
        one = _ours(corpus, ledger, "labelled")
    return {
        "one_more_share": round(one["cpu_s"] / whole["cpu_s"], 4),
        "one_more_cpu_s": round(one["cpu_s"], 2),
        "whole_cpu_s": round(whole["cpu_s"], 2),
        "new_rows": one["rows"] - whole["rows"],
        "records": records,
        "files": files,
    }


def measure_alone(experience: str | None, records: int, repeats: int) -> dict[str, Any]:
    """Ours alone: does memory stay flat, and CPU linear, as the records grow?"""
    from benchmarks.experience.corpus import write_corpus

    facts: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        size = write_corpus(bench_input(experience, None).folder, Path(folder) / "corpus", records)
        seconds = [run_ours(Path(folder) / "corpus", facts) for _ in range(repeats)]
    return {
        "ours": round(records / statistics.median(seconds)),
        "records": records,
        "bytes": size,
        "repeats": repeats,
        **facts,
    }


def measure(experience: str | None, records: int, repeats: int) -> dict[str, Any]:
    """Whole processes, interleaved; `parse` is orjson alone on as many processes as there are cores."""
    from benchmarks.experience.corpus import write_corpus

    peer_python, peer_script = peer_environment("experience/peer_ingest.py")
    source = bench_input(experience, None)
    cores = len(os.sched_getaffinity(0))
    seconds: dict[str, list[float]] = {"ours": [], "peer": [], "parse": [], "parse_one_process": []}
    facts: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        size = write_corpus(source.folder, corpus, records)
        files = sorted(map(str, corpus.iterdir()))
        grid = [{"compression": compression, "workers": cores} for compression in ("snappy", "zstd")]
        best = min(grid, key=lambda setting: run_peer(peer_python, peer_script, corpus, setting, facts))
        for _ in range(repeats):
            seconds["ours"].append(run_ours(corpus, facts))
            seconds["peer"].append(run_peer(peer_python, peer_script, corpus, best, facts))
            seconds["parse"].append(_timed(lambda: run_parse(files, cores)))
            seconds["parse_one_process"].append(_timed(lambda: run_parse(files, 1)))
    rate = {name: records / statistics.median(found) for name, found in seconds.items()}
    return {
        "ours": round(rate["ours"]),
        "peer": round(rate["peer"]),
        "ratio": round(rate["ours"] / rate["peer"], 2),
        "cpu_ratio": round(facts["peer_cpu_us_per_record"] / facts["our_cpu_us_per_record"], 2),
        "parse_ratio": round(rate["parse"] / rate["ours"], 2),
        "parse_ratio_one_process": round(rate["parse_one_process"] / rate["ours"], 2),
        "unit": "records/s; parse_ratio: orjson's records/s over ours",
        "ranges": {name: [round(records / max(s)), round(records / min(s))] for name, s in seconds.items()},
        "records": records,
        "bytes": size,
        "repeats": repeats,
        "cores": cores,
        "experience": source.name,
        "peer_settings": best,
        **facts,
    }


def _timed(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def run_ours(corpus: Path, facts: dict[str, Any]) -> float:
    """Seconds from the call to the tables, with the start of its processes; as of the peer, imports do not count."""
    with TemporaryDirectory() as ledger, watched_memory(0.1, itself=False) as peak:
        found = _ours(corpus, Path(ledger), "unlabelled")
    facts["our_rows"], facts["our_quarantined"] = found["rows"], found["quarantined"]
    _note_cpu(facts, "our", found)
    facts["our_peak_memory_mib"] = max(round(peak.bytes / 2**20), facts.get("our_peak_memory_mib", 0))
    return float(found["seconds"])


def _ours(corpus: Path, ledger: Path, labelled: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_output([sys.executable, "-c", INGEST, str(corpus), str(ledger), labelled]))
    return found


def _note_cpu(facts: dict[str, Any], whose: str, found: dict[str, Any]) -> None:
    """Keeps the least of all runs: others on the machine only add to it."""
    cpu = round(found["cpu_s"] / max(1, found["rows"]) * 1e6, 1)
    name = f"{whose}_cpu_us_per_record"
    facts[name] = min(cpu, facts.get(name, cpu))


def run_peer(python: Path, script: Path, corpus: Path, setting: dict[str, Any], facts: dict[str, Any]) -> float:
    """Seconds of the pipeline, with the start of its processes."""
    with TemporaryDirectory() as out:
        command = [str(python), str(script), str(corpus), out, str(setting["workers"]), setting["compression"]]
        found = json.loads(_output(command).splitlines()[-1])
    _note_cpu(facts, "peer", found)
    facts["peer_rows"] = found.pop("rows")
    del found["cpu_s"]
    seconds = float(found.pop("seconds"))
    facts["versions"] = found | {"orjson": _version("orjson"), "polars": _version("polars")}
    return seconds


def run_parse(files: list[str], processes: int) -> None:
    """Every line through orjson, the files dealt out by size."""
    sizes = sorted(files, key=lambda path: -Path(path).stat().st_size)
    running = [subprocess.Popen([sys.executable, "-c", PARSE, *sizes[n::processes]]) for n in range(processes)]
    if any(process.wait() for process in running):
        raise RuntimeError("parsing alone failed; what it says is above")


def _output(command: list[str]) -> str:
    root = str(Path(__file__).resolve().parents[2])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    return done.stdout


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)
