"""Started once a worker: it has torch imported, waits for jobs, and forks a jailed process for each, which runs a submission.

    python -I scripts/grading/zygote.py JSON      # by scripts/grading/sandbox.py, with a socket as standard input

So that torch is imported once and not for every submission. It holds no answer and sees no submission: a job is two pipes, one to
read the request from and one to write results to, and only the jailed process uses them.
"""

import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import jail  # noqa: E402  (beside this file: nothing else of the repository may be found from here)
import runner  # noqa: E402

sys.path.remove(str(HERE))
EARLY = (  # what is there even where no file can be read later
    *(
        "collections",
        "copy",
        "dataclasses",
        "enum",
        "functools",
        "heapq",
        "itertools",
        "math",
        "operator",
        "random",
        "re",
        "statistics",
    ),
    *("string", "struct", "time", "typing", "torch.nn.functional", "torch.linalg", "encodings.idna", "linecache", "difflib"),
)
SIGNAL = 100  # above this an exit status says which signal ended the submission
NO_JAIL = 99


def fork_server(settings):
    """Serve jobs until the socket closes."""
    jail.prctl(jail.SET_PDEATHSIG, signal.SIGKILL)
    jail.prctl(jail.SET_CHILD_SUBREAPER, 1)
    for name in EARLY:
        importlib.import_module(name)
    warm(runner.torch)
    gc.freeze()  # so that no collection in a forked process copies what is here
    served = socket.socket(fileno=os.dup(0))
    level, why = strictest(settings)
    served.sendall(json.dumps({"level": level, "why": why}).encode() + b"\n")
    while True:
        message, fds, _, _ = socket.recv_fds(served, 4096, 2)
        if not message:
            return
        limits = json.loads(message)
        answer = job(fds, limits, level, settings)
        for fd in fds:
            os.close(fd)
        served.sendall(json.dumps(answer).encode() + b"\n")


def warm(torch):
    """Let torch look at the processor, which it does when half precision is first used, while there are files to see it in."""
    torch.set_num_threads(1)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        x = torch.ones(4, 4, dtype=dtype)
        torch.softmax(torch.erf(torch.exp(x @ x).mean(-1)), -1).sum().item()


def strictest(settings):
    """(the strictest level that works here, why not a stricter one)."""
    why = ""
    for level in jail.LEVELS if jail.LINUX else ((),):
        reader, writer = os.pipe()
        nothing, full = os.pipe()
        os.close(full)
        limits = {"seconds": 5, "wall": 20, "memory": 1 << 30, "disk": 1 << 20, "processes": 8}
        ended = job([nothing, writer], limits, level, settings)
        os.close(writer)
        said = os.read(reader, 400).decode(errors="replace")
        for fd in (reader, nothing):
            os.close(fd)
        if ended["status"] == 0:
            return level, why
        why = why or f"{' and '.join(level)}: {said or ended['status']}"
    return (), why


def job(fds, limits, level, settings):
    """Run one; {"status": 0, a signal's number as 100 + n, "time" or another number, "seconds", "wall"}."""
    start, reader = time.monotonic(), os.fork()
    if not reader:
        try:
            outer(fds, limits, tuple(level), settings)
        except BaseException as error:
            os.write(fds[1] if isinstance(error, OSError) else 2, str(error).encode()[:300])
        finally:
            os._exit(NO_JAIL)
    status, timed_out, usage = None, False, None
    pause = 0.001
    while True:
        done, status, usage = os.wait4(reader, os.WNOHANG)
        if done:
            break
        if time.monotonic() - start > limits["wall"] and not timed_out:
            timed_out = True
            os.kill(reader, signal.SIGKILL)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)
    sweep(level, settings)
    code = os.waitstatus_to_exitcode(status)
    code = SIGNAL - code if code < 0 else code
    seconds = usage.ru_utime + usage.ru_stime
    if timed_out or code == SIGNAL + signal.SIGXCPU or (code == SIGNAL + signal.SIGKILL and seconds >= limits["seconds"]):
        code, seconds = "time", max(seconds, time.monotonic() - start)
    return {"status": code, "seconds": seconds, "wall": time.monotonic() - start}


def outer(fds, limits, level, settings):
    """In the forked process: enter the level, start the submission, and end as it ends."""
    jail.prctl(jail.SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    uid = None if os.getuid() else settings["uid"]
    jail.new_namespaces(level)
    inside = os.fork()
    if inside:
        os.closerange(3, 4096)
        leave(inside)
    jail.prctl(jail.SET_PDEATHSIG, signal.SIGKILL)
    if "files" in level:
        jail.own_files(settings["root"], jail.python_folders(settings["hidden"]), limits["disk"], uid or 0)
    else:
        os.chdir(settings["folder"])
    jail.only_these(*fds)
    fds[:] = [3, 4]
    submission = os.fork()
    if submission:
        os.closerange(3, 4096)
        leave(submission)
    jail.bare_environment(os.getcwd())
    jail.limit(limits, uid)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    submit()


def leave(child):
    """Wait for `child` and end as it ended, so that all that it has started ends with the namespace."""
    while True:
        done, status = os.waitpid(-1, 0)
        if done == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(SIGNAL - code if code < 0 else code)


def submit():
    """Read the request from 3, run it, write a result at a time to 4, and end at once whatever still runs."""
    with open(3, "rb") as file:
        content = file.read()
    if content:
        size, held = runner.HEAD.unpack_from(content)
        start = runner.HEAD.size
        request = runner.unpacked(content[start : start + size], content[start + size :][:held])
        del content
        for name, text in request["library"].items():
            path = Path(os.getcwd(), "lib", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        sys.path.insert(0, str(Path(os.getcwd(), "lib")))
        for result in runner.results(request):
            frame = memoryview(runner.packed(result))
            while frame:
                frame = frame[os.write(4, frame) :]
    os._exit(0)


def sweep(level, settings):
    """Kill what a submission has left running, where its namespace did not."""
    if "processes" in level:
        return
    if not os.getuid():
        jail.kill_all_of(settings["uid"])
    while jail.LINUX:  # we inherit its orphans
        mine = [p for p in map(_parent, Path("/proc").glob("[0-9]*")) if p]
        for pid in mine:
            os.kill(pid, signal.SIGKILL)
        if not mine:
            break
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break


def _parent(path):
    """The number of the process at `path` of /proc where it is a child of ours, else None."""
    try:
        fields = (path / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return int(path.name) if int(fields[1]) == os.getpid() else None


if __name__ == "__main__":
    fork_server(json.loads(sys.argv[1]))
