"""The HTTP API of a fake cluster, for the real `kubernetes` client, and what goes wrong with it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from capibara_assets_tests.cluster.fake.answers import Answer, Answers, refused
from capibara_assets_tests.cluster.fake.cluster import Cluster, Document

TOKEN = "canary-bearer-token-31337"


@dataclass
class Trouble:
    """What the API itself does wrong: `of(method, path)` gives a status, or `drop`, `late`, `cut`; None: nothing.

    `drop`: the connection closes before anything was done; `late`: after it was done, without an answer; `cut`: in the
    midst of the answer, of a stream after its first piece.

    Attributes:
        retry_after: what 429 asks to wait.
    """

    of: Callable[[str, str], int | str | None] = lambda method, path: None
    retry_after: str = "0"


@dataclass
class Api:
    """A server on a free port of this machine.

    Attributes:
        asked: method and path of every request that was answered.
    """

    cluster: Cluster
    trouble: Trouble = field(default_factory=Trouble)
    asked: list[tuple[str, str]] = field(default_factory=list)

    @contextmanager
    def serving(self, kubeconfig: Path) -> Iterator[None]:
        """Serve, and write the file by which kubectl and the client find the server."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(server.server_port)))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        self.cluster.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            self.cluster.stop()

    def answer(self, method: str, path: str, body: Document) -> Answer:
        """The answer to one request."""
        return Answers(self.cluster).answer(method, path, body)


def _handler(api: Api) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _take(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}") if length else {}
            method, path = self.command, self.path
            trouble = api.trouble.of(method, path)
            if trouble == "drop":
                self.close_connection = True
                return
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                status, answer = refused(401, "Unauthorized")
            elif isinstance(trouble, int):
                status, answer = refused(trouble, "try again")
            else:
                status, answer = api.answer(method, path, body)
                api.asked.append((method, path))
            if trouble == "late":
                self.close_connection = True
                return
            try:
                self._send(status, answer, cut=trouble == "cut")
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # who asked has gone

        def _send(self, status: int, answer: Any, *, cut: bool) -> None:
            plain = isinstance(answer, (bytes, Iterator))
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if plain else "application/json")
            if status == 429:
                self.send_header("Retry-After", api.trouble.retry_after)
            if isinstance(answer, Iterator):
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for piece in answer:
                    self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                    if cut:
                        self.close_connection = True
                        return
                self.wfile.write(b"0\r\n\r\n")
                return
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if cut else data)
            self.close_connection = self.close_connection or cut

        do_GET = do_POST = do_DELETE = do_PUT = _take

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def _kubeconfig(port: int) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake", "namespace": "ml"}}],
        "clusters": [{"name": "fake", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "fake", "user": {"token": TOKEN}}],
    }
