"""A place that answers without end, or a byte at a time: what takes part stays small and comes to its end."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest

from capibara_assets.consensus.rounds import places, round
from capibara_assets.consensus.rounds.places import HttpPlace, open_round_place
from capibara_assets.consensus.rounds.round import read_round
from capibara_assets.errors import InputError, remedy_behind
from capibara_assets_tests.consensus.rounds.conftest import Meet, served

_HEAD = b"HTTP/1.1 %d X\r\nDate: Tue, 01 Dec 2026 08:00:00 GMT\r\nConnection: close\r\n%s\r\n"
_ENDLESS, _BLOCK = 1 << 30, b" " * (1 << 16)


class Endless:
    """One answer to every request: a head, and then bytes until the client has enough of them."""

    def __init__(self, status: int = 200, more: bytes = b"", pause_s: float = 0.0, block: bytes = _BLOCK) -> None:
        self.head, self.pause_s, self.block, self.sent = _HEAD % (status, more), pause_s, block, 0

    def answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(20)
            asked = b""
            while b"\r\n\r\n" not in asked:
                asked += connection.recv(65536)
            connection.sendall(self.head)
            while self.sent < _ENDLESS:
                connection.sendall(self.block)
                self.sent += len(self.block)
                time.sleep(self.pause_s)


class Slow(Endless):
    """Reads what is sent slowly, and then says that it was kept."""

    def answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(20)
            left = 24 << 20
            while left > 0:
                left -= len(connection.recv(1 << 20, socket.MSG_WAITALL))
                time.sleep(0.12)
            connection.sendall(self.head + b"kept")


@contextmanager
def answering(endless: Endless) -> Iterator[HttpPlace]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    endless.answer(listening.accept()[0])

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield HttpPlace(f"http://127.0.0.1:{listening.getsockname()[1]}")
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(30)


def test_of_the_place_whose_time_is_asked_nothing_more_is_read() -> None:
    endless = Endless()
    with answering(endless) as place:
        assert place.now() == 1796112000.0
    assert endless.sent < 32 << 20, "what the socket buffers"


@pytest.mark.parametrize("status", [201, 403])
def test_of_the_answer_to_a_message_its_beginning_is_read(status: int) -> None:
    endless = Endless(status, block=b"\x1b[2J" * 1024)
    with answering(endless) as place:
        if status == 201:
            assert place.create("a", b"x")
        else:
            with pytest.raises(InputError, match=r"refuses the message: \\x1b\[2J") as raised:
                place.create("a", b"x")
            assert str(raised.value).isprintable() and len(str(raised.value)) < 2000
    assert endless.sent < 32 << 20


@pytest.mark.parametrize("way", ["a folder", "http"])
def test_a_round_that_is_not_there_is_one_sentence(way: str, meet: Meet, tmp_path: Path) -> None:
    m = meet()
    with served(m.place) as url, pytest.raises(InputError, match="has no round 0000") as raised:
        read_round(open_round_place(url if way == "http" else str(m.place), tmp_path), "0" * 64)
    assert remedy_behind(raised.value) == ""


@pytest.mark.parametrize(
    "address", ["ftp://127.0.0.1:1/x", "nothing://x", "http://[::1", "http://127.0.0.1:1", "https://\x00", "http://"]
)
def test_an_address_where_no_place_is_is_one_sentence(address: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be reached|is no place"):
        read_round(open_round_place(address, tmp_path), "0" * 64)


def test_a_message_may_take_longer_to_be_sent_than_an_answer_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_TIMEOUT_S", 2.0)
    with answering(Slow(201)) as place:
        began = time.monotonic()
        assert place.create("a", b"x" * (24 << 20))
        assert time.monotonic() - began > 2.5


def test_of_a_round_no_more_is_read_than_a_round_has(meet: Meet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round, "_LONGEST", 1 << 20)
    digest, endless = meet().terms.digest, Endless()
    with answering(endless) as place, pytest.raises(InputError, match="cannot be read"):
        read_round(place, digest)
    assert endless.sent < 48 << 20


def test_few_bytes_stand_for_no_more_than_they_are() -> None:
    with answering(Endless(more=b"Content-Encoding: gzip\r\n", block=b"\x1f\x8b" * 512)) as place:
        assert place.read("a", 10) == b"\x1f\x8b" * 5


def test_a_byte_at_a_time_comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes before any time-out of the connection."""
    monkeypatch.setattr(places, "_TRANSFER_S", 1.0)
    monkeypatch.setattr(places, "_TIMEOUT_S", 2.0)
    with answering(Endless(pause_s=0.1, block=b"x")) as place:
        began = time.monotonic()
        with pytest.raises(InputError, match=r"does not come to the end of a/round\.json"):
            place.read("a/round.json", 1 << 20)
        assert time.monotonic() - began < 5
