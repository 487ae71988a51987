"""The messages of one round at a place: each fetched once, checked and unpacked; invalid ones are listed."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from capibara_assets.consensus.rounds.messages import (
    LONGEST_HEAD,
    OF_ORGANISER,
    ORGANISER,
    Kind,
    Message,
    MessageFault,
    read_head,
    verify_files,
    write_message,
)
from capibara_assets.consensus.rounds.places import MESSAGES, Arrival, RoundPlace
from capibara_assets.consensus.rounds.round import Round
from capibara_assets.errors import InputError

_LOOK_S = 0.25  # between two looks at a place
MOST_MESSAGES = 8
"""Of one sender and kind that are read, the organiser's aside: a voter may fill a place, not everybody's disk."""


@dataclass
class Mailbox:
    """The messages of a round that were read so far.

    Attributes:
        work: folder for what is unpacked.
        messages: name -> verified message, in the order of arrival.
        faults: name -> why it does not count.
    """

    place: RoundPlace
    terms: Round
    work: Path
    messages: dict[str, Message] = field(default_factory=dict)
    faults: dict[str, MessageFault] = field(default_factory=dict)

    def look(self) -> None:
        """Read new messages."""
        for arrival in self.place.arrivals(self.terms.digest):
            if arrival.name not in self.messages and arrival.name not in self.faults:
                try:
                    self.messages[arrival.name] = self._read(arrival)
                except MessageFault as fault:
                    self.faults[arrival.name] = fault
                except PermissionError as error:
                    self.faults[arrival.name] = MessageFault("damaged", f"cannot be read: {error.strerror}")
                except FileNotFoundError:
                    continue  # not shown yet, or taken away

    def of(self, kind: Kind, about: str | None = None) -> list[Message]:
        """Messages of one kind, in the order of arrival."""
        messages = [x for x in self.messages.values() if x.head.content.kind == kind]
        matching = [x for x in messages if about is None or x.head.content.about == about]
        return sorted(matching, key=lambda x: (x.received, x.head.name))

    def first_of(self, kind: Kind, sender: str = ORGANISER, about: str | None = None) -> Message | None:
        """The first message of a sender, which is the one that counts."""
        return next((message for message in self.of(kind, about) if message.sender == sender), None)

    def send(
        self, kind: Kind, sender: str, files: Mapping[str, bytes], key: Ed25519PrivateKey, about: str = ""
    ) -> Message:
        """Write a message to the place, and read it back.

        Raises:
            InputError: the place refuses it, or shows something else.
        """
        name, data = write_message(self.terms.digest, kind, sender, files, key, about)
        read_head(name, data[:LONGEST_HEAD], len(data), self.terms)
        self.place.create(f"{self.terms.digest}/{MESSAGES}/{name}", data)
        self.faults.pop(name, None)
        self.look()
        if name in self.messages:
            return self.messages[name]
        # A server shows no submission before the deadline, also not to its sender
        if kind == "submission" and name not in self.faults:
            return Message(read_head(name, data[:LONGEST_HEAD], len(data), self.terms), time.time(), self.work)
        raise InputError(
            f"{self.place.root} does not show the {kind} as it was sent: {self.faults.get(name, 'not there')}"
        )

    def wait(self, found: Callable[[], bool], seconds: float) -> bool:
        """Poll until `found` is true; False after the given number of seconds."""
        until = time.monotonic() + seconds
        while True:
            late = time.monotonic() > until
            self.look()
            if found() or late:
                return found()
            time.sleep(_LOOK_S)

    def _read(self, arrival: Arrival) -> Message:
        if not re.fullmatch("[0-9a-f]{64}", arrival.name) or arrival.size < 0:
            raise MessageFault("damaged", "no message: no regular file under a digest as its name")
        path = f"{self.terms.digest}/{MESSAGES}/{arrival.name}"
        start = self.place.read(path, min(arrival.size, LONGEST_HEAD))
        head = read_head(arrival.name, start, arrival.size, self.terms)
        content = head.content
        same = sum(x.sender == content.sender for x in self.of(content.kind))
        if same >= MOST_MESSAGES and content.kind not in OF_ORGANISER:
            raise MessageFault("duplicate", f"{content.sender} has {same} messages of this kind here", content.sender)
        whole = start if head.size == len(start) else self.place.read(path, head.size + 1)
        folder, message = self.work / head.name, self.work / f"{head.name}.message"
        message.write_bytes(whole)
        verify_files(head, message, folder)
        message.unlink()
        return Message(head, arrival.received, folder)
