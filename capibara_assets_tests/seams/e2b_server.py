"""A local server that speaks E2B's protocol: its API, and a sandbox's code interpreter with real kernels.

Both on one port, since the SDK takes an address for each: E2B_API_URL and E2B_SANDBOX_URL.
"""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from capibara_assets_tests.served import QuietHandler, served
from workshop.experience.sandbox.local import KernelNursery, LocalSandbox

KEY = "e2b_" + "0" * 40


@dataclass
class E2BServer:
    """The server, and what was asked of it."""

    url: str = ""
    created: list[dict[str, Any]] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)
    sandboxes: dict[str, LocalSandbox] = field(default_factory=dict)
    drops: set[str] = field(default_factory=set)
    """Cells at whose first run the connection breaks."""


@contextmanager
def e2b_server() -> Iterator[E2BServer]:
    state = E2BServer()
    with KernelNursery() as nursery:

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/v2/sandboxes":
                    self._create(body)
                elif self.path == "/execute":
                    self._execute(body)
                else:
                    self.send(404, {"code": 404, "message": f"no {self.path}"})

            def do_DELETE(self) -> None:
                name = self.path.rpartition("/")[2]
                state.killed.append(name)
                state.sandboxes.pop(name).kill()
                self.send(204, "")

            def _create(self, body: dict[str, Any]) -> None:
                if self.headers["X-API-Key"] != KEY:
                    self.send(401, {"code": 401, "message": "no such key"})
                    return
                name = uuid.uuid4().hex[:20]
                state.created.append(body)
                state.sandboxes[name] = LocalSandbox(nursery=nursery)
                self.send(
                    201,
                    {"sandboxID": name, "templateID": body["templateID"], "clientID": "local", "envdVersion": "0.4.0"},
                )

            def _execute(self, body: dict[str, Any]) -> None:
                state.cells.append(body["code"])
                if body["code"] in state.drops:
                    state.drops.remove(body["code"])
                    return
                done = state.sandboxes[self.headers["E2b-Sandbox-Id"]].run_code(body["code"])
                lines: list[dict[str, Any]] = [
                    *({"type": "stdout", "text": text, "timestamp": 0} for text in done.logs.stdout),
                    *({"type": "stderr", "text": text, "timestamp": 0} for text in done.logs.stderr),
                    *(
                        {"type": "result", "text": one.text, "is_main_result": one.is_main_result}
                        for one in done.results
                    ),
                ]
                if done.error is not None:
                    error = {"name": done.error.name, "value": done.error.value, "traceback": done.error.traceback}
                    lines.append({"type": "error", **error})
                self.send(200, "".join(json.dumps(line) + "\n" for line in lines))

        with served(Handler) as server:
            state.url = f"http://127.0.0.1:{server.server_port}"
            try:
                yield state
            finally:
                for sandbox in state.sandboxes.values():
                    sandbox.kill()
