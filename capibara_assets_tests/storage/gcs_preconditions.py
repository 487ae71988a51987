"""The Google Cloud Storage emulator with the preconditions that it lacks, as a command.

A request that names generations is refused with 412 where the object has others, before the emulator sees it. The
emulator answers one request at a time, so nothing comes between the look and the write.

An object's name in `/hold?name=NAME` holds its next write back: the client is told 503, and the write is done when
`/release` is asked for, as one that a network delivered late.
"""

import argparse
import json
from collections.abc import Callable
from http import HTTPStatus
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs, unquote, urlparse

from gcp_storage_emulator import server
from gcp_storage_emulator.exceptions import NotFound

_read = server._read_raw_data
_held: list[tuple[str, str, bytes, Any]] = []
_holding: set[str] = set()
_NAMES = {
    "ifGenerationMatch": ("generation", True),
    "ifGenerationNotMatch": ("generation", False),
    "ifMetagenerationMatch": ("metageneration", True),
    "ifMetagenerationNotMatch": ("metageneration", False),
}


class Router(server.Router):  # type: ignore[misc]  # the emulator is untyped
    """Holds preconditions before the emulator answers."""

    def handle(self, method: str) -> None:
        handler = self._request_handler
        parts = urlparse(handler.path)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        data = _read(handler) or b""
        bucket, name = _object(parts.path, query, data)
        if parts.path == "/hold":
            _holding.add(query["name"])
            _answer(handler, HTTPStatus.OK, {})
        elif parts.path == "/release":
            self._release()
        elif method in ("POST", "DELETE") and name in _holding:
            _holding.discard(name)
            _held.append((method, handler.path, data, handler.headers))
            _answer(handler, HTTPStatus.SERVICE_UNAVAILABLE, {"error": {"code": 503, "message": "try again"}})
        elif not _holds(handler.storage, bucket, name, query, method):
            said = "At least one of the pre-conditions you specified did not hold."
            _answer(handler, HTTPStatus.PRECONDITION_FAILED, {"error": {"code": 412, "message": said}})
        else:
            handler.taken = data
            super().handle(method)

    def _release(self) -> None:
        """Do what was held back; nobody waits for its answer any more."""
        handler = self._request_handler
        answers, own, headers = handler.wfile, handler.path, handler.headers
        for method, path, data, former in _held:
            handler.path, handler.headers, handler.wfile = path, former, BytesIO()
            parts = urlparse(path)
            query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
            if _holds(handler.storage, *_object(parts.path, query, data), query, method):
                handler.taken = data
                super().handle(method)
        _held.clear()
        handler.path, handler.headers, handler.wfile = own, headers, answers
        _answer(handler, HTTPStatus.OK, {})


def _object(path: str, query: dict[str, str], data: bytes) -> tuple[str, str | None]:
    """Bucket and name of the object that a request changes."""
    _, _, rest = path.partition("/b/")
    bucket, _, name = rest.partition("/o")
    if name.startswith("/"):
        return bucket, unquote(name[1:])
    if "name" in query:
        return bucket, query["name"]
    if b'"name"' in data:  # a multipart upload: the metadata come first
        start = data.index(b"{")
        return bucket, str(json.JSONDecoder().raw_decode(data[start:].split(b"\n--", 1)[0].decode())[0].get("name"))
    return bucket, None


def _holds(storage: Any, bucket: str, name: str | None, query: dict[str, str], method: str) -> bool:
    wanted = {key: query[key] for key in _NAMES if key in query}
    if not wanted or name is None:
        return True
    try:
        there = storage.get_file_obj(bucket, name)
    except NotFound:
        if method not in ("POST", "PUT"):
            return True  # what is not there is 404
        there = {"generation": "0", "metageneration": "0"}
    compare: Callable[[str], bool] = lambda key: (there[_NAMES[key][0]] == wanted[key]) is _NAMES[key][1]  # noqa: E731
    return all(compare(key) for key in wanted)


def _answer(handler: Any, status: HTTPStatus, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    handler.send_response(status.value, status.phrase)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bucket", required=True)
    given = parser.parse_args()
    server.Router = Router
    server._read_raw_data = lambda handler: handler.taken
    server.create_server("127.0.0.1", given.port, True, given.bucket).run()


if __name__ == "__main__":
    main()
