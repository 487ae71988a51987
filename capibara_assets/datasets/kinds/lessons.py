"""Playbook bullets, linked to executions by ids."""

from collections import defaultdict
from dataclasses import dataclass

from capibara_assets.datasets.code.sessions import Row


@dataclass(frozen=True)
class Lessons:
    """The bullets of a consolidated playbook (rows of Consolidated, best first), indexed by id and by evidence."""

    rows: tuple[Row, ...]
    by_id: dict[str, tuple[int, ...]]  # bullet id, origin, or id inside its playbook -> positions
    by_evidence: dict[str, tuple[int, ...]]  # id that a bullet names as evidence -> positions

    @classmethod
    def of(cls, rows: "list[Row]") -> "Lessons":
        """Index bullets (rows of Consolidated, best first)."""
        by_id: dict[str, set[int]] = defaultdict(set)
        by_evidence: dict[str, set[int]] = defaultdict(set)
        for position, row in enumerate(rows):
            for name in (row["bullet_id"], *row["origins"]):
                by_id[name].add(position)
                by_id[name.rpartition("/")[2]].add(position)
            if row["helpful"] <= row["harmful"]:
                continue
            for reference in row["evidence"]:
                kind, _, name = reference.partition(":")
                if "fail" not in kind.lower() and "error" not in kind.lower():
                    by_evidence[name].add(position)
        return cls(
            tuple(rows),
            {name: tuple(sorted(positions)) for name, positions in by_id.items()},
            {name: tuple(sorted(positions)) for name, positions in by_evidence.items()},
        )

    def that_helped(self, execution: Row) -> list[Row]:
        """Bullets recorded with a successful execution, or citing it (or its sandbox) as evidence.

        An id that several bullets share means those of the execution's own agent; if these are several, it is ignored.
        """
        helpful: set[int] = set()
        for name in execution.get("bullet_ids") or ():
            places = self.by_id.get(name, ())
            if len(places) > 1:
                places = tuple(p for p in places if execution["agent_id"] in self.rows[p]["agents"])
            if len(places) == 1:
                helpful.add(places[0])
        for name in (execution["execution_id"], execution["sandbox_id"]):
            helpful |= set(self.by_evidence.get(name, ()))
        return [self.rows[position] for position in sorted(helpful)]
