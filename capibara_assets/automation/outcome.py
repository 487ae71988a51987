"""Messages between a run and its processes: a task, and which results were materialized, current, or failed.

Imports nothing that takes time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from capibara_assets.domains import WHOLE, Domain

Report = Callable[[str], None]
Failures = dict[tuple[str, str], str]
"""(step, partition) → message."""


@dataclass(frozen=True)
class Task:
    """Assets of one partition (None: unpartitioned) that one process materializes, upstream first.

    Attributes:
        after: positions, in the list of tasks, of those that must have ended before, well or not.
    """

    assets: tuple[str, ...]
    partition: Domain | None
    after: frozenset[int] = frozenset()


@dataclass
class RunOutcome:
    """Result of a run: seconds per (asset, partition), current results, and failures with their messages.

    Attributes:
        spans: when each step began and ended (Unix time), failed ones included.
    """

    seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    spans: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    current: list[tuple[str, str]] = field(default_factory=list)
    failures: Failures = field(default_factory=dict)

    @classmethod
    def died(cls, task: Task, code: int | None, report: Report) -> "RunOutcome":
        """The result of a task whose process ended without one, which is reported."""
        reason = f"its process was killed by signal {-code}" if code and code < 0 else f"its process ended with {code}"
        hint = "; not enough memory for so many at a time? try --parallel 1" if code == -9 else ""
        outcome = cls()
        outcome.fail({(",".join(task.assets), str(task.partition or WHOLE)): reason + hint}, report)
        return outcome

    def add(self, other: "RunOutcome") -> None:
        """Take in the result of a further task."""
        self.seconds.update(other.seconds)
        self.spans.update(other.spans)
        self.current.extend(other.current)
        self.failures.update(other.failures)

    def fail(self, failures: Failures, report: Report, after: str = "") -> None:
        """Take in failures, and report each in a line; `after` says when."""
        self.failures |= failures
        for (name, where), message in failures.items():
            report(f"{where:<11} {name:<22} FAILED{after}: {message}")

    def domain_seconds(self, domain: Domain) -> float:
        """Seconds spent on the partitions of a domain."""
        return sum(seconds for (_, partition), seconds in self.seconds.items() if partition == domain)
