"""Training prompts of the router, with the domains whose examples answer each, and their weights."""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from capibara_assets.datasets.code.structure import normal_text
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import SPLITS, Route
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.storage.digests import sha256_bytes
from capibara_assets.storage.records import table

LEFT_OUT = "the dataset recipe says include_routing: false: no prompts, so no router and no gates are made"
_WORD = re.compile(r"\w+")


def build_routing(examples: Mapping[Domain, pl.DataFrame], recipe: DatasetRecipe) -> pl.DataFrame:
    """The table Route: one row per distinct prompt of all domains, at most `recipe.routing.per_domain` of each.

    A prompt that several domains answer (a repair: its language's and `debug`) has all of them. A prompt of two splits
    goes to the first of train, validation, test. See `_weights` for the weights. The table is empty where the recipe
    does not include routing.
    """
    if not recipe.include_routing:
        return table(Route, [])
    prompts: dict[str, dict[str, Any]] = {}
    for domain in [d for d in DOMAINS if d in examples]:
        columns = examples[domain].sort("example_id").select("messages", "split", "group_id")
        for messages, split, group in columns.iter_rows():
            prompt = asked(messages)
            digest = sha256_bytes(normal_text(prompt).encode("utf-8", "replace"))[:32]
            known = prompts.setdefault(digest, {"prompt": prompt, "domains": set(), "places": set()})
            known["prompt"] = min(known["prompt"], prompt)
            known["domains"].add(domain)
            known["places"].add((SPLITS.index(split), group))
    chosen: set[str] = set()
    for domain in DOMAINS:
        chosen |= set(
            sorted(digest for digest, known in prompts.items() if domain in known["domains"])[
                : recipe.routing.per_domain
            ]
        )
    kept = {digest: prompts[digest] for digest in sorted(chosen)}
    negatives = _hard_negatives(kept, recipe)
    labels = {digest: [d for d in DOMAINS if d in known["domains"]] for digest, known in kept.items()}
    places = {digest: min(known["places"]) for digest, known in kept.items()}
    weights = _weights(labels, {digest: split for digest, (split, _) in places.items()})
    return table(
        Route,
        [
            Route(
                route_id=digest,
                prompt=known["prompt"],
                domains=[str(domain) for domain in labels[digest]],
                weights=weights[digest],
                split=SPLITS[places[digest][0]],
                group_id=places[digest][1],
                hard_negative=bool(negatives[digest]),
                negative_of=[str(domain) for domain in DOMAINS if domain in negatives[digest]],
            )
            for digest, known in kept.items()
        ],
    )


def _weights(labels: Mapping[str, Sequence[Domain]], split_of: Mapping[str, int]) -> dict[str, list[float]]:
    """Prompt -> weight of each of its domains.

    A prompt that n domains answer counts 1/n for each; in every split each domain's weights sum to the number of
    prompts over the number of domains, so no domain outweighs another.
    """
    totals: dict[tuple[int, Domain], Fraction] = defaultdict(Fraction)
    prompts = Counter(split_of.values())
    for digest, domains in labels.items():
        for domain in domains:
            totals[split_of[digest], domain] += Fraction(1, len(domains))
    present = Counter(split for split, _ in totals)
    return {
        digest: [
            float(
                Fraction(1, len(domains))
                / totals[split_of[digest], domain]
                * Fraction(prompts[split_of[digest]], present[split_of[digest]])
            )
            for domain in domains
        ]
        for digest, domains in labels.items()
    }


def balance(routes: pl.DataFrame) -> dict[str, Any]:
    """Statistics of routes: prompts per domain, their evenness (normalised entropy), multi-label and hard shares."""
    counts = dict(sorted(routes["domains"].explode().drop_nulls().value_counts().iter_rows()))
    total = sum(counts.values())
    entropy = -sum(n / total * math.log(n / total) for n in counts.values()) if total else 0.0
    return {
        "by_domain": counts,
        "evenness": round(entropy / math.log(len(counts)), 6) if len(counts) > 1 else 1.0,
        "multi_label": _share((routes["domains"].list.len() > 1).to_list()),
        "hard_negatives": _share(routes["hard_negative"].to_list()),
    }


def _share(flags: Sequence[bool]) -> float:
    return round(sum(flags) / len(flags), 6) if flags else 0.0


def asked(messages: str) -> str:
    """Content of the last user turn of `messages` (JSON); empty where nobody asks."""
    turns = (str(turn["content"]) for turn in reversed(json.loads(messages)) if turn["role"] == "user")
    return next(turns, "")


def _hard_negatives(prompts: Mapping[str, Mapping[str, Any]], recipe: DatasetRecipe) -> dict[str, set[Domain]]:
    """Prompt -> near domains whose prompts have similar words, but to which it does not belong."""
    words = {digest: frozenset(_WORD.findall(known["prompt"].casefold())) for digest, known in prompts.items()}
    members: dict[Domain, list[str]] = defaultdict(list)
    for digest, known in prompts.items():
        for domain in known["domains"]:
            members[domain].append(digest)
    resembled: dict[str, set[Domain]] = {digest: set() for digest in prompts}
    for left, right in recipe.routing.near:
        only_left = [digest for digest in members[left] if right not in prompts[digest]["domains"]]
        only_right = [digest for digest in members[right] if left not in prompts[digest]["domains"]]
        if not only_left or not only_right:
            continue
        similar = _word_jaccard([words[d] for d in only_left], [words[d] for d in only_right])
        close = similar >= recipe.routing.hard_negative_similarity
        for i in np.flatnonzero(close.any(axis=1)):
            resembled[only_left[i]].add(right)
        for i in np.flatnonzero(close.any(axis=0)):
            resembled[only_right[i]].add(left)
    return resembled


def _word_jaccard(
    left: Sequence[frozenset[str]], right: Sequence[frozenset[str]]
) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """(left, right) matrix of Jaccard similarities of word sets."""
    vocabulary = {
        word: column for column, word in enumerate(sorted(frozenset().union(*left) & frozenset().union(*right)))
    }

    def indicators(sets: Sequence[frozenset[str]]) -> "np.ndarray[Any, np.dtype[np.float32]]":
        matrix = np.zeros((len(sets), len(vocabulary)), dtype=np.float32)
        for row, words in enumerate(sets):
            matrix[row, [vocabulary[word] for word in words if word in vocabulary]] = 1
        return matrix

    shared = (indicators(left) @ indicators(right).T).astype(np.float64)
    sizes = np.array([len(s) for s in left])[:, None] + np.array([len(s) for s in right])[None, :]
    similarity: np.ndarray[Any, np.dtype[np.float64]] = shared / np.maximum(sizes - shared, 1)
    return similarity
