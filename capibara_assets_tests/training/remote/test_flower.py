"""Federated training over a real SuperLink and SuperNodes, each a process (`make flower-env`)."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from capibara_assets.deployment.locations import resources_root
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.training.strategies.privacy import privacy_problems
from capibara_assets_tests.served import free_port
from capibara_assets_tests.training.remote.parties import PRIVATE, Parties, save_parties

ROOT = resources_root().parent
BIN = Path(os.environ.get("CAPIBARA_FLOWER_ENV", ROOT / ".flower-venv")) / "bin"
CANARY = "quokka canary 4711"
pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(
        not (BIN / "flower-superlink").is_file(),
        reason="Flower has an environment of its own, which is not there: make flower-env",
    ),
]


@dataclass
class Federation:
    """A SuperLink and SuperNodes, with their files and logs below a folder."""

    parties: Parties
    port: int
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def place(self) -> Path:
        return self.parties.folder / "flower"

    def start(self, name: str, *command: object) -> None:
        place = self.place / name
        place.mkdir(parents=True, exist_ok=True)
        with (place / "log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(BIN / str(command[0])), *map(str, command[1:])], cwd=place, env=self.environment(name),
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def environment(self, name: str) -> dict[str, str]:
        """Each party has a Flower home of its own; the app's programs are found by PATH."""
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        home, quiet = str(self.place / name), {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        return {**os.environ, **quiet, "PATH": path, "FLWR_HOME": home, "TMPDIR": home}

    def superlink(self) -> None:
        self.start(
            "server", "flower-superlink", "--insecure", "--port", self.port, "--database", "state.db",
            "--disable-runtime-dependency-installation",
        )  # fmt: skip
        self.wait("SuperLink", lambda: listens(self.port))

    def supernode(self, client: str, link: int | None = None) -> None:
        own = self.parties.own(client)
        config = {"client": client, "data": own.data[0], "base": own.base, "work": own.work}
        self.start(
            client, "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{link or self.port}",
            "--port", free_port(), "--node-config", " ".join(f'{key}="{value}"' for key, value in config.items()),
        )  # fmt: skip

    def run(self, output: str, secure: bool = False, **strategy: Any) -> "subprocess.Popen[bytes]":
        """Start a run; its log goes to the server's folder."""
        options = self.parties.options(output, **strategy)
        (self.place / "server" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )
        config = {"recipe": options.recipe, "validation": options.validation[0], "output": options.output}
        config["model"] = options.model
        words = [f'{key}="{value}"' for key, value in config.items()]
        words += ["connect-seconds=300", f"secure-aggregation={json.dumps(secure)}"]
        with (self.place / "server" / f"run-{output}").open("wb") as log:
            return subprocess.Popen(
                [str(BIN / "flwr"), "run", str(ROOT / "deploy" / "flower"), "here", "--stream", "--run-config",
                 " ".join(words)],
                cwd=self.place, env=self.environment("server"), stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def said(self, output: str) -> str:
        return (self.place / "server" / f"run-{output}").read_text() + (self.place / "server" / "log").read_text()

    def finish(self, run: "subprocess.Popen[bytes]", output: str) -> Path:
        """Wait for a run; the folder of its result."""
        try:
            folder = self.parties.folder / output
            self.wait(
                f"the end of {output}", lambda: (folder / "training_info.json").is_file() or run.poll() is not None
            )
            assert (folder / "training_info.json").is_file(), self.said(output)
            return folder
        finally:
            run.kill()
            run.wait()

    def wait(self, what: str, done: Callable[[], bool], seconds: float = 900) -> None:
        until = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < until, f"{what} does not come:\n" + "\n".join(
                f"{log.parent.name}: {log.read_text(errors='replace')[-3000:]}" for log in self.place.glob("*/log")
            )
            time.sleep(0.2)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def federation(parties: Parties) -> Iterator[Federation]:
    made = Federation(parties, free_port())
    try:
        made.superlink()
        yield made
    finally:
        for name in list(made.processes):
            made.kill(name)


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


class Wire:
    """A relay before a port that keeps what passes it, to and from."""

    def __init__(self, port: int):
        self._target, self._server = port, socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.sent, self.received = bytearray(), bytearray()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            with suppress(OSError):
                client, _ = self._server.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                for source, sink, kept in ((client, server, self.sent), (server, client, self.received)):
                    threading.Thread(target=self._pass, args=(source, sink, kept), daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, sink: socket.socket, kept: bytearray) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                kept.extend(data)
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def weights_of(folder: Path) -> bytes:
    return (folder / "adapter_model.safetensors").read_bytes()


def published(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text())["published"]
    return found


def test_supernodes_train_the_simulations_adapter_and_keep_their_examples(tmp_path: Path, tiny_folder: Path) -> None:
    parties = save_parties(tmp_path, tiny_folder, clients=3, words=CANARY)
    expected = parties.simulated()
    with federation(parties) as made:
        wire = Wire(made.port)
        made.supernode("client-0", wire.port)
        made.supernode("client-1")
        made.supernode("client-2")
        folder = made.finish(made.run("output"), "output")
        assert weights_of(folder) == weights_of(expected)
        assert published(folder)["trained_by"] == "flower 1.41.0, 3 supernodes"
        assert published(expected)["trained_by"] == "simulated in one process"
        words = CANARY.encode()
        written = [path for place in (folder, made.place / "server") for path in place.rglob("*") if path.is_file()]
        assert any(path.name.startswith("state.db") for path in written)
        assert not [str(path) for path in written if words in path.read_bytes()]
        assert words not in wire.sent and len(wire.sent) > 10_000
        assert b"Subtract 7919" not in wire.sent and b"then write" in wire.received  # validation examples came to it
        tables = list(parties.own("client-0").work.rglob("validation.jsonl"))
        assert tables  # it did work in its own folder

        secure = made.finish(made.run("secure", secure=True, rounds=1, privacy=PRIVATE | {"clip": 0.01}), "secure")
    plain = parties.simulated(rounds=1, privacy=PRIVATE | {"clip": 0.01})
    ours, theirs = read_adapter(secure), read_adapter(plain)
    for module in theirs.modules:  # what rounding to 2**22 levels changes, and the clip that was shortened by it
        torch.testing.assert_close(ours.b(module), theirs.b(module), rtol=0, atol=0.01 * 1e-3)
    document = published(secure)["privacy"]
    assert not privacy_problems(document) and document["trained_by"] == "flower 1.41.0, 3 supernodes, SecAgg+"


def test_a_supernode_that_is_killed_is_named_and_the_run_goes_on(tmp_path: Path, tiny_folder: Path) -> None:
    parties = save_parties(tmp_path, tiny_folder, clients=3)
    with federation(parties) as made:
        for client in range(3):
            made.supernode(f"client-{client}")
        run = made.run("output", rounds=3)
        made.wait("the first round", (tmp_path / "output" / "round-1" / "global" / "round.json").is_file)
        made.kill("client-2")
        folder = made.finish(run, "output")
    rounds = published(folder)["rounds"]
    assert len(rounds[0]["clients"]) == 3 and list(rounds[2]["clients"]) == ["client-0", "client-1"]
    assert "round 3: 2 of 3 clients answered; without client-2 (" in (folder / "events.jsonl").read_text()
