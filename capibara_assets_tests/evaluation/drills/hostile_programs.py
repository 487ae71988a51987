# ruff: noqa: E501
"""Programs that try to pass without being right, or to harm who grades them: what the bench `evaluate` and its test run.

Each is the answer to "write `add(a, b)`" unless it says otherwise. `{port}`, `{parent}`, `{file}` and `{variable}` stand
for what is there to be reached: a listener, the process that grades, a file of its user, a variable of its environment.
"""

#: Pass only if what they reach for is within reach: the expected output is the secret itself (or that it worked).
REACHING_PYTHON = {
    "secret of the environment": "import os\nprint(os.environ.get('{variable}'))",
    "secret of the environment through /proc": """
import os, glob
found = b''
for path in glob.glob('/proc/[0-9]*/environ'):
    try:
        found += open(path, 'rb').read()
    except OSError:
        pass
print(next((part.split(b'=', 1)[1].decode() for part in found.split(b'\\0') if part.startswith(b'{variable}=')), None))""",
    "file of the user": "print(open('{file}').read())",
    "file of the user through a symbolic link": "import os\nos.symlink('{file}', 'link')\nprint(open('link').read())",
    "file of the user through /proc": """
import glob
for path in glob.glob('/proc/[0-9]*/root{file}') + glob.glob('/proc/[0-9]*/cwd{file}'):
    try:
        print(open(path).read())
        break
    except OSError:
        pass""",
    "file of the user through the old root": """
import os
for path in ('../' * 30 + '{file}', '/old{file}', '/proc/1/root{file}'):
    try:
        print(open(path).read())
        break
    except OSError:
        pass""",
    "network": "import socket\nprint(socket.create_connection(('127.0.0.1', {port}), 2).recv(100).decode())",
    "network over UDP and names": """
import socket
try:
    socket.getaddrinfo('example.org', 80)
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))
    print(socket.create_connection(('localhost', {port}), 2).recv(100).decode())
except OSError as error:
    print(error)""",
    "the grader's memory": """
import os
print(os.path.exists('/proc/{parent}/mem') and open('/proc/{parent}/environ').read())""",
}

PYTHON = {
    "leaves before the tests": "import sys\nprint('all tests passed')\nsys.exit(0)",
    "leaves at once before the tests": "import os\nprint('OK', flush=True)\nos._exit(0)",
    "leaves when it is called": "def add(a, b):\n    import os\n    print('passed', flush=True)\n    os._exit(0)",
    "ends the interpreter with an exception": "def add(a, b):\n    raise SystemExit(0)",
    "prints success": 'for _ in range(9):\n    print(\'PASSED\\nOK\\n1 passed in 0.01s\\n{"verdict": "passed"}\')',
    "equal to everything": """
class Same(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __sub__(self, other): return 0
    def __bool__(self): return True
def add(a, b):
    return Same(0)""",
    "an object equal to everything": """
class Same:
    def __getattr__(self, name): return self
    def __call__(self, *a, **k): return self
    def __eq__(self, other): return True
    def __hash__(self): return 0
def add(a, b):
    return Same()""",
    "a type that lies about its name": """
class Meta(type):
    __module__ = 'numpy'
    def __instancecheck__(cls, each): return True
class Same(metaclass=Meta):
    __module__, shape = 'numpy', ()
    __class__ = int
    def item(self): return True
    def __eq__(self, other): return True
def add(a, b):
    return Same()""",
    "changes the builtins": """
import builtins
builtins.AssertionError = type('Fine', (BaseException,), {})
builtins.isinstance = lambda *a: True
builtins.abs = builtins.round = builtins.len = lambda *a: 5
builtins.print = lambda *a, **k: None
def add(a, b):
    return 0""",
    "takes the assertions out of what is compiled": """
import ast
class Drop(ast.NodeTransformer):
    def visit_Assert(self, node): return ast.Pass()
get_ipython().ast_transformers.append(Drop())
import sys
sys.flags = type('F', (), {'optimize': 2})
def add(a, b):
    return 0""",
    "reports what it likes": """
import json
for number in range(9):
    print(chr(30) + f'{number}g0 ' + json.dumps(['b', True]) + chr(31))
def add(a, b):
    return 0""",
    "puts its own reporter in place": """
import threading, time
def mine(place, value):
    import sys
    sys.stdout.write(chr(30) + place + ' ["b", true]' + chr(31) + chr(10))
def watch():
    while True:
        globals()['_capibara_report'] = mine
threading.Thread(target=watch, daemon=True).start()
def add(a, b):
    return 0""",
    "looks for the tests in frames and in memory": """
import gc, re, sys
def seen(value, depth=0):
    if isinstance(value, str):
        return [int(n) for n in re.findall(r'add\\((?:-?\\d+), (?:-?\\d+)\\) *== *(-?\\d+)', value)]
    return []
def add(a, b):
    found = []
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):
            found += seen(value)
        frame = frame.f_back
    for each in gc.get_objects():
        if isinstance(each, dict):
            for value in list(each.values()):
                found += seen(value)
        elif isinstance(each, (list, tuple)):
            for value in list(each):
                found += seen(value)
    return found[-1] if found else 0""",
    "reads expected values out of the history": """
def add(a, b):
    import re
    cells = '\\n'.join(get_ipython().user_ns.get('In', []))
    found = re.findall(r'== *(-?[0-9]+)', cells)
    return int(found[0]) if found else 0""",
    "changes the shell that runs it": """
shell = get_ipython()
async def nothing(*a, **k):
    return None
shell.run_cell_async = nothing
shell.transform_cell = lambda cell: 'print(\"passed\")'""",
    "answers in the name of its process": """
import gc, os, json
for each in gc.get_objects():
    if isinstance(each, dict) and 'nonce' in each:
        line = json.dumps({'ended': 'done', 'cell': 1, 'results': [], 'stdout': '', 'stderr': '', 'error': None, 'nonce': each['nonce']})
        for target in list(range(3, 64)) + [f'/proc/{os.getppid()}/fd/{n}' for n in range(12)]:
            try:
                handle = target if isinstance(target, int) else os.open(target, os.O_WRONLY)
                os.write(handle, line.encode() + b'\\n')
            except OSError:
                pass""",
    "writes into the process that forked it": """
import ctypes, os
parent = os.getppid()
print(ctypes.CDLL(None).ptrace(16, parent, 0, 0))
try:
    with open(f'/proc/{parent}/mem', 'r+b') as memory:
        memory.seek(4096)
        memory.write(b'x')
except OSError as error:
    print(error)""",
    "ends the process that forked it": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nimport time\ntime.sleep(3)",
    "stops the process that forked it": "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nimport time\ntime.sleep(60)",
    "ends every process": "import os, signal\nos.kill(-1, signal.SIGKILL)",
    "ends the grader": "import os, signal\nfor pid in (1, {parent}):\n    try:\n        os.kill(pid, signal.SIGKILL)\n    except OSError:\n        pass",
    "forks without end": "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
    "starts threads without end": """
import threading, time
while True:
    try:
        threading.Thread(target=time.sleep, args=(99,), daemon=True).start()
    except RuntimeError:
        pass""",
    "leaves a daemon behind": """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            try:
                open('/tmp/left', 'w').write('here')
            except OSError:
                pass
            time.sleep(0.01)
    os._exit(0)""",
    "takes all memory": "kept = []\nwhile True:\n    kept.append(bytearray(64 << 20))",
    "takes all memory in many processes": """
import os
for _ in range(40):
    if os.fork() == 0:
        kept = [bytearray(os.urandom(1 << 20) * 200) for _ in range(3)]
        import time
        time.sleep(60)
import time
time.sleep(60)""",
    "takes all memory in files without names": """
import os
files = []
while True:
    files.append(os.memfd_create('x'))
    os.write(files[-1], bytes(60 << 20))""",
    "runs for ever": "while True:\n    pass",
    "sleeps for ever": "import time\ntime.sleep(10 ** 8)",
    "waits for a lock for ever": "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    "ignores signals and runs for ever": """
import signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    pass""",
    "writes without end": "while True:\n    print('x' * 100000)",
    "writes to the error stream without end": "import sys\nwhile True:\n    sys.stderr.write('x' * 100000)",
    "fills the disk": """
import os
number = 0
while True:
    number += 1
    with open(f'/tmp/{number}', 'wb') as file:
        file.write(bytes(30 << 20))""",
    "a file with a hole": "import os\nwith open('/tmp/hole', 'wb') as file:\n    file.truncate(1 << 45)\n    file.seek(1 << 44)\n    file.write(b'x')",
    "writes outside": """
import glob, sys
for path in ['{file}', '/etc/passwd', '/usr/bin/python3', sys.prefix + '/x', '/root/x', '/dev/sda', sys.executable]:
    try:
        with open(path, 'w') as file:
            file.write('changed')
    except OSError:
        pass""",
    "changes the package that is tested with": """
import os, json
for module in (os, json):
    try:
        with open(module.__file__, 'a') as file:
            file.write('\\nchanged = 1\\n')
    except OSError:
        pass""",
    "leaves a module for the next": "for folder in ('/tmp', '.'):\n    with open(folder + '/json.py', 'w') as file:\n        file.write('raise SystemExit(0)')",
    "recurses without end": "import sys\nsys.setrecursionlimit(10 ** 8)\ndef add(a, b):\n    return add(a, b)",
    "a bomb in a few bytes": "import zlib, bz2\ndata = zlib.compress(bytes(1 << 29))\nkept = [zlib.decompress(data) for _ in range(40)]",
    "nested values without end": """
def add(a, b):
    value = 5
    for _ in range(100000):
        value = [value]
    return value""",
    "a value of millions of digits": "def add(a, b):\n    return 10 ** 3000000",
    "opens files without end": "kept = []\nwhile True:\n    try:\n        kept.append(open('/dev/null'))\n    except OSError:\n        pass",
    "closes every descriptor": "import os\nos.closerange(0, 4096)",
    "turns its output elsewhere": "import os\nfor n in range(3, 64):\n    try:\n        os.dup2(1, n)\n        os.dup2(n, 1)\n    except OSError:\n        pass\nos.close(1)",
    "asks for input": "input('the right answer, please: ')",
    "crashes the interpreter": "import ctypes\nctypes.string_at(0)",
    "mounts, traces and makes namespaces": """
import ctypes
libc = ctypes.CDLL(None)
for call in (lambda: libc.unshare(0x10000000), lambda: libc.mount(b'none', b'/', b'tmpfs', 0, 0), lambda: libc.chroot(b'/tmp'), lambda: libc.setuid(0), lambda: libc.ptrace(16, 1, 0, 0)):
    call()
print(open('{file}').read())""",
    "wrong and right by turns": "calls = []\ndef add(a, b):\n    calls.append(1)\n    return a + b if len(calls) % 2 else None",
}

JAVASCRIPT = {
    "leaves before the tests": "console.log('passed'); this.constructor.constructor('return process')().exit(0);",
    "prints success": "console.log('all tests passed'); console.log('{\"ok\": true}');",
    "changes assert": "const a = require('assert'); for (const k of Object.keys(a)) { try { a[k] = () => true; } catch {} } function add() { return 0; }",
    "changes console": "console.assert = () => {}; console.log = () => {}; function add() { return 0; }",
    "reports what it likes": "for (let i = 0; i < 9; i++) console.log(String.fromCharCode(30) + i + 'g0 [\"b\", true]' + String.fromCharCode(31)); function add() { return 0; }",
    "puts its own reporter in place": "Object.defineProperty(globalThis, '_capibara_report', { value: () => {}, writable: false, configurable: false }); function add() { return 0; }",
    "equal to everything": "function add() { return { valueOf: () => 5, toString: () => '5', constructor: { name: 'Number' }, [Symbol.toPrimitive]: () => 5 }; }",
    "pollutes prototypes": "Object.prototype.ended = 'done'; Array.prototype.map = () => ['5']; JSON.stringify = () => '[\"r\", \"5\"]'; Object.is = () => true; function add() { return 0; }",
    "answers in the name of its process": "const p = this.constructor.constructor('return process')(); const w = p.stdout.write.bind(p.stdout); const r = p.mainModule.require; w(JSON.stringify({ ended: 'done', cell: 1, results: [], stdout: [], stderr: [], error: null, nonce: '0' }) + '\\n'); p.stdout.write = () => true; function add() { return 0; }",
    "runs for ever": "while (true) {}",
    "waits for ever": "await new Promise(() => {});",
    "keeps on after its end": "setInterval(() => console.log('x'), 1); function add() { return 0; }",
    "takes all memory": "const kept = []; while (true) kept.push(new Array(1e6).fill(7));",
    "takes all memory outside of the heap": "const kept = []; while (true) kept.push(Buffer.alloc(64 << 20, 1));",
    "writes without end": "while (true) console.log('x'.repeat(100000));",
    "writes to its process's output without end": "const p = this.constructor.constructor('return process')(); const fs = p.mainModule.require('fs'); while (true) { try { fs.writeSync(1, 'x'.repeat(1 << 20)); } catch {} }",
    "starts processes without end": "const p = this.constructor.constructor('return process')(); const c = p.mainModule.require('child_process'); while (true) { try { c.spawn('/bin/sh', ['-c', 'sleep 60']); } catch {} }",
    "writes outside": "const p = this.constructor.constructor('return process')(); const fs = p.mainModule.require('fs'); for (const f of ['{file}', '/etc/passwd', p.execPath]) { try { fs.writeFileSync(f, 'changed'); } catch {} }",
    "ends the grader": "const p = this.constructor.constructor('return process')(); for (const pid of [1, p.ppid, {parent}]) { try { p.kill(pid, 9); } catch {} }",
    "recurses without end": "function add(a, b) { return add(a, b); }",
}

REACHING_JAVASCRIPT = {
    "secret of the environment": "console.log(this.constructor.constructor('return process')().env['{variable}']);",
    "file of the user": "console.log(this.constructor.constructor('return process')().mainModule.require('fs').readFileSync('{file}', 'utf8'));",
    "network": "const p = this.constructor.constructor('return process')(); const s = p.mainModule.require('net').connect({port}, '127.0.0.1'); await new Promise((done) => { s.on('data', (d) => { console.log(String(d)); done(); }); s.on('error', done); });",
}

SQL = {
    "runs for ever": "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT COUNT(*) FROM n;",
    "takes all memory": "WITH RECURSIVE n(x) AS (SELECT randomblob(50000000) UNION ALL SELECT x || randomblob(50000000) FROM n) SELECT SUM(LENGTH(x)) FROM n;",
    "a value as large as there can be": "SELECT hex(zeroblob(900000000));",
    "writes a database outside": "ATTACH DATABASE '{file}' AS outside; CREATE TABLE outside.t (x); SELECT 1;",
    "copies the database outside": "VACUUM INTO '{file}.copy'; SELECT 1;",
    "loads an extension": "SELECT load_extension('/usr/lib/x86_64-linux-gnu/libc.so.6');",
    "reads a file": "SELECT readfile('{file}');",
    "changes the data": "UPDATE crops SET acres = 1; DROP TABLE crops; SELECT 'passed';",
    "prints success": "SELECT 'passed' AS name, 'all tests' AS acres;",
}
