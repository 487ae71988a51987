"""The bench `merge`: merging checkpoints of a gigabyte beside mergekit, on the same files, and beside copying."""

import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from benchmarks.output import print_result
from benchmarks.peers import peer_environment

FIVEFOLD = ("ties", "della", "model_stock", "slerp")
"""The methods whose smallest ratio is `ratio`; `linear` has one of its own."""
METHODS = ("linear", *FIVEFOLD)
WEIGHTS = (0.5, 0.3, 0.2)
PACKAGES = ("mergekit", "torch", "transformers", "safetensors", "numpy")
GRID: tuple[dict[str, Any], ...] = (
    {},
    {"lazy_unpickle": True},
    {"low_cpu_memory": True},
    {"async_write": True, "write_threads": 2},
)
OURS = """
import sys
from benchmarks.consensus.merge import serve
serve()
"""


@click.command("merge")
@click.option("--repeats", default=5, show_default=True, help="Interleaved runs.")
@click.option("--quick", is_flag=True, help="Checkpoints of 100 MB instead of 1 GB.")
@click.option("--dtype", default="float32", show_default=True, type=click.Choice(["float32", "bfloat16"]))
@click.option("--methods", default=",".join(METHODS), show_default=True)
@click.option("--alone", is_flag=True, help="Only ours and the copy: no peer is needed.")
@click.option("--folder", help="Where checkpoints and results lie; default: the temporary folder.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def merge(repeats: int, quick: bool, dtype: str, methods: str, alone: bool, folder: str | None, as_json: bool) -> None:
    """Seconds of merges beside mergekit's, and of linear beside reading, writing, syncing and hashing the same."""
    print_result(measure(repeats, quick, dtype, methods.split(","), alone, folder), as_json)


def measure(
    repeats: int, quick: bool, dtype: str, methods: Sequence[str], alone: bool, folder: str | None
) -> dict[str, Any]:
    """Ours and the peer run in a process each that is started, and has merged something small, before the clock runs.

    All files are read once before each run. Ours hashes and syncs what it writes; mergekit does neither, so its
    seconds are given as they are (`ratio`), and with a sync of its files behind (`synced_ratio`); `cpu_ratio_<method>`
    compares processor seconds, which a busy machine distorts less. It runs under the
    fastest of a small grid of its settings, found for each method in a first round.
    """
    python, script = (Path(), Path()) if alone else peer_environment("consensus/peer_merge.py")
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory(dir=folder, prefix="capibara-merge-")))
        names = make_checkpoints(place, quick, dtype)
        small = make_small(place / "small", dtype)
        ours = stack.enter_context(_Served([sys.executable, "-c", OURS], os.environ | {"PYTHONPATH": _root()}))
        peer = None
        if not alone:
            peer = stack.enter_context(_Served([str(python), str(script)], dict(os.environ)))
        seconds: dict[str, dict[str, list[float]]] = {}
        settings: dict[str, dict[str, Any]] = {}
        peaks: dict[str, int] = {}
        for method in methods:
            for server in filter(None, (ours, peer)):
                server.ask(_request(method, small, place / "out", {}))  # compiled, imported, planned once
            if peer is not None:
                settings[method] = _fastest(peer, method, names, place, quick)
            found: dict[str, list[float]] = {
                key: [] for key in ("ours", "peer", "peer_synced", "copy", "ours_cpu", "peer_cpu")
            }
            for _ in range(repeats):
                _warm(names)
                answer, peak = ours.ask(_request(method, names, place / "out", {}))
                found["ours"].append(answer["seconds"])
                found["ours_cpu"].append(answer["cpu_s"])
                peaks[method] = max(peak, peaks.get(method, 0))
                if method == "linear":
                    found["copy"].append(ours.ask({"copy": names[1:], "out": str(place / "out")})[0]["seconds"])
                if peer is not None:
                    _warm(names)
                    answer, _ = peer.ask(_request(method, names, place / "out", settings[method]))
                    found["peer"].append(answer["seconds"])
                    found["peer_cpu"].append(answer["cpu_s"])
                    found["peer_synced"].append(answer["synced_seconds"])
            seconds[method] = {key: values for key, values in found.items() if values}
        size = _bytes(Path(names[0]))
        largest = _largest(Path(names[0]))
        versions = {} if alone else _peer_versions(python)
    return {
        **_ratios(seconds),
        "peak_rss_mb": round(max(peaks.values()) / 1e6, 1),
        "peak_rss_allowed_mb": round(256 + 3 * largest / 1e6, 1),
        "peak_rss_is": "RssAnon of our process above what it held before the merge, the largest of all runs",
        "peak_rss_mb_by_method": {method: round(peak / 1e6, 1) for method, peak in peaks.items()},
        "largest_tensor_mb": round(largest / 1e6, 1),
        "seconds": {
            method: {key: round(statistics.median(values), 3) for key, values in found.items()}
            for method, found in seconds.items()
        },
        "ranges": {
            method: {key: [round(min(values), 3), round(max(values), 3)] for key, values in found.items()}
            for method, found in seconds.items()
        },
        "peer_settings": settings,
        "checkpoint_mb": round(size / 1e6, 1),
        "models": {method: len(_inputs(method, names)) for method in methods},
        "dtype": dtype,
        "repeats": repeats,
        "cores": len(os.sched_getaffinity(0)),
        "peer_versions": versions,
        "versions": {name: version(name) for name in ("numba", "numpy", "torch")},
    }


def _ratios(seconds: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, Any]:
    """Peer's median seconds over ours, per method; the smallest of the fivefold ones; linear over the copy."""

    def over(method: str, key: str, ours: str = "ours") -> float | None:
        found = seconds.get(method, {})
        return round(statistics.median(found[key]) / statistics.median(found[ours]), 2) if key in found else None

    each = {method: over(method, "peer") for method in seconds}
    synced = {method: over(method, "peer_synced") for method in seconds}
    linear = seconds.get("linear", {})
    copy_ratio = None
    if "copy" in linear:
        copy_ratio = round(statistics.median(linear["ours"]) / statistics.median(linear["copy"]), 2)
    return {
        "ratio": min((r for method in FIVEFOLD if (r := each.get(method)) is not None), default=None),
        "linear_ratio": each.get("linear"),
        "copy_ratio": copy_ratio,
        **{f"ratio_{method}": ratio for method, ratio in each.items()},
        "synced_ratio": min((r for method in FIVEFOLD if (r := synced.get(method)) is not None), default=None),
        **{f"synced_ratio_{method}": ratio for method, ratio in synced.items()},
        **{f"cpu_ratio_{method}": over(method, "peer_cpu", "ours_cpu") for method in seconds},
    }


def make_checkpoints(place: Path, quick: bool, dtype: str) -> list[str]:
    """A base and three models of a Llama's shape with random weights, in shards: folders, the base first."""
    layers, hidden, inner, vocabulary = (4, 512, 1408, 12000) if quick else (15, 1024, 2816, 32000)
    if dtype == "bfloat16":
        layers = 2 * layers + (5 if quick else 6)
    return _make(place, layers, hidden, inner, vocabulary, dtype, "40MB" if quick else "400MB")


def make_small(place: Path, dtype: str) -> list[str]:
    """The same in small, for warming up."""
    return _make(place, 1, 64, 128, 100, dtype, "1GB")


def _make(place: Path, layers: int, hidden: int, inner: int, vocabulary: int, dtype: str, shard: str) -> list[str]:
    import torch
    from huggingface_hub import save_torch_state_dict

    kind = getattr(torch, dtype)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocabulary, hidden),
        "lm_head.weight": (vocabulary, hidden),
    }
    for layer in range(layers):
        before = f"model.layers.{layer}"
        shapes |= {f"{before}.self_attn.{name}_proj.weight": (hidden, hidden) for name in "qkvo"}
        shapes |= {f"{before}.mlp.{name}_proj.weight": (inner, hidden) for name in ("gate", "up")}
        shapes[f"{before}.mlp.down_proj.weight"] = (hidden, inner)
        shapes |= {f"{before}.{name}_layernorm.weight": (hidden,) for name in ("input", "post_attention")}
    shapes["model.norm.weight"] = (hidden,)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 32,
        "num_key_value_heads": hidden // 32,
        "vocab_size": vocabulary,
        "tie_word_embeddings": False,
        "dtype": dtype,
    }
    random = torch.Generator().manual_seed(0)
    base = {name: 0.1 * torch.randn(shape, generator=random) for name, shape in shapes.items()}
    folders = []
    for number in range(4):
        folder = place / (f"model-{number}" if number else "base")
        folder.mkdir(parents=True)
        changed = (
            base if not number else {n: t + 0.02 * torch.randn(t.shape, generator=random) for n, t in base.items()}
        )
        save_torch_state_dict({n: t.to(kind) for n, t in changed.items()}, folder, max_shard_size=shard)
        (folder / "config.json").write_text(json.dumps(config))
        folders.append(str(folder))
    return folders


def _inputs(method: str, names: Sequence[str]) -> list[str]:
    """What a method merges, the base not counted."""
    return list(names[1:3] if method == "slerp" else names[1:])


def _request(method: str, names: Sequence[str], out: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A merge, as ours is asked for it (`options`) and as mergekit is (`config`)."""
    inputs = _inputs(method, names)
    options: dict[str, Any] = {} if method == "model_stock" else {"weights": list(WEIGHTS)}
    if method in ("ties", "della"):
        options["density"] = 0.5
    if method == "della":
        options |= {"epsilon": 0.1, "seed": 7}
    if method == "slerp":
        options = {"t": 0.35, "base": inputs[0]}
    elif method != "linear":
        options["base"] = names[0]
    per_model = {key: options[key] for key in ("density", "epsilon") if key in options}
    models: list[dict[str, Any]] = [
        {"model": name, "parameters": {**({"weight": w} if "weights" in options else {}), **per_model}}
        for name, w in zip(inputs, WEIGHTS, strict=False)
    ]
    config: dict[str, Any] = {"merge_method": method, "models": models, "dtype": _dtype(names[0])}
    if "base" in options:
        config["base_model"] = options["base"]
    if method == "slerp":
        config["parameters"] = {"t": 0.35}
    asked = {"paths": inputs, "method": method, "options": options}
    return {**asked, "config": config, "settings": dict(settings), "out": str(out)}


def _dtype(folder: str) -> str:
    return str(json.loads(Path(folder, "config.json").read_text())["dtype"])


def _fastest(peer: "_Served", method: str, names: Sequence[str], place: Path, quick: bool) -> dict[str, Any]:
    """The settings under which the peer is fastest, each tried once."""
    tried = []
    for number, settings in enumerate(GRID):
        _warm(names)
        answer, _ = peer.ask(_request(method, names, place / "out", settings))
        tried.append((answer["seconds"], number))
    return dict(GRID[min(tried)[1]])


def _warm(names: Sequence[str]) -> None:
    """Read all files, so that they are in the file cache for whoever comes."""
    for path in (path for name in names for path in sorted(Path(name).glob("*.safetensors"))):
        with path.open("rb", buffering=0) as file:
            buffer = bytearray(1 << 20)
            while file.readinto(buffer):
                pass


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def _largest(folder: Path) -> int:
    from capibara_assets.checkpoints.content import nbytes
    from capibara_assets.checkpoints.formats.huggingface import read

    return max(nbytes(source.dtype, source.shape) for source in read(folder).tensors.values())


def _root() -> str:
    return os.pathsep.join(filter(None, [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH")]))


def _peer_versions(python: Path) -> dict[str, str]:
    code = f"import json, importlib.metadata as m; print(json.dumps({{p: m.version(p) for p in {PACKAGES!r}}}))"
    return dict(json.loads(subprocess.run([str(python), "-c", code], capture_output=True, check=True).stdout))


class _Served:
    """A process that answers requests, one JSON line each; the peak of its anonymous memory is watched from outside."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self._said: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> "_Served":
        self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """(the answer, the most RssAnon while it was worked on, over what there was before, in bytes)."""
        before = peak = _anonymous(self._process.pid)
        done = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not done.wait(0.005):
                peak = max(peak, _anonymous(self._process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            answer = self._answer()
        finally:
            done.set()
            watcher.join()
            shutil.rmtree(request["out"], ignore_errors=True)
        return answer, peak - before

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._listener.join(5)
            raise RuntimeError(f"a process of the bench ended:\n{''.join(self._said)[-2000:]}")
        return dict(json.loads(line))

    def _listen(self) -> None:
        assert self._process.stderr is not None
        self._said.extend(self._process.stderr)


def _anonymous(pid: int) -> int:
    from benchmarks.checkpoints.memory import anonymous

    return anonymous(pid)


def serve() -> None:
    """Our side of `_Served`: merges, and the copy that a linear merge is compared with."""
    from capibara_assets.consensus.merging.checkpoint_merge import merge_checkpoints

    sys.stdout.write(json.dumps({"ready": True}) + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        request = json.loads(line)
        started, cpu = time.perf_counter(), time.process_time()
        if "copy" in request:
            copy(request["copy"], Path(request["out"]))
        else:
            merge_checkpoints(request["paths"], request["method"], request["out"], **request["options"])
        sys.stdout.write(
            json.dumps({"seconds": time.perf_counter() - started, "cpu_s": time.process_time() - cpu}) + "\n"
        )
        sys.stdout.flush()


def copy(folders: Sequence[str], out: Path) -> None:
    """Read all the files of the folders, write those of the first, sync them, hash what was written.

    As well as can be done on all cores: several threads read and write, one for each file hashes behind them.
    """
    from capibara_assets.consensus.merging.writer import PIECE, Writer, write_side_by_side

    scratch = threading.local()
    out.mkdir()

    def move(sources: Sequence[int], offset: int, into: memoryview) -> None:
        if not hasattr(scratch, "bytes"):
            scratch.bytes = memoryview(bytearray(PIECE))
        for source in sources[1:]:
            os.preadv(source, [scratch.bytes[: len(into)]], offset)
        os.preadv(sources[0], [into], offset)

    with ExitStack() as opened:

        def write(name: str, _: Executor, writer: Writer) -> None:
            files = [opened.enter_context(Path(folder, name).open("rb", buffering=0)) for folder in folders]
            sources = [file.fileno() for file in files]
            size = os.fstat(sources[0]).st_size
            writer.open(name, b"", size)
            for offset in range(0, size, PIECE):
                writer.put(min(PIECE, size - offset), functools.partial(move, sources, offset))

        names = sorted(path.name for path in Path(folders[0]).glob("*.safetensors"))
        write_side_by_side(out, names, len(os.sched_getaffinity(0)), write)
