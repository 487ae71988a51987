"""Links between executions about the same problem: those that form groups, and those that must share a split.

Code links: structurally equal, or a near-duplicate by exact Jaccard similarity, of what a cell defines and of the whole
cell with its checks. So do the same recorded task or statement, and the same problem in another language or other words
(duplicates/problems.py). Code or statements that many sandboxes share (boilerplate, a schema query, one task given to a
fleet), and code without substance, link nothing.

Two sessions become one group only if what they share is a good part of what they do: notebooks with the same set-up
cells stay apart. Where links still join much of a domain, the weakest are cut. What is shared and does not join is
exclusive: usable in one split alone. So nothing is in two splits, whatever the data.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from capibara_assets.datasets.duplicates.near import first_of, similar
from capibara_assets.datasets.duplicates.problems import ProblemView, same_problem
from capibara_assets.datasets.duplicates.readings import CodeView
from capibara_assets.datasets.duplicates.shingles import ShingleSets
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.processes.ray_map import RayCluster

_CERTAIN = 0.5  # sessions that share so much are about one problem: no cut parts them

Session = str
Sets = list[list[int]]


@dataclass(frozen=True)
class Unit:
    """One execution with the features that grouping compares."""

    unit_id: str
    sandbox_id: str
    language: str
    domains: tuple[str, ...]
    usable: bool  # may become an example: it ran, or is part of a repair
    views: tuple[CodeView, ...]
    statement_key: bytes | None
    problem: ProblemView

    @property
    def session(self) -> Session:
        """The sandbox, or the execution itself where none is known."""
        return self.sandbox_id or self.unit_id

    @property
    def tokens(self) -> int:
        """Length of the whole cell."""
        return self.views[-1].tokens if self.views else 0


@dataclass(frozen=True)
class Links:
    """Sets of units (by position) that form one group, and sets that must not be in two splits."""

    edges: Sets
    exclusive: Sets

    @classmethod
    def of(cls, units: Sequence[Unit], recipe: DatasetRecipe, cluster: RayCluster | None = None) -> "Links":
        """Link units by sandbox, and by features that few sandboxes share and that cover much of their sessions.

        Near-duplicates are searched by the workers of a cluster, where one is given; the links are the same.
        """
        sandboxes, statements = defaultdict(list), defaultdict(list)
        for position, unit in enumerate(units):
            sandboxes[unit.session].append(position)
            if unit.statement_key:
                statements[unit.statement_key].append(position)
        telling, alike = _alike(units, recipe, cluster)
        problems = _same_problems(units, recipe, cluster)
        shared = [*telling, *statements.values(), *problems]
        few, common = list[list[int]](), set[int]()
        for members in shared:
            most = recipe.link_up_to_sandboxes * len({units[member].language for member in members})
            if len({units[member].session for member in members}) <= most:
                few.append(members)
            else:
                common.update(members)
        joined = _joined(_strengths(units, few, common), units, recipe)
        edges = [part for members in few for part in _parts(members, units, joined)]
        return cls([*sandboxes.values(), *edges], [*alike, *statements.values(), *problems])


def _linked_sets(pairs: Sequence[tuple[int, int]], size: int) -> Sets:
    """The connected components of more than one position, each ascending."""
    members: dict[int, list[int]] = defaultdict(list)
    for position, first in enumerate(first_of(pairs, size)):
        members[first].append(position)
    return [inside for inside in members.values() if len(inside) > 1]


def _alike(units: Sequence[Unit], recipe: DatasetRecipe, cluster: RayCluster | None) -> tuple[Sets, Sets]:
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
    near = similar(ShingleSets.of([view.shingles for _, view in views]), recipe.near_duplicates, cluster)
    pairs = [*equal, *zip(near.left.tolist(), near.right.tolist(), strict=True)]
    alike = [(views[left][0], views[right][0]) for left, right in pairs]
    telling = [pair for pair, (left, right) in zip(alike, pairs, strict=True) if substance[left] and substance[right]]
    return _linked_sets(telling, len(units)), _linked_sets(alike, len(units))


def _same_problems(units: Sequence[Unit], recipe: DatasetRecipe, cluster: RayCluster | None) -> Sets:
    """Sets of units about one problem, by their statements' words and their cases; also of those that failed."""
    documents: dict[tuple[bytes, bytes, bytes], list[int]] = defaultdict(list)
    for position, unit in enumerate(units):
        if len(unit.problem.words) or len(unit.problem.cases):
            documents[unit.problem.key].append(position)
    members = list(documents.values())
    views = [units[each[0]].problem for each in members]
    pairs = same_problem(views, recipe.near_duplicates, recipe.same_problem, cluster)
    linked = [
        (members[left][0], other) for left, right in pairs for other in members[right][: None if left == right else 1]
    ]
    return _linked_sets(linked, len(units))


def _strengths(units: Sequence[Unit], sets: Sets, common: set[int]) -> dict[tuple[Session, Session], float]:
    """Share of the tokens of two sessions that lie in cells which link them; common cells do not count as theirs."""
    whole: Counter[Session] = Counter()
    for position, unit in enumerate(units):
        if position not in common:
            whole[unit.session] += unit.tokens
    linked: dict[tuple[Session, Session], set[int]] = defaultdict(set)
    for members in sets:
        inside = _by_session(members, units)
        for pair in combinations(sorted(inside), 2):
            linked[pair].update(*(inside[session] for session in pair))
    return {
        pair: sum(units[position].tokens for position in cells) / max(1, whole[pair[0]] + whole[pair[1]])
        for pair, cells in linked.items()
    }


def _joined(
    strengths: Mapping[tuple[Session, Session], float], units: Sequence[Unit], recipe: DatasetRecipe
) -> set[tuple[Session, Session]]:
    """The pairs of sessions that become one group: strongest first, while no group exceeds its share of a domain."""
    sizes: dict[Session, Counter[str]] = defaultdict(Counter)
    for unit in units:
        if unit.usable:
            sizes[unit.session].update(unit.domains)
    whole: Counter[str] = Counter()
    for size in sizes.values():
        whole.update(size)
    most = {domain: recipe.largest_group * count for domain, count in whole.items()}
    root: dict[Session, Session] = {}

    def find(session: Session) -> Session:
        while (above := root.get(session, session)) != session:
            root[session] = session = root.get(above, above)
        return session

    joined = set()
    for pair, strength in sorted(strengths.items(), key=lambda item: (-item[1], item[0])):
        if strength < recipe.link_share:
            break
        left, right = find(pair[0]), find(pair[1])
        together = sizes[left] + sizes[right]
        if left != right:
            if strength < _CERTAIN and any(count > most[domain] for domain, count in together.items()):
                continue
            root[right] = left
            sizes[left] = together
        joined.add(pair)
    return joined


def _parts(members: Sequence[int], units: Sequence[Unit], joined: set[tuple[Session, Session]]) -> Sets:
    """The parts of a set whose sessions are joined."""
    inside = _by_session(members, units)
    return [
        [*inside[left], *inside[right]] for left, right in combinations(sorted(inside), 2) if (left, right) in joined
    ]


def _by_session(members: Sequence[int], units: Sequence[Unit]) -> dict[Session, list[int]]:
    inside: dict[Session, list[int]] = defaultdict(list)
    for member in members:
        inside[units[member].session].append(member)
    return inside
