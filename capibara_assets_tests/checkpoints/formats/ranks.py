"""Scripts that run as two processes which talk over gloo, as distributed checkpoints are written."""

import os
import subprocess
import sys

from capibara_assets_tests.served import free_port


def two_ranks(script: str, *arguments: str, timeout: float = 300) -> None:
    """Run a script as two processes, with its rank and a free port behind the arguments."""
    port = free_port()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", script, *arguments, str(rank), str(port)],
            env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        errors = [rank.communicate(timeout=timeout)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(error[-3000:] for error in errors)
