"""The filter of system calls: what its program decides on either processor, and what it leaves to programs."""

import errno
import re
import struct
import sys
from pathlib import Path

import pytest

from capibara_assets.executions.sandbox import isolation as module
from capibara_assets.executions.sandbox import seccomp
from capibara_assets.executions.sandbox.isolation import Isolation, Mode, best_isolation, probed
from capibara_assets.executions.sandbox.seccomp import DENIED, attempts, filter_program, number
from capibara_assets_tests.executions.sandbox.test_isolation import isolation, said  # noqa: F401 (a fixture)

MACHINES = ("x86_64", "aarch64")
ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED = "allowed"
HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="seccomp is Linux's")


def decided(machine: str, call: int, *arguments: int, architecture: int | None = None) -> str | int:
    """What the program of a processor does with a call, by the kernel's rules: allowed, or the number of the error."""
    values = [argument & 0xFFFFFFFFFFFFFFFF for argument in (*arguments, *[0] * 6)][:6]
    described = struct.pack("<iIQ6Q", call, architecture or ARCHITECTURE[machine], 0, *values)
    program = list(struct.iter_unpack("=HBBI", filter_program(machine)))
    at, held = 0, 0
    while True:
        code, yes, no, value = program[at]
        at += 1
        match code:
            case 0x20:
                (held,) = struct.unpack_from("<I", described, value)
            case 0x54:
                held &= value
            case 0x15:
                at += yes if held == value else no
            case 0x25:
                at += yes if held > value else no
            case 0x45:
                at += yes if held & value else no
            case 0x06:
                return ALLOWED if value == 0x7FFF0000 else value & 0xFFFF
            case _:
                raise AssertionError(f"an instruction that the kernel's checker may not know: {code:#x}")


def known(name: str, machine: str) -> int:
    found = number(name, machine)
    assert found is not None
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_denied_is_denied_and_the_rest_is_not(machine: str) -> None:
    denied = {found for group in DENIED.values() for name in group if (found := number(name, machine)) is not None}
    by_argument = {known(name, machine) for name in ("clone", "clone3", "socket", "socketpair", "ioctl")}
    for call in set(range(463)) - by_argument:
        assert decided(machine, call) == (errno.EPERM if call in denied else ALLOWED), call
    assert decided(machine, known("clone3", machine)) == 38  # ENOSYS: the C library then calls clone
    for call in (463, 467, 999, 0x40000000, 0x40000000 | 39, 0x40000000 | 534, -1):
        assert decided(machine, call) == 38, call


@pytest.mark.parametrize("machine", MACHINES)
def test_no_call_of_another_architecture_is_made(machine: str) -> None:
    others = {0x40000003, 0x40000028, *ARCHITECTURE.values()} - {ARCHITECTURE[machine]}  # i386, arm
    for architecture in others:
        assert {decided(machine, call, architecture=architecture) for call in range(500)} == {38}


@pytest.mark.parametrize("machine", MACHINES)
def test_arguments_decide(machine: str) -> None:
    clone, ioctl, socket = known("clone", machine), known("ioctl", machine), known("socket", machine)
    thread = 0x3D0F00
    for flags in (17, thread, 0x4111, thread | 0xFF << 40):
        assert decided(machine, clone, flags) == ALLOWED
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert decided(machine, clone, flag | 17) == errno.EPERM
    for request in (0x5412, 0x541C, 0x5423, 0x5412 | 1 << 32):  # the kernel drops the upper half
        assert decided(machine, ioctl, 0, request) == errno.EPERM
    for request in (0x5401, 0x5413, 0x541B, 0x5421):  # TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO
        assert decided(machine, ioctl, 0, request) == ALLOWED
    cloexec_nonblock = 0o2004000
    for family in (1, 2, 10):
        for kind in (1, 2, 1 | cloexec_nonblock, 2 | cloexec_nonblock):
            assert decided(machine, socket, family, kind, 0) == ALLOWED
    assert decided(machine, socket, 16, 3 | cloexec_nonblock, 0) == ALLOWED  # getaddrinfo asks for addresses
    for refused in ((16, 3, 12), (17, 3, 0), (38, 5, 0), (40, 1, 0), (0, 1, 0), (16 | 1 << 16, 3, 0)):
        assert decided(machine, socket, *refused) == 97
    for refused in ((2, 3, 1), (10, 5, 132), (2, 1, 262), (2, 2, 1), (2, 6, 0)):
        assert decided(machine, socket, *refused) == errno.EPERM
    pair = known("socketpair", machine)
    assert (decided(machine, pair, 1, 1, 0), decided(machine, pair, 2, 1, 0)) == (ALLOWED, 97)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    path = Path(HEADERS[machine])
    if not path.exists():
        pytest.skip(f"no {path}: linux-libc-dev has it")
    listed = {n: int(v) for n, v in re.findall(r"#define\s+__NR(?:3264)?_(\w+)\s+(\d+)\s", path.read_text())}
    names = [*(name for group in DENIED.values() for name in group), *seccomp._BY_ARGUMENT]
    assert len(names) == len(set(names))
    for name in names:
        if name in listed or (number(name, machine) or 999) <= max(listed.values()):
            assert number(name, machine) == listed.get(name), name


def test_a_processor_that_is_not_known_has_no_filter() -> None:
    assert filter_program("riscv64") == b""
    assert attempts("riscv64") == []
    assert len(filter_program("x86_64")) % 8 == 0


@linux
@pytest.mark.parametrize("given", [b"", b"\xff" * 8], ids=["there is none", "the kernel does not take it"])
def test_where_nothing_is_filtered_the_statement_says_so(monkeypatch: pytest.MonkeyPatch, given: bytes) -> None:
    mode: Mode = best_isolation().mode
    monkeypatch.setattr(module, "filter_program", lambda: given)
    found = probed.__wrapped__(mode)
    assert found is not None
    assert found.system_calls == b""
    assert found.filter_digest == ""
    assert found.aspects == best_isolation().aspects
    assert module._UNFILTERED in found.not_isolated
    assert module._FILTERED not in found.isolated
    calls = said(found, f"import ctypes; print(ctypes.CDLL(None).syscall({known('unshare', this_machine())}, 0))")
    assert calls == 0


def this_machine() -> str:
    found = best_isolation().system_calls
    if not found:
        pytest.skip("no filter of system calls here")
    return next(each for each in MACHINES if filter_program(each) == found)


def test_the_statement_tells_of_the_filter_and_the_filter_holds(isolation: Isolation) -> None:  # noqa: F811
    assert (module._FILTERED in isolation.isolated) == bool(isolation.system_calls)
    assert (module._UNFILTERED in isolation.not_isolated) == (not isolation.system_calls)
    if not isolation.system_calls:
        pytest.skip("no filter of system calls here")
    code = f"""
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
def fails(call):
    return libc.syscall(*map(ctypes.c_long, call)), ctypes.get_errno()
found = [fails(call) for call in {attempts()!r}]
reading, writing = os.pipe()
if os.fork() == 0:
    os.write(writing, json.dumps([fails(call) for call in {attempts()!r}]).encode())
    os._exit(0)
try:
    every = [open("/proc/1/status").read(), open("/proc/self/status").read()]
except OSError:
    every = []
print(json.dumps([found, json.loads(os.read(reading, 9999)), [text.split("Seccomp:\\t")[1][0] for text in every]]))"""
    own, of_a_child, states = said(isolation, code)
    assert all(result == -1 and error in (errno.EPERM, 38, 97) for result, error in own + of_a_child)
    if "processes" in isolation.aspects:
        assert states in (["2", "2"], [])  # process 1 of the sandbox, too


def test_what_programs_need_still_works(isolation: Isolation) -> None:  # noqa: F811
    code = """
import asyncio, json, mmap, multiprocessing, os, select, signal, socket, sqlite3, subprocess, sys, tempfile, threading
def doubled(x):
    return 2 * x
async def said():
    child = await asyncio.create_subprocess_exec("/bin/sh", "-c", "echo 7", stdout=-1)
    return (await child.communicate())[0].decode().strip()
if __name__ == "__main__":
    found = []
    thread = threading.Thread(target=lambda: found.append("thread"))
    thread.start()
    thread.join()
    found.append(subprocess.run(["/bin/sh", "-c", "echo 5 | cat"], capture_output=True, text=True).stdout.strip())
    found.append(asyncio.run(said()))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        found.append(pool.map(doubled, [1, 2]))
    found.append(socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)[0][4][1])
    found.append(len(socket.if_nameindex()) > 0)
    found.append(sqlite3.connect(":memory:").execute("SELECT 3").fetchone()[0])
    mmap.mmap(-1, 4096).close()
    poll = select.epoll()
    os.close(os.memfd_create("x"))
    os.close(os.pidfd_open(os.getpid()))
    os.close(os.eventfd(0))
    a, b = socket.socketpair()
    a.send(b"x")
    found.append(b.recv(1).decode())
    with tempfile.TemporaryFile() as file:
        os.posix_fallocate(file.fileno(), 0, 4096)
    print(json.dumps(found))"""
    assert said(isolation, code) == ["thread", "5", "7", [2, 4], 80, True, 3, "x"]
