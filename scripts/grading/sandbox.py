"""The parent's side of a jailed process: hand a submission and inputs over, and take in what comes back, with suspicion.

    with Sandbox() as sandbox:
        ended = sandbox.run(source, exercise, key)     # .results, .status, .seconds

What the jailed process returns is data: frames of JSON and safetensors, of limited size, never a pickle. No file that it has
written is ever opened here.
"""

import json
import os
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from examples.lab.script import BadInput
from scripts.grading import jail
from scripts.grading.exercises import ROOT
from scripts.grading.release_files import library_of
from scripts.grading.runner import HEAD, packed, unpacked

LIMITS = {"memory": 1 << 30, "disk": 64 << 20, "processes": 8}  # bytes beside torch's own, bytes, processes and threads
LARGEST = 32 << 20  # bytes of all results of one submission
ENTRIES = 50_000  # in lists and dictionaries of one result
NUMBERS = 4_000_000  # in the tensors of one result
START = 60  # seconds for the import of torch
STOPPED = {
    "time": "it took longer than it may; is there a loop that never ends?",
    "large": "it returned more than is taken in",
    "early": "its process ended before the results were there: an exit, or a crash",
}


@dataclass(frozen=True)
class Ended:
    """How a run ended. results: those that came, the last of which says why there are no more. status: "", or a key of STOPPED."""

    results: list
    status: str
    seconds: float


class Sandbox:
    """A process that runs submissions, one at a time. `level` says what isolates them, `why` what kept it from more."""

    def __init__(self, hidden=(), bwrap=True):
        self.folder = tempfile.mkdtemp(prefix="exercise-")
        os.chmod(self.folder, 0o755)
        for name in ("root", "work"):
            os.mkdir(Path(self.folder, name))
        uid = 20_000 + os.getpid() * 7 % 40_000 + int.from_bytes(os.urandom(1), "big")
        if not os.getuid():
            os.chown(Path(self.folder, "work"), uid, uid)
        hidden = [str(path) for path in (ROOT / "scripts", ROOT / "examples", *hidden)]
        self.settings = {"uid": uid, "root": f"{self.folder}/root", "folder": f"{self.folder}/work", "hidden": hidden}
        self.ready, self.level, self.why = False, (), ""
        try:
            self._start(bwrap and jail.LINUX and shutil.which("bwrap") is not None)
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise BadInput(f"the process that runs submissions does not start: {error}") from None

    def _start(self, wrapped):
        self.wrapped = wrapped
        self.socket, theirs = socket.socketpair()
        command = [sys.executable, "-I", str(Path(__file__).with_name("zygote.py")), json.dumps(self.settings)]
        command = [*bubblewrap(self.folder, self.settings["hidden"]), *command] if wrapped else command
        environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        environment |= {"MKL_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, cwd="/"
        )
        theirs.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def wait(self):
        """Wait until it takes jobs; raises BadInput where it does not start."""
        if self.ready:
            return
        self.socket.settimeout(START)
        try:
            said = json.loads(self._line())
        except (OSError, ValueError):
            self.process.kill()
            text = self.process.stderr.read().decode(errors="replace").strip().splitlines()
            if self.wrapped:  # which the system may not let it do
                self._stop()
                self._start(False)
                return self.wait()
            raise BadInput(f"the process that runs submissions does not start: {text[-1] if text else 'it says nothing'}") from None
        self.level, self.why, self.ready = tuple(said["level"]), said["why"], True
        self.socket.settimeout(None)

    def _line(self):
        said = b""
        while not said.endswith(b"\n"):
            part = self.socket.recv(4096)
            if not part:
                raise OSError("closed")
            said += part
        return said

    def run(self, source, exercise, key, seconds=None):
        """Run a submission's source on the calls of `key`: an `Ended`. seconds: of computing, by default the key's own."""
        self.wait()
        seconds = key.seconds if seconds is None else seconds
        request = {"name": exercise.name, "source": source, "driver": key.driver, "library": library_of(exercise)}
        request["calls"] = [{"function": c["function"], "args": c["args"]} for c in key.calls]
        limits = {**LIMITS, "seconds": seconds, "wall": 3 * seconds + 1}
        (theirs, ours), (results, theirs_too) = os.pipe(), os.pipe()
        try:
            socket.send_fds(self.socket, [json.dumps(limits).encode()], [theirs, theirs_too])
        except OSError:
            raise BadInput("the process that runs submissions is gone; start again") from None
        finally:
            os.close(theirs)
            os.close(theirs_too)
        content, full, ended = self._exchange(ours, memoryview(packed(request)), results, limits["wall"] + 30)
        self._clean()
        found = frames(content, key)
        status = "large" if full else "time" if ended["status"] == "time" else "early" if len(found) < len(key.calls) else ""
        if status:
            found = [*found[: max(0, len(key.calls) - 1)], {"error": "Stopped", "message": STOPPED[status]}]
        return Ended(found, status, ended["seconds"])

    def _exchange(self, ours, request, results, wait):
        """(what came, whether it was too much, how it ended)."""
        content, full, ended, end = bytearray(), False, None, time.monotonic() + wait
        os.set_blocking(ours, False)
        with selectors.DefaultSelector() as selector:
            for fd, what in ((ours, selectors.EVENT_WRITE), (results, selectors.EVENT_READ), (self.socket, selectors.EVENT_READ)):
                selector.register(fd, what)
            try:
                while selector.get_map():
                    if time.monotonic() > end:
                        raise BadInput("the process that runs submissions does not answer; start again")
                    for ready, _ in selector.select(1):
                        if ready.fd == ours:
                            try:
                                request = request[os.write(ours, request) :]
                            except BrokenPipeError:
                                request = request[:0]
                            if not request:
                                selector.unregister(ours)
                                os.close(ours)
                                ours = None
                        elif ready.fd == results:
                            part = os.read(results, 1 << 20)
                            content += part
                            full = len(content) > LARGEST
                            if not part or full:
                                selector.unregister(results)
                                os.close(results)
                                results = None
                        else:
                            ended = json.loads(self._line())
                            selector.unregister(self.socket)
                            end = min(end, time.monotonic() + 5)  # what still holds the pipe may not hold us
                            wait = 0
            except OSError:
                raise BadInput("the process that runs submissions is gone; start again") from None
            finally:
                for fd in (ours, results):
                    if fd is not None:
                        os.close(fd)
        return content, full, ended

    def _clean(self):
        """Empty the folder that a submission may write to where it has none in memory."""
        if "files" not in self.level:
            for entry in os.scandir(f"{self.folder}/work"):
                shutil.rmtree(entry.path, ignore_errors=True) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)

    def close(self):
        """End the process and remove its folder."""
        self._stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _stop(self):
        self.socket.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stderr.close()


def frames(content, key):
    """The results within the bytes that came, as far as they are results; one for each of the key's calls at most."""
    found, at = [], 0
    for call in key.calls:
        try:
            size, held = HEAD.unpack_from(content, at)
            start, end = at + HEAD.size, at + HEAD.size + size + held
            if end > len(content):
                break
            found.append(checked(unpacked(bytes(content[start : start + size]), bytes(content[start + size : end])), call))
            at = end
        except Exception:  # whatever a forged frame does to the two readers
            break
    return found


def checked(result, call):
    """A result of nothing but the keys and types that the runner writes; raises where it is none."""
    if "value" in result:
        entries, size = _sizes(result["value"])
        if entries > ENTRIES or size > NUMBERS:
            return {"error": "TooLarge", "message": "it returns far more than it should"}
        return {"value": result["value"], "changed": [k for k in call["args"] if k in result["changed"]]}
    line = result.get("line")
    told = {k: "".join(c for c in str(result.get(k, ""))[:300] if c.isprintable()) for k in ("error", "message")}
    at = {"at": "import"} if result.get("at") == "import" else {}
    return {**told, "error": told["error"] or "an error", "line": line if isinstance(line, int) else None, **at}


def _sizes(value):
    """(entries in lists and dictionaries, numbers in tensors and in lists of numbers alone)."""
    if isinstance(value, torch.Tensor):
        return 1, value.numel()
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return 1, 0
    sizes = [_sizes(v) for v in value]
    return 1 + sum(e for e, _ in sizes), sum(n for _, n in sizes)


def bubblewrap(folder, hidden):
    """The command before the command where bwrap is there: no network, and nothing to see but what Python needs."""
    words = [
        shutil.which("bwrap"),
        "--unshare-net",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--die-with-parent",
        "--dev",
        "/dev",
    ]
    words += ["--proc", "/proc", "--tmpfs", "/tmp", "--bind", folder, folder]
    words += ["--cap-add", "ALL"] if not os.getuid() else ["--unshare-user"]
    for path in jail.python_folders(hidden):
        words += ["--ro-bind-try", path, path]
    for name in ("zygote.py", "runner.py", "jail.py"):
        words += ["--ro-bind", *[str(Path(__file__).with_name(name))] * 2]
    return [*words, "--"]
