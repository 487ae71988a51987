"""Groups and splits: which executions are about the same problem, and whether a group trains, validates or tests.

Links (each is reason enough): the same sandbox; the same recorded task; the same statement in a docstring or leading
comment; code of substance that is structurally equal, or a near-duplicate by exact Jaccard similarity. Code is compared
twice: what a cell defines, and the whole cell with its checks and what it shows. Code or statements that many sandboxes
share (boilerplate, a schema query, one task given to a fleet), and code without substance, link nothing, else
everything would end up in one group; instead they stay usable in one split only. So nothing is in two splits, whatever
the shape of the data.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl

from capibara_assets.datasets.duplicates.near import similar
from capibara_assets.datasets.duplicates.readings import View, readings, shingle_sets, statement_key
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import SPLITS, Group, Split
from capibara_assets.domains import DOMAINS
from capibara_assets.storage.digests import sha256_bytes
from capibara_assets.storage.records import table

BRIDGE = "bridges groups of two splits"
COMMON = "common code or task, used in another split"
_FEWEST_GROUPS = 3  # below this a domain cannot have three splits


@dataclass(frozen=True)
class Unit:
    """One execution as the grouping sees it."""

    unit_id: str
    sandbox_id: str
    domains: tuple[str, ...]
    usable: bool  # could become an example: it ran, or is part of a repair
    views: tuple[View, ...]
    statement_key: bytes | None


def assign_groups(
    executions: pl.DataFrame,
    repairs: pl.DataFrame,
    previous: pl.DataFrame | None,
    recipe: DatasetRecipe,
    *,
    cache: Path | None = None,
) -> pl.DataFrame:
    """One row (Group) per execution, over all domains at once; independent of the order of rows.

    Args:
        executions: distinct executions of all domains (Execution).
        repairs: repair pairs (RepairPair); executions that occur only here get a row too.
        previous: the former table: its executions keep group and split for ever. A new execution that would join groups
            of two splits is left out with that reason.
        cache: folder that keeps the readings of each text (duplicates/readings.py); the result is the same without.
    """
    units = sorted(_units(executions, repairs, recipe, cache), key=lambda unit: unit.unit_id)
    links = _Links.of(units, recipe)
    former: dict[str, tuple[str, Split]] = {}
    if previous is not None:
        kept = previous.filter(pl.col("reason_left_out").is_null())
        former = {
            unit: (group, split) for unit, group, split in kept.select("unit_id", "group_id", "split").iter_rows()
        }
    bridges = _bridges(units, links, former)
    components = _components(units, links.edges, bridges)
    groups = _group_ids(units, components, former)
    splits = _splits(units, groups, former, recipe)
    reasons = {unit.unit_id: BRIDGE for unit in units if unit.unit_id in bridges}
    reasons |= _second_splits(units, links, splits, former, reasons)
    rows = [
        Group(
            unit_id=unit.unit_id,
            group_id=groups[unit.unit_id],
            split=splits[unit.unit_id],
            reason_left_out=reasons.get(unit.unit_id),
            sandbox_id=unit.sandbox_id,
        )
        for unit in units
    ]
    return table(Group, rows)


def group_statistics(groups: pl.DataFrame) -> dict[str, float | int]:
    """Number of groups, the largest one's share of all executions, and how many executions are left out and why."""
    sizes = groups["group_id"].value_counts()["count"].to_list()
    return {
        "executions": groups.height,
        "groups": len(sizes),
        "largest_share": max(sizes) / groups.height if sizes else 0.0,
        "bridges": int((groups["reason_left_out"] == BRIDGE).sum()),
        "common": int((groups["reason_left_out"] == COMMON).sum()),
    }


def _units(
    executions: pl.DataFrame, repairs: pl.DataFrame, recipe: DatasetRecipe, cache: Path | None
) -> Iterable[Unit]:
    rows = list(_rows(executions, repairs))
    read = readings(((row.language, row.code) for row in rows), recipe.near_duplicates.shingle, cache)
    for row in rows:
        found = read[row.language, row.code]
        key = statement_key(row.task) if row.task else found.statement_key
        yield Unit(row.unit_id, row.sandbox_id, tuple(sorted(row.domains)), row.usable, found.views, key)


class _Row(NamedTuple):
    """One execution as it was recorded."""

    unit_id: str
    sandbox_id: str
    domains: Collection[str]
    usable: bool
    code: str
    language: str
    task: str | None


def _rows(executions: pl.DataFrame, repairs: pl.DataFrame) -> Iterable[_Row]:
    in_repairs = {*repairs["failing_execution_id"], *repairs["fixed_execution_id"]}
    columns = ["execution_id", "sandbox_id", "domains", "outcome", "code", "language", "task"]
    seen: set[str] = set()
    for unit_id, sandbox, domains, outcome, code, language, task in executions.select(columns).iter_rows():
        seen.add(unit_id)
        yield _Row(unit_id, sandbox, domains, outcome == "ok" or unit_id in in_repairs, code, language, task)
    pairs = repairs.select(
        "sandbox_id",
        "domains",
        "language",
        "task",
        "failing_execution_id",
        "failing_code",
        "fixed_execution_id",
        "fixed_code",
    )
    for sandbox, domains, language, task, failing, failing_code, fixed, fixed_code in pairs.sort(
        "failing_execution_id", "fixed_execution_id"
    ).iter_rows():
        for unit_id, code in ((failing, failing_code), (fixed, fixed_code)):
            if unit_id not in seen:
                seen.add(unit_id)
                yield _Row(unit_id, sandbox, domains, True, code, language, task)


class _Union:
    """Union-find over positions; the smallest is the root, so the result does not depend on the order of joins."""

    def __init__(self, size: int) -> None:
        self.parent = list(range(size))

    def find(self, item: int) -> int:
        while self.parent[item] != item:
            self.parent[item] = self.parent[self.parent[item]]
            item = self.parent[item]
        return item

    def join(self, left: int, right: int) -> None:
        low, high = sorted((self.find(left), self.find(right)))
        self.parent[high] = low

    def sets(self) -> list[list[int]]:
        """The sets of more than one, each ascending."""
        found: dict[int, list[int]] = defaultdict(list)
        for item in range(len(self.parent)):
            found[self.find(item)].append(item)
        return [members for members in found.values() if len(members) > 1]


@dataclass(frozen=True)
class _Links:
    """Sets of units (positions) that belong together, and sets that must not be in two splits."""

    edges: list[list[int]]
    exclusive: list[list[int]]

    @classmethod
    def of(cls, units: Sequence[Unit], recipe: DatasetRecipe) -> "_Links":
        """Sandboxes link; so do shared code (of substance) and statements, while few sandboxes share them."""
        sandboxes, statements = defaultdict(list), defaultdict(list)
        for position, unit in enumerate(units):
            sandboxes[unit.sandbox_id or unit.unit_id].append(position)
            if unit.usable and unit.statement_key:
                statements[unit.statement_key].append(position)
        telling, alike = _alike(units, recipe)
        edges = [
            members
            for members in (*telling, *statements.values())
            if len({units[member].sandbox_id or units[member].unit_id for member in members})
            <= recipe.link_up_to_sandboxes
        ]
        return cls([*sandboxes.values(), *edges], [*alike, *statements.values()])


def _alike(units: Sequence[Unit], recipe: DatasetRecipe) -> tuple[list[list[int]], list[list[int]]]:
    """Usable units whose code is structurally equal or a near-duplicate: code of substance alone, and any code."""
    views = [(position, view) for position, unit in enumerate(units) if unit.usable for view in unit.views]
    telling, alike = _Union(len(units)), _Union(len(units))
    substance = [view.tokens >= recipe.substance_tokens for _, view in views]
    first: dict[tuple[bytes, bool], int] = {}
    equal = [
        (first.setdefault((key, told), index), index)
        for index, (_, view) in enumerate(views)
        for key in view.keys
        for told in {False, substance[index]}
    ]
    near = similar(shingle_sets([view for _, view in views]), recipe.near_duplicates)
    for left, right in (*equal, *zip(near.left.tolist(), near.right.tolist(), strict=True)):
        alike.join(views[left][0], views[right][0])
        if substance[left] and substance[right]:
            telling.join(views[left][0], views[right][0])
    return telling.sets(), alike.sets()


def _components(units: Sequence[Unit], edges: list[list[int]], without: Collection[str]) -> list[int]:
    """Component (smallest position) of each unit; the units `without` stand alone."""
    union = _Union(len(units))
    for members in edges:
        linked = [member for member in members if units[member].unit_id not in without]
        for member in linked[1:]:
            union.join(linked[0], member)
    return [union.find(position) for position in range(len(units))]


def _bridges(units: Sequence[Unit], links: _Links, former: Mapping[str, tuple[str, Split]]) -> set[str]:
    """New units that would join groups of two splits.

    First those with a direct link to two splits; where a chain of new units still joins two, the whole chain.
    """
    if not former:
        return set()
    touched: dict[int, set[Split]] = defaultdict(set)
    for members in links.edges:
        splits = {former[units[m].unit_id][1] for m in members if units[m].unit_id in former}
        for member in members:
            if units[member].unit_id not in former:
                touched[member] |= splits
    bridges = {units[member].unit_id for member, splits in touched.items() if len(splits) > 1}
    reached: dict[int, set[Split]] = defaultdict(set)
    components = _components(units, links.edges, bridges)
    for unit, component in zip(units, components, strict=True):
        if unit.unit_id in former:
            reached[component].add(former[unit.unit_id][1])
    chains = {
        unit.unit_id
        for unit, component in zip(units, components, strict=True)
        if unit.unit_id not in former and len(reached[component]) > 1
    }
    return bridges | chains


def _group_ids(
    units: Sequence[Unit], components: Sequence[int], former: Mapping[str, tuple[str, Split]]
) -> dict[str, str]:
    """Group of each unit: its former one; for new units the component's, else one made from a sandbox's digest."""
    members: dict[int, list[Unit]] = defaultdict(list)
    for unit, component in zip(units, components, strict=True):
        members[component].append(unit)
    found: dict[str, str] = {}
    for inside in members.values():
        old = sorted({former[unit.unit_id][0] for unit in inside if unit.unit_id in former})
        fresh = min(sha256_bytes(f"group:{unit.sandbox_id or unit.unit_id}".encode())[:32] for unit in inside)
        for unit in inside:
            found[unit.unit_id] = former[unit.unit_id][0] if unit.unit_id in former else (old or [fresh])[0]
    return found


def _splits(
    units: Sequence[Unit], groups: Mapping[str, str], former: Mapping[str, tuple[str, Split]], recipe: DatasetRecipe
) -> dict[str, Split]:
    """Split of each unit: the former one of its group, else by the group's digest, then balanced per domain."""
    settled = dict(former.values())
    split_of = {group: settled.get(group) or hashed_split(group, recipe) for group in set(groups.values())}
    for domain in DOMAINS:
        sizes = Counter(groups[unit.unit_id] for unit in units if unit.usable and domain in unit.domains)
        _balance(sizes, split_of, settled, recipe)
    return {
        unit.unit_id: former[unit.unit_id][1] if unit.unit_id in former else split_of[groups[unit.unit_id]]
        for unit in units
    }


def hashed_split(group: str, recipe: DatasetRecipe) -> Split:
    """The split of a group that nothing else decides, from its digest."""
    point = _point(group)
    for split in SPLITS[:-1]:
        if point < recipe.splits[split]:
            return split
        point -= recipe.splits[split]
    return SPLITS[-1]


def _point(group: str) -> float:
    """A group's place in [0, 1), from its digest."""
    return int(sha256_bytes(f"split:{group}".encode())[:13], 16) / 16**13


def _balance(
    sizes: Mapping[str, int], split_of: dict[str, Split], settled: Mapping[str, Split], recipe: DatasetRecipe
) -> None:
    """Repairs what the digests do to a domain of few groups; only groups that are new move.

    A group that alone exceeds 1.5 times the share of validation or test trains (it would drown the others there). Then
    training groups, lowest digest first, move until validation and test have their minimum: `recipe.minimum_groups` (at
    most a quarter of the groups, at least one of three), and half their share of the executions.
    """
    total = sum(sizes.values())
    movable = sorted((group for group in sizes if group not in settled), key=lambda group: (_point(group), group))
    oversized = {
        group
        for group in movable
        if len(sizes) >= _FEWEST_GROUPS and any(sizes[group] > 1.5 * recipe.splits[s] * total for s in SPLITS[1:])
    }
    if len(oversized) < len(sizes):
        split_of.update(dict.fromkeys(oversized, SPLITS[0]))
    spare = [g for g in movable if split_of[g] == "train" and g not in oversized] + [
        g for g in movable if g in oversized
    ]
    most = max(1, len(sizes) // 4) if len(sizes) >= _FEWEST_GROUPS else 0
    wanted = min(recipe.minimum_groups, most)
    for split in SPLITS[1:]:
        inside = [group for group in sizes if split_of[group] == split]
        executions = sum(sizes[group] for group in inside)
        enough = recipe.splits[split] * total / 2
        while spare and (len(inside) < wanted or (executions < enough and len(inside) < most)):
            group = spare.pop(0)
            split_of[group] = split
            inside.append(group)
            executions += sizes[group]


def _second_splits(
    units: Sequence[Unit],
    links: _Links,
    splits: Mapping[str, Split],
    former: Mapping[str, tuple[str, Split]],
    left_out: Mapping[str, str],
) -> dict[str, str]:
    """Units whose common code or statement already is in another split.

    It stays where it was; where it is new everywhere, it trains (so that tests hold what is particular).
    """
    reasons: dict[str, str] = {}
    for members in links.exclusive:
        usable = [units[member].unit_id for member in members if units[member].unit_id not in left_out]
        home = sorted(
            {splits[unit] for unit in usable if unit in former} or {splits[unit] for unit in usable}, key=SPLITS.index
        )
        reasons |= {unit: COMMON for unit in usable if splits[unit] != home[0]}
    return reasons
