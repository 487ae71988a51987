# ruff: noqa: E501
"""Python and shell programs that take more than they are given: time, memory, processes, files and output."""


def _shell(command: str) -> str:
    return f"import subprocess\nsubprocess.run(['/bin/bash', '-c', {command!r}])"


EXHAUSTING_PYTHON = {
    "forks without end in a shell": _shell(":(){ :|:& };:; wait"),
    "forks and leaves, without end": "import os\nwhile True:\n    try:\n        if os.fork():\n            os._exit(0)\n    except OSError:\n        pass",
    "forks in sessions of their own": "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True:\n    try:\n        if os.fork() == 0:\n            os.setsid()\n    except OSError:\n        pass",
    "starts programs without end": "import subprocess\nkept = []\nwhile True:\n    try:\n        kept.append(subprocess.Popen(['sleep', '99']))\n    except OSError:\n        pass",
    "spreads its time over many children": "import os, time\nwhile True:\n    if os.fork() == 0:\n        until = time.process_time() + 0.5\n        while time.process_time() < until:\n            pass\n        os._exit(0)\n    os.wait()",
    "writes without end in a shell": _shell("yes hostile"),
    "fills the disk in a shell": _shell(
        "while true; do dd if=/dev/zero of=/tmp/$RANDOM bs=1M count=40 2>/dev/null; done"
    ),
    "sleeps for ever in a shell": _shell("trap '' TERM INT HUP; while true; do sleep 1000; done"),
    "waits for itself in a pipe": _shell("mkfifo p; cat p > p"),
    "fills the shared memory": "from multiprocessing import shared_memory\nkept = []\nwhile True:\n    try:\n        kept.append(shared_memory.SharedMemory(create=True, size=32 << 20))\n        kept[-1].buf[:] = bytes(32 << 20)\n    except (OSError, ValueError):\n        pass",
    "fills the disk in a folder that cannot be opened": """
import os
os.makedirs('/tmp/full')
for number in range(9):
    try:
        open(f'/tmp/full/{number}', 'wb').write(bytes(20 << 20))
    except OSError:
        pass
os.chmod('/tmp/full', 0)""",
    "files without number": "number = 0\nwhile True:\n    number += 1\n    try:\n        open(f'/tmp/{number}', 'w').close()\n    except OSError:\n        pass",
    "folders without end, each in the one before": "import os\nos.chdir('/tmp')\nwhile True:\n    try:\n        os.mkdir('d')\n        os.chdir('d')\n    except OSError:\n        break",
    "folders deeper than a stack": "import os\nos.chdir('/tmp')\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')",
    "names that are no text": "import os\nfor name in (b'/tmp/\\xff\\xfe', b'/tmp/a\\nb', b'/tmp/-rf', b'/tmp/' + b'x' * 255):\n    os.mkdir(name)\n    open(name + b'/\\xff', 'w').close()",
    "takes all memory as mapped files": "import mmap\nkept = []\nwhile True:\n    kept.append(mmap.mmap(-1, 64 << 20))\n    kept[-1].write(b'x' * (64 << 20))",
    "takes all memory as mapped files in many processes": "import mmap, os, time\nfor _ in range(30):\n    if os.fork() == 0:\n        kept = []\n        while True:\n            try:\n                kept.append(mmap.mmap(-1, 16 << 20))\n                kept[-1].write(b'x' * (16 << 20))\n            except (MemoryError, OSError):\n                time.sleep(99)\ntime.sleep(99)",
    "takes all memory in pipes": "import fcntl, os\nkept = []\nwhile True:\n    try:\n        reading, writing = os.pipe()\n        os.set_blocking(writing, False)\n        fcntl.fcntl(writing, 1031, 1 << 20)\n        os.write(writing, bytes(1 << 20))\n        kept.append(reading)\n    except OSError:\n        pass",
    "takes all memory in sockets": "import socket\nkept = []\nwhile True:\n    try:\n        a, b = socket.socketpair()\n        kept += [a, b]\n        a.setblocking(False)\n        a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)\n        while True:\n            a.send(bytes(1 << 16))\n    except OSError:\n        pass",
    "locks its memory": "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.mlockall(3)\nkept = []\nwhile True:\n    kept.append(bytearray(32 << 20))",
    "a list of more than there is": "kept = [0] * 10 ** 11\ndef add(a, b):\n    return 0",
    "a text of more than there is": "def add(a, b):\n    return '%0999999999d' % 5",
    "a number that never ends": "def add(a, b):\n    return 10 ** 10 ** 9",
    "a sum that never ends": "def add(a, b):\n    return sum(range(10 ** 13))",
    "a pattern that never ends": "import re\ndef add(a, b):\n    return re.match('(a+)+$', 'a' * 60 + 'b')",
    "a generator that never ends": "def add(a, b):\n    return list(iter(int, 1))",
    "a comparison that never ends": "class Slow(int):\n    def __eq__(self, other):\n        while True:\n            pass\n    __hash__ = int.__hash__\ndef add(a, b):\n    return Slow(0)",
    "a text of itself that never ends": "class Endless:\n    def __repr__(self):\n        while True:\n            pass\ndef add(a, b):\n    return Endless()\nadd(1, 2)",
    "a text of itself that is too long": "class Long:\n    def __repr__(self):\n        return 'x' * (1 << 29)\ndef add(a, b):\n    return Long()\nadd(1, 2)",
    "a value that holds itself": "def add(a, b):\n    value = []\n    value.append(value)\n    value.append({'x': value})\n    return value",
    "an exception that is too long": "def add(a, b):\n    raise ValueError('x' * (1 << 28))",
    "an exception without a text": "class Bad(Exception):\n    def __str__(self):\n        raise self\n    __repr__ = __str__\ndef add(a, b):\n    raise Bad",
    "exceptions without end, each caused by the one before": "def add(a, b):\n    error = None\n    for _ in range(100000):\n        new = ValueError('x')\n        new.__cause__ = error\n        error = new\n    raise error",
    "output that is no text": "import os, sys\nsys.stdout.buffer.write(bytes(range(256)) * 999)\nprint('\\ud800'.encode('utf-8', 'surrogatepass'))\nos.write(1, b'\\xff\\x00\\x1e\\x1f' * 9999)",
    "output after its end": "import os, time\nif os.fork() == 0:\n    for _ in range(999):\n        os.write(1, b'passed\\n')\n        time.sleep(0.01)\n    os._exit(0)",
    "output of many children": "import os\nfor _ in range(20):\n    if os.fork() == 0:\n        while True:\n            os.write(1, b'x' * 65536)\nos.wait()",
    "timers without end": "import signal\nsignal.signal(signal.SIGALRM, lambda *a: signal.setitimer(signal.ITIMER_REAL, 0.0001))\nsignal.setitimer(signal.ITIMER_REAL, 0.0001)\nwhile True:\n    pass",
    "a loop in a finalizer": "class Last:\n    def __del__(self):\n        while True:\n            pass\nkept = Last()\ndel kept",
    "a loop when the interpreter ends": "import atexit, time\natexit.register(time.sleep, 99)\ndef add(a, b):\n    return 0",
    "stops itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "waits for a child that never ends": "import os, signal\npid = os.fork()\nif pid == 0:\n    while True:\n        signal.pause()\nos.waitpid(pid, 0)",
}
