"""What sandboxed processes are kept from, tried in every way of starting them that works on this machine."""

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.errors import InputError
from capibara_assets.executions.sandbox import isolation as module
from capibara_assets.executions.sandbox.isolation import ASPECTS, Isolation, Mode, best_isolation, probed

MODES: tuple[Mode, ...] = ("drop", "user", "bubblewrap", "limits")


@pytest.fixture(params=MODES)
def isolation(request: pytest.FixtureRequest) -> Isolation:
    mode: Mode = request.param
    if mode == "drop" and os.geteuid() != 0:
        pytest.skip("not root: no user to become")
    if mode == "bubblewrap" and module._bubblewrap_program() is None:
        pytest.skip("bubblewrap is not installed")
    if mode != "limits" and not sys.platform.startswith("linux"):
        pytest.skip("namespaces are Linux's")
    found = probed(mode)
    if found is None:
        pytest.skip(f"this kernel does not allow it: {mode}")
    return found


def said(isolation: Isolation, code: str, **options: Any) -> Any:
    """What Python code prints as JSON inside."""
    sandboxed = isolation.start([sys.executable, "-I", "-S", "-c", code], **options)
    try:
        output, _ = sandboxed.process.communicate(timeout=120)
    finally:
        sandboxed.close()
    return json.loads(output)


def test_the_network_is_out_of_reach_or_the_statement_says_so(isolation: Isolation) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        code = f"""
import json, socket
def fails(call):
    try:
        call()
    except OSError:
        return True
    return False
print(json.dumps([
    fails(lambda: socket.create_connection(("127.0.0.1", {port}), 5)),
    fails(lambda: socket.create_connection(("192.0.2.1", 80), 1)),
    fails(lambda: socket.getaddrinfo("example.org", 80)),
]))"""
        closed = said(isolation, code)
    assert closed[0] == ("network" in isolation.aspects)
    if "network" in isolation.aspects:
        assert closed == [True, True, True]
    else:
        assert "the network can be reached" in isolation.not_isolated


def test_code_may_talk_to_itself(isolation: Isolation) -> None:
    code = """
import socket
a = socket.create_server(("127.0.0.1", 0))
b = socket.create_connection(a.getsockname(), 5)
c, _ = a.accept()
b.sendall(b"7")
print(c.recv(1).decode())"""
    assert said(isolation, code) == 7


def test_files_are_hidden_and_read_only_or_the_statement_says_so(
    isolation: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "credentials.json"
    secret.write_text("canary")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    places = [str(secret), str(Path(__file__)), str(Path.home() / ".ssh"), "/etc/shadow", "/var", "/home", "/mnt"]
    code = f"""
import json, os
def reads(path):
    try:
        os.listdir(path) if os.path.isdir(path) else open(path).read()
    except OSError:
        return False
    return True
def writes(path):
    try:
        open(path, "w").close()
    except OSError:
        return False
    os.unlink(path)
    return True
print(json.dumps([
    [reads(path) for path in {places!r}],
    [writes(f + "/capibara-test") for f in ("", "/usr", "/etc", os.path.dirname(os.__file__), {str(tmp_path)!r})],
    writes(os.getcwd() + "/mine"), os.environ.get("DAGSTER_HOME"),
]))"""
    read, written, own, home = said(isolation, code)
    assert own
    assert home is None
    if "files" in isolation.aspects:
        assert not any(read)
        assert not any(written)
    else:
        assert read[0]
        assert "files can be read and written with this user's rights" in isolation.not_isolated


def test_only_what_is_named_can_be_read_besides_python(isolation: Isolation, tmp_path: Path) -> None:
    shown, hidden = tmp_path / "shown.txt", tmp_path / "hidden.txt"
    shown.write_text("1")
    hidden.write_text("2")
    for path in (tmp_path, *tmp_path.parents[:2]):
        path.chmod(0o755)
    code = f"import json, os; print(json.dumps([os.path.exists(p) for p in ({str(shown)!r}, {str(hidden)!r})]))"
    assert said(isolation, code, readable=[shown]) == [True, "files" not in isolation.aspects]


def test_nothing_of_our_environment_is_inside(isolation: Isolation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPIBARA_CANARY_TOKEN", "canary-4711")
    inside = said(isolation, "import json, os; print(json.dumps(dict(os.environ)))")
    assert "canary-4711" not in json.dumps(inside)
    assert set(inside) <= {*module.clean_environment(""), "PWD", "LC_CTYPE"}


def test_other_processes_are_out_of_sight_or_the_statement_says_so(isolation: Isolation) -> None:
    code = f"""
import json, os
try:
    os.kill({os.getpid()}, 0)
    found = os.getpid() > 32
except OSError:
    found = False
print(json.dumps([found, os.getpid()]))"""
    found, _ = said(isolation, code)
    assert found == ("processes" not in isolation.aspects)
    if found:
        assert "processes of this user can be seen and signalled" in isolation.not_isolated


def test_a_fork_bomb_ends_at_the_limit_or_the_statement_says_so(isolation: Isolation) -> None:
    if "the number of processes is limited" not in isolation.isolated:
        assert "the number of processes is not limited" in isolation.not_isolated
        pytest.skip("the kernel does not limit the number of root's processes: the statement says so")
    code = """
import json, os, signal
n = 0
try:
    while n < 400:
        if os.fork() == 0:
            signal.pause()
        n += 1
except OSError:
    pass
print(json.dumps(n), flush=True)"""
    assert said(isolation, code) < module.LIMITS["RLIMIT_NPROC"] + 8


def test_files_have_a_largest_size(isolation: Isolation) -> None:
    code = """
import json, os
file, n = open("big", "wb"), 0
try:
    while n < 200:
        n += file.write(bytes(1 << 20)) >> 20
        file.flush()
except OSError:
    pass
os.unlink("big")
print(n)"""
    assert said(isolation, code) <= module.LIMITS["RLIMIT_FSIZE"] >> 20


def test_rights_cannot_be_gained(isolation: Isolation) -> None:
    if "files" not in isolation.aspects:
        pytest.skip("a plain process has its user's rights")
    code = """
import ctypes, json
libc = ctypes.CDLL(None)
status = open("/proc/self/status").read()
caps = [int(line.split()[1], 16) for line in status.split("\\n") if line.startswith(("CapPrm", "CapEff", "CapBnd"))]
print(json.dumps([caps[:2], libc.mount(b"none", b"/", None, 32 | 4096, None), libc.sethostname(b"x", 1)]))"""
    assert said(isolation, code) == [[0, 0], -1, -1]


def test_ending_it_ends_all_its_processes(isolation: Isolation) -> None:
    code = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
print("[]", flush=True)
time.sleep(600)"""
    sandboxed = isolation.start([sys.executable, "-I", "-S", "-c", code])
    assert sandboxed.process.stdout is not None
    assert sandboxed.process.stdout.readline() == b"[]\n"
    tree = sandboxed.tree()
    assert len(tree) >= 4
    sandboxed.close(0.1)  # none of them leaves by itself
    assert not [process for process in tree if process.is_running() and process.status() != "zombie"]


def test_what_is_demanded_and_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = probed("limits")
    assert plain is not None
    monkeypatch.setattr(module, "_best", lambda: plain)
    assert best_isolation() is plain
    with pytest.raises(InputError, match=r"cannot isolate .*network.*can be reached"):
        best_isolation(["network"])
    with pytest.raises(InputError, match="unknown isolation demanded: gravity; known: network, files, processes"):
        best_isolation(["gravity"])


def test_the_statement_covers_every_aspect(isolation: Isolation) -> None:
    for aspect in ASPECTS:
        good, bad = module._CLAUSES[aspect]
        assert (good in isolation.isolated) == (aspect in isolation.aspects)
        assert (bad in isolation.not_isolated) == (aspect not in isolation.aspects)
    assert isolation.statement.startswith(isolation.kind)
    assert "kernel" in isolation.statement


def test_the_strongest_way_wins() -> None:
    found = best_isolation()
    assert all(len(other.aspects) <= len(found.aspects) for mode in module._modes() if (other := probed(mode)))
