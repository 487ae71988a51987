"""Scripts that run as two processes which talk over gloo, as distributed checkpoints are written."""

import os
import socket
import subprocess
import sys


def two_ranks(script: str, *arguments: str, timeout: float = 300) -> None:
    """Run a script as two processes, with its rank and a free port behind the arguments."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
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
