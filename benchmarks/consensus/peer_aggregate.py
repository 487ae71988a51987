"""ByzFL's and Flower's aggregation on the same vectors. Run by the bench `aggregate`.

    python peer_aggregate.py FILE N D OUT

FILE holds an (N, D) float32 matrix. Answers each line of JSON on stdin, {"backend", "rule", "f", "columns", "steps"},
with one on stdout: seconds of the aggregation alone (the vectors are in memory and in the form that the library
takes), or `failed` where memory does not suffice; the result is left in OUT/<backend>-<rule>.npy. Both libraries are
loaded without their package's own start, which would import torchvision and a web server.
"""

import gc
import importlib
import importlib.util
import json
import resource
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import psutil
import torch

BACKENDS = ("byzfl-numpy", "byzfl-torch", "flower")
LEFT_FREE = 2 << 30  # bytes of memory that a peer does not take


def bare_package(name: str) -> Path:
    """Makes `name` importable without running its __init__; its folder."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.submodule_search_locations
    package = ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules[name] = package
    return Path(package.__path__[0])


def flower() -> Any:
    """Flower's functions, as they are, without the classes that only its annotations and its server name."""
    folder = bare_package("flwr")
    for name in ("flwr.common", "flwr.server", "flwr.server.client_proxy"):
        sys.modules[name] = ModuleType(name)
    for name in ("FitRes", "NDArray", "NDArrays", "parameters_to_ndarrays"):
        setattr(sys.modules["flwr.common"], name, Any if name != "NDArrays" else list)
    sys.modules["flwr.server.client_proxy"].ClientProxy = Any  # type: ignore[attr-defined]
    spec = importlib.util.spec_from_file_location("flower_aggregate", folder / "server" / "strategy" / "aggregate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def byzfl_call(backend: str, rule: str, f: int, steps: int, rows: np.ndarray) -> Any:
    bare_package("byzfl") if "byzfl" not in sys.modules else None
    aggregators = importlib.import_module("byzfl.aggregators.aggregators")
    made = {
        "mean": lambda: aggregators.Average(),
        "median": lambda: aggregators.Median(),
        "trimmed_mean": lambda: aggregators.TrMean(f=f),
        "krum": lambda: aggregators.Krum(f=f),
        "multi_krum": lambda: aggregators.MultiKrum(f=f),
        "geometric_median": lambda: aggregators.GeometricMedian(nu=1e-9, T=steps),
    }[rule]()
    vectors = torch.from_numpy(rows) if backend == "byzfl-torch" else rows
    return lambda: made(vectors)


def flower_call(module: Any, rule: str, f: int, rows: np.ndarray) -> Any:
    results = [([row], 1) for row in rows]
    return {
        "mean": lambda: module.aggregate(results)[0],
        "median": lambda: module.aggregate_median(results)[0],
        "trimmed_mean": lambda: module.aggregate_trimmed_avg(results, f / len(rows))[0],
        "krum": lambda: module.aggregate_krum(results, f, 0)[0],
        "multi_krum": lambda: module.aggregate_krum(results, f, len(rows) - f)[0],
        "bulyan": lambda: module.aggregate_bulyan(results, f, module.aggregate_krum, to_keep=0)[0],
    }[rule]


def main() -> None:
    n, d, out = int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    # Too much is an error here, not the end of some process of the machine's choice
    limit = psutil.virtual_memory().available - LEFT_FREE
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    rows = np.memmap(sys.argv[1], np.float32, "c", shape=(n, d))  # "c": torch wants writable memory
    library = flower()
    versions = {name: version(name) for name in ("byzfl", "flwr", "numpy", "torch", "scipy")}
    print(json.dumps({"versions": versions, "threads": torch.get_num_threads()}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        backend, rule, f = asked["backend"], asked["rule"], asked["f"]
        part = np.asarray(rows)[:, : asked["columns"]]
        part = part if part.flags.c_contiguous else np.ascontiguousarray(part)
        gc.collect()
        try:
            if backend == "flower":
                call = flower_call(library, rule, f, part)
            else:
                call = byzfl_call(backend, rule, f, asked["steps"], part)
            started = time.perf_counter()
            result = call()
            seconds = time.perf_counter() - started
            np.save(out / f"{backend}-{rule}.npy", np.asarray(result))
            answer: dict[str, Any] = {"seconds": seconds}
        except (MemoryError, RuntimeError) as error:  # torch says RuntimeError
            answer = {"failed": f"{type(error).__name__}: {str(error)[:200]}"}
        part = result = call = None
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
