"""A webhook: a real HTTP server that keeps what it gets, and answers as it is told."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from capibara_assets_tests.served import QuietHandler, served


@dataclass
class Receiver:
    """What arrived, and the status codes of the next answers (200 when there are no more)."""

    url: str = ""
    got: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    received = Receiver()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = received.answers.pop(0) if received.answers else 200
            if status == 200:
                received.got.append(json.loads(body))
                received.keys.append(self.headers["Idempotency-Key"])
            self.send_response(status)
            if status == 302:
                self.send_header("Location", received.url)
            self.end_headers()

    with served(Handler) as server:
        received.url = f"http://127.0.0.1:{server.server_port}/hook/s3cret"
        yield received
