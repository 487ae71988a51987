"""Applies deltas in order to the playbook that they change; playbook files are snapshots of its history."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import PurePosixPath

from capibara_assets.playbooks.formats.deltas import Change, Delta
from capibara_assets.playbooks.formats.parsed import RawBullet, Rejected, is_count
from capibara_assets.playbooks.similarity import components, normalised

_NUMBERED = re.compile(r"^(?P<prefix>.*)-(?P<number>\d{1,100})$")
_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Snapshot:
    """A playbook file of an agent."""

    path: str
    agent_id: str
    bullets: tuple[RawBullet, ...]

    @property
    def at(self) -> datetime:
        """The newest time that its bullets bear; before everything when they bear none."""
        times = (time for each in self.bullets for time in (each.updated_at, each.created_at) if time is not None)
        return max(times, default=_FIRST)


@dataclass(frozen=True)
class DeltaFile:
    """A file of deltas, in order; `agent_id` where a manifest or the file itself names one."""

    path: str
    deltas: tuple[Delta, ...]
    agent_id: str | None = None

    @property
    def at(self) -> datetime:
        """When its first dated delta was made; after everything when none is dated."""
        return next((delta.at for delta in self.deltas if delta.at is not None), _LAST)

    @property
    def ids(self) -> frozenset[str]:
        return frozenset[str]().union(*(delta.ids for delta in self.deltas))


@dataclass(frozen=True)
class RevisedBullet:
    """A bullet after a file of deltas; `replaces` is the id (`path/local id`) of the row that it supersedes."""

    bullet: RawBullet
    replaces: str | None


@dataclass(frozen=True)
class Revisions:
    """The result of applying a file of deltas."""

    agent_id: str
    bullets: tuple[RevisedBullet, ...]
    rejected: tuple[Rejected, ...]


@dataclass(frozen=True)
class _Held:
    bullet: RawBullet
    row: str


def revise(
    snapshots: Sequence[Snapshot],
    files: Sequence[DeltaFile],
    may_speak: Callable[[str, str], bool],
) -> dict[str, Revisions]:
    """Applies every delta to the playbook as it was at its time; returns path of the delta file -> changes.

    A delta belongs to the agent that it or its manifest names. Else it forms a chain with those of its folder that name
    the same bullets, and the chain belongs to the agent whose playbook holds most of these (the nearest folder decides
    among equals), else to a playbook that begins with it. Undated deltas come last, by file name. A delta that is older
    than every snapshot is in them already: only what it adds is kept. Does not depend on the order of the arguments.

    Args:
        may_speak: whether a delta at a path that names no agent can be one of this agent's.
    """
    by_agent: dict[str, list[DeltaFile]] = {}
    for chain in _chains(sorted(files, key=lambda each: each.path)):
        by_agent.setdefault(_owner(chain, snapshots, may_speak), []).extend(chain)
    by_path: dict[str, Revisions] = {}
    for agent, owned in by_agent.items():
        own = [snapshot for snapshot in snapshots if snapshot.agent_id == agent]
        by_path |= _apply_all(agent, own, owned)
    return by_path


def _chains(files: list[DeltaFile]) -> list[list[DeltaFile]]:
    """Groups delta files that change the same playbook, by the agent or the bullets that they name."""
    first: dict[tuple[str | None, str], int] = {}
    pairs: list[tuple[int, int]] = []
    for place, file in enumerate(files):
        folder = str(PurePosixPath(file.path).parent)
        keys: list[tuple[str | None, str]] = [(folder, name) for name in file.ids]
        if file.agent_id is not None:
            keys = [(None, file.agent_id)]
        for key in keys:
            if first.setdefault(key, place) != place:
                pairs.append((first[key], place))
    return [[files[place] for place in group] for group in components(len(files), pairs)]


def _owner(chain: list[DeltaFile], snapshots: Sequence[Snapshot], may_speak: Callable[[str, str], bool]) -> str:
    if chain[0].agent_id is not None:
        return chain[0].agent_id
    named = frozenset[str]().union(*(file.ids for file in chain))
    held = Counter[str]()
    near: dict[str, int] = {}
    for snapshot in snapshots:
        agent = snapshot.agent_id
        held[agent] = max(held[agent], len(named & {bullet.local_id for bullet in snapshot.bullets}))
        near[agent] = max(near.get(agent, 0), _common(chain[0].path, snapshot.path))
    candidates = [agent for agent, count in held.items() if count > 0 and may_speak(chain[0].path, agent)]
    best = min(candidates, key=lambda agent: (-held[agent], -near[agent], agent), default=None)
    return best if best is not None else chain[0].path


def _common(left: str, right: str) -> int:
    """Folders that two paths share from the top."""
    pairs = zip(PurePosixPath(left).parts[:-1], PurePosixPath(right).parts[:-1], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _apply_all(agent: str, snapshots: list[Snapshot], files: list[DeltaFile]) -> dict[str, Revisions]:
    state: dict[str, _Held] = {}
    later = {bullet.local_id for snapshot in snapshots for bullet in snapshot.bullets}
    events: list[tuple[datetime, int, str, Snapshot | DeltaFile]] = [
        *((snapshot.at, 0, snapshot.path, snapshot) for snapshot in snapshots),
        *((file.at, 1, file.path, file) for file in files),
    ]
    by_path: dict[str, Revisions] = {}
    seen_snapshot = not snapshots
    for _, _, path, event in sorted(events, key=lambda event: event[:3]):
        if isinstance(event, Snapshot):
            state |= {bullet.local_id: _Held(bullet, f"{path}/{bullet.local_id}") for bullet in event.bullets}
            seen_snapshot = True
        else:
            by_path[path] = _apply(agent, event, state, frozenset() if seen_snapshot else frozenset(later))
    return by_path


def _apply(agent: str, file: DeltaFile, state: dict[str, _Held], contained: frozenset[str]) -> Revisions:
    """Applies a file to the state; `contained`: bullets whose changes a later snapshot holds already."""
    before = dict(state)
    changed: dict[str, None] = {}
    rejected: list[Rejected] = []
    for delta in file.deltas:
        for change in delta.changes:
            outcome = _step(change, delta, state, contained)
            if isinstance(outcome, Rejected):
                rejected.append(outcome)
                continue
            for bullet in outcome:
                state[bullet.local_id] = _Held(bullet, f"{file.path}/{bullet.local_id}")
                changed[bullet.local_id] = None
    revised = tuple(RevisedBullet(state[name].bullet, before[name].row if name in before else None) for name in changed)
    return Revisions(agent, revised, tuple(rejected))


def _step(
    change: Change, delta: Delta, state: dict[str, _Held], contained: frozenset[str]
) -> Rejected | list[RawBullet]:
    """The bullets that one step adds or changes; none when it changes nothing."""
    if change.kind == "add":
        return _add(change, delta, state)
    missing = next((name for name in (change.local_id, *change.others) if name not in state), None)
    if missing is not None:
        if missing in contained:
            return []
        detail = f"no bullet {missing} in the playbook that this delta changes"
        return Rejected("unknown_bullet", detail, change.shown, change.line, change.local_id)
    bullet = state[change.local_id].bullet
    now = delta.at or bullet.updated_at
    if change.kind == "set":
        return [replace(bullet, updated_at=now, **change.values)]
    if change.kind == "retire":
        return [replace(bullet, status=change.status, updated_at=now)]
    others = [state[name].bullet for name in change.others]
    counts = _sum([change.counts, *((each.helpful, each.harmful, each.neutral) for each in [bullet, *others])])
    if not all(map(is_count, counts)):
        detail = f"counters of {change.local_id} would be {counts}"
        return Rejected("counter", detail, change.shown, change.line, change.local_id)
    kept = replace(
        bullet,
        helpful=counts[0],
        harmful=counts[1],
        neutral=counts[2],
        tags=tuple(dict.fromkeys(tag for each in [bullet, *others] for tag in each.tags)),
        evidence=tuple(dict.fromkeys(reference for each in [bullet, *others] for reference in each.evidence)),
        updated_at=now,
    )
    return [kept, *(replace(other, status="merged", updated_at=delta.at or other.updated_at) for other in others)]


def _add(change: Change, delta: Delta, state: dict[str, _Held]) -> Rejected | list[RawBullet]:
    assert change.bullet is not None  # the reader made it
    bullet = change.bullet
    if not bullet.local_id:
        bullet = replace(bullet, local_id=_next_id(bullet.section, state), flags=(*bullet.flags, "generated_id"))
    known = state.get(bullet.local_id)
    if known is not None:
        if normalised(known.bullet.content) == normalised(bullet.content):
            return []
        detail = f"id {bullet.local_id} is taken by another bullet of the playbook"
        return Rejected("conflicting_bullet_id", detail, change.shown, change.line, bullet.local_id)
    created = bullet.created_at or delta.at
    return [replace(bullet, created_at=created, updated_at=bullet.updated_at or created)]


def _next_id(section: str, state: dict[str, _Held]) -> str:
    """`<prefix>-%05d`: one number over all sections, and the prefix that the section has, else its first word."""
    numbered = [(held.bullet.section, match) for name, held in state.items() if (match := _NUMBERED.match(name))]
    number = max((int(match["number"]) for _, match in numbered), default=0) + 1
    prefixes = Counter(match["prefix"] for where, match in numbered if where == section)
    common = min(prefixes, key=lambda prefix: (-prefixes[prefix], prefix), default=None)
    first_word = next(iter(section.lower().split()), "bullet")
    return f"{common if common is not None else first_word}-{number:05d}"


def _sum(counts: Iterable[tuple[int, int, int]]) -> tuple[int, int, int]:
    helpful, harmful, neutral = (sum(column) for column in zip(*counts, strict=True))
    return helpful, harmful, neutral
