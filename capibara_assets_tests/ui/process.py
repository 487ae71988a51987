"""`capibara ui` as a script's background command, webserver, daemon and all, for as long as a test needs it."""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from capibara_assets.processes.groups import family, runs
from capibara_assets_tests.home import MadeHome
from capibara_assets_tests.served import free_port

_ANSWERS_S = 120
IGNORING_SIGINT = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")


@contextmanager
def running_ui(made: MadeHome, log: Path, **variables: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start the deployment's UI on a free port; gives its address, which need not answer yet, and its process.

    It starts with SIGINT ignored, as `capibara ui &` does in a script, and has to end by SIGTERM with all below it.

    Args:
        log: file that gets what it prints; the UI runs in its folder.
        variables: of its environment, beside the deployment's.
    """
    port = free_port()
    with log.open("w") as output:
        process = subprocess.Popen(
            [*IGNORING_SIGINT, sys.executable, "-m", "capibara_assets.cli", "ui", "--port", str(port)],
            env={**os.environ, **made.environment, **variables},
            cwd=log.parent,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield f"http://127.0.0.1:{port}", process
        finally:
            below = family(process.pid)
            process.terminate()
            assert process.wait(timeout=60) == 0
            assert not [one for one in below if runs(one)], "ended means ended"


@contextmanager
def answering_ui(made: MadeHome, log: Path, **variables: str) -> Iterator[str]:
    """As `running_ui`, with nothing that runs by itself; gives the address once it answers."""
    with running_ui(made, log, **variables, CAPIBARA_AUTOMATION="off") as (address, process):
        deadline = time.monotonic() + _ANSWERS_S
        while True:
            try:
                urllib.request.urlopen(f"{address}/server_info", timeout=2).read()
                break
            except OSError:
                assert time.monotonic() < deadline and process.poll() is None, log.read_text()[-3000:]
                time.sleep(0.1)
        yield address
