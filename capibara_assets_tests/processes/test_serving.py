"""Servers in the foreground, as real processes: asked to end by any signal they do, with all that they started."""

import signal
import socket
import subprocess
import sys
import textwrap
import time
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from capibara_assets.errors import InputError
from capibara_assets.processes.groups import family
from capibara_assets.processes.serving import require_free, serve
from capibara_assets_tests.ui.process import IGNORING_SIGINT

# As Dagster does: whatever it found for SIGINT, also an ignored signal, becomes its handler of SIGTERM.
SERVER = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
try:
    child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    apart = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
    time.sleep(600)
finally:
    print("saved", flush=True)
"""


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(other, marks=pytest.mark.extended) for other in (signal.SIGTERM, signal.SIGHUP))],
)
def test_started_by_a_script_in_the_background_it_ends_with_all_below_it(
    number: signal.Signals, tmp_path: Path
) -> None:
    program = f"""
        import sys
        from capibara_assets.processes.serving import serve
        said = lambda: print("runs", flush=True)
        serve("it", [sys.executable, "-S", "-c", {SERVER!r}], said, grace_s=2)
    """
    said = tmp_path / "said"
    with said.open("w") as output:
        process = subprocess.Popen(
            [*IGNORING_SIGINT, sys.executable, "-c", textwrap.dedent(program)],
            stdout=output,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # the suite may run under nohup
        )
    try:
        deadline = time.monotonic() + 60
        while len(below := family(process.pid)) < 5:  # it, its guard, the server and the server's two children
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
    _, alive = psutil.wait_procs(below, timeout=5)
    assert not alive and said.read_text().split() == ["runs", "saved"]


def test_a_server_that_ends_by_itself_is_an_error_and_the_handlers_are_the_old_ones() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(InputError, match="it ended with exit code 3: see its output above"):
        serve("it", [sys.executable, "-S", "-c", "raise SystemExit(3)"], lambda: None)
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_is_called_meanwhile_is_called_again_and_again() -> None:
    calls: list[float] = []
    refresh = (lambda: calls.append(time.monotonic()), 0.3)
    with pytest.raises(InputError):
        serve("it", [sys.executable, "-S", "-c", "import time; time.sleep(1.2)"], lambda: None, refresh=refresh)
    assert len(calls) >= 2 and all(later - earlier >= 0.3 for earlier, later in pairwise(calls))


def test_who_holds_a_port_is_named() -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        port = busy.getsockname()[1]
        require_free("127.0.0.1", 0)
        busy.listen()
        with pytest.raises(InputError, match=rf"port {port} of 127.0.0.1 is not free \(process \d+ listens there: "):
            require_free("127.0.0.1", port)
