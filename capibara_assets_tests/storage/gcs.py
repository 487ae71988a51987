"""A Google Cloud Storage emulator of a test's own, which holds generation preconditions (`gcs_preconditions`)."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from capibara_assets_tests.served import free_port
from capibara_assets_tests.storage import gcs_preconditions

BUCKET = "bucket"

# as storage/store.py does, for tests that open a path themselves: gcsfs reads it when it is imported
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")


@contextmanager
def gcs_emulator() -> Iterator[str]:
    """An emulator on a free loopback port, with an empty bucket; its URL."""
    port = free_port()
    command = [sys.executable, gcs_preconditions.__file__, "--port", str(port), "--bucket", BUCKET]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline, "the emulator did not start"
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()  # it holds nothing, and a polite end waits for connections that clients keep open
        process.wait()
