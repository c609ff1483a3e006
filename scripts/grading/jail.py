"""What a submission's process may do: limits, another user where we are root, and, where Linux lets us, namespaces of its own.

`LEVELS` are tried from the strictest on. In "files" a process sees an empty file system in memory with the system's and Python's
own folders in it, read-only, and no other file of the machine: not this repository, not another submission. In "network" there is
no network. In "processes" it sees no process but its own, and all of them end with it. Standard library alone.
"""

import ctypes
import math
import os
import resource
import signal
import sys
import sysconfig
from pathlib import Path

LEVELS = (("files", "network", "processes"), ("network", "processes"), ("network",), ())
LINUX = sys.platform == "linux"
NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
RDONLY, NOSUID, NODEV, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
KEPT = 8 | 1024 | 2048  # flags that a read-only remount has to keep: noexec, noatime, nodiratime
SET_PDEATHSIG, CAPBSET_DROP, SET_CHILD_SUBREAPER, SET_NO_NEW_PRIVS = 1, 24, 36, 38
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/ld.so.cache", "/etc/alternatives", "/nix/store")
DEVICES = ("null", "zero", "random", "urandom")
OPEN_FILES = 64

libc = ctypes.CDLL(None, use_errno=True)


def _call(name, *args):
    """Call a function of the C library; raises OSError where it fails."""
    if getattr(libc, name)(*args):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def prctl(option, value=0):
    """The system call prctl; does nothing where there is none."""
    if LINUX:
        libc.prctl(option, value, 0, 0, 0)


def _mount(source, target, kind=None, flags=0, data=None):
    texts = [None if t is None else os.fsencode(t) for t in (source, target, kind)]
    _call("mount", *texts, ctypes.c_ulong(flags), None if data is None else data.encode())


def new_namespaces(level):
    """Enter the namespaces of a level; processes that are started from now on are in the new one. Raises OSError."""
    if not level:
        return
    uid, gid = os.getuid(), os.getgid()
    if uid:
        _call("unshare", NEWUSER)
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1", encoding="ascii")
    flags = {"files": NEWNS, "network": NEWNET, "processes": NEWPID | NEWIPC | NEWUTS}
    _call("unshare", sum(flags[part] for part in level))


def own_files(root, shown, size, uid):
    """Make `root`, an empty folder, the whole file system: the folders `shown` read-only at their own paths, and /sandbox, which
    `uid` may write to, at most `size` bytes. Raises OSError."""
    _mount(None, "/", None, REC | PRIVATE)
    _mount("tmpfs", root, "tmpfs", NOSUID | NODEV, f"size={size},nr_inodes=4000,mode=755")
    for path in shown:
        if os.path.islink(path):
            os.makedirs(root + os.path.dirname(path), exist_ok=True)
            os.symlink(os.readlink(path), root + path)
        elif os.path.exists(path):
            _bind(path, root + path, RDONLY | NOSUID | NODEV)
    for name in DEVICES:
        _bind(f"/dev/{name}", f"{root}/dev/{name}", NOSUID)
    for folder in ("/sandbox", "/tmp"):
        os.makedirs(root + folder, exist_ok=True)  # /tmp is there where Python itself lies below it
        os.chown(root + folder, uid, uid)
    os.chroot(root)
    os.chdir("/sandbox")


def _bind(source, target, flags):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        Path(target).touch()
    _mount(source, target, None, BIND | REC)
    _mount(None, target, None, BIND | REMOUNT | flags | (os.statvfs(target).f_flag & KEPT))


def python_folders(hidden):
    """The folders that Python itself needs, outermost first; raises OSError where a file of `hidden` would be seen in one."""
    named = (sys.prefix, sys.base_prefix, sys.exec_prefix, *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))
    found = {os.path.realpath(p) for p in named if os.path.isdir(p)} | {os.path.abspath(sys.prefix)}
    paths = sorted({*SYSTEM, *found}, key=len)
    outer = [p for p in paths if not any(p != q and p.startswith(q + "/") for q in paths)]
    for path in outer:
        if path == "/" or any(os.path.realpath(h).startswith(os.path.realpath(path) + "/") for h in hidden):
            raise OSError(0, f"{path} is Python's, and holds what no submission may see")
    return outer


def limit(limits, uid):
    """Set the limits on this process and what it starts, and become `uid` where that is not None. There is no way back."""
    memory = limits["memory"] + _mapped()
    each = {"AS": memory, "FSIZE": limits["disk"], "NOFILE": OPEN_FILES, "NPROC": limits["processes"], "CORE": 0}
    each["CPU"] = math.ceil(limits["seconds"])
    if uid is None and LINUX:  # the limit is for all that this user runs
        each["NPROC"] += _processes_of(os.getuid())
    for name, value in each.items():
        number = getattr(resource, f"RLIMIT_{name}", None)
        hard = resource.getrlimit(number)[1] if number is not None else 0
        if number is not None and (LINUX or name not in ("AS", "NPROC")):
            most = sys.maxsize if hard == resource.RLIM_INFINITY else hard
            value = min(value, most)
            top = value + 1 if name == "CPU" and value < most else value  # so that a signal of its own tells of the limit
            resource.setrlimit(number, (value, top))
    if LINUX:
        for capability in range(64):
            libc.prctl(CAPBSET_DROP, capability, 0, 0, 0)
    if uid is not None:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    if LINUX:
        _no_capabilities()
        prctl(SET_NO_NEW_PRIVS, 1)


def _no_capabilities():
    """Give up what is left of root's powers, those within a user namespace too."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    libc.capset(header, (ctypes.c_uint32 * 6)())


def _mapped():
    """Bytes of address space that this process has already."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except OSError:
        return 4 << 30


def _processes_of(uid):
    """How many threads the user runs now."""
    count = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines() if ":" in line)
            count += int(fields["Threads"]) if int(fields["Uid"].split()[0]) == uid else 0
        except (OSError, KeyError, ValueError):
            continue
    return count


def bare_environment(home):
    """Leave in the environment what a program needs, and nothing of whoever started it."""
    os.environ.clear()
    os.environ.update(HOME=home, TMPDIR=home, PATH="/usr/bin:/bin", LANG="C.UTF-8", OMP_NUM_THREADS="1", USER="submission")


def only_these(request, result):
    """Close every file but `request`, which becomes 3, and `result`, which becomes 4; standard input and output lead nowhere."""
    request, result = os.dup(request), os.dup(result)  # neither is 3 or 4 now unless it is free of both
    high = [os.dup2(fd, at) for fd, at in ((request, 60), (result, 61))]
    nowhere = os.open(os.devnull, os.O_RDWR)
    for at in (0, 1, 2):
        os.dup2(nowhere, at)
    for at, fd in ((3, high[0]), (4, high[1])):
        os.dup2(fd, at)
    os.closerange(5, 4096)


def kill_all_of(uid):
    """Kill every process of `uid`, another user's than ours: as root alone."""
    helper = os.fork()
    if not helper:
        try:
            os.setuid(uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(helper, 0)
