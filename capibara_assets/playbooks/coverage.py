"""Selects a compressed playbook: few bullets that cover most words of all bullets, within a token budget."""

import heapq
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from capibara_assets.playbooks.similarity import words

_PIECE = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Cover:
    """The selection: positions in order of choice, their tokens, and the share of the total weight they cover."""

    chosen: tuple[int, ...]
    tokens: int
    share: float


def estimate_tokens(text: str) -> int:
    """Estimates tokens as words and punctuation marks, for selection without a tokenizer."""
    return len(_PIECE.findall(text))


def cover(
    texts: Sequence[str],
    values: Sequence[float],
    *,
    budget: int,
    count_tokens: Callable[[str], int] = estimate_tokens,
    enough: float = 0.95,
) -> Cover:
    """Chooses texts greedily by newly covered weight per token, until `enough` of the weight or the budget is reached.

    A word weighs its rarity, log(1 + n/df), times the greatest value of a text that holds it. With the best
    single text as the alternative, this reaches at least (1 - 1/e)/2 of the best cover (Khuller, Moss, Naor 1999).
    Once `enough` is reached, texts that it does not need are removed again, the latest choice first. Ties go to the
    earlier text.
    """
    sets = [words(text) for text in texts]
    costs = [max(1, count_tokens(text)) for text in texts]
    frequency = Counter(word for each in sets for word in each)
    best: dict[str, float] = {}
    for each, value in zip(sets, values, strict=True):
        for word in each:
            best[word] = max(best.get(word, 0.0), value)
    weights = {word: math.log1p(len(sets) / count) * best[word] for word, count in frequency.items()}
    # sums in a fixed order: sets of strings iterate differently in every process
    ordered = [sorted(each) for each in sets]
    total = math.fsum(weights[word] for word in sorted(weights))
    covered: set[str] = set()
    chosen: list[int] = []
    gained, tokens = 0.0, 0

    def gain(place: int) -> float:
        return math.fsum(weights[word] for word in ordered[place] if word not in covered)

    queue = [(-gain(place) / costs[place], place) for place in range(len(texts))]
    heapq.heapify(queue)
    while queue and gained < enough * total:
        _, place = heapq.heappop(queue)
        if tokens + costs[place] > budget:
            continue
        new = gain(place)
        if queue and -new / costs[place] > queue[0][0]:
            heapq.heappush(queue, (-new / costs[place], place))  # its gain has shrunk: another may be better now
            continue
        if new <= 0:
            break
        chosen.append(place)
        covered.update(sets[place])
        gained, tokens = gained + new, tokens + costs[place]
    alone = min(
        (place for place in range(len(texts)) if costs[place] <= budget),
        key=lambda place: -math.fsum(weights[word] for word in ordered[place]),
        default=None,
    )
    if alone is not None and (value := math.fsum(weights[word] for word in ordered[alone])) > gained:
        chosen, gained, tokens = [alone], value, costs[alone]
    if gained >= enough * total:
        chosen, gained = _without_spare(chosen, ordered, weights, enough * total)
        tokens = sum(costs[place] for place in chosen)
    return Cover(tuple(chosen), tokens, gained / total if total else 1.0)


def _without_spare(
    chosen: list[int], ordered: Sequence[Sequence[str]], weights: dict[str, float], needed: float
) -> tuple[list[int], float]:
    """Removes texts as long as the others cover the weight `needed`; returns (texts that stay, weight they cover)."""
    holders = Counter(word for place in chosen for word in ordered[place])
    gained = math.fsum(weights[word] for word in sorted(holders))
    kept = list(chosen)
    for place in reversed(chosen):
        loss = math.fsum(weights[word] for word in ordered[place] if holders[word] == 1)
        if gained - loss >= needed:
            kept.remove(place)
            gained -= loss
            holders.subtract(ordered[place])
    return kept, gained
