"""`capibara consensus serve`: a folder of rounds behind HTTP, for parties that would not share a folder.

The server stores what a registered key signed for a round it has, of the size its head states, once. It shows no
submission before the deadline, so that nobody hands in another's. It speaks plain HTTP and trusts nobody: what it says
is signed letters, and who wants these read by nobody else puts TLS before it.
"""

import json
import os
import re
import time
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any

from capibara_assets.checkpoints.store import files
from capibara_assets.checkpoints.store.places import LocalPlace
from capibara_assets.consensus.rounds.letters import (
    LONGEST_HEAD,
    OF_ORGANISER,
    Head,
    LetterFault,
    read_head,
    verify_files,
)
from capibara_assets.consensus.rounds.places import LETTERS, StoredPlace, open_round_place
from capibara_assets.consensus.rounds.round import EXAMPLES, ROUND, Round, read_round
from capibara_assets.consensus.rounds.submissions import REFUSED, Named
from capibara_assets.errors import InputError

_BLOCK = 1 << 20
_QUIET_S = 30.0  # of a connection
_UPLOAD_S = 900.0  # of a whole upload
_AT_ONCE = 16
_MOST_LETTERS = 8  # of one sender and kind
_MOST_REFUSALS = 1000  # that are kept
_PATH = re.compile(rf"/([0-9a-f]{{64}})/({re.escape(ROUND)}|{re.escape(EXAMPLES)}|{LETTERS}(?:/([0-9a-f]{{64}}))?)")


@dataclass
class Shelf:
    """What a server has of one round.

    Attributes:
        heads: name -> head of each letter that was stored.
    """

    place: StoredPlace
    terms: Round
    heads: dict[str, Head] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)
    refusals: int = 0

    def shown(self, name: str) -> bool:
        """Whether a letter may be read by now; a submission after the deadline only."""
        return time.time() > self.terms.closes or self.head_of(name).content.kind != "submission"

    def head_of(self, name: str) -> Head:
        """Raises FileNotFoundError, or LetterFault: it was put there by another way, and is none."""
        if name not in self.heads:
            path = f"{self.terms.digest}/{LETTERS}/{name}"
            self.heads[name] = read_head(
                name, self.place.read(path, LONGEST_HEAD), self.place.store.size(path), self.terms
            )
        return self.heads[name]

    def listed(self) -> list[tuple[float, str, int]]:
        """Arrivals that may be read by now."""
        return [(a.received, a.name, a.size) for a in self.place.arrivals(self.terms.digest) if self._readable(a.name)]

    def _readable(self, name: str) -> bool:
        try:
            return self.shown(name)
        except (LetterFault, FileNotFoundError):
            return False

    def admit(self, name: str, start: bytes, size: int) -> Head:
        """Judge an upload by its head. Raises LetterFault."""
        head = read_head(name, start, size, self.terms)
        content = head.content
        if content.kind == "submission" and time.time() > self.terms.closes:
            raise LetterFault("late", f"the deadline was {self.terms.deadline}", content.sender)
        self.listed_heads()
        heads = tuple(self.heads.values())  # others are added meanwhile
        same = [h for h in heads if (h.content.kind, h.content.sender) == (content.kind, content.sender)]
        if name not in self.heads and len(same) >= _MOST_LETTERS and content.kind not in OF_ORGANISER:
            raise LetterFault(
                "duplicate", f"{content.sender} has {len(same)} letters of this kind here", content.sender
            )
        return head

    def listed_heads(self) -> None:
        """Read the heads of letters that an earlier server stored."""
        for arrival in self.place.arrivals(self.terms.digest):
            self._readable(arrival.name)

    def note(self, name: str, fault: LetterFault) -> None:
        """Keep a refusal for the round's result; beyond a thousand they are not kept."""
        with self.lock:
            self.refusals += 1
            if self.refusals <= _MOST_REFUSALS:
                one = Named(fault.fault, (fault.sender or "")[:255], f"refused by the server: {fault}", name)
                with Path(self.place.root, self.terms.digest, REFUSED).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(one.document()) + "\n")


class RoundServer(ThreadingHTTPServer):
    """Serves the rounds of one folder."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], folder: Path) -> None:
        place = open_round_place(str(folder), folder)
        if not isinstance(place, StoredPlace) or not isinstance(place.store, LocalPlace):
            raise InputError(f"{folder} is no folder on this machine: serve one, buckets need no server")
        self.place, self.shelves, self.slots, self.lock = place, dict[str, Shelf](), BoundedSemaphore(_AT_ONCE), Lock()
        super().__init__(address, _Handler)

    def shelf(self, digest: str) -> Shelf:
        """Raises InputError: there is no such round."""
        with self.lock:
            if digest not in self.shelves:
                self.shelves[digest] = Shelf(self.place, read_round(self.place, digest)[0])
            return self.shelves[digest]


class _Handler(BaseHTTPRequestHandler):
    server: RoundServer
    server_version = "capibara"
    sys_version = ""
    timeout = _QUIET_S

    def do_GET(self) -> None:
        """A round's file, the list of its letters, or a letter."""
        if (found := _PATH.fullmatch(self.path)) is None:
            return self._say(404, "no such name")
        digest, what, name = found.groups()
        try:
            shelf = self.server.shelf(digest)
            if what == LETTERS:
                return self._say(200, json.dumps(shelf.listed()))
            if name is not None and not shelf.shown(name):
                return self._say(404, "not before the deadline")
            return self._send_file(Path(self.server.place.root, digest, what))
        except (InputError, FileNotFoundError):
            return self._say(404, "no such name")

    def do_PUT(self) -> None:
        """A letter; it appears whole or not at all, and is never written again."""
        found = _PATH.fullmatch(self.path)
        if found is None or found[3] is None:
            return self._say(403, "only letters are taken")
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"[0-9]{1,15}", length) or "Transfer-Encoding" in self.headers:
            return self._say(411, "state the length")
        if not self.server.slots.acquire(blocking=False):
            return self._say(503, "too many uploads at a time: try again")
        try:
            self._take(self.server.shelf(found[1]), found[3], int(length))
        except LetterFault as fault:
            self.server.shelf(found[1]).note(found[3], fault)
            self._say(413 if fault.fault == "oversized" else 403, f"{fault.fault}: {fault}")
        except InputError:
            self._say(404, "no such round")
        except OSError as error:
            self._say(507, f"cannot be kept: {error.strerror}")
        finally:
            self.server.slots.release()

    def _take(self, shelf: Shelf, name: str, size: int) -> None:
        """Read an upload into a file of its own, and give it its name; more than its head states is not read."""
        until = time.monotonic() + _UPLOAD_S
        part = self.server.place.store.parts / f"{uuid.uuid4().hex}.part"
        try:
            with part.open("xb") as file:
                start = self._read(min(size, LONGEST_HEAD), until)
                head = shelf.admit(name, start, size)
                file.write(start)
                left = size - len(start)
                while left:
                    block = self._read(min(left, _BLOCK), until)
                    file.write(block)
                    left -= len(block)
                file.flush()
                os.fsync(file.fileno())
            verify_files(head, part)
            with shelf.lock:
                head = shelf.admit(name, start, size)  # the deadline may be over by now
                new = self._link(part, shelf, name)
                shelf.heads[name] = head
            self._say(201 if new else 200, "kept" if new else "here already")
        finally:
            part.unlink(missing_ok=True)

    def _link(self, part: Path, shelf: Shelf, name: str) -> bool:
        target = Path(shelf.place.root, shelf.terms.digest, LETTERS, name)
        target.parent.mkdir(exist_ok=True)
        try:
            files.link(part, target)
        except FileExistsError:
            return False
        files.sync_folder(target.parent)
        return True

    def _read(self, size: int, until: float) -> bytes:
        """Exactly so many bytes. Raises LetterFault: the sender stops, or takes too long."""
        data = bytearray()
        while len(data) < size:
            try:
                block = self.rfile.read1(min(size - len(data), _BLOCK)) if time.monotonic() < until else b""  # type: ignore[attr-defined]
            except OSError:  # quiet for too long
                block = b""
            if not block:
                raise LetterFault("damaged", f"{len(data):,} bytes came of a part of {size:,}")
            data += block
        return bytes(data)

    def _send_file(self, file: Path) -> None:
        with file.open("rb") as opened:
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(os.fstat(opened.fileno()).st_size))
            self.end_headers()
            while block := opened.read(_BLOCK):
                self.wfile.write(block)

    def _say(self, status: int, text: str) -> None:
        data = text.encode("utf-8", errors="replace")
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: refusals are in the round's folder."""
