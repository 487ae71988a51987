"""A training that trains nothing, run in a pod's stead: it goes on where it stopped, saves when asked, and can fail.

It leaves what shows whether anything was lost or done twice: a line a step, and a mark where two of it ran at a time.
What it does is told in `told.json` of the folder of work: `steps`; `exits`: attempt -> exit code after one step;
`waits`: the first attempt does one step and then waits to be asked to end; `holds`: numbers of steps after which it
waits for `go-NUMBER`, or to be asked to end, so that a fault comes before its end however slow the machine. A voter
that trains apart, and a node of several, leave only that they ran; `together`: voters that train at a time, `failing`:
those that end with 1; `attempts`: of the nodes together.
"""

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path

from dagster_pipes import open_dagster_pipes

STEP_S, LONGEST_S = 0.02, 15.0
TOLD, STEPS, TWO, ATTEMPTS, SIGNALLED, GO = "told.json", "steps", "two-writers", "attempts", "signalled", "go-"


def main() -> int:
    request = json.loads(Path(sys.argv[sys.argv.index("--request") + 1]).read_text())
    work, out = Path(request["work"]), Path(request["out"])
    if "--voter" in sys.argv:
        return one_of_many(work, sys.argv[sys.argv.index("--voter") + 1])
    if "--assemble" in sys.argv:
        return publish(out, 1)
    if "NODE_RANK" in os.environ:
        return node(work, out)
    with (work / "writer.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (work / TWO).touch()
            return 3
        return train(work, out)


def train(work: Path, out: Path) -> int:
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    told = json.loads((work / TOLD).read_text())
    with (work / ATTEMPTS).open("a") as file:
        file.write(".")
    attempt = len((work / ATTEMPTS).read_text())
    if out.exists():
        return 0
    with open_dagster_pipes() as pipes, (work / STEPS).open("a+", buffering=1) as steps:
        steps.seek(0)
        done = len(steps.readlines())
        pipes.log.info(f"attempt {attempt} goes on at step {done}")
        for step in range(done, told["steps"]):
            if asked:
                (work / SIGNALLED).touch()
                return 128 + asked[0]
            time.sleep(STEP_S)
            steps.write(f"{step}\n")
            while told.get("waits") and attempt == 1 and not asked:
                time.sleep(STEP_S)
            while step + 1 in told.get("holds", ()) and not (work / f"{GO}{step + 1}").exists() and not asked:
                time.sleep(STEP_S)
            if (code := told.get("exits", {}).get(str(attempt))) is not None:
                pipes.log.error("what it trains on is no data")
                print(f"failed; token {os.environ.get('HF_TOKEN', '')}", file=sys.stderr, flush=True)
                return int(code)
    return publish(out, attempt)


def one_of_many(work: Path, name: str) -> int:
    """A voter that trains apart: it ends when all of them have begun, and fails where they do not."""
    told, deadline = json.loads((work / TOLD).read_text()), time.monotonic() + LONGEST_S
    (work / f"ran-{name}").touch()
    while len(list(work.glob("ran-*"))) < told["together"]:
        if time.monotonic() > deadline:
            return 2
        time.sleep(STEP_S)
    return int(name in told.get("failing", ()))


def node(work: Path, out: Path) -> int:
    """One of several nodes: it begins when all of an attempt are there, and the first publishes."""
    rank, nodes = os.environ["NODE_RANK"], int(os.environ["NNODES"])
    (work / f"node-{rank}-{os.getpid()}").write_text(os.environ["MASTER_ADDR"])
    told, deadline = json.loads((work / TOLD).read_text()), time.monotonic() + LONGEST_S
    while len(list(work.glob("node-*"))) < nodes * told.get("attempts", 1):
        if time.monotonic() > deadline:
            return 2
        time.sleep(STEP_S)
    return publish(out, 1) if rank == "0" else 0


def publish(out: Path, attempt: int) -> int:
    part = out.with_name("part")
    part.mkdir(exist_ok=True)
    (part / "summary.json").write_text(json.dumps({"attempt": attempt}))
    part.rename(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
