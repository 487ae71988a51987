"""Writers that may open few files, or are called often: `python -m …few_files SCENARIO LIMITED OFTEN`.

Prints a JSON document: `codes`, of forked processes with 0, 1, 2, … descriptors left beside those that are open, each
in LIMITED/number; `open`, how many descriptors are open after each of some calls in OFTEN.
"""

import json
import os
import resource
import sys
from pathlib import Path

from capibara_assets.errors import InputError, remedy_behind
from capibara_assets_tests.reliability.system_calls import REFUSED, SCENARIOS

TRIES, CALLS = 12, 6


def opened() -> set[int]:
    """Descriptors that this process has open, and the one that tells."""
    return {int(one.name) for one in Path("/proc/self/fd").iterdir()}


def _limited(scenario: str, folder: Path, left: int) -> int:
    SCENARIOS[scenario].read(folder)  # what a library opens once and keeps is open
    highest = max(opened())
    while os.open(os.devnull, os.O_RDONLY) < highest:
        pass  # no gap below is left to be used
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + left, hard))
    try:
        SCENARIOS[scenario].write(folder)
    except (InputError, OSError) as error:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        (folder / "said").write_text(f"{error}; {remedy_behind(error)}")
        return REFUSED
    return 0


def main() -> None:
    scenario, limited, often = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    codes, counts = [], []
    for number in range(TRIES):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = _limited(scenario, limited / str(number), number)
            finally:
                os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    for _ in range(CALLS):
        SCENARIOS[scenario].write(often)
        counts.append(len(opened()))
    print(json.dumps({"codes": codes, "open": counts}))


if __name__ == "__main__":
    main()
