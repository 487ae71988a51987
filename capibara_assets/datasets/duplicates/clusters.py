"""Clusters of duplicate examples: a representative, and members that increase its weight.

Clusters are stars, not connected components: every member resembles the representative itself, so a chain of templated
examples, each near to the next, does not collapse into one cluster.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import polars as pl
from pydantic import Field

from capibara_assets.datasets.code.structure import normal_text, shingles, tokens
from capibara_assets.datasets.duplicates.near import jaccard, near_pairs
from capibara_assets.datasets.recipe import NearDuplicates
from capibara_assets.storage.records import Record, table

Sort = Literal["representative", "exact", "structural", "near"]


class Cluster(Record):
    """One member of a cluster of duplicates, and what links it to the representative (which is a member too)."""

    schema_name: ClassVar[str] = "Cluster"
    schema_version: ClassVar[int] = 1
    key: ClassVar[tuple[str, ...]] = ("member_id",)

    cluster_id: str = Field(description="Lowest id of its members")
    member_id: str = Field(description="Example of the cluster")
    representative_id: str = Field(description="The best of the cluster: the one that trains")
    sort: Sort = Field(description="Strongest link to the representative: exact, structural or near; or it itself")
    similarity: float = Field(description="Jaccard similarity of its shingles to the representative's", ge=0, le=1)
    execution_ids: list[str] = Field(default_factory=list, description="Executions that the member is made of")


@dataclass(frozen=True)
class Member:
    """An example as the clustering compares it.

    Attributes:
        member_id: unique among the members.
        block: members of two blocks are never compared (kind, domain, split: whatever must stay apart).
        text: the compared text, prompt and answer.
        language: language of `text`, which decides how it is cut into tokens.
        structural_key: equal for structurally equal members; None compares by text alone.
    """

    member_id: str
    block: str
    text: str
    language: str
    structural_key: str | None


def cluster_members(members: Sequence[Member], recipe: NearDuplicates) -> list[list[Cluster]]:
    """Star clusters, each with its representative first, in the order of the representatives.

    Members come best first: each one that no better representative claims becomes a representative, and claims those
    after it that have the same normalised text (exact), the same structural key, or shingles whose similarity to its
    own reaches `recipe.jaccard`. Of several representatives the one with the stronger link (exact, structural, near)
    wins, then the more similar, then the better one. Single members are clusters of one.

    Args:
        members: best first; the result depends on this order alone.
        recipe: shingle size, threshold, and the settings of the search.

    Returns:
        One list per cluster of records `Cluster`; every member is in exactly one.
    """
    bags = [shingles(tokens(member.text, member.language), recipe.shingle) for member in members]
    exact = [f"{member.block}\n{normal_text(member.text)}" for member in members]
    structural = [f"{m.block}\n{m.structural_key}" if m.structural_key is not None else None for m in members]
    same_bag: dict[tuple[str, frozenset[str]], int] = {}  # first member with these shingles
    for position, member in enumerate(members):
        same_bag.setdefault((member.block, bags[position]), position)
    better = _better(members, bags, same_bag.values(), recipe)
    by_text: dict[str, int] = {}
    by_structure: dict[str, int] = {}
    stars: dict[int, list[tuple[int, Sort, float]]] = {}
    for position, member in enumerate(members):
        key = structural[position]
        near = [r for r in better[same_bag[member.block, bags[position]]] if r in stars]
        if (equal := by_text.get(exact[position])) is not None:
            stars[equal].append((position, "exact", 1.0))
        elif key is not None and (equal := by_structure.get(key)) is not None:
            stars[equal].append((position, "structural", _similarity(bags, equal, position)))
        elif near:
            best = min(near, key=lambda r: (-jaccard(bags[r], bags[position]), r))
            stars[best].append((position, "near", _similarity(bags, best, position)))
        else:
            by_text[exact[position]] = position
            if key is not None:
                by_structure[key] = position
            stars[position] = [(position, "representative", 1.0)]
    return [_records(members, representative, star) for representative, star in stars.items()]


def _better(
    members: Sequence[Member], bags: Sequence[frozenset[str]], positions: Iterable[int], recipe: NearDuplicates
) -> dict[int, list[int]]:
    """Position -> earlier near positions of its block, and itself; none for a text without shingles."""
    of_block: dict[str, list[int]] = defaultdict(list)
    for position in positions:
        of_block[members[position].block].append(position)
    near: dict[int, list[int]] = defaultdict(list)
    for inside in of_block.values():
        for position in inside:
            if bags[position]:
                near[position].append(position)
        for left, right in near_pairs([bags[position] for position in inside], recipe):
            near[inside[right]].append(inside[left])
    return near


def cluster_table(clusters: Sequence[Sequence[Cluster]]) -> pl.DataFrame:
    """The table (Cluster) of all members."""
    return table(Cluster, [link for cluster in clusters for link in cluster])


def _similarity(bags: Sequence[frozenset[str]], left: int, right: int) -> float:
    return round(jaccard(bags[left], bags[right]), 6)


def _records(members: Sequence[Member], representative: int, star: list[tuple[int, Sort, float]]) -> list[Cluster]:
    cluster_id = min(members[position].member_id for position, _, _ in star)
    return [
        Cluster(
            cluster_id=cluster_id,
            member_id=members[position].member_id,
            representative_id=members[representative].member_id,
            sort=sort,
            similarity=similarity,
        )
        for position, sort, similarity in star
    ]
