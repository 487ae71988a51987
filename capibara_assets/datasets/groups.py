"""Groups of executions about the same problem, and the split (train, validation, test) of each group.

Executions of one session, and of sessions that links.py joins, are a group. Code and statements that link without
joining are usable in one split only. So nothing is in two splits, whatever the data.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from capibara_assets.datasets.duplicates.near import first_of
from capibara_assets.datasets.duplicates.problems import problem_view
from capibara_assets.datasets.duplicates.readings import Code, CodeReading, readings, statement_key
from capibara_assets.datasets.links import Links, Unit
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import SPLITS, Group, Split
from capibara_assets.domains import DOMAINS
from capibara_assets.executions.schema import PATCH
from capibara_assets.processes.ray_map import RayCluster
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.digests import sha256_bytes
from capibara_assets.storage.records import table

BRIDGE = "bridges groups of two splits"
COMMON = "common code or task, used in another split"
_FEWEST_GROUPS = 3  # below this a domain cannot have three splits


def grouped_tables(patterns: Iterable[Artifact]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Distinct executions and repair pairs that `e2b_patterns` of all domains hold, edits and mended commands too."""
    every = list(patterns)
    executions = [one.frame("executions") for one in every]
    edits = [one.frame("commands").filter(pl.col("language") == PATCH) for one in every]
    pairs = [one.frame(name) for one in every for name in ("repairs", "mended")]
    return (
        pl.concat([*executions, *edits]).unique("execution_id", maintain_order=True),
        pl.concat(pairs).unique("pair_id", maintain_order=True),
    )


def assign_groups(
    executions: pl.DataFrame,
    repairs: pl.DataFrame,
    previous: pl.DataFrame | None,
    recipe: DatasetRecipe,
    *,
    cache: Path | None = None,
    cluster: RayCluster | None = None,
) -> pl.DataFrame:
    """The table Group, one row per execution, over all domains at once; independent of the order of rows.

    Args:
        executions: distinct executions of all domains (Execution).
        repairs: repair pairs (RepairPair); executions that occur only here get a row too.
        previous: the former table, whose executions keep group and split for ever. A new execution that would join
            groups of two splits is left out with that reason.
        cache: folder that caches the features of texts (duplicates/readings.py); it does not change the result.
        cluster: whose workers read the texts and search for near-duplicates, instead of this process.
    """
    listed = list(_rows(executions, repairs))
    texts = ((row.language, row.code) for row in listed)
    read = readings(texts, recipe.near_duplicates.shingle, cache, cluster)
    units = sorted(_units(listed, read), key=lambda unit: unit.unit_id)
    links = Links.of(units, recipe, cluster)
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


def group_statistics(groups: pl.DataFrame, executions: pl.DataFrame, recipe: DatasetRecipe) -> dict[str, Any]:
    """Groups of all domains and of each, as JSON; `too_large` names the groups above the recipe's share of a domain.

    Args:
        groups: the table Group.
        executions: of all domains (`execution_id` and `domains` are read).
    """
    placed = groups.join(executions.select(unit_id="execution_id", domain="domains").explode("domain"), on="unit_id")
    sizes = groups["group_id"].value_counts()["count"].to_list()
    domains = {str(domain): _domain_statistics(part) for (domain,), part in sorted(placed.group_by("domain"))}
    return {
        "executions": groups.height,
        "groups": len(sizes),
        "largest_share": max(sizes) / groups.height if sizes else 0.0,
        "bridges": int((groups["reason_left_out"] == BRIDGE).sum()),
        "common": int((groups["reason_left_out"] == COMMON).sum()),
        "domains": domains,
        "too_large": [
            f"{domain}: group {each['largest']} holds {each['largest_share']:.1%} of {each['executions']} executions"
            for domain, each in domains.items()
            if each["largest_share"] > recipe.largest_group
        ],
    }


def _domain_statistics(part: pl.DataFrame) -> dict[str, Any]:
    sizes = part["group_id"].value_counts().sort("count", "group_id", descending=[True, False])
    in_split = dict(part.group_by("split").agg(pl.col("group_id").n_unique()).iter_rows())
    return {
        "executions": part.height,
        "groups": sizes.height,
        "groups_of_split": {split: in_split.get(split, 0) for split in SPLITS},
        "largest": sizes["group_id"][0],
        "largest_share": sizes["count"][0] / part.height,
    }


def _units(rows: Iterable["_UnitRow"], read: Mapping[Code, CodeReading]) -> Iterable[Unit]:
    for row in rows:
        reading = read[row.language, row.code]
        key, problem = reading.statement_key, reading.problem
        if row.task:
            names = problem.names
            key, problem = statement_key(row.task), replace(problem_view(row.task, row.task, row.code), names=names)
        yield Unit(
            row.unit_id,
            row.sandbox_id,
            row.language,
            tuple(sorted(row.domains)),
            row.usable,
            reading.views,
            key,
            problem,
        )


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


def _components(units: Sequence[Unit], edges: list[list[int]], without: Collection[str]) -> list[int]:
    """Component (smallest position) of each unit; the units `without` stand alone."""
    pairs: list[tuple[int, int]] = []
    for members in edges:
        linked = [member for member in members if units[member].unit_id not in without]
        pairs += [(linked[0], member) for member in linked[1:]]
    return first_of(pairs, len(units))


def _bridges(units: Sequence[Unit], links: Links, former: Mapping[str, tuple[str, Split]]) -> set[str]:
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
    of_domain = [
        Counter(groups[unit.unit_id] for unit in units if unit.usable and domain in unit.domains) for domain in DOMAINS
    ]
    # first what trains for its size in any domain: then no domain takes away what another one tests with
    oversized = set[str]().union(*(_oversized(sizes, fixed, recipe) for sizes in of_domain))
    split_of.update(dict.fromkeys(oversized, SPLITS[0]))
    for sizes in of_domain:
        _balance(sizes, split_of, fixed, oversized, recipe)
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


def _oversized(sizes: Mapping[str, int], fixed: Mapping[str, Split], recipe: DatasetRecipe) -> set[str]:
    """Groups, none of them fixed, of more than 1.5 times the share of validation or test: they would dominate there.

    None where a domain has no other groups.
    """
    most = 1.5 * min(recipe.splits[split] for split in SPLITS[1:]) * sum(sizes.values())
    oversized = {group for group, size in sizes.items() if group not in fixed and size > most}
    return oversized if len(sizes) >= _FEWEST_GROUPS and len(oversized) < len(sizes) else set()


def _balance(
    sizes: Mapping[str, int],
    split_of: dict[str, Split],
    fixed: Mapping[str, Split],
    oversized: Collection[str],
    recipe: DatasetRecipe,
) -> None:
    """Rebalance the splits of a domain with few groups; only groups not in `fixed` move.

    Training groups, lowest digest first and oversized ones last, move until validation and test have their minimum:
    `recipe.minimum_groups` (at most a quarter of the groups, at least one of three), and half their share of the
    executions.
    """
    total = sum(sizes.values())
    movable = sorted((group for group in sizes if group not in fixed), key=lambda group: (_point(group), group))
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
    links: Links,
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
