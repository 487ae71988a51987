"""The bench `dedup`: near-duplicates beside datatrove and text-dedup, on the same documents and settings."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np

from benchmarks.datasets.documents import SIMILARITIES, experience_documents, planted_documents
from benchmarks.experience_input import BenchInput, bench_input
from benchmarks.output import print_result
from benchmarks.peers import peer_environment
from capibara_assets.datasets.recipe import DatasetRecipe, NearDuplicates
from capibara_assets.deployment.declarations import shipped_recipe

PEERS = ("datatrove", "datatrove-split", "text-dedup")  # split: with a tokeniser of ours, faster than any it ships
PACKAGES = ("datatrove", "text-dedup", "spacy", "numpy")
BANDS = ((0.8, 0.85), (0.85, 0.9), (0.9, 1.0), (1.0, 1.01))  # of the similarity, to tell where pairs are missed
_PER_FILE = 20_000  # documents in a file of `--alone`
OURS = """
import sys, time
from pathlib import Path
import numpy as np
import polars as pl
from capibara_assets.datasets.duplicates.near import components, near_texts
from capibara_assets.datasets.recipe import NearDuplicates
folder, out = map(Path, sys.argv[1:3])
recipe = NearDuplicates.model_validate_json(sys.argv[3])
started = time.perf_counter()
texts = [text for path in sorted(folder.glob("*.jsonl")) for text in pl.read_ndjson(path)["text"]]
pairs = near_texts(texts, recipe)
labels = components(pairs.left, pairs.right, len(texts))
seconds = time.perf_counter() - started
np.save(out / "labels.npy", labels)
np.save(out / "pairs.npy", np.stack([pairs.left, pairs.right]))
print(seconds)
"""
ALONE = """
import json, resource, sys, time
from pathlib import Path
import polars as pl
from capibara_assets.datasets.recipe import NearDuplicates
from benchmarks.datasets.spilled_clusters import cluster_documents
folder, spill = map(Path, sys.argv[1:3])
recipe = NearDuplicates.model_validate_json(sys.argv[3])
before = resource.getrusage(resource.RUSAGE_SELF)
started = time.perf_counter()
batches = (pl.read_parquet(path)["text"].to_list() for path in sorted(folder.glob("*.parquet")))
found = cluster_documents(batches, spill, recipe)
seconds = time.perf_counter() - started
after = resource.getrusage(resource.RUSAGE_SELF)
labels = found.labels
print(json.dumps({
    "documents": len(labels), "clusters": int((labels == range(len(labels))).sum()), "pairs_compared": found.pairs,
    "seconds": round(seconds, 1),
    "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
    "peak_memory_mib": after.ru_maxrss // 1024, "memory_before_mib": before.ru_maxrss // 1024,
    "seconds_of_passes": found.seconds,
}))
"""


@click.command("dedup")
@click.option("--experience", help="Folder of experience; default: the shared collection, else what ships.")
@click.option("--documents", default=20_000, show_default=True, help="Documents made from it.")
@click.option("--repeats", default=5, show_default=True, help="Interleaved runs.")
@click.option("--alone", is_flag=True, help="Only ours, spilled to disk: time and memory as documents grow tenfold.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def dedup(experience: str | None, documents: int, repeats: int, alone: bool, as_json: bool) -> None:
    """Documents per second and recall of true pairs, beside datatrove's and text-dedup's MinHash."""
    source = bench_input(experience, None)
    recipe = shipped_recipe("dataset", DatasetRecipe).near_duplicates
    result = measure_alone(source, documents, recipe) if alone else measure(source, documents, repeats, recipe)
    print_result(result, as_json)


def measure(source: BenchInput, documents: int, repeats: int, recipe: NearDuplicates) -> dict[str, Any]:
    """Every run is a process of its own that reads the files anew; ours and the peers' take turns.

    Seconds run from the first file opened to the clusters known. Imports count for nobody; workers that a run starts
    count for it. Peers run with the number of workers that is fastest for them in a first round. datatrove is run as
    it ships, with its tokeniser for English, and once more with a faster one of ours.
    """
    python, script = peer_environment("datasets/peer_dedup.py")
    texts = list(planted_documents(experience_documents(source.folder), documents, recipe.shingle))
    cores = len(os.sched_getaffinity(0))
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_documents(texts, folder / "documents", cores)
        first = {
            (which, workers): run_peer(python, script, which, workers, folder, recipe)
            for which in PEERS
            for workers in sorted({1, cores})
        }
        best = {which: min((s, workers) for (p, workers), s in first.items() if p == which)[1] for which in PEERS}
        seconds: dict[str, list[float]] = {which: [] for which in ("ours", *PEERS)}
        for _ in range(repeats):
            seconds["ours"].append(run_ours(folder, recipe))
            for which in PEERS:
                seconds[which].append(run_peer(python, script, which, best[which], folder, recipe))
        labels = {which: np.load(folder / which / "labels.npy") for which in seconds}
        pairs = np.load(folder / "ours" / "pairs.npy")
    rate = {which: documents / statistics.median(found) for which, found in seconds.items()}
    left, right, similarity = true_pairs(texts, recipe)
    recall = {which: recalled(found, left, right) for which, found in labels.items()}
    listed = np.isin(left << 32 | right, pairs[0].astype(np.int64) << 32 | pairs[1].astype(np.int64))
    return {
        "ratio": round(rate["ours"] / rate["datatrove"], 1),
        "ratio_datatrove_split": round(rate["ours"] / rate["datatrove-split"], 1),
        "ratio_text_dedup": round(rate["ours"] / rate["text-dedup"], 1),
        "recall": recall["ours"],
        "peer_recall": max(recall[which] for which in PEERS),
        "recalls": recall,
        "recall_of_pairs_listed": float(listed.mean()),
        "recall_by_similarity": {
            f"{low:.2f}": {
                "pairs": int(inside.sum()),
                **{which: recalled(found, left[inside], right[inside]) for which, found in labels.items()},
            }
            for low, high in BANDS
            if (inside := (similarity >= low) & (similarity < high)).any()
        },
        "true_pairs": len(left),
        "false_pairs_listed": int((~np.isin(pairs[0] << 32 | pairs[1], left << 32 | right)).sum()),
        "clusters": {which: len(np.unique(found)) for which, found in labels.items()},
        "documents_per_s": {which: round(found) for which, found in rate.items()},
        "ranges": {w: [round(documents / max(s)), round(documents / min(s))] for w, s in seconds.items()},
        "recall_counts": "true pairs (exact Jaccard, brute force) whose documents are in one cluster",
        "documents": documents,
        "words": sum(text.count(" ") + 1 for text in texts),
        "planted_similarities": SIMILARITIES,
        "repeats": repeats,
        "cores": cores,
        "experience": source.name,
        "settings": recipe.model_dump(),
        "peer_workers": best,
        "peer_versions": peer_versions(python),
        "versions": {name: version(name) for name in ("rensa", "numpy", "scipy")},
    }


def measure_alone(source: BenchInput, documents: int, recipe: NearDuplicates) -> dict[str, Any]:
    """The spilled search on a tenth of the documents and on all of them: do time per million and memory stay?

    `linearity` is the CPU time per document of all over that of a tenth: 1 when time is linear.
    """
    originals = experience_documents(source.folder)
    runs = []
    for count in (max(1, documents // 10), documents):
        with TemporaryDirectory() as name:
            folder, spill = Path(name, "documents"), Path(name, "spill")
            spill.mkdir()
            write_parquet(planted_documents(originals, count, recipe.shingle), folder)
            command = [sys.executable, "-c", ALONE, str(folder), str(spill), recipe.model_dump_json()]
            run = json.loads(_output(command).splitlines()[-1])
        rates = {f"{name}_per_million": round(run[name] / count * 1e6, 1) for name in ("seconds", "cpu_s")}
        runs.append(run | rates)
    return {
        "documents": documents,
        "seconds": runs[1]["seconds"],
        "seconds_per_million": runs[1]["seconds_per_million"],
        "seconds_per_million_of_a_tenth": runs[0]["seconds_per_million"],
        "linearity": round(runs[1]["cpu_s_per_million"] / runs[0]["cpu_s_per_million"], 3),
        "peak_memory_mib": runs[1]["peak_memory_mib"],
        "runs": runs,
        "experience": source.name,
        "settings": recipe.model_dump(),
    }


def true_pairs(texts: Sequence[str], recipe: NearDuplicates) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All pairs left < right of exact Jaccard at the threshold or above, by brute force, and their similarities.

    The shared shingles of all pairs are a product of sparse matrices; shingles are tuples of words here, numbered by a
    dictionary, with nothing hashed and nothing sampled.
    """
    from scipy.sparse import csr_array

    numbers: dict[tuple[str, ...], int] = {}
    columns: list[int] = []
    ends = [0]
    for text in texts:
        words = text.split()
        runs = {tuple(words[i : i + recipe.shingle]) for i in range(max(1, len(words) - recipe.shingle + 1))}
        columns += sorted(numbers.setdefault(run, len(numbers)) for run in runs)
        ends.append(len(columns))
    shape = (len(texts), len(numbers))
    matrix = csr_array((np.ones(len(columns), np.int32), np.array(columns), np.array(ends)), shape=shape)
    sizes, turned = np.diff(ends), matrix.T.tocsr()
    found = []
    for start in range(0, len(texts), 500):
        product = (matrix[start : start + 500] @ turned).tocoo()
        left, right = product.coords[0].astype(np.int64) + start, product.coords[1].astype(np.int64)
        similarity = product.data / (sizes[left] + sizes[right] - product.data)
        kept = (left < right) & (similarity >= recipe.jaccard)
        found.append((left[kept], right[kept], similarity[kept]))
    left, right, similarity = (np.concatenate(column) for column in zip(*found, strict=True))
    return left, right, similarity


def recalled(labels: np.ndarray, left: np.ndarray, right: np.ndarray) -> float:
    """Share of the pairs whose documents are in one cluster, rounded down to six digits."""
    return float(np.floor((labels[left] == labels[right]).mean() * 1e6) / 1e6)


def write_documents(texts: Sequence[str], folder: Path, files: int) -> None:
    """JSON lines {"text"} in so many files, in order."""
    folder.mkdir(parents=True)
    each = -(-len(texts) // files)
    for number in range(files):
        lines = [json.dumps({"text": text}) + "\n" for text in texts[number * each : (number + 1) * each]]
        (folder / f"{number:03d}.jsonl").write_text("".join(lines), encoding="utf-8")


def write_parquet(texts: Iterator[str], folder: Path) -> None:
    """Files of `_PER_FILE` documents, in order."""
    import polars as pl

    folder.mkdir(parents=True)
    number = 0
    while batch := list(islice(texts, _PER_FILE)):
        pl.DataFrame({"text": batch}).write_parquet(folder / f"{number:06d}.parquet")
        number += 1


def run_ours(folder: Path, recipe: NearDuplicates) -> float:
    """Seconds; leaves labels and pairs in `folder`/ours."""
    out = folder / "ours"
    out.mkdir(exist_ok=True)
    command = [sys.executable, "-c", OURS, str(folder / "documents"), str(out), recipe.model_dump_json()]
    return float(_output(command).split()[-1])


def run_peer(python: Path, script: Path, which: str, workers: int, folder: Path, recipe: NearDuplicates) -> float:
    """Seconds; leaves labels in `folder`/<peer>."""
    with TemporaryDirectory() as out:
        settings = [workers, recipe.permutations, recipe.bands, recipe.shingle]
        command = [str(python), str(script), which, str(folder / "documents"), out, *map(str, settings)]
        found = json.loads(_output(command).splitlines()[-1])
        (folder / which).mkdir(exist_ok=True)
        Path(out, "labels.npy").replace(folder / which / "labels.npy")
    return float(found["seconds"])


def peer_versions(python: Path) -> dict[str, str]:
    code = f"import json, importlib.metadata as m; print(json.dumps({{p: m.version(p) for p in {PACKAGES!r}}}))"
    return dict(json.loads(_output([str(python), "-c", code])))


def _output(command: list[str]) -> str:
    root = str(Path(__file__).resolve().parents[2])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    return done.stdout
