"""The router: picks an expert for a prompt with a calibrated confidence, or leaves the prompt to the base.

A linear classifier over hashed n-grams, or over the base model's hidden states; its probabilities are calibrated on the
validation split of the routing dataset. Stored without pickle.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from capibara_assets.errors import InputError
from capibara_assets.evaluation.routing import ngrams
from capibara_assets.evaluation.routing.recipe import RouterRecipe
from capibara_assets.evaluation.statistics.calibration import (
    Isotonic,
    choose_threshold,
    fit_isotonic,
    fit_temperature,
    softmax,
)
from capibara_assets.storage.jsonfiles import user_json, write_json_atomic

SCHEMA_VERSION = 2
BASE = "base"
"""Stands for "no expert" where loads are counted."""
_ANEW = "materialize expert_router again, which writes one of this version"
Embed = Callable[[Sequence[str]], NDArray[np.float32]]


@dataclass(frozen=True)
class Router:
    """A linear classifier: coefficients (experts, features) and intercepts (experts,), float32; rows are `experts`.

    Attributes:
        temperature: divisor of the logits.
        confidence: map from the picked expert's probability to the chance that it is right; None: not calibrated.
        abstain_below: confidence below which the base answers; None: never.
        centres: mean direction of each expert's training prompts, (experts, features) float32; None: unknown.
        unlike_below: likeness (cosine to the nearest centre) below which the base answers; None: never.
        load: share of the training prompts that go to each expert, and to the base.
        trained_on: number of training prompts.
        base_digest: digest of the model whose hidden states an embedding router reads.
        embed: prompts -> (prompts, features) for such a router.
    """

    experts: tuple[str, ...]
    coefficients: NDArray[np.float32]
    intercepts: NDArray[np.float32]
    kind: str = "ngrams"
    temperature: float = 1.0
    confidence: Isotonic | None = None
    abstain_below: float | None = None
    centres: NDArray[np.float32] | None = None
    unlike_below: float | None = None
    load: Mapping[str, float] = field(default_factory=dict)
    trained_on: int = 0
    base_digest: str | None = None
    embed: Embed | None = field(default=None, repr=False, compare=False)

    def logits(self, prompts: Sequence[str]) -> NDArray[np.float32]:
        """Logits before the temperature, (prompts, experts); a prompt's logits do not depend on the others.

        Raises:
            InputError: an embedding router that was read without its model.
        """
        logits = np.empty((len(prompts), len(self.experts)), np.float32)
        if self.kind == "embedding":
            if self.embed is None:
                raise InputError(
                    f"this router reads hidden states of the base model {self.base_digest}: give Router.read its "
                    "embedding (evaluation.routing.embedding.embedder)"
                )
            logits[:] = self.embed(prompts) @ self.coefficients.T
        else:
            for row, prompt in enumerate(prompts):
                buckets, weights = ngrams.hashed(prompt)
                logits[row] = weights @ self._by_bucket[buckets]
        return logits + self.intercepts

    def probabilities(self, prompts: Sequence[str]) -> NDArray[np.float32]:
        """Calibrated distribution over experts, shape (prompts, experts)."""
        return softmax(self.logits(prompts), self.temperature).astype(np.float32)

    def pick(self, prompts: Sequence[str]) -> list[str]:
        """The most probable expert of each prompt."""
        return [self.experts[i] for i in self.logits(prompts).argmax(axis=1)]

    def confident(self, prompts: Sequence[str]) -> tuple[list[str], NDArray[np.float64]]:
        """(the most probable expert of each prompt, its calibrated chance of being right)."""
        probabilities = softmax(self.logits(prompts), self.temperature)
        best = probabilities.argmax(axis=1)
        chances = probabilities[np.arange(len(best)), best]
        return [self.experts[i] for i in best], chances if self.confidence is None else self.confidence(chances)

    def likeness(self, prompts: Sequence[str]) -> NDArray[np.float32]:
        """Cosine similarity of each prompt to the nearest expert's training prompts, 0 to 1; 1 where unknown."""
        if self.centres is None:
            return np.ones(len(prompts), np.float32)
        centres = self._centre_by_bucket
        rows = [weights @ centres[buckets] for buckets, weights in map(ngrams.hashed, prompts)]
        return np.array([row.max() for row in rows], np.float32)

    def route(self, prompts: Sequence[str]) -> list[str | None]:
        """The expert that answers each prompt; None: the base answers.

        The base answers where no expert is likely enough, or the prompt is unlike all training prompts.
        """
        picked, chances = self.confident(prompts)
        answered = np.ones(len(picked), bool)
        if self.abstain_below is not None:
            answered &= chances >= self.abstain_below
        if self.unlike_below is not None:
            answered &= self.likeness(prompts) >= self.unlike_below
        return [name if yes else None for name, yes in zip(picked, answered, strict=True)]

    def write(self, folder: Path) -> None:
        """Write `router.safetensors` and `router.json`."""
        tensors = {"coefficients": np.ascontiguousarray(self.coefficients), "intercepts": self.intercepts}
        if self.centres is not None:
            tensors["centres"] = np.ascontiguousarray(self.centres)
        save_file(tensors, folder / "router.safetensors")
        document = {
            "schema_version": SCHEMA_VERSION,
            "kind": self.kind,
            "experts": list(self.experts),
            "features": int(self.coefficients.shape[1]),
            "byte_ngrams": list(ngrams.BYTE_NGRAMS),
            "word_ngrams": list(ngrams.WORD_NGRAMS),
            "temperature": self.temperature,
            "confidence": None if self.confidence is None else {"x": self.confidence.x, "y": self.confidence.y},
            "abstain_below": self.abstain_below,
            "unlike_below": self.unlike_below,
            "load": dict(self.load),
            "trained_on": self.trained_on,
            "base_digest": self.base_digest,
        }
        write_json_atomic(folder / "router.json", document)

    @classmethod
    def read(cls, folder: Path, embed: Embed | None = None) -> "Router":
        """Read a router written by `write`.

        Raises:
            InputError: the folder holds no router, a damaged one, or one of another version.
        """
        file = folder / "router.json"
        try:
            known = user_json(file.read_text("utf-8"), "it")
            version = known.get("schema_version", 1)
        except (OSError, ValueError, InputError, AttributeError) as error:
            raise InputError(f"{file} is not a router: {error}; {_ANEW}") from error
        if version != SCHEMA_VERSION:
            raise InputError(f"{file} is of version {version}, this reads version {SCHEMA_VERSION}: {_ANEW}")
        try:
            tensors = load_file(folder / "router.safetensors")
            router = cls(
                experts=tuple(known["experts"]),
                coefficients=tensors["coefficients"],
                intercepts=tensors["intercepts"],
                kind=known["kind"],
                temperature=float(known["temperature"]),
                confidence=_knots(known["confidence"]),
                abstain_below=known["abstain_below"],
                centres=tensors.get("centres"),
                unlike_below=known["unlike_below"],
                load=known["load"],
                trained_on=known["trained_on"],
                base_digest=known["base_digest"],
                embed=embed,
            )
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{folder} holds a damaged router ({error}): {_ANEW}") from error
        fits = router.kind == "embedding" or (
            router.coefficients.shape[1] == ngrams.FEATURES
            and known["byte_ngrams"] == list(ngrams.BYTE_NGRAMS)
            and known["word_ngrams"] == list(ngrams.WORD_NGRAMS)
        )
        if not fits or router.coefficients.shape[0] != len(router.experts):
            raise InputError(f"{folder}: the coefficients fit other n-grams or experts than these: {_ANEW}")
        return router

    @cached_property
    def _by_bucket(self) -> NDArray[np.float32]:
        return np.ascontiguousarray(self.coefficients.T)

    @cached_property
    def _centre_by_bucket(self) -> NDArray[np.float32]:
        return np.ascontiguousarray(np.asarray(self.centres).T)


def train_router(
    routes: pl.DataFrame,
    experts: Sequence[str],
    seed: int,
    recipe: RouterRecipe | None = None,
    embed: Embed | None = None,
    base_digest: str | None = None,
) -> Router:
    """Fit a router on the train split, and calibrate it on the validation split.

    The weights of the routes make every domain count the same, whatever its size; a prompt that two experts solve
    counts half for each.

    With one expert (a run of one domain) there is nothing to learn: it answers every prompt.

    Raises:
        ValueError: no expert has a training prompt; a recipe of kind embedding without `embed`.
    """
    recipe = recipe or RouterRecipe()
    if recipe.kind == "embedding" and embed is None:
        raise ValueError("a router of kind embedding needs the base model's embedding")
    train = routes.filter(pl.col("split") == "train")
    rows = train.explode("domains", "weights").filter(pl.col("domains").is_in(list(experts)))
    rows = rows.sort("route_id", "domains")
    known = sorted(rows["domains"].unique().to_list())
    if not known:
        raise ValueError(
            f"a router needs training prompts of its experts: none of {', '.join(experts) or 'none'} has one"
        )
    prompts = sorted(set(rows["prompt"]))
    shape = (1, ngrams.FEATURES)
    if len(known) == 1:
        alone = Router((known[0],), np.zeros(shape, np.float32), np.zeros(1, np.float32))
        return replace(alone, load={known[0]: 1.0, BASE: 0.0}, trained_on=len(prompts))
    # some prompts may have no expert: rescale to a mean weight of 1, for which the penalty is tuned
    weights = rows["weights"].to_numpy() * (rows["route_id"].n_unique() / rows["weights"].sum())
    model = LogisticRegression(C=recipe.penalty, max_iter=recipe.max_iterations, random_state=seed)
    embedded = embed if recipe.kind == "embedding" else None
    features = _features(rows["prompt"].to_list(), embedded)
    labels = rows["domains"].to_list()
    centre, spread = _standard(features) if embedded else (0.0, 1.0)
    # beside other work, spinning threads take ten times as long
    with threadpool_limits(limits=1), warnings.catch_warnings():
        # the recipe bounds the steps, and held-out prompts judge the fit
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit((features - centre) / spread if embedded else features, labels, sample_weight=weights)
    coefficients = model.coef_ / spread
    intercepts = model.intercept_ - coefficients @ centre if embedded else model.intercept_
    if len(known) == 2:  # scikit-learn keeps one row for two classes
        coefficients, intercepts = (
            np.concatenate([-coefficients, coefficients]) / 2,
            np.concatenate([-intercepts, intercepts]) / 2,
        )
    router = Router(
        tuple(str(c) for c in model.classes_),
        coefficients.astype(np.float32),
        intercepts.astype(np.float32),
        kind=recipe.kind,
        base_digest=base_digest if embedded else None,
        embed=embedded,
        centres=None if embedded else _centres(features, labels, known),
    )
    router = calibrated(router, routes, recipe)
    return replace(router, load=load(router.route(prompts), router.experts), trained_on=len(prompts))


def calibrated(router: Router, routes: pl.DataFrame, recipe: RouterRecipe) -> Router:
    """Calibrate temperature, confidence and threshold on the validation split, where it has enough prompts.

    Prompts that none of its experts solves count as wrong in confidence and threshold: the base has to answer them.
    """
    rows = routes.filter(pl.col("split") == "validation").sort("route_id")
    shares = np.array([[name in domains for name in router.experts] for domains in rows["domains"]], float)
    solvable = shares.sum(axis=1) > 0 if len(shares) else np.zeros(0, bool)
    if solvable.sum() < recipe.min_validation:
        return router
    prompts = rows["prompt"].to_list()
    logits = router.logits(prompts)
    halves = shares[solvable] / shares[solvable].sum(axis=1, keepdims=True)
    tempered = replace(router, temperature=fit_temperature(logits[solvable], halves))
    picked, chances = tempered.confident(prompts)
    right = is_right(picked, rows["domains"].to_list())
    confidence = fit_isotonic(chances, right)
    threshold = (
        None if recipe.abstain_cost is None else choose_threshold(confidence(chances), right, recipe.abstain_cost)
    )
    unlike = None
    if recipe.unlike is not None and router.centres is not None:
        unlike = recipe.unlike * float(np.quantile(router.likeness(prompts), 0.01))
    return replace(tempered, confidence=confidence, abstain_below=threshold, unlike_below=unlike)


def is_right(picked: Sequence[str | None], domains: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
    """Whether each pick is one of its prompt's experts."""
    return np.array([pick in own for pick, own in zip(picked, domains, strict=True)], bool)


def load(picked: Sequence[str | None], experts: Sequence[str]) -> dict[str, float]:
    """Share of the picks that go to each expert, and to the base."""
    counts = dict.fromkeys([*experts, BASE], 0)
    for name in picked:
        counts[BASE if name is None else name] += 1
    return {name: count / max(len(picked), 1) for name, count in counts.items()}


def accuracy(router: Router, routes: pl.DataFrame, split: str) -> tuple[float | None, int]:
    """(share of the split's prompts sent to an expert that solves them, or None without prompts; their number)."""
    rows = routes.filter(
        (pl.col("split") == split) & pl.col("domains").list.eval(pl.element().is_in(router.experts)).list.any()
    )
    if not rows.height:
        return None, 0
    right = is_right(router.pick(rows["prompt"].to_list()), rows["domains"].to_list())
    return float(right.mean()), len(right)


def _knots(stated: Mapping[str, Any] | None) -> Isotonic | None:
    return None if stated is None else Isotonic(tuple(stated["x"]), tuple(stated["y"]))


def _standard(features: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each feature; 1 for one that does not vary."""
    spread = features.std(axis=0, dtype=np.float64)
    return features.mean(axis=0, dtype=np.float64), np.where(spread > 0, spread, 1.0)


def _centres(features: Any, labels: Sequence[str], known: Sequence[str]) -> NDArray[np.float32]:
    """Mean of each expert's rows, of length 1."""
    own = np.array(labels)
    means = np.stack([np.asarray(features[own == name].mean(axis=0)).ravel() for name in known])
    return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True), np.float32)


def _features(prompts: Sequence[str], embed: Embed | None) -> Any:
    """Features of prompts, a row each; each distinct prompt is computed once."""
    distinct = list(dict.fromkeys(prompts))
    features = ngrams.hashed_rows(distinct) if embed is None else embed(distinct)
    place = {prompt: row for row, prompt in enumerate(distinct)}
    return features[[place[prompt] for prompt in prompts]]
