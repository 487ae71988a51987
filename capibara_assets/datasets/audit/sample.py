"""The sample of examples for a reader: some of every kind and source, the same ones each time."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from capibara_assets.datasets.audit.quality import NOT_STATED
from capibara_assets.storage.digests import sha256_bytes


class Sampled(NamedTuple):
    """A sampled example (a row of Example), and the reason for its selection."""

    row: Mapping[str, Any]
    why: str


def draw(examples: pl.DataFrame, size: int) -> list[Sampled]:
    """At most `size` examples of a domain, by kind and source.

    Each kind and source has one, the largest first if there are more of them than `size`; the others are shared out
    by their numbers. Within one the lowest digests are drawn, of another digest than the one by which some are
    executed again, so that these are no more likely than others.
    """
    strata: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in examples.iter_rows(named=True):
        strata[row["kind"], row["source"] or NOT_STATED].append(row)
    shares = _shares({place: len(rows) for place, rows in strata.items()}, size)
    drawn = []
    for place in sorted(shares):
        ordered = sorted(strata[place], key=lambda one: sha256_bytes(f"audit\n{one['example_id']}".encode()))
        for number, one in enumerate(ordered[: shares[place]], 1):
            drawn.append(Sampled(one, f"{number} of {shares[place]} drawn of {len(ordered)} {' of '.join(place)}"))
    return drawn


def _shares(sizes: Mapping[tuple[str, str], int], size: int) -> dict[tuple[str, str], int]:
    """Number to draw of each: one, then by highest averages (D'Hondt), never more than there are."""
    order = sorted(sizes, key=lambda place: (-sizes[place], place))
    shares = dict.fromkeys(order[:size], 1)
    for _ in range(min(size, sum(sizes.values())) - len(shares)):
        wanting = [place for place in order if shares[place] < sizes[place]]
        chosen = max(wanting, key=lambda place: sizes[place] / (shares[place] + 1))
        shares[chosen] += 1
    return shares
