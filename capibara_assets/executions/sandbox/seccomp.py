"""The seccomp filter of sandboxed processes: which system calls the kernel refuses them, as a classic BPF program.

A list of what is denied, and nothing newer than what was looked at (decision 0019). What is refused fails as if it were
forbidden (EPERM), or as on a kernel that does not have it (ENOSYS, EAFNOSUPPORT) where programs then do without it.
"""

import errno
import os
import struct
import sys
from dataclasses import dataclass
from functools import cache

#: (number on x86_64, on aarch64; None: it has no such call), by what the calls reach.
DENIED: dict[str, dict[str, tuple[int | None, int | None]]] = {
    "programs in the kernel": {"bpf": (321, 280), "seccomp": (317, 277)},
    "rings and queues of input and output": {
        "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
        "io_setup": (206, 0), "io_destroy": (207, 1), "io_submit": (209, 2), "io_cancel": (210, 3),
        "io_getevents": (208, 4), "io_pgetevents": (333, 292),
    },
    "page faults and memory of others": {
        "userfaultfd": (323, 282), "memfd_secret": (447, 447), "process_madvise": (440, 440),
        "move_pages": (279, 239), "migrate_pages": (256, 238),
    },
    "other processes": {
        "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
        "pidfd_getfd": (438, 438), "perf_event_open": (298, 241),
    },
    "namespaces": {"unshare": (272, 97), "setns": (308, 268)},
    "mounts": {
        "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
        "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
        "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "statmount": (457, 457),
        "listmount": (458, 458), "sysfs": (139, None), "ustat": (136, None),
    },
    "files by number, and events of a whole file system": {
        "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
        "fanotify_mark": (301, 263), "lookup_dcookie": (212, 18),
    },
    "keys": {"add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219)},
    "what outlives its process and is counted by no limit": {
        "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186), "msgsnd": (69, 189),
        "msgrcv": (70, 188), "msgctl": (71, 187), "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191),
        "semtimedop": (220, 192), "mq_open": (240, 180),
    },
    "modules and kernels": {
        "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
        "create_module": (174, None), "get_kernel_syms": (177, None), "query_module": (178, None),
        "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    },
    "the machine": {
        "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "quotactl": (179, 60),
        "quotactl_fd": (443, 443), "acct": (163, 89), "syslog": (103, 116), "vhangup": (153, 58),
        "nfsservctl": (180, 42), "_sysctl": (156, None), "sethostname": (170, 161), "setdomainname": (171, 162),
        "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    },
    "the processor": {
        "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None), "personality": (135, 92),
        "uselib": (134, None),
    },
}  # fmt: skip
#: Decided by their arguments, which the filter sees as numbers only: those of clone3 lie in memory, so there is none.
_BY_ARGUMENT = {
    "clone": (56, 220), "clone3": (435, 435), "socket": (41, 198), "socketpair": (53, 199), "ioctl": (16, 29),
}  # fmt: skip
#: The last call that was looked at (mseal, Linux 6.10): there is nothing newer, as on that kernel.
_NEWEST = 462
_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
#: NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NEW_NAMESPACES = 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000
#: TIOCSTI (types into the terminal), TIOCLINUX (pastes into it), TIOCSETD (line disciplines: loads modules)
_REQUESTS = (0x5412, 0x541C, 0x5423)
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM, _OF_TYPE = 1, 2, 0xF
_TCP, _UDP = 6, 17
_ROUTE = 0  # getaddrinfo and getifaddrs ask it for this machine's addresses

_LOAD, _AND, _EQUAL, _ABOVE, _ANY_OF, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _MACHINE = 0, 4  # offsets in the kernel's description of a call
_FIRST, _SECOND, _THIRD = 16, 24, 32  # its arguments: their lower halves, which is all that the kernel looks at, too


def number(name: str, machine: str) -> int | None:
    """The number of a system call; None where the machine has no such call."""
    numbers = next((group[name] for group in DENIED.values() if name in group), _BY_ARGUMENT.get(name))
    if numbers is None:
        raise KeyError(name)
    return numbers[0 if machine == "x86_64" else 1]


@cache
def filter_program(machine: str = "") -> bytes:
    """The BPF program for this machine's processor, as the kernel takes it; empty where there is none for it."""
    machine = machine or _processor()
    return _assembled(_lines(machine)) if machine in _ARCHITECTURE else b""


def attempts(machine: str = "") -> list[list[int]]:
    """Calls for the probe, with arguments with which they do nothing: an unfiltered kernel fails in another way."""
    machine = machine or _processor()
    if machine not in _ARCHITECTURE:
        return []
    netlink_events = (_NETLINK, 3, 15)
    calls: list[tuple[str, tuple[int, ...]]] = [
        ("unshare", (0,)), ("personality", (0xFFFFFFFF,)), ("keyctl", (0, -2, 0)), ("setns", (-1, 0)),
        ("process_vm_readv", (os.getpid(), 0, 0, 0, 0, 0)), ("io_uring_setup", (0, 0)), ("userfaultfd", (-1,)),
        ("perf_event_open", (0, 0, -1, -1, 0)), ("bpf", (-1, 0, 0)), ("ptrace", (-1, 0, 0, 0)),
        ("kcmp", (0, 0, -1, 0, 0)), ("shmget", (0, 0, 0)), ("fsopen", (0, -1)), ("clone3", (0, 0)),
        ("socket", netlink_events),
    ]  # fmt: skip
    return [[found, *arguments] for name, arguments in calls if (found := number(name, machine)) is not None]


def _processor() -> str:
    """This machine's processor; empty where another kernel runs on it, to which the numbers mean something else."""
    return os.uname().machine if sys.platform.startswith("linux") else ""


@dataclass(frozen=True)
class _Line:
    """An instruction; a test jumps to the labels `yes` and `no` (None: to what follows)."""

    code: int
    value: int
    yes: str | None = None
    no: str | None = None
    label: str | None = None


def _lines(machine: str) -> list[_Line]:
    names = [name for group in DENIED.values() for name in group]
    denied = sorted(found for name in names if (found := number(name, machine)) is not None)
    calls = {name: found for name in _BY_ARGUMENT if (found := number(name, machine)) is not None}
    return [
        # numbers mean something else under another architecture: that comes first
        _Line(_LOAD, _MACHINE),
        _Line(_EQUAL, _ARCHITECTURE[machine], no="absent"),
        _Line(_LOAD, _NUMBER),
        _Line(_ABOVE, _NEWEST, yes="absent"),  # x32 has numbers of its own, from 0x40000000 on
        _Line(_EQUAL, calls["clone3"], yes="absent"),
        *(_Line(_EQUAL, calls[name], yes=name) for name in ("clone", "socket", "socketpair", "ioctl")),
        *(_Line(_EQUAL, found, yes="forbidden") for found in denied),
        _Line(_RETURN, _ALLOW),
        _Line(_LOAD, _FIRST, label="clone"),
        _Line(_ANY_OF, _NEW_NAMESPACES, yes="forbidden", no="allowed"),
        _Line(_LOAD, _SECOND, label="ioctl"),
        *(_Line(_EQUAL, request, yes="forbidden") for request in _REQUESTS),
        _Line(_RETURN, _ALLOW),
        _Line(_LOAD, _FIRST, label="socketpair"),
        _Line(_EQUAL, _UNIX, yes="allowed", no="no family"),
        _Line(_LOAD, _FIRST, label="socket"),
        _Line(_EQUAL, _UNIX, yes="allowed"),
        _Line(_EQUAL, _INET, yes="inet"),
        _Line(_EQUAL, _INET6, yes="inet"),
        _Line(_EQUAL, _NETLINK, no="no family"),
        _Line(_LOAD, _THIRD),
        _Line(_EQUAL, _ROUTE, yes="allowed", no="no family"),
        _Line(_LOAD, _SECOND, label="inet"),
        _Line(_AND, _OF_TYPE),
        _Line(_EQUAL, _STREAM, yes="protocol"),
        _Line(_EQUAL, _DATAGRAM, no="forbidden"),
        _Line(_LOAD, _THIRD, label="protocol"),
        *(_Line(_EQUAL, protocol, yes="allowed") for protocol in (0, _TCP, _UDP)),
        _Line(_RETURN, _ERROR | errno.EPERM, label="forbidden"),
        _Line(_RETURN, _ERROR | 97, label="no family"),  # EAFNOSUPPORT of Linux
        _Line(_RETURN, _ERROR | 38, label="absent"),  # ENOSYS of Linux
        _Line(_RETURN, _ALLOW, label="allowed"),
    ]


def _assembled(lines: list[_Line]) -> bytes:
    """The instructions with their jumps counted, which lead forward and over fewer than 256 of them."""
    places = {line.label: place for place, line in enumerate(lines) if line.label is not None}
    program = b""
    for place, line in enumerate(lines):
        jumps = [0 if label is None else places[label] - place - 1 for label in (line.yes, line.no)]
        program += struct.pack("=HBBI", line.code, *jumps, line.value)
    return program
