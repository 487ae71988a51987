"""Starts a command in Linux namespaces of its own, with only the named part of the file system, and with limits.

A script of the standard library, started by `isolation.py` (or, for the limits alone, by bubblewrap); its argument is a
JSON object: `mode` ("drop": as root, then an unprivileged user; "user": in a user namespace; "limits": no namespaces),
`read_only` (paths that stay readable), `tmp_mib`, `limits` (RLIMIT_ names), `more_processes`, `system_calls` (a BPF
program in hexadecimal digits, which decides on them; may be empty) and `command`.
"""

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import stat
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

MS_NOSUID, MS_NODEV, MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 1, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 22, 24, 38
SECCOMP_MODE_FILTER = 2
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
MOUNT_SETATTR = 442
CAPSET = {"x86_64": 126, "aarch64": 91}
#: User ids that belong to nobody; one for each sandbox, so that the kernel counts its processes apart.
FIRST_UID = 1_879_048_192
INSIDE_UID = 1000

libc = ctypes.CDLL(None, use_errno=True)
machine = os.uname().machine


class SystemCallRefused(OSError):
    """A system call failed: the kernel does not allow it here."""


def call(name: str, *arguments: Any) -> int:
    """Calls a function of the C library that returns -1 and sets errno when it fails. Raises SystemCallRefused."""
    encoded = [
        os.fsencode(a) if isinstance(a, str) else ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments
    ]
    result: int = getattr(libc, name)(*encoded)
    if result < 0:
        number = ctypes.get_errno()
        raise SystemCallRefused(number, f"{name}({', '.join(map(str, arguments[:3]))}): {os.strerror(number)}")
    return result


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    call("mount", source, target, kind, flags, data)


def die_with_parent(parent: int) -> None:
    call("prctl", PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def read_only(path: str) -> None:
    """Makes a mount and all below it read-only, without devices and set-user-id programs."""
    attributes = struct.pack("QQQQ", 0x1 | 0x2 | 0x4, 0, 0, 0)  # RDONLY, NOSUID, NODEV
    at_recursive = 0x8000
    buffer = ctypes.create_string_buffer(attributes)
    try:
        call("syscall", MOUNT_SETATTR, -100 & 0xFFFFFFFFFFFFFFFF, path, at_recursive, buffer, len(attributes))
    except SystemCallRefused as error:
        if error.errno != errno.ENOSYS:
            raise
        kept = os.statvfs(path).f_flag & (os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME | os.ST_RELATIME)
        mount("none", path, None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | kept)


def pivot(new: str, old: str) -> None:
    call("syscall", PIVOT_ROOT[machine], new, old)


def bind(source: Path, target: Path) -> bool:
    """Mounts a file or folder of the old root at `target`; returns whether it exists."""
    try:
        is_folder = stat.S_ISDIR(source.stat().st_mode)
    except OSError:
        return False
    (target if is_folder else target.parent).mkdir(parents=True, exist_ok=True)
    if not is_folder:
        target.touch()
    mount(str(source), str(target), None, MS_BIND | MS_REC)
    return True


def build_root(spec: dict[str, Any], uid: int) -> None:
    """Replaces the root file system by one that holds only what `spec` names."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=4m")
    Path("/tmp/new").mkdir()
    Path("/tmp/old").mkdir()
    mount("/tmp/new", "/tmp/new", None, MS_BIND | MS_REC)
    pivot("/tmp", "/tmp/old")
    os.chdir("/")
    old, new = Path("/old"), Path("/new")
    # before what is shown of the old root: some of that may lie below /tmp
    (new / "tmp").mkdir()
    mount("tmpfs", "/new/tmp", "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={int(spec['tmp_mib'])}m")
    shown = list(spec["read_only"])
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        if (old / name).is_symlink():
            (new / name).symlink_to((old / name).readlink())
        else:
            shown.append(f"/{name}")
    for path in shown:
        target = new / path.lstrip("/")
        # what lies inside a folder that is shown is there already
        if not target.exists() and bind(old / path.lstrip("/"), target):
            read_only(str(target))
    for name in ("null", "zero", "full", "random", "urandom"):
        bind(old / "dev" / name, new / "dev" / name)
    links = {"shm": "/tmp", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for name, to in links.items():
        (new / "dev" / name).symlink_to(to)
    (new / "etc").mkdir(exist_ok=True)
    texts = {
        "passwd": f"sandbox:x:{uid}:{uid}::/tmp:/bin/sh\n",
        "group": f"sandbox:x:{uid}:\n",
        "hosts": "127.0.0.1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }
    for name, text in texts.items():
        (new / "etc" / name).write_text(text)
    (new / "proc").mkdir()
    with suppress(SystemCallRefused):  # a container that hides parts of /proc: there is none then
        mount("proc", "/new/proc", "proc", MS_NOSUID | MS_NODEV)
    mount("/old", "/old", None, MS_REC | MS_PRIVATE)
    call("umount2", "/old", MNT_DETACH)
    os.chdir("/new")
    pivot(".", ".")
    call("umount2", ".", MNT_DETACH)
    os.chdir("/")
    mount("none", "/", None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    os.chdir("/tmp")


def raise_loopback() -> None:
    """Enables 127.0.0.1 inside the namespace, which has no other network interface."""
    get_flags, set_flags, up = 0x8913, 0x8914, 0x1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        name = b"lo".ljust(16, b"\0")
        flags = struct.unpack_from("16sH", fcntl.ioctl(control, get_flags, name + bytes(24)))[1]
        fcntl.ioctl(control, set_flags, struct.pack("16sH22x", name, flags | up))


def no_shared_segments() -> None:
    """Forbids System V segments and queues: they outlive their process, and no limit counts them."""
    for name in ("shmmni", "msgmni"):
        with suppress(OSError):  # there is no /proc, or it may not be written here
            Path("/proc/sys/kernel", name).write_text("0")


def give_up_rights(uid: int, dropping: bool) -> None:
    """Drops all capabilities, now and after any exec; as root also becomes the unprivileged user `uid`."""
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            break
    if dropping:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    header = ctypes.create_string_buffer(struct.pack("II", 0x20080522, 0), 8)
    call("syscall", CAPSET[machine], header, ctypes.create_string_buffer(24))
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


class BpfProgram(ctypes.Structure):
    """The kernel's `struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def refuse_system_calls(program: bytes) -> None:
    """Installs a filter for this process and all that it starts, for good. Raises SystemCallRefused: it could not."""
    if not program:
        return
    instructions = ctypes.create_string_buffer(program, len(program))
    handed = BpfProgram(len(program) // 8, ctypes.addressof(instructions))
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call("prctl", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(handed), 0, 0)


def limit(spec: dict[str, Any]) -> None:
    """Sets resource limits, never above the present hard limits.

    Where the user id is shared (`more_processes`), the number of the user's present processes is added to the limit.
    """
    for name, value in spec["limits"].items():
        kind = getattr(resource, name)
        if name == "RLIMIT_NPROC" and spec.get("more_processes"):
            value += own_processes()
        hard = resource.getrlimit(kind)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))


def own_processes() -> int:
    """Number of threads of this user's processes."""
    threads = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == os.getuid():
                threads += sum(1 for _ in (process / "task").iterdir())
        except OSError:
            continue  # it has ended
    return threads


def reap(server: int) -> int:
    """As process 1, reaps every orphan until the server ends; returns the server's exit status."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == server:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def inside(spec: dict[str, Any], uid: int, parent: int) -> int:
    """Runs as process 1 of the namespace: builds the root, drops rights, starts the command and reaps."""
    build_root(spec, uid)
    raise_loopback()
    call("sethostname", "sandbox", len("sandbox"))
    no_shared_segments()
    give_up_rights(uid, spec["mode"] == "drop")
    die_with_parent(parent)
    limit(spec)
    refuse_system_calls(bytes.fromhex(spec["system_calls"]))
    server = os.fork()
    if server == 0:
        os.execve(spec["command"][0], spec["command"], os.environ)
    for descriptor in (0, 1):
        os.close(descriptor)
    return reap(server)


def main() -> None:
    spec = json.loads(sys.argv[1])
    if spec["mode"] == "limits":
        limit(spec)
        refuse_system_calls(bytes.fromhex(spec["system_calls"]))
        os.execve(spec["command"][0], spec["command"], os.environ)
    die_with_parent(int(spec["parent"]))
    uid = FIRST_UID + os.getpid() if spec["mode"] == "drop" else INSIDE_UID
    flags = NEWNS | NEWNET | NEWPID | NEWIPC | NEWUTS
    if spec["mode"] == "user":
        outside, group = os.getuid(), os.getgid()
        call("unshare", flags | NEWUSER)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {outside} 1"),
            ("gid_map", f"{uid} {group} 1"),
        ):
            Path("/proc/self", name).write_text(text)
    else:
        call("unshare", flags)
    child = os.fork()
    if child == 0:
        status = 97
        try:
            # the parent of process 1 is outside of its namespace: it sees 0
            status = inside(spec, uid, 0)
        except OSError as error:
            sys.stderr.write(f"{error}\n")
            sys.stderr.flush()
        finally:
            os._exit(status)
    for descriptor in (0, 1):
        os.close(descriptor)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
