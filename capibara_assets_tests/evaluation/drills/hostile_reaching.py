# ruff: noqa: E501
"""Python and shell programs that reach for files, the network, other processes and rights outside of their sandbox.

Each prints the secret if it got there. `{file}`, `{shared}`: files that hold it; `{port}`, `{abstract}`, `{socket}`:
services that tell it; `{variable}`: of the environment; `{parent}`: the process that grades; `{worked}`: the secret
itself, for what is not read but done.
"""


def _shell(command: str, shell: str = "/bin/sh") -> str:
    return f"import subprocess\nprint(subprocess.run([{shell!r}, '-c', {command!r}], capture_output=True, text=True).stdout.strip())"


def _works(attempt: str) -> str:
    """A program that tells the secret if statements run through without an OSError."""
    body = "\n".join(f"    {line}" for line in attempt.strip().split("\n"))
    return f"import ctypes, os, resource, socket, stat, struct, subprocess\ntry:\n{body}\n    print('{{worked}}')\nexcept (OSError, ValueError, subprocess.SubprocessError) as error:\n    print(error)"


_LEAVES = """
import os
kept = '/tmp/kept'
found = os.path.lexists(kept)
try:
    os.makedirs(kept + '/inner', exist_ok=True)
    os.chmod(kept, 0)
except OSError:
    pass
"""

REACHING_MORE = {
    "file of the user through a hard link": "import os\nos.link('{file}', 'link')\nprint(open('link').read())",
    "file of the user from a descriptor of the root": "import os\nroot = os.open('/', os.O_PATH)\nfor path in ('{file}'[1:], '..' + '{file}', '../../..' + '{file}'):\n    try:\n        print(os.read(os.open(path, os.O_RDONLY, dir_fd=root), 99).decode())\n        break\n    except OSError:\n        pass",
    "file of the user through inherited descriptors": """
import os, re
for number in range(3, 1024):
    try:
        found = re.search(rb'\\b[0-9a-f]{32}\\b', os.pread(number, 9999, 0))
    except OSError:
        continue
    if found:
        print(found[0].decode())
        break""",
    "file of the user through others' descriptors": """
import glob, re
for path in glob.glob('/proc/[0-9]*/fd/*') + glob.glob('/proc/[0-9]*/task/*/cwd/secret.txt') + glob.glob('/proc/[0-9]*/map_files/*'):
    try:
        found = re.search(r'^[0-9a-f]{32}$', open(path).read(9999))
    except (OSError, ValueError):
        continue
    if found:
        print(found[0])
        break""",
    "file of the user by a race of links": """
import os, threading, time
open('mine', 'w').write('mine')
over = time.monotonic() + 0.5
def swap():
    n = 0
    while time.monotonic() < over:
        n += 1
        os.symlink('{file}' if n % 2 else 'mine', f'new{n}')
        os.replace(f'new{n}', 'link')
thread = threading.Thread(target=swap)
thread.start()
found = ''
while time.monotonic() < over:
    try:
        text = open('link').read()
    except OSError:
        continue
    if text != 'mine':
        found = text
thread.join()
print(found)""",
    "file of the user by a race of folders in /proc": """
import os, threading, time
over = time.monotonic() + 0.5
os.makedirs('a/b')
def swap():
    while time.monotonic() < over:
        os.rename('a/b', 'b')
        os.rename('b', 'a/b')
thread = threading.Thread(target=swap)
thread.start()
found = ''
while time.monotonic() < over:
    try:
        found = found or open('/proc/self/cwd/a/b/' + '../' * 30 + '{file}').read()
        found = found or open('/proc/thread-self/root{file}').read()
    except OSError:
        pass
thread.join()
print(found)""",
    "memory of the machine's processes as files": "print(open('{shared}').read())",
    "file of the user by a shell": _shell("cat {file}"),
    "file of the user by searching": _shell("find / -name secret.txt -exec cat {} + 2>/dev/null"),
    "file of the user by a shell in another folder": _shell("cd / && for up in . .. ../..; do cat $up{file} 2>/dev/null; done"),
    "secret of the environment by a shell": _shell("echo ${variable}"),
    "secret of others' environment by a shell": _shell("cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep ^{variable}= | head -1 | cut -d= -f2"),
    "secret of the command lines by a shell": _shell("cat /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -A1 -x hostile | tail -1"),
    "network by a shell": _shell("exec 3<>/dev/tcp/127.0.0.1/{port} && cat <&3", "/bin/bash"),
    "network by a program": _shell("curl -s --http0.9 http://127.0.0.1:{port}/ || wget -qO- http://127.0.0.1:{port}/ || nc -w1 127.0.0.1 {port}"),
    "network by http": "import http.client, urllib.request\ntry:\n    urllib.request.urlopen('http://127.0.0.1:{port}', timeout=2)\nexcept http.client.BadStatusLine as error:\n    print(error.line)",
    "network as IPv6": "import socket\nprint(socket.create_connection(('::ffff:127.0.0.1', {port}), 2).recv(99).decode())",
    "network by a raised interface": """
import fcntl, socket, struct
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number, name in socket.if_nameindex():
    try:
        fcntl.ioctl(control, 0x8914, struct.pack('16sH22x', name.encode(), 0x1043))
    except OSError as error:
        print(error)
print(socket.create_connection(('127.0.0.1', {port}), 2).recv(99).decode())""",
    "network by a new route": _works("""
route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
body = struct.pack('BBHiII', 0, 0, 0, 0, 1, 1) + struct.pack('HH4s', 8, 3, b'mine')
route.send(struct.pack('IHHII', 16 + len(body), 16, 0x605, 1, 0) + body)
route.settimeout(2)
failed = struct.unpack_from('i', route.recv(4096), 16)[0]
if failed:
    raise OSError(-failed, 'refused')"""),
    "a service of the machine by an abstract name": "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('\\0{abstract}')\nprint(s.recv(99).decode())",
    "a service of the machine by its socket": "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('{socket}')\nprint(s.recv(99).decode())",
    "services of the system by their sockets": """
import glob, socket
for path in ['/run/dbus/system_bus_socket', '/var/run/docker.sock', '/run/containerd/containerd.sock', '/run/systemd/private', '/run/systemd/notify', *glob.glob('/tmp/.X11-unix/*'), *glob.glob('/tmp/ssh-*/*')]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            socket.socket(socket.AF_UNIX, kind).connect(path)
        except OSError:
            continue
        print('{worked}')
        raise SystemExit""",
    "the cloud's service of metadata": _works("socket.create_connection(('169.254.169.254', 80), 1)"),
    "a name server elsewhere": _works("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))"),
    "everybody on the network": _works("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)\ns.sendto(b'x', ('255.255.255.255', 9))"),
    "the grader among the processes": "import glob\nprint('{worked}' if any(b'pytest' in open(p, 'rb').read() for p in glob.glob('/proc/{parent}/cmdline')) else '')",
    "signals to the grader by a handle": _works("descriptor = os.pidfd_open({parent})\nif b'pytest' not in open('/proc/{parent}/cmdline', 'rb').read():\n    raise OSError('another')"),
    "keys and histories of the user": "import os\nplaces = ['/etc/shadow', '/etc/ssh', '/root/.ssh', '/root/.bash_history', '/home', '/var/log', '/var/lib', '/srv', '/boot', '/run/secrets', '/etc/machine-id', '/etc/hostname']\nprint('{worked}' if any(map(os.path.exists, places)) else '')",
    "devices of the machine": "import os\nfound = ''\nfor name in ('sda', 'vda', 'nvme0n1', 'mem', 'kmem', 'port', 'kmsg', 'kvm', 'fuse', 'net/tun', 'nvidia0', 'console', 'tty0', 'loop-control', 'vhost-net', 'snapshot'):\n    try:\n        os.close(os.open('/dev/' + name, os.O_RDONLY | os.O_NONBLOCK))\n        found = '{worked}'\n    except OSError:\n        pass\nprint(found)",
    "a device that it makes": _works("os.mknod('disk', stat.S_IFBLK | 0o600, os.makedev(8, 0))"),
    "memory of the kernel": _works("open('/proc/kcore', 'rb').read(64)"),
    "settings of the kernel": "found = ''\nfor name in ('kernel/core_pattern', 'kernel/modprobe', 'vm/drop_caches', 'kernel/hostname', 'net/ipv4/ip_forward', 'fs/suid_dumpable', 'kernel/randomize_va_space'):\n    try:\n        path = '/proc/sys/' + name\n        text = open(path).read()\n        open(path, 'w').write(text)\n        found = '{worked}'\n    except OSError:\n        pass\nprint(found)",
    "the machine's emergency keys": _works("os.write(os.open('/proc/sysrq-trigger', os.O_WRONLY), b'h')"),
    "out of its control group": """
import glob, os
found = ''
for path in ('/sys/fs/cgroup/cgroup.procs', '/sys/fs/cgroup/memory/cgroup.procs', *glob.glob('/proc/[0-9]*/root/sys/fs/cgroup/cgroup.procs')):
    try:
        os.write(os.open(path, os.O_WRONLY), str(os.getpid()).encode())
        found = '{worked}'
    except OSError:
        pass
print(found)""",
    "never chosen when memory ends": _works("os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'-1000')"),
    "more than its limits": _works("for name in ('RLIMIT_NPROC', 'RLIMIT_FSIZE', 'RLIMIT_NOFILE', 'RLIMIT_CPU', 'RLIMIT_AS'):\n    try:\n        resource.setrlimit(getattr(resource, name), (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n        break\n    except (OSError, ValueError):\n        pass\nelse:\n    raise OSError('kept')"),
    "limits of the process that forked it": _works("resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (9999, 9999))"),
    "before all others": _works("os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(9))"),
    "nicer to itself": _works("os.nice(-5)"),
    "a program with the owner's rights": _works("import shutil\nshutil.copy('/usr/bin/id', 'mine')\nos.chown('mine', 0, 0)\nos.chmod('mine', 0o4755)\nif subprocess.run(['./mine', '-u'], capture_output=True, text=True, check=True).stdout.strip() != '0':\n    raise OSError('not root')"),
    "root by the system's programs": "import os, subprocess\nfound = ''\nfor command in (['sudo', '-n', 'id', '-u'], ['su', '-c', 'id -u'], ['pkexec', 'id', '-u'], ['runuser', '-u', 'root', 'id', '-u']):\n    try:\n        said = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout.strip()\n    except OSError:\n        continue\n    found = '{worked}' if said == '0' else found\nprint(found)",
    "root again": _works("libc = ctypes.CDLL(None)\nif libc.setuid(0) and libc.setresuid(0, 0, 0) and libc.seteuid(0) or os.geteuid():\n    raise OSError('not root')"),
    "rights in a capability": "status = open('/proc/self/status').read()\nheld = [int(line.split()[1], 16) for line in status.split('\\n') if line.startswith(('CapInh', 'CapPrm', 'CapEff', 'CapAmb'))]\nprint('{worked}' if any(held) or 'NoNewPrivs:\\t1' not in status else '')",
    "the programs that judge": """
import glob, os
found = ''
for path in glob.glob('/**/executions/replay/*.py', recursive=False) + [p for n in os.listdir('/proc/self/fd') for p in [os.path.realpath('/proc/self/fd/' + n)]]:
    if 'capibara' in path and os.access(path, os.W_OK):
        found = '{worked}'
print(found)""",
    "a folder that it left, which cannot be opened": _LEAVES + "print('{worked}' if found else '')",
    "a folder that another left, which cannot be opened": _LEAVES + "print('{worked}' * found)",
    "a folder that another left, deeper than a stack": """
import os
os.chdir('/tmp')
found = os.path.lexists('deep')
try:
    os.mkdir('deep')
    os.chdir('deep')
    for _ in range(2000):
        os.mkdir('d')
        os.chdir('d')
except OSError:
    pass
print('{worked}' if found else '')""",
    "files that another left": """
import os
found = [p for p in ('/tmp/left', '/tmp/.left', os.path.expanduser('~/left'), '/dev/shm/left', '/var/tmp/left') if os.path.lexists(p)]
for path in ('/tmp/left', '/tmp/.left', '/dev/shm/left', '/var/tmp/left'):
    try:
        open(path, 'w').write('left')
    except OSError:
        pass
print('{worked}' if found else '')""",
    "files that another left, later": """
import os
found = [p for p in ('/tmp/left', '/tmp/.left', '/dev/shm/left', '/var/tmp/left') if os.path.lexists(p)]
for path in ('/tmp/left', '/tmp/.left', '/dev/shm/left', '/var/tmp/left'):
    try:
        os.symlink('{file}', path)
    except OSError:
        pass
print('{worked}' * bool(found))""",
}  # fmt: skip
