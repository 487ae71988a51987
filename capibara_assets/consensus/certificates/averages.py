"""Checks of averaged candidates: whether their weights follow from the stated losses and attempts."""

import math
from collections.abc import Iterator, Sequence

from capibara_assets.consensus.certificates.model import Certificate
from capibara_assets.consensus.choose.choosing import Tried

_ROUNDING = 1e-9  # of weights
LOSS_ROUNDING = 2e-6  # of losses, which are stated to six digits


def averages_of(tried: Sequence[Tried]) -> list[str]:
    """Digests of the averaged candidates, without duplicates. No ballot covers them."""
    alone = {entry.digest for entry in tried if entry.kind == "voter"}
    return sorted({entry.digest for entry in tried} - alone)


def average_problems(certificate: Certificate) -> list[str]:
    """Problems in the weights of averages: not on the simplex, not 1/k, or not what the attempts give."""
    alone = {entry.name: entry for entry in certificate.tried if entry.kind == "voter"}
    sound = {name: entry.loss for name, entry in alone.items() if entry.loss is not None}
    problems = []
    for entry in certificate.tried:
        if entry.kind in ("robust", "voter"):  # the rule's weights are made again from the adapters
            continue
        weights = dict(zip(entry.voters, entry.weights or (), strict=False))
        if problem := _off_the_simplex(weights, sound):
            problems.append(f"candidate {entry.name}: {problem}")
        elif entry.kind == "uniform_soup" and not _equal_shares(weights, list(sound)):
            problems.append(f"candidate {entry.name}: {weights} are not equal shares of {', '.join(sound)}")
        elif entry.kind == "greedy_soup":
            problems += [f"candidate {entry.name}: {what}" for what in _greedy_problems(entry, weights, certificate)]
    return [*problems, *_one_loss_for_one_adapter(certificate.tried)]


def _off_the_simplex(weights: dict[str, float], sound: dict[str, float]) -> str:
    if not weights or not all(math.isfinite(weight) and weight >= 0 for weight in weights.values()):
        return f"weights {weights} are not all at least 0"
    if abs(math.fsum(weights.values()) - 1) > _ROUNDING:
        return f"weights sum to {math.fsum(weights.values()):g}, not to 1"
    without = sorted(name for name, weight in weights.items() if weight and name not in sound)
    return f"{', '.join(without)} has a weight and no finite loss" if without else ""


def _equal_shares(weights: dict[str, float], members: Sequence[str]) -> bool:
    share = 1 / max(1, len(members))
    return all(abs(weight - (share if name in members else 0.0)) <= _ROUNDING for name, weight in weights.items())


def _greedy_problems(entry: Tried, weights: dict[str, float], certificate: Certificate) -> Iterator[str]:
    """Attempts that are not one for each voter from the second best on, or come to other members."""
    losses = {one.name: one.loss for one in certificate.tried if one.kind == "voter" and one.loss is not None}
    place = {name: number for number, name in enumerate(entry.voters)}
    order = sorted(losses, key=lambda name: (losses[name], place.get(name, 0)))
    attempts = entry.figures.get("attempts")
    if not isinstance(attempts, list) or len(attempts) != len(order) - 1:
        yield f"{len(attempts) if isinstance(attempts, list) else 'no'} attempts for {len(order)} voters"
        return
    members, best = order[:1], losses[order[0]]
    for newcomer, attempt in zip(order[1:], attempts, strict=True):
        if not isinstance(attempt, dict) or attempt.get("voters") != [*members, newcomer]:
            yield f"an attempt is {attempt!r}, with {', '.join([*members, newcomer])} next"
            return
        loss = attempt.get("loss")
        value = float(loss) if isinstance(loss, int | float) and not isinstance(loss, bool) else math.inf
        if attempt.get("kept") is not (value <= best):
            yield f"{newcomer} is {'kept' if attempt.get('kept') else 'left out'} at loss {loss}, {best:.6f} before it"
            return
        if value <= best:
            members, best = [*members, newcomer], value
    if not _equal_shares(weights, members):
        yield f"its weights are {weights}, its attempts come to equal shares of {', '.join(members)}"
    elif entry.loss is None or abs(entry.loss - best) > LOSS_ROUNDING:
        yield f"its loss is {entry.loss}, its last attempt that was kept has {best:.6f}"


def _one_loss_for_one_adapter(tried: Sequence[Tried]) -> Iterator[str]:
    seen: dict[str, Tried] = {}
    for entry in tried:
        first = seen.setdefault(entry.digest, entry)
        if first.loss != entry.loss:
            yield f"candidates {first.name} and {entry.name} are one adapter with losses {first.loss} and {entry.loss}"
