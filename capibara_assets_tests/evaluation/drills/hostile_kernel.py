# ruff: noqa: E501
"""Python programs that ask the kernel for what no recorded program needs; each tells the secret if it is not refused.

The numbers of the system calls stand here a second time, on purpose: (x86_64, aarch64), None where there is none.
`{worked}` stands for the secret, which is what a program prints when the kernel did as it asked, or tried.
"""

_CALLS = """
import ctypes, os, socket, struct, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
x86 = os.uname().machine == 'x86_64'
def asked(numbers, *arguments):
    number = numbers if isinstance(numbers, int) else numbers[0 if x86 else 1]
    if number is None:
        return -1, 38
    ctypes.set_errno(0)
    return libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)), ctypes.get_errno()
def refused(numbers, *arguments):
    result, error = asked(numbers, *arguments)
    return result == -1 and error in (1, 38, 97)
def no_socket(*arguments):
    try:
        socket.socket(*arguments).close()
    except OSError as error:
        return error.errno in (1, 97)
    return False
def fails(*command):
    return not os.path.exists(command[0]) or subprocess.run(command, capture_output=True).returncode != 0
buffer = ctypes.create_string_buffer(4096)
"""


def _tells(unless: str, before: str = "") -> str:
    """A program that tells the secret unless an expression (of several refusals) holds."""
    return f"{_CALLS}{before}\nprint('refused' if {unless} else '{{worked}}')"


def _each(*calls: tuple[tuple[int | None, int | None], str]) -> str:
    """A program that tells the secret unless each of the calls is refused."""
    return _tells(" and ".join(f"refused({numbers!r}, {arguments})" for numbers, arguments in calls))


UNSHARE, CLONE, CLONE3, IOCTL, SECCOMP, PTRACE = (272, 97), (56, 220), (435, 435), (16, 29), (317, 277), (101, 117)

KERNEL_PYTHON = {
    "a user namespace of its own": _each((UNSHARE, "0x10000000")),
    "every other namespace": _tells(f"all(refused({UNSHARE}, flag) for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x20000000, 0x40000000, 0x80, 0))"),
    "a child in a user namespace": _tells("found[0] == -1 and found[1] == 1", f"""
found = asked({CLONE}, 0x10000000 | 17, 0, 0, 0, 0)
if found[0] == 0:
    os._exit(0)"""),
    "a child in a namespace of each kind": _tells("all(tried)", f"""
tried = []
for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x20000000, 0x40000000):
    result, error = asked({CLONE}, flag | 0x10000000 | 17, 0, 0, 0, 0)
    if result == 0:
        os._exit(0)
    tried.append(result == -1 and error == 1)"""),
    "a child in a user namespace by clone3": _tells("result == -1 and error == 38", f"""
arguments = ctypes.create_string_buffer(struct.pack('11Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0))
result, error = asked({CLONE3}, arguments, 88)
if result == 0:
    os._exit(0)"""),
    "the namespace of another process": _tells("refused((308, 268), descriptor, 0)", "descriptor = os.open('/proc/self/ns/net', os.O_RDONLY) if os.path.exists('/proc/self/ns/net') else -1"),
    "namespaces through the programs of the system": _tells("fails('/usr/bin/unshare', '-Ur', 'true') and fails('/usr/bin/unshare', '-n', 'true') and fails('/usr/bin/nsenter', '-t', '1', '-a', 'true') and fails('/usr/bin/bwrap', '--ro-bind', '/', '/', 'true')"),
    "a mount": _each(((165, 40), "b'none', b'/tmp', b'tmpfs', 0, 0"), ((166, 39), "b'/tmp', 2")),
    "a mount by the newer calls": _each(((430, 430), "b'tmpfs', 0"), ((428, 428), "-100, b'/', 1"), ((433, 433), "-100, b'/', 0"), ((432, 432), "-1, 0, 0"), ((431, 431), "-1, 6, 0, 0, 0")),
    "moved and changed mounts": _each(((429, 429), "-1, b'', -100, b'/tmp', 4"), ((442, 442), "-100, b'/', 0, buffer, 32")),
    "a list of the mounts": _each(((458, 458), "buffer, buffer, 8, 0"), ((457, 457), "buffer, buffer, 512, 0")),
    "another root": _each(((155, 41), "b'/', b'/tmp'"), ((161, 51), "b'/tmp'")),
    "a ring of input and output": _tells("refused((425, 425), 8, ctypes.create_string_buffer(120))"),
    "entering and registering at a ring": _each(((426, 426), "-1, 0, 0, 0, 0, 0"), ((427, 427), "-1, 8, 0, 0")),
    "queues of input and output, of which the machine has so many": _tells("refused((206, 0), 60000, ctypes.create_string_buffer(8))"),
    "a program in the kernel": _tells("refused((321, 280), 0, ctypes.create_string_buffer(struct.pack('4I', 2, 4, 8, 1).ljust(128, b'\\0')), 128)"),
    "a socket filter in the kernel": _tells("refused((321, 280), 5, ctypes.create_string_buffer(128), 128)"),
    "page faults of its own": _each(((323, 282), "0"), ((323, 282), "1")),
    "counters of the processor": _tells("refused((298, 241), ctypes.create_string_buffer(struct.pack('2IQ', 1, 128, 0).ljust(128, b'\\0')), 0, -1, -1, 0)"),
    "a key of the session's ring": _each(((250, 219), "0, -3, 1"), ((250, 219), "1, 0")),
    "a new key": _each(((248, 217), "b'user', b'x', b'secret', 6, -2"), ((249, 218), "b'user', b'x', 0, -2")),
    "tracing its own child": _tells("tried and refused(PTRACE, 16, 1, 0, 0)".replace("PTRACE", str(PTRACE)), f"""
child = os.fork()
if child == 0:
    os._exit(0 if refused({PTRACE}, 0, 0, 0, 0) else 1)
tried = os.waitpid(child, 0)[1] == 0"""),
    "tracing whoever forked it": _tells(f"refused({PTRACE}, 16, os.getppid(), 0, 0) and refused({PTRACE}, 0x4206, os.getppid(), 0, 0)"),
    "the memory of its child": _tells("tried", """
local = ctypes.create_string_buffer(8)
vector = ctypes.create_string_buffer(struct.pack('2Q', ctypes.addressof(local), 8))
child = os.fork()
if child == 0:
    import time
    time.sleep(0.5)
    os._exit(0)
tried = refused((310, 270), child, vector, 1, vector, 1, 0) and refused((311, 271), child, vector, 1, vector, 1, 0)
os.kill(child, 9)
os.waitpid(child, 0)"""),
    "the memory of whoever forked it": _tells("refused((310, 270), os.getppid(), buffer, 0, buffer, 0, 0)"),
    "descriptors of whoever forked it": _tells("refused((438, 438), descriptor, 1, 0)", "descriptor = asked((434, 434), os.getppid(), 0)[0]"),
    "pointers of the kernel by comparing": _each(((312, 272), "os.getpid(), os.getpid(), 0, 0, 0")),
    "advice about another's memory": _tells("refused((440, 440), descriptor, buffer, 0, 21, 0)", "descriptor = asked((434, 434), os.getpid(), 0)[0]"),
    "pages of memory elsewhere": _each(((279, 239), "0, 0, 0, 0, 0, 0"), ((256, 238), "0, 0, 0, 0")),
    "memory that nobody sees": _each(((447, 447), "0")),
    "segments that outlive it": _each(((29, 194), "0, 1 << 20, 0o1600"), ((64, 190), "0, 4, 0o1600"), ((68, 186), "0, 0o1600")),
    "a message queue": _tells("refused((240, 180), b'hostile', 0o102, 0o600, 0)"),
    "a file by its number": _tells("refused((303, 264), -100, b'/', buffer, buffer, 0) and refused((304, 265), os.open('/', os.O_RDONLY), handle, 0)", "handle = ctypes.create_string_buffer(struct.pack('IiII', 8, 1, 2, 0))"),
    "events of a whole file system": _each(((300, 262), "0x200, 0"), ((301, 263), "-1, 0x11, 8, 0, -100, b'/'")),
    "a module": _each(((175, 105), "buffer, 8, b''"), ((313, 273), "0, b'', 0"), ((176, 106), "b'none', 2048")),
    "another kernel": _each(((246, 104), "0, 0, 0, 0"), ((320, 294), "-1, -1, 0, b'', 0")),
    # 0: the harmless one of its commands
    "a restart of the machine": _tells("refused((169, 142), 0xfee1dead, 672274793, 0, 0)"),
    "swap": _each(((167, 224), "b'/tmp/swap', 0"), ((168, 225), "b'/tmp/swap'")),
    "quotas and accounts": _each(((179, 60), "0x800001, 0, 0, 0"), ((443, 443), "-1, 0x800001, 0, 0"), ((163, 89), "0")),
    "the kernel's log": _each(((103, 116), "10, 0, 0"), ((103, 116), "3, buffer, 4096")),
    "the clock": _each(((164, 170), "0, 0"), ((227, 112), "0, buffer"), ((159, 171), "ctypes.create_string_buffer(256)"), ((305, 266), "0, ctypes.create_string_buffer(256)")),
    "the machine's name": _each(((170, 161), "b'mine', 4"), ((171, 162), "b'mine', 4")),
    "ports of the processor": _each(((172, None), "3"), ((173, None), "0x80, 1, 1")),
    "segments of the processor": _each(((154, None), "0, buffer, 16"), ((154, None), "1, ctypes.create_string_buffer(16), 16")),
    "memory at places that can be foretold": _each(((135, 92), "0x0040000"), ((135, 92), "0xffffffff")),
    "memory at places that can be foretold, by a program": _tells("fails('/usr/bin/setarch', '-R', 'true')"),
    "calls of long ago": _each(((134, None), "b'/tmp/x'"), ((139, None), "3, 0, 0"), ((136, None), "0, buffer"), ((212, 18), "0, buffer, 8"), ((180, 42), "0, 0, 0"), ((156, None), "buffer"), ((153, 58), "")),
    "calls that are newer than the filter": _tells("all(result == -1 and error == 38 for result, error in (asked(number, -1, -1, -1, -1, -1) for number in range(463, 600)))"),
    "calls under the numbers of x32": _tells("not x86 or all(asked(0x40000000 | number, 0, 0, 0) == (-1, 38) for number in (39, 272, 101, 521, 534))"),
    "a call of 32 bits": _tells("not x86 or worked != os.getpid()", """
worked = 0
if x86:
    import mmap
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex('53b814000000cd805bc3'))  # push rbx; mov eax, 20 (getpid); int 0x80; pop rbx; ret
    worked = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()"""),
    "typing into the terminal": _tells(f"refused({IOCTL}, 0, 0x5412, b'x') and refused({IOCTL}, 0, 0x541c, buffer)"),
    "typing into the terminal past a filter that compares 64 bits": _tells(f"refused({IOCTL}, 0, 0x5412 | 1 << 32, b'x')"),
    "a discipline of the terminal": _tells(f"refused({IOCTL}, 0, 0x5423, ctypes.create_string_buffer(struct.pack('i', 21)))"),
    "packets of the network": _tells("no_socket(17, 3, 3) and no_socket(17, 2, 3) and no_socket(44, 3, 0)"),
    "the host by its virtual socket": _tells("no_socket(40, 1, 0) and no_socket(40, 2, 0) and no_socket(42, 2, 0)"),
    "ciphers of the kernel": _tells("no_socket(38, 5, 0)"),
    "the kernel's own network of messages": _tells("all(no_socket(16, 3, protocol) for protocol in (2, 4, 6, 7, 9, 10, 11, 12, 15, 16, 18, 21))"),
    "networks that nobody has": _tells("all(no_socket(family, kind, 0) for family in (3, 4, 5, 6, 8, 9, 11, 15, 18, 19, 20, 21, 22, 24, 26, 29, 30, 31, 33, 35, 36, 37, 39, 41, 43, 45) for kind in (1, 2, 3, 5))"),
    "protocols that load modules": _tells("all(no_socket(family, kind, protocol) for family in (2, 10) for kind, protocol in ((1, 132), (5, 132), (5, 0), (6, 33), (6, 0), (2, 136), (1, 262), (2, 115)))"),
    "raw packets": _tells("all(no_socket(family, kind, protocol) for family in (2, 10) for kind, protocol in ((3, 1), (3, 255), (2, 1), (2, 58), (10, 0)))"),
    "pairs of sockets of another family": _tells("all(refused((53, 199), family, 1, 0, buffer) for family in (2, 30, 38, 40))"),
    "taking the filter off": _tells(f"libc.prctl(22, 0, 0, 0, 0) == -1 and libc.prctl(38, 0, 0, 0, 0) == -1 and refused({SECCOMP}, 1, 0, 0) and refused({UNSHARE}, 0)"),
    "a filter of its own that lets all through": _tells(f"refused({UNSHARE}, 0)", """
allow = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))
libc.prctl(22, 2, ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(allow))), 0, 0)"""),
    "another program's system calls": _tells("told == 'True'", f"""
code = 'import ctypes; libc = ctypes.CDLL(None, use_errno=True); print(libc.syscall({UNSHARE[0]} if {{0}} else {UNSHARE[1]}, 0) == -1 and ctypes.get_errno() == 1)'.replace('{{0}}', str(x86))
told = subprocess.run([sys.executable, '-I', '-S', '-c', code], capture_output=True, text=True).stdout.strip()"""),
    "another thread's system calls": _tells("found == [True]", f"""
import threading
found = []
thread = threading.Thread(target=lambda: found.append(refused({UNSHARE}, 0)))
thread.start()
thread.join()"""),
    "system calls of a daemon": _tells("os.read(reading, 9) == b'True'", f"""
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(writing, str(refused({UNSHARE}, 0x10000000)).encode())
    os._exit(0)
os.close(writing)"""),
}  # fmt: skip
