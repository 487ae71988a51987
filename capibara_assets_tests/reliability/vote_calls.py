"""A vote whose coordinator, or one of whose voters, is killed at a system call or refused it, under strace.

`python -m capibara_assets_tests.reliability.vote_calls HOME WHO CALL POINT…`, in the way of `system_calls`:
each point is a forked process that holds the vote; whoever is struck first makes so many idle calls that strace's is
the point's.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch

from capibara_assets.consensus.agree import agree
from capibara_assets.consensus.certificates.certificate import certify
from capibara_assets.consensus.election.polling import hold_vote
from capibara_assets.consensus.election.voter import Assignment, run
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.errors import InputError
from capibara_assets.modeling.base import Base, load_base
from capibara_assets_tests.consensus.conftest import Tokens
from capibara_assets_tests.reliability.system_calls import IDLE, WHEN

COORDINATOR = "coordinator"
REFUSED, FAILED = 3, 4
"""Exit codes: what a user is told; an error of the system as it came."""
RECIPE = ConsensusRecipe(consensus_timeout=60, max_retries=2)


def idle(call: str, point: int) -> None:
    """All calls but the last before those that strace's number leaves to the point."""
    for _ in range(WHEN - point):
        with suppress(OSError):
            IDLE[call](Path(os.devnull))


def enter(who: str, call: str, point: int, assignment: Assignment, base: Base, folder: Path, threads: int) -> None:
    """Entry of a voter's process: the one that is struck is so in its first attempt."""
    if assignment.voter == who and folder.name == "attempt-1":
        idle(call, point)
    run(assignment, base, folder, threads)


def hold(base: Base, home: Path, out: Path, who: str = "", call: str = "", point: int = 0) -> None:
    """Hold the vote of a home, and certify what comes of it."""
    document = json.loads((home / "vote.json").read_bytes())
    voters = {name: home / "voters" / name for name in document["shards"]}
    validation = [Tokens(*each) for each in document["validation"]]
    entry = partial(enter, who, call, point)
    held = partial(hold_vote, entry=entry, processes=4, start_method="fork")
    if who == COORDINATOR:
        idle(call, point)
    certify(agree(base, voters, validation, document["shards"], RECIPE, {}, hold=held), out)


def strike(home: Path, who: str, call: str, fault: str, points: Sequence[int]) -> list[int]:
    """Hold votes in `home/POINT`, each struck at a point; their exit codes."""
    command = [
        *("strace", "-f", "--seccomp-bpf", "-qqq", "-o", os.devnull, "-e", f"trace={call}", "--signal=none"),
        *("-e", f"inject={call}:{fault}:when={WHEN}"),
        *(sys.executable, "-m", "capibara_assets_tests.reliability.vote_calls", str(home), who, call),
        *map(str, points),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    return [int(code) for code in done.stdout.split("codes:")[1].split()]


def _point(base: Base, home: Path, who: str, call: str, point: int) -> int:
    place = home / str(point)
    tempfile.tempdir = str(place / "tmp")
    try:
        hold(base, home, place / "out", who, call, point)
    except InputError as error:
        (place / "said").write_text(str(error))
        return REFUSED
    except OSError as error:
        (place / "said").write_text(str(error))
        return FAILED
    return 0


def main() -> None:
    home, who, call, *points = sys.argv[1:]
    torch.set_num_threads(1)
    base = load_base(Path(home) / "base")
    codes = []
    for point in map(int, points):
        (Path(home) / str(point) / "tmp").mkdir(parents=True)  # not by the child, whose calls are counted
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = _point(base, Path(home), who, call, point)
            finally:
                os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    print("codes:", *codes)


if __name__ == "__main__":
    main()
