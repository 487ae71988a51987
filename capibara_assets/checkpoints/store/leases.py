"""Leases of active writers, which `collect` respects until they have published.

A lease is a small file that its writer renews; a writer whose lease ran out does not publish. Whoever reads leases
waits a while longer than their writers do, so that clocks which differ by less than `GRACE_S` do no harm. A machine's
own leases go by its clock since it was started, which nobody sets, and which runs on while it sleeps.
"""

import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.store.documents import unwrapped_json, wrap
from capibara_assets.checkpoints.store.places import StorePlace
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.processes.identity import Process
from capibara_assets.storage.digests import canonical_json

FOLDER = "leases"
LIFE_S = 900.0
GRACE_S = 300.0
"""Seconds past its end for which others still respect a lease."""

_log = logging.getLogger(__name__)


class LeaseExpired(InputError):
    """A writer stalled so long that pieces it relies on may have been collected; nothing was published."""


class Lease:
    """A lease held by this process."""

    def __init__(self, place: StorePlace, vault: Vault | None, purpose: str) -> None:
        """Write the lease's file. Raises InputError: the disk is full."""
        self.id = uuid.uuid4().hex
        self._place, self._vault, self._purpose = place, vault, purpose
        self._expires = 0.0
        self._write()

    @property
    def name(self) -> str:
        """Name of its file in the store."""
        return f"{FOLDER}/{self.id}"

    def check(self) -> None:
        """Raise LeaseExpired if the lease has expired, so that the writer starts again."""
        if since_boot() >= self._expires:
            raise LeaseExpired(
                f"writing to {self._place.root} stalled for over {LIFE_S / 60:.0f} minutes (a suspended process?): "
                "nothing was published; save again"
            )

    def renew(self) -> None:
        """Extend it to `LIFE_S` from now. Raises LeaseExpired: it has expired."""
        self.check()
        self._write()

    def _write(self) -> None:
        ends = since_boot() + LIFE_S
        own = asdict(Process.of(os.getpid()))
        body = {"expires": time.time() + LIFE_S, "ends": ends, "host": _host(), **own, "purpose": self._purpose}
        # not synced: a power cut that tears it also ends its process
        self._place.replace(self.name, wrap(canonical_json(body), self.name, self._vault), durable=False)
        self._expires = ends


@contextmanager
def hold(place: StorePlace, vault: Vault | None, purpose: str) -> Iterator[Lease]:
    """Hold a lease while the block runs, renewed by a thread. Raises InputError: the disk is full."""
    lease = Lease(place, vault, purpose)
    done = threading.Event()
    renewing = threading.Thread(target=_keep, args=(lease, done), name=f"lease-{lease.id[:8]}", daemon=True)
    renewing.start()
    try:
        yield lease
    finally:
        done.set()
        renewing.join()
        place.delete(lease.name)


def alive(place: StorePlace, vault: Vault | None) -> dict[str, str]:
    """Id -> purpose of the leases whose writers may still publish."""
    purposes = {}
    for lease in place.list(FOLDER):
        name = f"{FOLDER}/{lease}"
        try:
            body = unwrapped_json(place.read(name), name, vault, place.root)
        except FileNotFoundError:
            continue  # released meanwhile
        except IntegrityError as error:
            _log.warning("%s; it counts as released: only a crash of its machine leaves one like that", error)
            continue
        if not _is_over(body) and not _dead(body):
            purposes[lease] = str(body["purpose"])
    return purposes


def _keep(lease: Lease, done: threading.Event) -> None:
    while not done.wait(LIFE_S / 5):
        try:
            lease.renew()
        except LeaseExpired:
            return  # the writer finds out before it publishes
        except (OSError, InputError) as error:
            _log.warning("could not renew %s, trying again: %s", lease.name, error)


def since_boot() -> float:
    """Seconds of a monotonic clock; one that includes sleep, if the system has it."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _is_over(body: dict[str, Any]) -> bool:
    """Whether its time is over, with the grace; leases of older versions have no `ends`."""
    if body["host"] == _host() and "ends" in body:
        return since_boot() >= float(body["ends"]) + GRACE_S
    return time.time() >= float(body["expires"]) + GRACE_S


def _dead(body: dict[str, Any]) -> bool:
    """Whether the writer's process is known to be gone; only its own machine can tell."""
    return body["host"] == _host() and not Process(body["pid"], body["started"]).is_alive()


def _host() -> str:
    """Scope in which a process id is unique: a boot of a machine, and a container's process namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return f"{os.uname().nodename} {psutil.boot_time():.0f}"
