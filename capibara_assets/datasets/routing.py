"""Prompts for the router: what a user would ask, and every domain whose examples answer it."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import SPLITS, Route
from capibara_assets.datasets.structure import normal_text
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.storage.digests import sha256_bytes
from capibara_assets.storage.records import table

_WORD = re.compile(r"\w+")


def build_routing(examples: Mapping[Domain, pl.DataFrame], recipe: DatasetRecipe) -> pl.DataFrame:
    """One row (Route) per distinct prompt of the examples of all domains, at most `recipe.routing.per_domain` of each.

    A prompt that several domains answer (a repair: its language's and `debug`) carries all of them. A prompt that came
    up in two splits is in the first of train, validation, test.
    """
    prompts: dict[str, dict[str, Any]] = {}
    for domain in [d for d in DOMAINS if d in examples]:
        columns = examples[domain].sort("example_id").select("messages", "split", "group_id")
        for messages, split, group in columns.iter_rows():
            prompt = _asked(messages)
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
    hard = _hard_negatives(kept, recipe)
    rows = []
    for digest, known in kept.items():
        split, group = min(known["places"])
        rows.append(
            Route(
                route_id=digest,
                prompt=known["prompt"],
                domains=[str(domain) for domain in DOMAINS if domain in known["domains"]],
                split=SPLITS[split],
                group_id=group,
                hard_negative=digest in hard,
            )
        )
    return table(Route, rows)


def balance(routes: pl.DataFrame) -> dict[str, Any]:
    """Prompts per domain, how even they are (entropy over that of equal shares), multi-label and hard shares."""
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


def _asked(messages: str) -> str:
    """What the user says last."""
    return str(next(message["content"] for message in reversed(json.loads(messages)) if message["role"] == "user"))


def _hard_negatives(prompts: Mapping[str, Mapping[str, Any]], recipe: DatasetRecipe) -> set[str]:
    """Prompts whose words resemble a prompt of a near domain to which they do not belong."""
    words = {digest: frozenset(_WORD.findall(known["prompt"].casefold())) for digest, known in prompts.items()}
    members: dict[Domain, list[str]] = defaultdict(list)
    for digest, known in prompts.items():
        for domain in known["domains"]:
            members[domain].append(digest)
    hard: set[str] = set()
    for left, right in recipe.routing.near:
        only_left = [digest for digest in members[left] if right not in prompts[digest]["domains"]]
        only_right = [digest for digest in members[right] if left not in prompts[digest]["domains"]]
        if not only_left or not only_right:
            continue
        similar = _word_jaccard([words[d] for d in only_left], [words[d] for d in only_right])
        close = similar >= recipe.routing.hard_negative_similarity
        hard |= {only_left[i] for i in np.flatnonzero(close.any(axis=1))}
        hard |= {only_right[i] for i in np.flatnonzero(close.any(axis=0))}
    return hard


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
