"""`capibara consensus serve`: a folder of rounds behind HTTP, for organisations that do not share a folder.

The server stores what a registered key signed for a round it has, of the size its head states, once. It shows no
submission before the deadline, so that nobody hands in another's. It speaks plain HTTP and trusts nobody: what it says
is signed messages; put TLS before it if nobody else may read them.
"""

import json
import os
import re
import socket
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

from capibara_assets.checkpoints.store import files
from capibara_assets.checkpoints.store.places import LocalPlace
from capibara_assets.consensus.rounds.mailbox import MOST_MESSAGES
from capibara_assets.consensus.rounds.messages import (
    LONGEST_HEAD,
    OF_ORGANISER,
    Head,
    MessageFault,
    read_head,
    verify_files,
)
from capibara_assets.consensus.rounds.places import MESSAGES, StoredPlace, open_round_place
from capibara_assets.consensus.rounds.round import EXAMPLES, ROUND, Round, read_round
from capibara_assets.consensus.rounds.submissions import REFUSED, Named, refusals
from capibara_assets.errors import InputError

_BLOCK = 1 << 20
_QUIET_S = 30.0  # of a connection, and in which it has to show whose message it brings
_TRANSFER_S = 900.0  # of what is sent then, either way
_LAST_S = 1.0  # of a connection that has its answer
_CONNECTIONS = 256
_UPLOADS = 2  # of one sender at a time
_MOST_REFUSALS = 1000  # that are kept
_PATH = re.compile(rf"/([0-9a-f]{{64}})/({re.escape(ROUND)}|{re.escape(EXAMPLES)}|{MESSAGES}(?:/([0-9a-f]{{64}}))?)")


@dataclass
class Shelf:
    """A server's state of one round.

    Attributes:
        heads: name -> header of each stored message.
        uploads: sender -> how many it sends at the moment.
        refusals: how many were kept, by earlier servers, too.
    """

    place: StoredPlace
    terms: Round
    heads: dict[str, Head] = field(default_factory=dict)
    uploads: Counter[str] = field(default_factory=Counter)
    lock: Lock = field(default_factory=Lock)
    refusals: int = 0
    over: bool = False

    def __post_init__(self) -> None:
        self.refusals = len(refusals(self.place, self.terms.digest))

    @contextmanager
    def upload(self, sender: str) -> Iterator[bool]:
        """Context manager that reserves one of the sender's upload slots, so that senders cannot block each other."""
        with self.lock:
            taken = self.uploads[sender] < _UPLOADS
            self.uploads[sender] += taken
        try:
            yield taken
        finally:
            with self.lock:
                self.uploads[sender] -= taken

    def closed(self) -> bool:
        """Whether the deadline is over; it stays over once submissions were shown, whatever the clock says."""
        elected = any(head.content.kind == "election" for head in tuple(self.heads.values()))
        return self.over or elected or time.time() > self.terms.closes

    def shown(self, name: str) -> bool:
        """Whether a message may be read now; a submission only after the deadline."""
        if self.head_of(name).content.kind != "submission":
            return True
        self.over = self.closed()
        return self.over

    def head_of(self, name: str) -> Head:
        """Header of a stored message. Raises FileNotFoundError, or MessageFault: an invalid file was placed there."""
        if name not in self.heads:
            path = f"{self.terms.digest}/{MESSAGES}/{name}"
            self.heads[name] = read_head(
                name, self.place.read(path, LONGEST_HEAD), self.place.store.size(path), self.terms
            )
        return self.heads[name]

    def listed(self) -> list[tuple[float, str, int]]:
        """Messages that may be read now."""
        return [(a.received, a.name, a.size) for a in self.place.arrivals(self.terms.digest) if self._readable(a.name)]

    def _readable(self, name: str) -> bool:
        try:
            return self.shown(name)
        except (MessageFault, FileNotFoundError, PermissionError):
            return False

    def admit(self, name: str, start: bytes, size: int) -> Head:
        """Check an upload by its header. Raises MessageFault."""
        head = read_head(name, start, size, self.terms)
        content = head.content
        if content.kind == "submission" and self.closed():
            raise MessageFault("late", f"the deadline was {self.terms.deadline}", content.sender)
        if content.kind in OF_ORGANISER and not self.closed():  # what it holds open would be shut, and shown
            raise MessageFault("unfit", f"a {content.kind} before the deadline, {self.terms.deadline}", content.sender)
        self.listed_heads()
        heads = tuple(self.heads.values())  # others are added meanwhile
        same = [h for h in heads if (h.content.kind, h.content.sender) == (content.kind, content.sender)]
        if name not in self.heads and len(same) >= MOST_MESSAGES and content.kind not in OF_ORGANISER:
            raise MessageFault(
                "duplicate", f"{content.sender} has {len(same)} messages of this kind here", content.sender
            )
        return head

    def listed_heads(self) -> None:
        """Read the headers of messages that an earlier server stored."""
        for arrival in self.place.arrivals(self.terms.digest):
            self._readable(arrival.name)

    def note(self, name: str, fault: MessageFault) -> None:
        """Record a refusal for the round's result, up to a thousand."""
        with self.lock:
            self.refusals += 1
            if self.refusals <= _MOST_REFUSALS:
                one = Named(fault.fault, fault.sender or "", f"refused by the server: {fault}", name)
                with Path(self.place.root, self.terms.digest, REFUSED).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(one.document()) + "\n")


class RoundServer(ThreadingHTTPServer):
    """HTTP server of the rounds in one folder."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], folder: Path) -> None:
        place = open_round_place(str(folder), folder)
        if not isinstance(place, StoredPlace) or not isinstance(place.store, LocalPlace):
            raise InputError(f"{folder} is no folder on this machine: serve one, buckets need no server")
        self.place, self.shelves, self.lock = place, dict[str, Shelf](), Lock()
        self.until = dict[Any, float]()  # open connection -> when it is cut
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread, or close the connection if there are too many."""
        if len(self.until) >= _CONNECTIONS:
            super().shutdown_request(request)
        else:
            self.grant(request, _QUIET_S)
            super().process_request(request, client_address)

    def grant(self, request: Any, seconds: float) -> None:
        """Close a connection after this many seconds, even if data still trickles in."""
        self.until[request] = time.monotonic() + seconds

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, reading for one more second so that the peer receives the answer."""
        with suppress(OSError):  # it is cut, or gone
            request.shutdown(socket.SHUT_WR)
            request.settimeout(_LAST_S)
            self.grant(request, _LAST_S)
            while request.recv(_BLOCK):
                pass
        self.until.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Close expired connections; called twice a second."""
        now = time.monotonic()
        for request, until in list(self.until.items()):
            if until < now:
                with suppress(OSError):  # it has ended meanwhile
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore peers that disconnect; report anything else as a defect."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def shelf(self, digest: str) -> Shelf:
        """State of a round. Raises InputError if there is none."""
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
        """Serve a round's file, the list of its messages, or a message."""
        if (match := _PATH.fullmatch(self.path)) is None:
            return self._say(404, "no such name")
        digest, what, name = match.groups()
        try:
            shelf = self.server.shelf(digest)
            if what == MESSAGES:
                return self._say(200, json.dumps(shelf.listed()))
            if name is not None and not shelf.shown(name):
                return self._say(404, "not before the deadline")
            return self._send_file(Path(self.server.place.root, digest, what))
        except (InputError, FileNotFoundError):
            return self._say(404, "no such name")

    def do_PUT(self) -> None:
        """Store a message; it appears atomically and is never overwritten."""
        match = _PATH.fullmatch(self.path)
        if match is None or match[3] is None:
            return self._say(403, "only messages are taken")
        (length, *more) = self.headers.get_all("Content-Length", [""])
        if more or not re.fullmatch(r"[0-9]{1,15}", length, re.ASCII) or "Transfer-Encoding" in self.headers:
            return self._say(411, "state the length, once")
        try:
            self._take(self.server.shelf(match[1]), match[3], int(length))
        except MessageFault as fault:
            self.server.shelf(match[1]).note(match[3], fault)
            self._say(413 if fault.fault == "oversized" else 403, f"{fault.fault}: {fault}")
        except InputError:
            self._say(404, "no such round")
        except OSError as error:
            self._say(507, f"cannot be kept: {error.strerror}")

    def _take(self, shelf: Shelf, name: str, size: int) -> None:
        """Judge an upload by its head; what is here already is not read again, whoever sends it."""
        start = self._read(min(size, LONGEST_HEAD))
        head = shelf.admit(name, start, size)
        sender = head.content.sender
        if name in shelf.heads:
            return self._say(200, "here already")
        with shelf.upload(sender) as free:
            if free:
                self.server.grant(self.connection, _TRANSFER_S)
                return self._keep(shelf, head, start)
        return self._say(503, f"{sender} sends {_UPLOADS} messages already: try again")

    def _keep(self, shelf: Shelf, head: Head, start: bytes) -> None:
        """Read an upload into a file of its own, and give it its name; more than its head states is not read."""
        part = self.server.place.store.parts / f"{uuid.uuid4().hex}.part"
        try:
            with part.open("xb") as file:
                file.write(start)
                left = head.size - len(start)
                while left:
                    block = self._read(min(left, _BLOCK))
                    file.write(block)
                    left -= len(block)
                file.flush()
                os.fsync(file.fileno())
            verify_files(head, part)
            with shelf.lock:
                shelf.admit(head.name, start, head.size)  # the deadline may be over by now
                new = self._link(part, shelf, head.name)
                part.unlink()  # before anybody is told: a name less changes the message's time
                shelf.heads[head.name] = head
            self._say(201 if new else 200, "kept" if new else "here already")
        finally:
            part.unlink(missing_ok=True)

    def _link(self, part: Path, shelf: Shelf, name: str) -> bool:
        target = Path(shelf.place.root, shelf.terms.digest, MESSAGES, name)
        target.parent.mkdir(exist_ok=True)
        try:
            files.link(part, target)
        except FileExistsError:
            return False
        files.sync_folder(target.parent)
        return True

    def _read(self, size: int) -> bytes:
        """Exactly so many bytes. Raises MessageFault: the sender stops, or takes so long that it was cut off."""
        data = bytearray()
        while len(data) < size:
            try:
                block = self.rfile.read1(min(size - len(data), _BLOCK))  # type: ignore[attr-defined]
            except OSError:  # quiet for too long
                block = b""
            if not block:
                raise MessageFault("damaged", f"{len(data):,} bytes came of a part of {size:,}")
            data += block
        return bytes(data)

    def _send_file(self, file: Path) -> None:
        self.server.grant(self.connection, _TRANSFER_S)
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
        """Log nothing: refusals are recorded in the round's folder."""
