"""The simulation: logs arrive and are read, domains train their voters on a pool of GPUs, vote, and publish."""

import heapq
import math
import random
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from statistics import quantiles

from benchmarks.graph.scale.units import GPUS, Units

DAY = 86_400.0
STEP = 600.0  # seconds of logs that arrive at once
PARTITIONED = 9  # assets of a domain: from its executions to its evaluation
WHOLE = 8  # assets over all domains
AVERAGES = 10  # passes over the examples beside those over the single voters: the choice, and its confirmation


@dataclass(frozen=True)
class Scenario:
    """What is asked of the deployment, and what it has.

    Attributes:
        files: that an agent writes a day.
        swing: share by which arrivals go up and down over a day.
        cores: that read logs; `nodes`: of eight GPUs each.
        preempted: times an hour that a node is taken away; `saved`: seconds between two resume points.
        start: seconds from a job's place in the queue to its first step.
    """

    executions: float = 1e9
    agents: int = 10_000
    files: int = 24
    domains: int = 100
    voters: int = 16
    days: int = 7
    swing: float = 0.5
    cores: int = 36
    nodes: int = 8
    preempted: float = 0.05
    saved: float = 60.0
    start: float = 180.0
    seed: int = 0


@dataclass
class Week:
    """What happened.

    Attributes:
        lag: longest that logs waited to be read, in seconds.
        latencies: seconds from a domain's turn to its adapter.
        busy: seconds of all nodes with a job on them; `starting`: those of them before the first step.
        wasted: seconds of these that were done twice.
    """

    lag: float = 0.0
    latencies: list[float] = field(default_factory=list)
    busy: float = 0.0
    starting: float = 0.0
    wasted: float = 0.0
    preemptions: int = 0
    runs: float = 0.0
    adapters: int = 0

    def latency(self, share: float) -> float:
        """Seconds within which that share of the adapters were there."""
        return quantiles(self.latencies, n=100)[round(share * 100) - 1]


@dataclass
class _Job:
    domain: int
    asked: float
    left: float  # seconds of work
    vote: bool


def rate(units: Units) -> float:
    """Executions that a core reads and classifies a second."""
    return 1 / (1 / units["ingest"].value + 1 / units["classify"].value)


def vote_seconds(scenario: Scenario, units: Units) -> float:
    """Of one node: every voter over all others, and the averages over all examples, twice."""
    passes = scenario.voters + AVERAGES
    return passes * scenario.voters * units["shard"].value * units["vote_token"].value


def simulate(scenario: Scenario, units: Units) -> Week:
    """A week from empty queues; the same scenario and units give the same week."""
    week, draw, order = Week(), random.Random(scenario.seed), count()
    week.lag = _ingest_lag(scenario, units)
    events: list[tuple[float, int, _Job | int]] = []  # a job that ends or is taken away, or a domain's turn
    for domain in range(scenario.domains * scenario.days):
        heapq.heappush(events, (domain / scenario.domains * DAY, next(order), domain))
    queue, free, open_votes = deque[_Job](), scenario.nodes, dict[int, int]()
    while events:
        now, _, what = heapq.heappop(events)
        if isinstance(what, int):
            open_votes[what] = scenario.voters
            for _ in range(scenario.voters):
                work = draw.uniform(units["train_low"].value, units["train_high"].value)
                queue.append(_Job(what, now, work, vote=False))
            week.runs += PARTITIONED + WHOLE / scenario.domains
        else:
            free += 1
            _ended(what, week, open_votes, queue, scenario, units, now)
        while free and queue:
            free -= 1
            job = queue.popleft()
            until = draw.expovariate(scenario.preempted / 3600) if scenario.preempted else math.inf
            spent = min(scenario.start + job.left, until)
            done = max(0.0, spent - scenario.start)
            if spent < scenario.start + job.left:
                week.preemptions += 1
                kept = done - done % scenario.saved
                week.wasted += done - kept
                job.left -= kept
            else:
                job.left = 0.0
            week.busy += spent
            week.starting += spent - done
            heapq.heappush(events, (now + spent, next(order), job))
    return week


def _ended(
    job: _Job, week: Week, open_votes: dict[int, int], queue: deque[_Job], scenario: Scenario, units: Units, now: float
) -> None:
    """A node is free: its job is over, or was taken away and waits at the head of the queue."""
    if job.left:
        queue.appendleft(job)
    elif job.vote:
        week.adapters += 1
        week.latencies.append(now - job.asked)
    else:
        open_votes[job.domain] -= 1
        if not open_votes[job.domain]:
            queue.append(_Job(job.domain, job.asked, vote_seconds(scenario, units), vote=True))


def _ingest_lag(scenario: Scenario, units: Units) -> float:
    """Longest wait of logs, by steps of ten minutes over the week."""
    capacity, waiting, longest = scenario.cores * rate(units), 0.0, 0.0
    for step in range(int(scenario.days * DAY / STEP)):
        wave = 1 + scenario.swing * math.sin(2 * math.pi * step * STEP / DAY)
        waiting = max(0.0, waiting + (scenario.executions / DAY * wave - capacity) * STEP)
        longest = max(longest, waiting / capacity)
    return longest


def node_hours(week: Week) -> float:
    """GPU hours of the week."""
    return week.busy * GPUS / 3600
