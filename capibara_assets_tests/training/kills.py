"""Kills trainings at drawn moments, starts them again, and compares what comes of it with an undisturbed one."""

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from capibara_assets.storage.digests import canonical_json, sha256_bytes, sha256_file
from capibara_assets.training.request import TrainingRequest
from capibara_assets_tests.training.loop.test_train import digests

GONE_S = 20.0  # after a signal, or its supervisor's death, no process may be left for longer
_PATIENCE_S = 180.0
_LOOK_S = 0.005

# When it strikes -> how often. A voter appears; so many steps later; in a validation; while a point is written; at the
# end: in the last validation, the last point, the result, or what the supervisor makes of it.
_MOMENTS = {"start": 4, "step": 7, "validation": 3, "save": 3, "end": 3}
# Whom, by which signal -> how often. A supervisor's next start imports everything anew, a voter's forks.
_BLOWS = {
    ("voter", signal.SIGKILL): 24,
    ("voter", signal.SIGTERM): 2,
    ("supervisor", signal.SIGKILL): 2,
    ("supervisor", signal.SIGTERM): 1,
    ("supervisor", signal.SIGINT): 1,
}


@dataclass(frozen=True)
class Kill:
    """One blow: `delay_s` after the `count`-th time that the moment comes."""

    moment: str
    whom: str
    number: signal.Signals
    count: int = 1
    delay_s: float = 0.0


def drawn(kills: int, seed: int) -> list[Kill]:
    """So many kills at random moments; a pure function of the seed."""
    source = random.Random(seed)
    plan = []
    for _ in range(kills):
        moment = source.choices(list(_MOMENTS), list(_MOMENTS.values()))[0]
        whom, number = source.choices(list(_BLOWS), list(_BLOWS.values()))[0]
        longest = {"start": 1.5, "end": 0.4}.get(moment, 0.05)
        plan.append(Kill(moment, whom, number, source.randint(1, 8), source.uniform(0, longest)))
    return plan


@dataclass
class Tally:
    """What happened."""

    kills: int = 0
    trainings: int = 0
    equal: int = 0
    orphans: int = 0
    slowest_s: float = 0.0  # from a signal to the end of the last process
    kinds: Counter[str] = field(default_factory=Counter)
    wall_s: float = 0.0


def run_killed(
    make: Callable[[str], TrainingRequest], kills: Sequence[Kill], say: Callable[[str], None] = lambda line: None
) -> Tally:
    """Train again and again, each training struck by the next kills of the list, until all have been dealt.

    Args:
        make: name of a folder of work -> the same training in it, of one voter, with its resume points kept.
    """
    begun, tally, left = time.monotonic(), Tally(), list(kills)
    reference = make("undisturbed")
    with Supervised(reference) as undisturbed:
        assert undisturbed.wait() == 0
    expected = what_came_of(reference)
    while left:
        request = make(f"killed-{tally.trainings}")
        while (code := _one_start(request, left, tally, say)) != 0:
            assert code in {-9, -15, -2, 130, 143}, f"exit code {code} of {request.work}"
        tally.trainings += 1
        tally.equal += (found := what_came_of(request)) == expected
        say(f"training {tally.trainings}: {'equal' if found == expected else difference(expected, found)}")
    tally.wall_s = round(time.monotonic() - begun, 1)
    return tally


def what_came_of(request: TrainingRequest, result: Path | None = None) -> dict[str, str]:
    """Digests of the adapter, its curve and manifest, and of every part of the last resume point.

    Args:
        result: folder of the adapter; None: what the supervisor made of it.
    """
    (voter,) = request.recipe.voters
    folder = request.work / voter.name
    last = max(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    progress = json.loads((last / "state.json").read_bytes())["progress"]
    del progress["seconds"]
    return (
        digests(result or request.out / "voters" / voter.name)
        | {f"{last.name}/{path.name}": sha256_file(path) for path in sorted(last.glob("*.safetensors"))}
        | {f"{last.name}/progress": sha256_bytes(canonical_json(progress))}
    )


def difference(expected: dict[str, str], found: dict[str, str]) -> str:
    """Names of what is not the same."""
    names = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    return f"differs in {', '.join(names)}"


def _one_start(request: TrainingRequest, left: list[Kill], tally: Tally, say: Callable[[str], None]) -> int:
    """From one start of the supervisor to its end, with the blows that fall before it; its exit code."""
    with Supervised(request) as training:
        while left and training.await_moment(left[0]):
            kill = left.pop(0)
            time.sleep(kill.delay_s)
            struck = time.monotonic()
            family = training.strike(kill)
            if family is None:  # nobody was there any more
                left.insert(0, kill)
                break
            tally.kills += 1
            tally.kinds[f"{kill.moment}: {kill.whom} {kill.number.name}"] += 1
            if kill.whom == "supervisor":
                tally.orphans += training.await_end(family)
                tally.slowest_s = max(tally.slowest_s, round(time.monotonic() - struck, 2))
                took = f"{time.monotonic() - struck:.1f} s"
                say(f"kill {tally.kills}: {kill.moment}, {kill.whom} {kill.number.name}, gone in {took}")
                break
            say(f"kill {tally.kills}: {kill.moment}, {kill.whom} {kill.number.name}")
        return training.wait()


class Supervised:
    """A training in a process of its own, as a context; nothing of it is left on leaving."""

    def __init__(self, request: TrainingRequest):
        request.work.mkdir(parents=True, exist_ok=True)
        request_file = request.work / "request.json"
        request_file.write_text(request.model_dump_json())
        (self._spec,) = request.recipe.voters
        self._total = request.recipe.training.max_steps
        self._every = request.recipe.training.evaluate_every
        self._events = request.work / self._spec.name / "events.jsonl"
        self._errors = (request.work / "errors.txt").open("ab")
        self._seen = self._events.stat().st_size if self._events.is_file() else 0
        self._struck: set[int] = set()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "capibara_assets.training", "--request", str(request_file)],
            stdout=subprocess.DEVNULL, stderr=self._errors,
        )  # fmt: skip

    def __enter__(self) -> "Supervised":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._family():
            process.kill()
        self._process.wait()
        self._errors.close()

    def wait(self) -> int:
        """Until it ends by itself; its exit code."""
        return self._process.wait(timeout=_PATIENCE_S)

    def await_end(self, family: list[psutil.Process]) -> int:
        """Until supervisor and family have gone; how many are left when they should have."""
        until = time.monotonic() + GONE_S
        left = 0
        try:
            self._process.wait(GONE_S)
        except subprocess.TimeoutExpired:
            left += 1
        _, alive = psutil.wait_procs(family, timeout=max(0.1, until - time.monotonic()))
        return left + len(alive)

    def await_moment(self, kill: Kill) -> bool:
        """Whether the moment has come; False if the training ended before."""
        times, until = 0, time.monotonic() + _PATIENCE_S
        while self._process.poll() is None:
            assert time.monotonic() < until, f"{kill} never came"
            if kill.moment == "start":
                if self._voter() is not None:
                    return True
            else:
                for event in self._new_events():
                    times += self._is_moment(kill.moment, event)
                    if times and (times >= kill.count or kill.moment != "step"):
                        return True
            time.sleep(_LOOK_S)
        return False

    def strike(self, kill: Kill) -> list[psutil.Process] | None:
        """Send the signal; the processes there were under the supervisor, None where the one to strike had gone."""
        family = self._family()[1:]
        victim = self._voter() if kill.whom == "voter" else psutil.Process(self._process.pid)
        if victim is None or self._process.poll() is not None:
            return None
        try:
            victim.send_signal(kill.number)
        except psutil.NoSuchProcess:
            return None
        self._struck.add(victim.pid)
        return family

    def _is_moment(self, moment: str, event: dict[str, Any]) -> bool:
        kind, step = event["event"], event["step"]
        match moment:
            case "step":
                return kind == "step"
            case "validation":  # begins right after
                return kind == "started" or (kind == "step" and step % self._every == 0)
            case "save":  # goes on in the background
                return kind == "checkpoint"
            case _:
                return (kind == "step" and step == self._total) or kind == "finished"

    def _new_events(self) -> list[dict[str, Any]]:
        """Whole lines of the log since the last look."""
        if not self._events.is_file():
            return []
        with self._events.open("rb") as file:
            file.seek(self._seen)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._seen += len(whole)
        return [json.loads(line) for line in whole.splitlines() if line.endswith(b"}") and line.startswith(b"{")]

    def _family(self) -> list[psutil.Process]:
        try:
            supervisor = psutil.Process(self._process.pid)
            return [supervisor, *supervisor.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _voter(self) -> psutil.Process | None:
        """The voter's process: a child of the fork server, that was not struck yet."""
        try:
            children = [two for one in psutil.Process(self._process.pid).children() for two in one.children()]
        except psutil.NoSuchProcess:
            return None
        return next((child for child in children if child.pid not in self._struck), None)
