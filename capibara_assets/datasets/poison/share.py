"""Cap on one author's share of a domain's training examples.

An author is an agent of a tenant, and a tenant as a whole where there are several: agent ids are an agent's own choice,
and a tenant's may be many. Sandboxes are no authors, since whoever writes a log makes them up; nor is silence: all
that names no agent is one author.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

Item = TypeVar("Item")


class Author(NamedTuple):
    """Who sent the code of an execution, as its log says."""

    tenant: str | None
    agent: str | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Author":
        return cls(row["tenant"], row["agent_id"])

    def __str__(self) -> str:
        named = f"agent {self.agent}" if self.agent is not None else "no agent stated"
        return named if self.tenant is None else f"{named} of tenant {self.tenant}"


@dataclass(frozen=True)
class Capped:
    """Items kept by a cap, and a note if it could not be met."""

    kept: list[Any]
    notes: tuple[str, ...]


def within_share(
    items: Sequence[Item],
    author: Callable[[Item], Author],
    order: Callable[[Item], str],
    most: float | None,
    floor: int,
) -> Capped:
    """Items without the surplus of authors above the share, dropping the highest digests; order is kept.

    Agents first, then tenants. The items do not get fewer than `floor`; where a level has so few authors that equal
    shares exceed the cap, it is not applied there.

    Args:
        order: a digest of an item.
        most: largest share of what is kept; None: no cap.
    """
    if most is None or not items:
        return Capped(list(items), ())
    notes: list[str] = []
    kept = _level(items, author, order, (most, floor), "agent", notes)
    if len({author(item).tenant for item in items}) > 1:
        kept = _level(kept, lambda item: author(item).tenant, order, (most, floor), "tenant", notes)
    return Capped(kept, tuple(notes))


def _level(
    items: Sequence[Item],
    owner: Callable[[Item], Hashable],
    order: Callable[[Item], str],
    bounds: tuple[float, int],
    level: str,
    notes: list[str],
) -> list[Item]:
    most, floor = bounds
    have = Counter(owner(item) for item in items)
    largest, count = max(have.items(), key=lambda pair: (pair[1], str(pair[0])))
    if len(have) * most < 1:
        said = f"{len(have)} {level}(s): each may have more than {most:.0%}, so that no share is capped"
        notes.extend([said] if count > most * len(items) else [])
        return list(items)
    allowed = most_each(list(have.values()), most, floor)
    surplus: dict[Hashable, list[Item]] = defaultdict(list)
    for item in items:
        surplus[owner(item)].append(item)
    left = {order(item) for those in surplus.values() for item in sorted(those, key=order)[allowed:]}
    kept = [item for item in items if order(item) not in left]
    share = min(count, allowed) / len(kept)
    if share > most + 1e-9:
        notes.append(
            f"{_named(largest)} has {share:.0%} of the training examples, more than {most:.0%}: with "
            f"fewer than {floor} the domain would be too small"
        )
    return kept


def _named(owner: Hashable) -> str:
    return str(owner) if isinstance(owner, Author) else f"tenant {owner or 'not stated'}"


def most_each(counts: Sequence[int], most: float, floor: int) -> int:
    """The largest number per author such that nobody exceeds the share of the kept items.

    At least so many that `floor` examples are kept, or all where there are fewer.
    """

    def kept(allowed: int) -> int:
        return sum(min(count, allowed) for count in counts)

    def holds(allowed: int) -> bool:
        return min(max(counts), allowed) <= most * kept(allowed) + 1e-9

    low, high = 1, max(counts)  # `holds` is true up to a number and false above: all beyond the others' is surplus
    if holds(high):
        return high
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    enough = min(floor, sum(counts))
    while kept(low) < enough:
        low += 1
    return low
