"""What strangers send to a round's server: it ends in time, is in nobody's way, and is not stored."""

import socket
import time
from urllib.parse import urlsplit

import httpx2
import pytest

from capibara_assets.consensus.rounds import server
from capibara_assets.consensus.rounds.places import MESSAGES, HttpPlace, open_round_place
from capibara_assets.consensus.rounds.submissions import refusals
from capibara_assets.errors import InputError
from capibara_assets_tests.consensus.rounds.conftest import Meet, Meeting, served, signed
from capibara_assets_tests.waiting import until


def _connected(url: str) -> socket.socket:
    at = urlsplit(url)
    return socket.create_connection((str(at.hostname), at.port or 0), 30)


def _said(connection: socket.socket) -> bytes:
    """All that the server says until it ends the connection."""
    said = b""
    try:
        while block := connection.recv(1 << 16):
            said += block
    except ConnectionResetError:
        pass
    return said


def _sent(url: str, text: bytes, end: bool = True) -> bytes:
    with _connected(url) as connection:
        connection.sendall(text)
        if end:
            connection.shutdown(socket.SHUT_WR)
        return _said(connection)


def _message(m: Meeting, sender: str) -> tuple[str, bytes]:
    name, data = signed(m, m.files(sender), sender)
    return f"/{m.terms.digest}/{MESSAGES}/{name}", data


_LENGTHS = {
    "two": "Content-Length: {0}\r\nContent-Length: {1}",
    "two that agree": "Content-Length: {0}\r\nContent-Length: {0}",
    "none": "Accept: */*",
    "negative": "Content-Length: -{0}",
    "signed": "Content-Length: +{0}",
    "other digits": "Content-Length: \u0661",
    "endless": "Content-Length: 99999999999999999999",
    "chunked beside": "Content-Length: {0}\r\nTransfer-Encoding: chunked",
    "chunked spelt oddly": "Content-Length: {0}\r\ntransfer-encoding: x, chunked",
}


def test_a_request_of_two_lengths_or_of_none_is_refused_and_nothing_after_a_message_is_read(meet: Meet) -> None:
    m = meet()
    with served(m.place) as url:
        path, data = _message(m, "voter-0")
        for name, header in _LENGTHS.items():
            head = f"PUT {path} HTTP/1.1\r\nHost: x\r\n{header.format(len(data), len(data) + 9)}\r\n\r\n"
            assert _sent(url, head.encode() + data).split()[1] == b"411", name
        for length in (len(data) + 1, len(data) - 1, 10**14):
            head = f"PUT {path} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n"
            assert _sent(url, head.encode() + data).split()[1] == b"403"
        for odd in (
            b"PUT " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        ):
            assert _sent(url, odd).split()[1] in (b"414", b"431")
        assert b"Bad" in _sent(url, b"\x16\x03\x01\x00\xff\r\n\r\n")
        assert not (m.place / m.terms.digest / MESSAGES).exists()
        other, more = _message(m, "voter-1")
        two = f"PUT {path} HTTP/1.1\r\nConnection: keep-alive\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
        two += f"PUT {other} HTTP/1.1\r\nContent-Length: {len(more)}\r\n\r\n".encode() + more
        assert _sent(url, two).count(b"HTTP/") == 1
    assert [each.name for each in (m.place / m.terms.digest / MESSAGES).iterdir()] == [path.rpartition("/")[2]]
    assert {one.what for one in refusals(open_round_place(str(m.place), m.home), m.terms.digest)} <= {
        "damaged", "oversized"
    }  # fmt: skip


def test_connections_that_trickle_are_cut_and_too_many_are_closed(meet: Meet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_QUIET_S", 1.0)
    monkeypatch.setattr(server, "_CONNECTIONS", 4)
    m = meet()
    path, data = _message(m, "voter-0")
    with served(m.place) as url:
        assert abs(open_round_place(url, m.home).now() - time.time()) < 60
        slow = [_connected(url) for _ in range(4)]
        slow[0].sendall(b"PUT /")
        slow[1].sendall(f"PUT {path} HTTP/1.1\r\nContent-Length: {len(data)}\r\n\r\n".encode())
        began = time.monotonic()
        with _connected(url) as fifth:
            assert _said(fifth) == b""
        assert time.monotonic() - began < 20
        cut: set[int] = set()
        while len(cut) < len(slow):
            assert time.monotonic() - began < 60, "a connection is still there"
            for number, each in enumerate(slow):
                try:
                    each.sendall(b"x")  # each one is never quiet
                except OSError:
                    cut.add(number)
            time.sleep(0.05)
        deadline = time.monotonic() + 60
        while True:  # the places of those that were cut are free again
            try:
                assert httpx2.put(f"{url}{path}", content=data).status_code == 201
                break
            except httpx2.TransportError:
                assert time.monotonic() < deadline
        for each in slow:
            each.close()


def test_a_sender_has_two_uploads_at_a_time_and_is_in_nobody_elses_way(meet: Meet) -> None:
    m = meet()
    with served(m.place) as url:
        held = []
        for number in range(2):
            name, data = signed(m, {**m.files("voter-0"), "manifest.json": b"x" * (300_000 + number)}, "voter-0")
            held.append(_connected(url))
            head = f"PUT /{m.terms.digest}/{MESSAGES}/{name} HTTP/1.1\r\nContent-Length: {len(data)}\r\n\r\n"
            held[-1].sendall(head.encode() + data[:-1])
        path, data = _message(m, "voter-0")
        until(lambda: len(list((m.place / "parts").glob("*.part"))) >= 2)
        assert httpx2.put(f"{url}{path}", content=data).status_code == 503
        other, more = _message(m, "voter-1")
        assert httpx2.put(f"{url}{other}", content=more).status_code == 201
        for each in held:
            each.close()
        until(lambda: httpx2.put(f"{url}{path}", content=data).status_code != 503)
        assert httpx2.put(f"{url}{path}", content=data).text == "here already"


@pytest.mark.parametrize("listed", [b"[[1]]", b'[[0,"a",1e999]]', b"[" * 100_000, b"\xff", b"3"])
def test_a_list_of_messages_that_is_none_is_an_error_of_the_address(
    listed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpPlace, "read", lambda place, name, most: listed)
    with pytest.raises(InputError, match="lists no messages"):
        HttpPlace("http://127.0.0.1:1").arrivals("0" * 64)
