"""Submissions for the tests of grading: right ones, known mistakes, and hostile kinds, each bounded by itself, so that a fault in
the limits costs a test and not the machine."""

import io
import os
import stat
import zipfile

from scripts.grading.answers import answers
from scripts.grading.exercises import ROOT

ANSWER = str(ROOT / "scripts" / "answers" / "ch04" / "ex7_rms_norm.py")
HEAD = "import os, sys, time, threading, torch\n\n\ndef rms_norm(x, gain, epsilon):\n"
BODIES = {
    "infinite loop": "    end = time.time() + 60\n    while time.time() < end:\n        pass\n",
    "sleep": "    time.sleep(60)\n",
    "recursion": "    return rms_norm(x, gain, epsilon)\n",
    "memory bomb": "    held = []\n    for _ in range(64):\n        held.append(b'x' * (64 << 20))\n    return x\n",  # 4 GB
    "tensor bomb": "    return torch.ones(1 << 29)\n",  # 2 GB
    "fork bomb": "    for _ in range(200):\n        if not os.fork():\n            time.sleep(20)\n            os._exit(0)\n",
    "os._exit": "    os._exit(0)\n",
    "sys.exit": "    sys.exit(0)\n",
    "kill": "    os.kill(os.getpid(), 9)\n",
    "kill the parent": "    os.kill(os.getppid(), 9)\n    return x\n",
    "print": "    for _ in range(1_000_000):\n        print('x' * 1_000_000)\n",
    "disk": "    with open('big', 'wb') as file:\n        for _ in range(4096):\n            file.write(bytes(1 << 20))\n",
    "files": "    for i in range(100_000):\n        open(f'f{i}', 'w').close()\n    return x\n",
    "delete": "    import shutil\n    for place in ('CANARY', '.'):\n        shutil.rmtree(place, ignore_errors=True)\n",
    "nan": "    return x * float('nan')\n",
    "shape": "    return x[..., :1]\n",
    "dtype": "    return x.to(torch.complex64)\n",
    "entries": "    return [1.0] * 1_000_000\n",
    "texts": "    return ['a'] * 1_000_000\n",
    "deep": "    value = []\n    for _ in range(500):\n        value = [value]\n    return value\n",
    "an object": "    return object()\n",
    "network": "    import socket\n    socket.create_connection(('127.0.0.1', 9), 2)\n    return x\n",
    "raises an exit within repr": "    class Odd(Exception):\n        def __str__(self):\n            os._exit(0)\n    raise Odd\n",
    "a false frame": "    os.write(4, b'x' * 1000)\n    return x\n",
    "an endless frame": "    end = time.time() + 60\n    while time.time() < end:\n        os.write(4, bytes([255]) * 65536)\n",
    "a lying frame": "    os.write(4, (1 << 60).to_bytes(8, 'big') * 2)\n    os._exit(0)\n",
    "a reader of answers": "    m = {}\n    exec(open('ANSWER').read(), m)\n    return m['rms_norm'](x, gain, epsilon)\n",
    "importing the solution": "    from scripts.answers.ch04 import ex7_rms_norm as y\n    return y.rms_norm(x, gain, epsilon)\n",
}
HOSTILE = {name: HEAD + body for name, body in BODIES.items()} | {
    "does not parse": "def rms_norm(x, gain, epsilon:\n    return x\n",
    "binary": "\0\1\2\3",
    "not unicode": "# \udce9\n",
    "empty": "",
    "exits when it is imported": "import sys\nsys.exit(0)\n",
    "loops when it is imported": "import time\nend = time.time() + 60\nwhile time.time() < end:\n    pass\n",
}


def outliving(solution):
    """A right solution whose threads outlive it: they change nothing."""
    return solution + (
        "\n\nimport threading\nimport time\nfor _ in range(3):\n    threading.Thread(target=time.sleep, args=(60,)).start()\n"
    )


def source(name, of, canary=""):
    """What a student of that kind hands in: a hostile kind, "right", or the number of a mutant. canary: the folder that
    one kind tries to delete."""
    right = answers(of).solution
    if name == "right":
        return right
    if name == "outliving":
        return outliving(right)
    return (
        answers(of).mutants[name].of(right)
        if isinstance(name, int)
        else HOSTILE[name].replace("CANARY", str(canary)).replace("ANSWER", ANSWER)
    )


def zipped(files, links=()):
    """The bytes of a zip with {name: content}, whatever the names, and with links {name: target}."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
        for name, target in dict(links).items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(info, target)
    return held.getvalue()


def tree(folder):
    """{path: size and time} of all files of a folder, to see that nothing changed."""
    return {
        os.path.join(place, name): (os.lstat(os.path.join(place, name)).st_size, os.lstat(os.path.join(place, name)).st_mtime_ns)
        for place, _, names in os.walk(folder)
        for name in names
    }
