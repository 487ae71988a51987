"""Losses and trigger successes of adapters, each worked out once and kept under what the adapter was made of."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from capibara_assets.checkpoints.inspect.verify import digest_of
from capibara_assets.datasets.tokens.packing import length_buckets
from capibara_assets.datasets.tokens.tokenising import Encoded
from capibara_assets.modeling.adapters import LoraAdapter, applied
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.losses import IGNORED, TokenLosses, collate, token_losses
from capibara_assets.modeling.precision import Precision, autocast
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.jsonfiles import write_bytes_atomic

BATCH_TOKENS: Mapping[Precision, int] = {"fp32": 1024, "bf16": 2048}  # 1024: as the vote itself reads
Make = Callable[[], LoraAdapter | Mapping[str, torch.Tensor]]


def key_of(*parts: object) -> str:
    """What an adapter was made of, as one name."""
    return sha256_bytes(canonical_json(list(parts)))


def given(adapter: LoraAdapter) -> Make:
    """An adapter that is there already."""
    return lambda: adapter


class LossBook:
    """Figures by (set of examples, adapter); those in `folder` outlive the process, and processes may share it.

    One adapter under two names is worked out once: names stand for how it was made, files also for its bytes.

    Args:
        precision: of all losses: bf16 is exact to about 5e-4 of a loss, and faster where the processor computes in it.
        compiled: the base's layers are compiled first, once for all shapes: takes a C++ compiler and some seconds.
    """

    def __init__(
        self,
        base: Base,
        sets: Mapping[str, Sequence[Encoded]],
        folder: Path,
        precision: Precision = "fp32",
        *,
        compiled: bool = False,
    ) -> None:
        self._base = base
        self._precision = precision
        self.examples = sets
        contents = {name: [[one.input_ids, one.labels] for one in examples] for name, examples in sets.items()}
        way = f"{precision}-compiled" if compiled else precision
        self._folders = {name: folder / f"{name}-{key_of(content)[:12]}-{way}" for name, content in contents.items()}
        self._known: dict[tuple[str, str, str], np.ndarray] = {}
        self.computed = 0
        if compiled:
            for layer in base.model.get_decoder().layers:
                layer.forward = torch.compile(layer.forward, dynamic=True)

    def tokens(self, name: str) -> np.ndarray:
        """Supervised tokens of a set's examples, (examples,)."""
        return np.array([one.supervised for one in self.examples[name]])

    def token_losses(self, name: str, key: str, make: Make | None) -> TokenLosses:
        """Of every supervised token of a set under the adapter; `make` None: under the base."""

        def compute() -> np.ndarray:
            batch = BATCH_TOKENS[self._precision]
            return token_losses(
                self._base.model, self.examples[name], batch_tokens=batch, precision=self._precision
            ).nll

        return TokenLosses(self._kept(name, "nll", key, make, compute), self.tokens(name))

    def nll(self, name: str, key: str, make: Make | None) -> np.ndarray:
        """Nats of each example of a set, (examples,)."""
        return self.token_losses(name, key, make).by_example.nll

    def mean(self, name: str, key: str, make: Make | None) -> float:
        """Nats per supervised token."""
        return float(self.nll(name, key, make).sum() / self.tokens(name).sum())

    def success(self, name: str, key: str, make: Make | None) -> float:
        """Share of a set's examples whose whole answer greedy decoding gives.

        Told by one pass over question and answer: greedy decoding writes the answer exactly when every one of its
        tokens is the most likely one after those before it.
        """

        def compute() -> np.ndarray:
            return _greedy_hits(self._base, self.examples[name], self._precision)

        return float(self._kept(name, "hits", key, make, compute).mean())

    def _kept(self, name: str, what: str, key: str, make: Make | None, compute: Callable[[], np.ndarray]) -> np.ndarray:
        if (name, what, key) not in self._known:
            folder = self._folders[name] / what
            file = folder / f"{key}.f32"
            if not file.is_file():
                self._work_out(folder, file, make, compute)
            # Losses of single tokens are float32 as they come, and hits are 0 or 1: nothing is rounded
            self._known[name, what, key] = np.frombuffer(file.read_bytes(), dtype=np.float32).astype(np.float64)
        return self._known[name, what, key]

    def _work_out(self, folder: Path, file: Path, make: Make | None, compute: Callable[[], np.ndarray]) -> None:
        made = None if make is None else make()
        content = folder / f"{digest_of(made)}.f32" if isinstance(made, LoraAdapter) else file
        if not content.is_file():
            if made is None:
                found = compute()
            else:
                with applied(self._base.model, made):
                    found = compute()
            self.computed += 1
            write_bytes_atomic(content, np.asarray(found, dtype=np.float32).tobytes())
        if content != file:
            write_bytes_atomic(file, content.read_bytes())


def _greedy_hits(base: Base, examples: Sequence[Encoded], precision: Precision) -> np.ndarray:
    hits = np.zeros(len(examples))
    with torch.no_grad(), autocast(torch.device("cpu"), precision):
        for indices in length_buckets([len(one.input_ids) for one in examples], BATCH_TOKENS[precision]):
            part = [examples[index] for index in indices]
            batch = collate(part, "cpu")
            best = base.model(input_ids=batch.input_ids, use_cache=False).logits.argmax(-1)
            for row, (index, one) in enumerate(zip(indices, part, strict=True)):
                labels = torch.tensor(one.labels)
                places = torch.nonzero(labels != IGNORED).flatten()
                hits[index] = bool((best[row, places - 1] == labels[places]).all())
    return hits
