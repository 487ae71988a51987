"""Caps on examples of one kind, derived examples, and examples of one author."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.derived.derive import capped
from capibara_assets.datasets.placing import Placed
from capibara_assets.datasets.poison.share import Author, within_share
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import Kind, main_kind
from capibara_assets.domains import Domain

CAPPED = "over the cap of its kind"
OVER_SHARE = "over the share of a domain's training examples that one author may have"


@dataclass(frozen=True)
class WithinCaps:
    """Examples kept by the caps, the reasons for the others (example id -> reason), and figures per author."""

    kept: list[Placed]
    reasons: Mapping[str, str]
    figures: Mapping[str, Any]


def within_caps(placed: Sequence[Placed], domain: Domain, rows: Mapping[str, Row], recipe: DatasetRecipe) -> WithinCaps:
    """Apply the caps of kinds and authors; the authors' cap does not affect validation and test.

    Args:
        rows: execution id -> execution; an example's author is that of the execution which its answer comes from.
    """

    def author(item: Placed) -> Author:
        return Author.of(rows[item.subject])

    kept, reasons = by_kind(placed, domain, recipe), dict[str, str]()
    while True:  # what one cap takes away changes the shares that the other is of
        train = [item for item in kept if item.split == "train"]
        shared = within_share(train, author, lambda i: i.example_id, recipe.poison.most_share, recipe.cap_floor)
        surplus = {item.example_id for item in train} - {item.example_id for item in shared.kept}
        if not surplus:
            break
        reasons |= dict.fromkeys(surplus, OVER_SHARE)
        kept = by_kind([item for item in kept if item.example_id not in surplus], domain, recipe)
    standing = {item.example_id for item in kept}
    reasons |= {i.example_id: CAPPED for i in placed if i.example_id not in standing and i.example_id not in reasons}
    over = sum(why == OVER_SHARE for why in reasons.values())
    have = Counter(author(item) for item in train)
    largest = max(have.values(), default=0) / len(train) if train else 0.0
    figures = {"authors": len(have), "largest": round(largest, 6), "left_out": over, "notes": list(shared.notes)}
    return WithinCaps(kept, reasons, figures)


def by_kind(placed: Sequence[Placed], domain: Domain, recipe: DatasetRecipe) -> list[Placed]:
    """Cap every kind but the main one at its share of the whole, lowest digests first.

    Caps do not push the domain below `recipe.cap_floor` examples: up to there the smallest kinds are filled first.
    Derived examples come after recorded ones, and are capped at their share of each split.
    """
    main = main_kind(domain)
    of_kind: dict[Kind, list[Placed]] = defaultdict(list)
    ordered = sorted(placed, key=lambda i: (i.candidate.derived is not None, i.example_id))
    for item in capped(ordered, lambda i: i.split, lambda i: i.candidate.derived, recipe.derived.most_share):
        of_kind[item.candidate.kind].append(item)
    others = sorted(kind for kind in of_kind if kind != main)
    allowed = {kind: len(of_kind[kind]) for kind in others}
    total = len(placed)
    while True:  # a smaller whole makes smaller shares: iterate to the fixed point
        allowed = {kind: min(len(of_kind[kind]), int(recipe.caps.get(kind, 1.0) * total)) for kind in others}
        smaller = len(of_kind[main]) + sum(allowed.values())
        if smaller == total:
            break
        total = smaller
    while total < recipe.cap_floor and (open_kinds := [k for k in others if allowed[k] < len(of_kind[k])]):
        smallest = min(open_kinds, key=lambda kind: (allowed[kind], kind))
        allowed[smallest] += 1
        total += 1
    return [*of_kind[main], *(item for kind in others for item in of_kind[kind][: allowed[kind]])]
