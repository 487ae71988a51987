"""Soups of checkpoints or adapters on disk: averages weighted by their losses on held-out examples.

Whole models are averaged tensor by tensor from their files and measured one after the other, so that one of them is in
memory at a time. Adapters are averaged as products (`merge_adapters`), on one base.
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from capibara_assets import __version__
from capibara_assets.checkpoints.formats.publish import new_folder
from capibara_assets.consensus.choose.choosing import measure
from capibara_assets.consensus.choose.soups import Method
from capibara_assets.consensus.merging.checkpoint_merge import merge_checkpoints
from capibara_assets.datasets.imported.own_files import read_held_out
from capibara_assets.datasets.tokens.tokenising import encode_examples
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, read_adapter, write_adapter
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.modeling.files import ADAPTER_CONFIG, CONFIG
from capibara_assets.modeling.greedy import SoupMetric, greedy_choice, soup_shares
from capibara_assets.modeling.low_rank import merge_adapters
from capibara_assets.storage.digests import sha256_file
from capibara_assets.storage.jsonfiles import write_json_atomic

RECORD = "soup.json"
"""File in the result that says what it was made of."""
Weights = tuple[float, ...]


@dataclass(frozen=True)
class HeldOut:
    """Held-out examples for measuring a soup.

    Attributes:
        file: of examples (JSON lines, JSON, Parquet), or the graph's table, of which its validation split counts.
        max_length: longest example in tokens; longer ones are left out.
    """

    file: Path
    max_length: int = 1024


@dataclass(frozen=True)
class CheckpointSoup:
    """A soup on disk, and how it was made.

    Attributes:
        path: a Transformers folder, or an adapter in PEFT's format; with `soup.json`.
        weights: one per model, in the caller's order; 0 for those left out.
        losses: of the models alone, nats per token on the held-out examples.
        loss: of the soup.
        attempts: of a greedy soup: places in the caller's order with the newcomer last, the loss, whether it was kept.
        examples, tokens: held-out examples, and their tokens with a loss.
    """

    path: Path
    weights: Weights
    losses: tuple[float, ...]
    loss: float
    attempts: tuple[Mapping[str, Any], ...]
    examples: int
    tokens: int


def soup_of_checkpoints(
    paths: Sequence[Path],
    held_out: HeldOut,
    out: Path,
    *,
    method: Method = "greedy",
    metric: SoupMetric = "perplexity",
    base: Path | None = None,
) -> CheckpointSoup:
    """Average models of one architecture, or adapters of one base; the result is written atomically.

    Args:
        paths: Transformers folders or `.safetensors` files, or adapters in PEFT's format.
        out: folder to make.
        method: as in `soups.soup`. greedy: best first, each of the others joins if the soup is then no worse.
        metric: of the weighted soup, whose shares are in proportion to 1 / it.
        base: model that adapters belong to; of files without a config, the model whose config and tokenizer they have.

    Raises:
        InputError: models and adapters together, adapters or bare files without a base, a model that cannot be read or
            does not fit the others, no usable held-out example, a loss that is not finite, or `out` exists.
        ValueError: adapters whose factors do not fit each other.
    """
    if len(paths) < 2:
        raise InputError("a soup is made of two models at least")
    if out.exists():
        raise InputError(f"{out} exists already: nothing is overwritten; remove it or give another name")
    if missing := [path for path in paths if not path.exists()]:
        raise InputError(f"{missing[0]} does not exist: give Transformers folders, .safetensors files or adapters")
    adapters = [(path / ADAPTER_CONFIG).is_file() for path in paths]
    if any(adapters) and not all(adapters):
        raise InputError(f"{paths[adapters.index(True)]} is an adapter, {paths[adapters.index(False)]} is none")
    averages: _Adapters | _Models = _Adapters(tuple(paths), base) if adapters[0] else _Models(tuple(paths), base)
    out.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(out) as folder, tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as work:
        scores = _Scores(averages, held_out, Path(work))
        weights, attempts = _weights(len(paths), method, metric, scores.loss)
        averages.write(weights, folder, Path(work))
        losses = tuple(scores.loss(_alone(place, len(paths))) for place in range(len(paths)))
        made = CheckpointSoup(out, weights, losses, scores.loss(weights), attempts, scores.examples, scores.tokens)
        write_json_atomic(folder / RECORD, _record(made, paths, held_out, {"method": method, "metric": metric}))
    return made


def _weights(
    n: int, method: Method, metric: SoupMetric, loss: Callable[[Weights], float]
) -> tuple[Weights, tuple[Mapping[str, Any], ...]]:
    """The soup's weights, and the attempts of a greedy one."""
    if method == "uniform":
        return (1.0 / n,) * n, ()
    losses = [loss(_alone(place, n)) for place in range(n)]
    if method == "weighted":
        return tuple(soup_shares(losses, metric)), ()
    best_first = sorted(range(n), key=lambda place: (losses[place], place))
    members, _, steps = greedy_choice(best_first, -losses[best_first[0]], lambda some: -loss(_equal(some, n)))
    return _equal(members, n), tuple({"models": list(s.tried), "loss": -s.score, "kept": s.kept} for s in steps)


def _alone(place: int, n: int) -> Weights:
    return _equal((place,), n)


def _equal(members: Sequence[int], n: int) -> Weights:
    return tuple(1.0 / len(members) if place in members else 0.0 for place in range(n))


class _Scores:
    """Losses of weighted averages on the held-out examples, each measured once."""

    def __init__(self, averages: "_Adapters | _Models", held_out: HeldOut, work: Path) -> None:
        self._averages, self._held_out, self._work = averages, held_out, work
        self._frame = read_held_out(held_out.file)
        self._losses: dict[Weights, float] = {}
        self.examples = self.tokens = 0

    def loss(self, weights: Weights) -> float:
        """Nats per token. Raises InputError: no example can be read by the model, or the loss is not finite."""
        if weights not in self._losses:
            with self._averages.loaded(weights, self._work) as (base, adapter):
                own = encode_examples(self._frame, base.tokenizer, self._held_out.max_length)
                if not own.encoded:
                    why = ", ".join(sorted(set(own.left_out.values())))
                    raise InputError(f"none of the {self._frame.height} examples in {self._held_out.file} fits: {why}")
                losses = measure(base, adapter, own.encoded).by_example
            if not math.isfinite(losses.mean):
                named = [str(path) for path, weight in zip(self._averages.paths, weights, strict=True) if weight]
                raise InputError(f"the loss of {' with '.join(named)} is {losses.mean}: leave that model out")
            self.examples, self.tokens = len(own.encoded), int(losses.tokens.sum())
            self._losses[weights] = losses.mean
        return self._losses[weights]


class _Models:
    """Averages of whole models: written to disk, loaded one at a time."""

    def __init__(self, paths: tuple[Path, ...], base: Path | None) -> None:
        bare = [path for path in paths if not (path / CONFIG).is_file()]
        if bare and base is None:
            raise InputError(f"{bare[0]} has no {CONFIG}: name the model whose config and tokenizer it has (--base)")
        self.paths, self._options = paths, {"base": base} if bare else {}

    @contextmanager
    def loaded(self, weights: Weights, work: Path) -> Iterator[tuple[Base, None]]:
        """Load a weighted average into memory."""
        alone = self.paths[weights.index(1.0)] if 1.0 in weights else None
        if alone is not None and (alone / CONFIG).is_file():
            yield load_base(alone), None
            return
        with tempfile.TemporaryDirectory(dir=work) as folder:
            yield load_base(self._merged(weights, Path(folder) / "average")), None

    def write(self, weights: Weights, folder: Path, work: Path) -> None:
        """Write a weighted average into an existing folder."""
        for file in self._merged(weights, work / "result").iterdir():
            file.rename(folder / file.name)

    def _merged(self, weights: Weights, into: Path) -> Path:
        used = [(path, weight) for path, weight in zip(self.paths, weights, strict=True) if weight]
        merge_checkpoints([path for path, _ in used], "linear", into, weights=[w for _, w in used], **self._options)
        return into


class _Adapters:
    """Averages of adapters, on one base in memory."""

    def __init__(self, paths: tuple[Path, ...], base: Path | None) -> None:
        if base is None:
            raise InputError(f"{paths[0]} is an adapter: name the model that it was trained on (--base)")
        self.paths, self._place = paths, base
        self._adapters = [read_adapter(path) for path in paths]

    @cached_property
    def _base(self) -> Base:
        return load_base(self._place)

    @contextmanager
    def loaded(self, weights: Weights, work: Path) -> Iterator[tuple[Base, LoraAdapter]]:
        """Load the base and a weighted average of the adapters."""
        yield self._base, self._average(weights)

    def write(self, weights: Weights, folder: Path, work: Path) -> None:
        """Write a weighted average into an existing folder."""
        write_adapter(self._average(weights), folder)

    def _average(self, weights: Weights) -> LoraAdapter:
        used = [(adapter, weight) for adapter, weight in zip(self._adapters, weights, strict=True) if weight]
        if len(used) == 1:
            return used[0][0]
        return merge_adapters([adapter for adapter, _ in used], [weight for _, weight in used])


def _record(
    made: CheckpointSoup, paths: Sequence[Path], held_out: HeldOut, settings: Mapping[str, str]
) -> dict[str, Any]:
    """The content of `soup.json`."""
    return {
        "schema_version": 1,
        **settings,
        "models": [
            {"path": str(path), "weight": weight, "loss": loss, "perplexity": math.exp(loss)}
            for path, weight, loss in zip(paths, made.weights, made.losses, strict=True)
        ],
        "loss": made.loss,
        "perplexity": math.exp(made.loss),
        "attempts": list(made.attempts),
        "held_out": {
            "file": str(held_out.file),
            "sha256": sha256_file(held_out.file),
            "examples": made.examples,
            "tokens": made.tokens,
            "max_length": held_out.max_length,
        },
        "software": {"capibara-assets": __version__},
    }
