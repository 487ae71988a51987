"""The router: which expert answers a prompt; a linear classifier over hashed n-grams, stored without pickle."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from capibara_assets.storage.jsonfiles import write_json_atomic

FEATURES = 2**12


@dataclass(frozen=True)
class Router:
    """Coefficients (experts, FEATURES) and intercepts (experts,), float32; `experts` names the rows."""

    experts: tuple[str, ...]
    coefficients: NDArray[np.float32]
    intercepts: NDArray[np.float32]

    def probabilities(self, prompts: Sequence[str]) -> NDArray[np.float32]:
        """Softmax over experts, shape (prompts, experts)."""
        logits = _features(prompts) @ self.coefficients.T + self.intercepts
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(shifted / shifted.sum(axis=1, keepdims=True), dtype=np.float32)

    def pick(self, prompts: Sequence[str]) -> list[str]:
        """The most probable expert of each prompt."""
        return [self.experts[i] for i in self.probabilities(prompts).argmax(axis=1)]

    def write(self, folder: Path) -> None:
        """`router.safetensors` and `router.json`."""
        save_file(
            {"coefficients": np.ascontiguousarray(self.coefficients), "intercepts": self.intercepts},
            folder / "router.safetensors",
        )
        write_json_atomic(
            folder / "router.json", {"experts": list(self.experts), "features": FEATURES, "ngrams": [1, 3]}
        )

    @classmethod
    def read(cls, folder: Path) -> "Router":
        """What `write` wrote."""
        experts = json.loads((folder / "router.json").read_text("utf-8"))["experts"]
        tensors = load_file(folder / "router.safetensors")
        return cls(tuple(experts), tensors["coefficients"], tensors["intercepts"])


def train_router(routes: pl.DataFrame, experts: Sequence[str], seed: int) -> Router:
    """Fit on the train split, with the weights of the routes: every domain counts the same, whatever its size,
    and a prompt that two experts solve counts for both, half each.

    With one expert (a run of one domain) there is nothing to learn: it answers every prompt.

    Raises:
        ValueError: no expert has a training prompt.
    """
    rows = (
        routes.filter(pl.col("split") == "train")
        .explode("domains", "weights")
        .filter(pl.col("domains").is_in(list(experts)))
        .sort("route_id", "domains")
    )
    known = sorted(rows["domains"].unique().to_list())
    if not known:
        raise ValueError(
            f"a router needs training prompts of its experts: none of {', '.join(experts) or 'none'} has one"
        )
    if len(known) == 1:
        return Router((known[0],), np.zeros((1, FEATURES), np.float32), np.zeros(1, np.float32))
    # some prompts may have no expert: the rest weighs one each on the whole, which is what the penalty is set for
    weights = rows["weights"].to_numpy() * (rows["route_id"].n_unique() / rows["weights"].sum())
    model = LogisticRegression(C=20.0, max_iter=100, random_state=seed)
    with threadpool_limits(limits=1):  # beside other work, spinning threads take ten times as long
        model.fit(_features(rows["prompt"].to_list()), rows["domains"].to_list(), sample_weight=weights)
    coefficients, intercepts = model.coef_, model.intercept_
    if len(known) == 2:  # scikit-learn keeps one row for two classes
        coefficients, intercepts = (
            np.concatenate([-coefficients, coefficients]) / 2,
            np.concatenate([-intercepts, intercepts]) / 2,
        )
    return Router(tuple(str(c) for c in model.classes_), coefficients.astype(np.float32), intercepts.astype(np.float32))


def accuracy(router: Router, routes: pl.DataFrame, split: str) -> tuple[float | None, int]:
    """Share of the split's prompts sent to an expert that solves them (None without prompts), and their number."""
    rows = routes.filter(
        (pl.col("split") == split) & pl.col("domains").list.eval(pl.element().is_in(router.experts)).list.any()
    )
    if not rows.height:
        return None, 0
    picked = router.pick(rows["prompt"].to_list())
    right = [pick in domains for pick, domains in zip(picked, rows["domains"].to_list(), strict=True)]
    return sum(right) / len(right), len(right)


def _features(prompts: Sequence[str]) -> NDArray[np.float32]:
    vectorizer = HashingVectorizer(n_features=FEATURES, analyzer="char_wb", ngram_range=(1, 3), dtype=np.float32)
    features: NDArray[np.float32] = vectorizer.transform(prompts)
    return features
