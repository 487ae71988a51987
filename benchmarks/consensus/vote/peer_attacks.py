"""ByzFL's rules on the vectors of the bench `vote-table`. Run by it.

    python peer_attacks.py JOB

JOB is a JSON file: vectors (.npy, (n, d) float32), f, rules (names of RULES), out (folder), limit_s. Each rule runs in
a process of its own, because one of them can loop for hours on a huge vector. Writes OUT/<rule>.npy and prints one
JSON line: rule -> seconds, or what went wrong.
"""

import importlib.util
import json
import multiprocessing
import sys
import time
import types
from pathlib import Path

import numpy as np

# The package's own __init__ imports its benchmark, and that torchvision: only the aggregators are wanted
package = types.ModuleType("byzfl")
package.__path__ = list(importlib.util.find_spec("byzfl").submodule_search_locations)
sys.modules["byzfl"] = package

from byzfl.aggregators import aggregators as rules  # noqa: E402
from byzfl.aggregators import preaggregators as mixings  # noqa: E402

RULES = {
    "mean": lambda f: rules.Average(),
    "median": lambda f: rules.Median(),
    "trimmed_mean": lambda f: rules.TrMean(f),
    "meamed": lambda f: rules.Meamed(f),
    "krum": lambda f: rules.Krum(f),
    "multi_krum": lambda f: rules.MultiKrum(f),
    "geometric_median": lambda f: rules.GeometricMedian(),
    "mda": lambda f: rules.MDA(f),
    "smea": lambda f: rules.SMEA(f),
    "caf": lambda f: rules.CAF(f),
    "nnm+trimmed_mean": lambda f: after(mixings.NNM(f), rules.TrMean(f)),
    "nnm+geometric_median": lambda f: after(mixings.NNM(f), rules.GeometricMedian()),
}


def after(mixing, rule):
    """The rule on what the mixing makes."""
    return lambda vectors: rule(mixing(vectors))


def run(name, vectors, f, out):
    """One rule, its result in a file."""
    given = np.load(vectors)  # a fresh copy: some of them write into their input
    np.save(out, np.asarray(RULES[name](f)(given), dtype=np.float32))


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    found = {}
    for name in job["rules"]:
        out = Path(job["out"]) / f"{name}.npy"
        begun = time.perf_counter()
        child = multiprocessing.get_context("fork").Process(target=run, args=(name, job["vectors"], job["f"], out))
        child.start()
        child.join(job["limit_s"])
        if child.is_alive():
            child.kill()
            child.join()
            found[name] = f"no result within {job['limit_s']} s"
        elif child.exitcode != 0:
            found[name] = "failed"
        else:
            found[name] = round(time.perf_counter() - begun, 2)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
