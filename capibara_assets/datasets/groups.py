"""Groups of executions about the same problem, and the split (train, validation, test) of each group.

Any of these links two executions: the same sandbox; the same recorded task; the same statement in a docstring or
leading comment; code of substance that is structurally equal, or a near-duplicate by exact Jaccard similarity. Code is
compared twice: what a cell defines, and the whole cell with its checks and what it shows. Code or statements that many
sandboxes share (boilerplate, a schema query, one task given to a fleet), and code without substance, link nothing, else
everything would end up in one group; instead they are usable in one split only. So nothing is in two splits, whatever
the data.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from capibara_assets.datasets.duplicates.near import components, similar
from capibara_assets.datasets.duplicates.readings import CodeView, readings, shingle_sets, statement_key
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
    """One execution with the features that grouping compares."""

    unit_id: str
    sandbox_id: str
    domains: tuple[str, ...]
    usable: bool  # may become an example: it ran, or is part of a repair
    views: tuple[CodeView, ...]
    statement_key: bytes | None


def assign_groups(
    executions: pl.DataFrame,
    repairs: pl.DataFrame,
    previous: pl.DataFrame | None,
    recipe: DatasetRecipe,
    *,
    cache: Path | None = None,
) -> pl.DataFrame:
    """The table Group, one row per execution, over all domains at once; independent of the order of rows.

    Args:
        executions: distinct executions of all domains (Execution).
        repairs: repair pairs (RepairPair); executions that occur only here get a row too.
        previous: the former table, whose executions keep group and split for ever. A new execution that would join
            groups of two splits is left out with that reason.
        cache: folder that caches the features of texts (duplicates/readings.py); it does not change the result.
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
    """Number of groups, share of the largest in all executions, and executions left out by reason."""
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
        reading = read[row.language, row.code]
        key = statement_key(row.task) if row.task else reading.statement_key
        yield Unit(row.unit_id, row.sandbox_id, tuple(sorted(row.domains)), row.usable, reading.views, key)


class _UnitRow(NamedTuple):
    """The fields of a recorded execution that grouping needs."""

    unit_id: str
    sandbox_id: str
    domains: Collection[str]
    usable: bool
    code: str
    language: str
    task: str | None


def _rows(executions: pl.DataFrame, repairs: pl.DataFrame) -> Iterable[_UnitRow]:
    in_repairs = {*repairs["failing_execution_id"], *repairs["fixed_execution_id"]}
    columns = ["execution_id", "sandbox_id", "domains", "outcome", "code", "language", "task"]
    seen: set[str] = set()
    for unit_id, sandbox, domains, outcome, code, language, task in executions.select(columns).iter_rows():
        seen.add(unit_id)
        yield _UnitRow(unit_id, sandbox, domains, outcome == "ok" or unit_id in in_repairs, code, language, task)
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
                yield _UnitRow(unit_id, sandbox, domains, True, code, language, task)


def _first_of(pairs: Sequence[tuple[int, int]], size: int) -> list[int]:
    """The first position of each position's connected component; pairs are the edges."""
    left, right = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    return [int(first) for first in components(left, right, size)]


def _linked_sets(pairs: Sequence[tuple[int, int]], size: int) -> list[list[int]]:
    """The connected components of more than one position, each ascending."""
    members: dict[int, list[int]] = defaultdict(list)
    for position, first in enumerate(_first_of(pairs, size)):
        members[first].append(position)
    return [inside for inside in members.values() if len(inside) > 1]


@dataclass(frozen=True)
class _Links:
    """Sets of units (by position) that belong to one group, and sets that must not be in two splits."""

    edges: list[list[int]]
    exclusive: list[list[int]]

    @classmethod
    def of(cls, units: Sequence[Unit], recipe: DatasetRecipe) -> "_Links":
        """Links by sandbox, and by code of substance and statements in at most `link_up_to_sandboxes` sandboxes."""
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
    """Sets of usable units with structurally equal or near-duplicate code: of substance, and of any length."""
    views = [(position, view) for position, unit in enumerate(units) if unit.usable for view in unit.views]
    substance = [view.tokens >= recipe.substance_tokens for _, view in views]
    first: dict[tuple[bytes, bool], int] = {}
    equal = [
        (first.setdefault((key, told), index), index)
        for index, (_, view) in enumerate(views)
        for key in view.keys
        for told in {False, substance[index]}
    ]
    near = similar(shingle_sets([view for _, view in views]), recipe.near_duplicates)
    pairs = [*equal, *zip(near.left.tolist(), near.right.tolist(), strict=True)]
    alike = [(views[left][0], views[right][0]) for left, right in pairs]
    telling = [pair for pair, (left, right) in zip(alike, pairs, strict=True) if substance[left] and substance[right]]
    return _linked_sets(telling, len(units)), _linked_sets(alike, len(units))


def _components(units: Sequence[Unit], edges: list[list[int]], without: Collection[str]) -> list[int]:
    """Component (smallest position) of each unit; the units `without` stand alone."""
    pairs: list[tuple[int, int]] = []
    for members in edges:
        linked = [member for member in members if units[member].unit_id not in without]
        pairs += [(linked[0], member) for member in linked[1:]]
    return _first_of(pairs, len(units))


def _bridges(units: Sequence[Unit], links: _Links, former: Mapping[str, tuple[str, Split]]) -> set[str]:
    """New units that would join groups of two splits.

    First those with a direct link to two splits; where a chain of new units still joins two, the whole chain.
    """
    if not former:
        return set()
    adjacent: dict[int, set[Split]] = defaultdict(set)
    for members in links.edges:
        splits = {former[units[m].unit_id][1] for m in members if units[m].unit_id in former}
        for member in members:
            if units[member].unit_id not in former:
                adjacent[member] |= splits
    bridges = {units[member].unit_id for member, splits in adjacent.items() if len(splits) > 1}
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
    """Group of each unit: its former one, else its component's former one, else an id from a sandbox's digest."""
    members: dict[int, list[Unit]] = defaultdict(list)
    for unit, component in zip(units, components, strict=True):
        members[component].append(unit)
    group_of: dict[str, str] = {}
    for inside in members.values():
        old = sorted({former[unit.unit_id][0] for unit in inside if unit.unit_id in former})
        fresh = min(sha256_bytes(f"group:{unit.sandbox_id or unit.unit_id}".encode())[:32] for unit in inside)
        for unit in inside:
            group_of[unit.unit_id] = former[unit.unit_id][0] if unit.unit_id in former else (old or [fresh])[0]
    return group_of


def _splits(
    units: Sequence[Unit], groups: Mapping[str, str], former: Mapping[str, tuple[str, Split]], recipe: DatasetRecipe
) -> dict[str, Split]:
    """Split of each unit: the former one of its group, else by the group's digest, then balanced per domain."""
    fixed = dict(former.values())
    split_of = {group: fixed.get(group) or hashed_split(group, recipe) for group in set(groups.values())}
    for domain in DOMAINS:
        sizes = Counter(groups[unit.unit_id] for unit in units if unit.usable and domain in unit.domains)
        _balance(sizes, split_of, fixed, recipe)
    return {
        unit.unit_id: former[unit.unit_id][1] if unit.unit_id in former else split_of[groups[unit.unit_id]]
        for unit in units
    }


def hashed_split(group: str, recipe: DatasetRecipe) -> Split:
    """The default split of a group, from its digest and the recipe's shares."""
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
    sizes: Mapping[str, int], split_of: dict[str, Split], fixed: Mapping[str, Split], recipe: DatasetRecipe
) -> None:
    """Rebalance the splits of a domain with few groups; only groups not in `fixed` move.

    A group that alone exceeds 1.5 times the share of validation or test trains (it would dominate there). Then
    training groups, lowest digest first, move until validation and test have their minimum: `recipe.minimum_groups` (at
    most a quarter of the groups, at least one of three), and half their share of the executions.
    """
    total = sum(sizes.values())
    movable = sorted((group for group in sizes if group not in fixed), key=lambda group: (_point(group), group))
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
    """Units whose common code or statement is in another split already, with that reason.

    Common code stays in its former split; new common code trains, so that tests hold specific code.
    """
    reasons: dict[str, str] = {}
    for members in links.exclusive:
        usable = [units[member].unit_id for member in members if units[member].unit_id not in left_out]
        home = sorted(
            {splits[unit] for unit in usable if unit in former} or {splits[unit] for unit in usable}, key=SPLITS.index
        )
        reasons |= {unit: COMMON for unit in usable if splits[unit] != home[0]}
    return reasons
