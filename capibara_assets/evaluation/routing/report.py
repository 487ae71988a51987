"""Report on a router: accuracy, calibration, abstention, load, drift, latency and regret.

Regret is the loss under the expert that was picked minus the loss under the best one.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import chi2

from capibara_assets.evaluation.routing.recipe import RouterRecipe
from capibara_assets.evaluation.routing.router import BASE, Router, accuracy, is_right, load
from capibara_assets.evaluation.statistics.calibration import calibration, softmax

_PRIOR = 0.5  # pseudo-count of each share in the stability index (Jeffreys), so that no logarithm is of 0
_ENOUGH = 10  # test prompts, from which an accuracy no better than guessing is no accident


def report(router: Router, routes: pl.DataFrame, recipe: RouterRecipe, split: str = "test") -> dict[str, Any]:
    """Describe a router and its performance on a split, as a JSON document.

    Returns:
        "kind", "experts", "temperature", "abstain_below", "unlike_below"; "test_prompts" and "test_accuracy" (prompts
        that one of the experts solves, and picks that are right); where there are prompts: "answered" (share not left
        to the base), "accuracy_answered", "ece" and "ece_uncalibrated" (of the raw softmax), "brier" (of the picks),
        "brier_distribution" (over all experts), "calibration" (the reliability diagram), "confusion" (domain -> pick
        or base -> prompts; a prompt of two domains is in the row of the one that was picked, or of its first),
        "by_domain" (domain -> prompts and accuracy), "load", "load_training", "load_entropy" (1: all experts alike) and
        "drift" of the split against the training prompts.
    """
    test_accuracy, count = accuracy(router, routes, split)
    document = {
        "trained": True,
        "kind": router.kind,
        "experts": list(router.experts),
        "test_accuracy": test_accuracy,
        "test_prompts": count,
        "temperature": router.temperature,
        "calibrated": router.confidence is not None,
        "abstain_below": router.abstain_below,
        "unlike_below": router.unlike_below,
    }
    rows = routes.filter(pl.col("split") == split).sort("route_id")
    return document | (_judged(router, rows, recipe) if rows.height else {})


def _judged(router: Router, rows: pl.DataFrame, recipe: RouterRecipe) -> dict[str, Any]:
    prompts, domains = rows["prompt"].to_list(), rows["domains"].to_list()
    picked, chances = router.confident(prompts)
    routed = router.route(prompts)
    right = is_right(picked, domains)
    answered = np.array([name is not None for name in routed])
    raw = softmax(router.logits(prompts)).max(axis=1)
    after, before = calibration(chances, right, recipe.bins), calibration(raw, right, recipe.bins)
    shares = np.array([[name in own for name in router.experts] for own in domains], float)
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1)
    spread = load(routed, router.experts)
    return {
        "answered": float(answered.mean()),
        "accuracy_answered": float(right[answered].mean()) if answered.any() else None,
        "ece": after.ece,
        "ece_uncalibrated": before.ece,
        "brier": after.brier,
        "brier_distribution": float(np.square(router.probabilities(prompts) - shares).sum(axis=1).mean()),
        "calibration": after.diagram(),
        "confusion": _confusion(routed, domains),
        "by_domain": _by_domain(right, domains),
        "load": spread,
        "load_training": dict(router.load),
        "load_entropy": entropy(spread),
        "drift": drift(router, prompts, recipe.drift_psi).document(),
    }


def entropy(shares: Mapping[str, float]) -> float:
    """Entropy of the experts' load relative to equal shares: 1 for equal load; the base's share does not count."""
    values = np.array([share for name, share in shares.items() if name != BASE], float)
    if len(values) < 2 or values.sum() <= 0:
        return 1.0 if len(values) < 2 else 0.0
    values = values[values > 0] / values.sum()
    count = sum(name != BASE for name in shares)
    return max(0.0, float(-(values * np.log(values)).sum() / np.log(count)))


@dataclass(frozen=True)
class Drift:
    """Distance of the load on new prompts from the load on the training prompts.

    Attributes:
        psi: population stability index, sum of (new - old) * log(new / old).
        jensen_shannon: divergence in bits, 0 to 1.
        chance: the 95th percentile of the index for samples of this size without drift.
        drifted: whether the index exceeds both the threshold and `chance`.
    """

    prompts: int
    psi: float
    jensen_shannon: float
    threshold: float
    chance: float
    drifted: bool
    shares: Mapping[str, float]

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def drift(router: Router, prompts: Sequence[str], threshold: float = RouterRecipe().drift_psi) -> Drift:
    """Compare the routing of new prompts with that of the training prompts.

    Without drift the index is distributed as (1/n + 1/m) times chi-squared with one degree of freedom less than there
    are shares (Yurdakul and Naranjo 2020), so that a few prompts alone raise no alarm.

    Raises:
        ValueError: no prompt.
    """
    if not prompts:
        raise ValueError("drift needs prompts")
    names = [*router.experts, BASE]
    now = load(router.route(prompts), router.experts)
    old = _smoothed([router.load.get(name, 0.0) for name in names], max(router.trained_on, 1))
    new = _smoothed([now[name] for name in names], len(prompts))
    psi = float(((new - old) * np.log(new / old)).sum())
    middle = (new + old) / 2
    divergence = sum(float((one * np.log2(one / middle)).sum()) / 2 for one in (new, old))
    sizes = 1 / len(prompts) + 1 / max(router.trained_on, 1)
    chance = float(sizes * chi2.ppf(0.95, max(len(names) - 1, 1)))
    drifted = psi > max(threshold, chance)
    return Drift(len(prompts), psi, max(0.0, divergence), threshold, chance, drifted, now)


@dataclass(frozen=True)
class Latency:
    """Milliseconds of routing one prompt at a time, on this machine under its current load."""

    prompts: int
    median_ms: float
    p99_ms: float


def latency(router: Router, prompts: Sequence[str], repeats: int = 3) -> Latency:
    """Time `route` for single prompts; the fastest of `repeats` rounds counts.

    Raises:
        ValueError: no prompt.
    """
    if not prompts:
        raise ValueError("a latency needs prompts")
    router.route(prompts[:1])  # warm up what is computed once
    best = np.full(len(prompts), np.inf)
    for _ in range(repeats):
        for number, prompt in enumerate(prompts):
            started = time.perf_counter()
            router.route([prompt])
            best[number] = min(best[number], time.perf_counter() - started)
    return Latency(len(prompts), float(np.median(best) * 1e3), float(np.quantile(best, 0.99) * 1e3))


@dataclass(frozen=True)
class Regret:
    """Nats per token over the same prompts under five ways to choose the answering model.

    Attributes:
        routed: the router's pick (the base where it abstains).
        oracle: the best expert, or the base, for each prompt: a lower bound of any router.
        own_domain: each domain's own expert: perfect knowledge of the domain.
        merged, base: always the merged model, always the base.
        regret, over_merged: routed less oracle, and merged less routed (positive: routing pays), each with a 95 %
            interval by a bootstrap over groups.
        best_picked: share of the prompts whose best expert is picked.
    """

    prompts: int
    groups: int
    tokens: int
    routed: float
    oracle: float
    own_domain: float
    merged: float | None
    base: float
    regret: float
    regret_low: float
    regret_high: float
    over_merged: float | None
    over_merged_low: float | None
    over_merged_high: float | None
    best_picked: float

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def regret(
    router: Router, domains: Mapping[str, tuple[pl.DataFrame, Mapping[str, str]]], resamples: int = 2_000
) -> Regret | None:
    """Compute the router's regret from the losses of every expert on every prompt.

    Args:
        domains: domain -> its evaluation's table of `ExampleLoss`, and example id -> prompt. There "consensus" is the
            domain's own expert, `expert:<domain>` another's. Examples without a prompt are left out.

    Returns:
        None without an example.
    """
    parts = [part for name, (losses, prompts) in sorted(domains.items()) for part in _choices(name, losses, prompts)]
    if not parts:
        return None
    routed = router.route([part.prompt for part in parts])
    tokens = np.array([part.tokens for part in parts], float)
    picked = np.array([part.nll.get(name or BASE, part.nll[BASE]) for part, name in zip(parts, routed, strict=True)])
    best = np.array([min(part.nll.values()) for part in parts])
    base = np.array([part.nll[BASE] for part in parts])
    own = np.array([part.nll[part.domain] for part in parts])
    has_merged = all(part.merged is not None for part in parts)
    merged = np.array([part.merged if part.merged is not None else np.nan for part in parts])
    groups = np.unique([f"{part.domain} {part.group}" for part in parts], return_inverse=True)[1]
    whole = tokens.sum()
    low, high = _interval(picked - best, tokens, groups, resamples)
    over = _interval(merged - picked, tokens, groups, resamples) if has_merged else (None, None)
    return Regret(
        prompts=len(parts),
        groups=int(groups.max() + 1),
        tokens=int(whole),
        routed=float(picked.sum() / whole),
        oracle=float(best.sum() / whole),
        own_domain=float(own.sum() / whole),
        merged=float(merged.sum() / whole) if has_merged else None,
        base=float(base.sum() / whole),
        regret=float((picked - best).sum() / whole),
        regret_low=low,
        regret_high=high,
        over_merged=float((merged - picked).sum() / whole) if has_merged else None,
        over_merged_low=over[0],
        over_merged_high=over[1],
        best_picked=float(np.mean(picked <= best)),
    )


@dataclass(frozen=True)
class _ScoredPrompt:
    prompt: str
    domain: str
    group: str
    tokens: int
    nll: Mapping[str, float]
    """Expert's domain, or base -> summed loss."""
    merged: float | None


def _choices(domain: str, losses: pl.DataFrame, prompts: Mapping[str, str]) -> list[_ScoredPrompt]:
    scored = []
    for (example,), rows in sorted(losses.partition_by("example_id", as_dict=True).items()):
        nll = dict(zip(rows["contender"], rows["nll"], strict=True))
        named = {name.removeprefix("expert:"): loss for name, loss in nll.items() if name.startswith("expert:")}
        if str(example) not in prompts or BASE not in nll or "consensus" not in nll:
            continue
        candidates = {**named, domain: nll["consensus"], BASE: nll[BASE]}
        row = rows.row(0, named=True)
        scored.append(
            _ScoredPrompt(
                prompts[str(example)], domain, row["group_id"], int(row["tokens"]), candidates, nll.get("merged")
            )
        )
    return scored


def _interval(difference: Any, tokens: Any, groups: Any, resamples: int) -> tuple[float, float]:
    """95 % interval of the mean difference per token by a paired bootstrap over groups."""
    sums, sizes = np.bincount(groups, difference), np.bincount(groups, tokens)
    drawn = np.random.default_rng(20_261_121).integers(0, len(sums), (resamples, len(sums)))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _smoothed(shares: Sequence[float], count: int) -> Any:
    return (np.array(shares) * count + _PRIOR) / (count + _PRIOR * len(shares))


def _by_domain(right: Any, domains: Sequence[Sequence[str]]) -> dict[str, dict[str, float]]:
    names = sorted({name for own in domains for name in own})
    rows = {}
    for name in names:
        own = right[np.array([name in one for one in domains])]
        rows[name] = {"prompts": len(own), "accuracy": float(own.mean())}
    return rows


def _confusion(routed: Sequence[str | None], domains: Sequence[Sequence[str]]) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for name, own in zip(routed, domains, strict=True):
        row = name if name in own else (own[0] if own else "none")
        cell = table.setdefault(str(row), {})
        cell[name or BASE] = cell.get(name or BASE, 0) + 1
    return {row: dict(sorted(cells.items())) for row, cells in sorted(table.items())}


def router_problems(router: Router, document: Mapping[str, Any], experts: Collection[str]) -> list[str]:
    """Problems of a router, in words: weights or a calibration that are no numbers, strange experts, or mere guessing.

    Args:
        document: its report.
        experts: those that there are.
    """
    arrays = {"coefficients": router.coefficients, "intercepts": router.intercepts, "centres": router.centres}
    problems = [
        f"{name} hold NaN or infinity" for name, a in arrays.items() if a is not None and not np.isfinite(a).all()
    ]
    if not (np.isfinite(router.temperature) and router.temperature > 0):
        problems.append(f"the temperature is {router.temperature}")
    if strange := sorted(set(router.experts) - set(experts)):
        problems.append(
            f"it picks {', '.join(strange)}, and there are experts for {', '.join(sorted(experts)) or 'none'}"
        )
    share, count, guess = document["test_accuracy"], document["test_prompts"], 1 / len(router.experts)
    if len(router.experts) > 1 and count >= _ENOUGH and share <= guess:
        problems.append(f"it is right for {share:.0%} of {count} test prompts; guessing is for {guess:.0%}")
    return problems
