"""A PostgreSQL server of a test's own, from the system's package."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg2
import pytest

from capibara_assets_tests.served import free_port

USER, PASSWORD = "capibara", "canary-postgres-password"


def program(name: str) -> str | None:
    """Path of one of PostgreSQL's programs, which Debian keeps out of PATH; None where it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(found[-1]) if found else None)


@contextmanager
def postgres() -> Iterator[dict[str, str]]:
    """A server on a free loopback port with an empty database; the variables that name it to a deployment.

    Skips the test where PostgreSQL is not installed.
    """
    initdb, server = program("initdb"), program("postgres")
    if initdb is None or server is None:
        pytest.skip("PostgreSQL is not installed: apt install postgresql")
    # the server refuses to run as root, and its user must reach the folder
    user = "postgres" if os.getuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="capibara-postgres-"))
    try:
        (folder / "password").write_text(PASSWORD)
        if user:
            for path in (folder, folder / "password"):
                shutil.chown(path, user)
        data = folder / "data"
        subprocess.run(
            [initdb, "-D", data, "-U", USER, "-A", "scram-sha-256", f"--pwfile={folder / 'password'}", "-N"],
            check=True,
            capture_output=True,
            user=user,
            cwd=folder,
        )
        port = free_port()
        options = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": folder, "fsync": "off"}
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([server, "-D", data, *settings], stdout=log, stderr=log, user=user, cwd=folder)
        try:
            variables = {"HOST": "127.0.0.1", "PORT": str(port), "USER": USER, "PASSWORD": PASSWORD, "DB": "postgres"}
            _wait(port, process, folder / "log")
            yield {f"DAGSTER_POSTGRES_{name}": value for name, value in variables.items()}
        finally:
            process.kill()
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg2.connect(host="127.0.0.1", port=port, user=USER, password=PASSWORD, dbname="postgres").close()
            return
        except psycopg2.OperationalError:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
