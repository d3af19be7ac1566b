"""A sandbox that the kernel cleans up.

Everything that a measurement starts or mounts is in its own PID, mount and network namespaces. When the first process
of the PID namespace ends, for whatever reason, the kernel kills all others. With the last of them the mounts go, and
with the mounts the loop devices (which are set to clear themselves) and the tmpfs with the bricks. So even a killed
harness leaves only an empty directory and a state file. The only network interface is `lo`.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable

from . import compressed

WORK = Path("/mnt/shoal-bench")
STATE = Path("/run/shoal-bench.json")
TMPFS_MIB = 20 << 10
# Limit of open files of every program: a FUSE passthrough server has each of its files open.
OPEN_FILES = 1 << 20

CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID = 0x00020000, 0x40000000, 0x20000000
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


# Whether this process is in the sandbox, where it has started all other processes.
_inside = False


class Stopped(BaseException):
    """Ctrl-C, or a signal that asks the harness to end."""


def _unshare(flags: int) -> None:
    if _libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare: measuring needs root")


def raise_open_files() -> None:
    """Raises the limit of open files for this process and its children: the same limit for every system."""
    most = min(OPEN_FILES, int(Path("/proc/sys/fs/nr_open").read_text()))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except ValueError:  # a container without CAP_SYS_RESOURCE: as many as it may have
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, hard), min(most, hard)))


def _setup(size: str) -> None:
    """Inside the new namespaces: private mounts, an own /proc, the interface lo, and a tmpfs for everything."""
    def call(*command: str) -> None:
        subprocess.run(command, check=True, timeout=20, stdin=subprocess.DEVNULL)
    call("mount", "--make-rprivate", "/")
    call("mount", "-t", "proc", "proc", "/proc")
    call("ip", "link", "set", "lo", "up")
    call("mount", "-t", "tmpfs", "-o", f"size={size}", "shoal-bench", str(WORK))


def _first_process(size: str, inner: Callable[[], int]) -> int:
    """Process 1 of the namespace: reaps orphans and passes signals on, while its child measures."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()  # Ctrl-C reaches the outermost process only, which passes it on once
    _unshare(CLONE_NEWNS | CLONE_NEWNET)
    _setup(size)
    raise_open_files()
    child = os.fork()
    if child == 0:
        global _inside
        _inside = True

        def stop(*_):
            raise Stopped()
        signal.signal(signal.SIGTERM, stop)
        code = 1
        try:
            code = inner()
        except Stopped:
            code = 130
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def _start_time(pid: int) -> str | None:
    """The kernel's start time of a process: with it a pid means one process, not a later one of the same number."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return None


def run(inner: Callable[[], int], size: str = f"{TMPFS_MIB}m") -> int:
    """Runs `inner` in the sandbox, `size` of tmpfs at most; returns its exit code."""
    if STATE.exists():
        pid, started = (json.loads(STATE.read_text()).get(k) for k in ("pid", "started"))
        if pid and _start_time(pid) == started:
            print(f"error: another measurement runs (pid {pid})\n  try: ./dev bench --clean", file=sys.stderr)
            return 1
    WORK.mkdir(parents=True, exist_ok=True)
    signals = 0
    child = 0

    def pass_on(*_):
        nonlocal signals
        signals += 1
        if child:
            os.kill(child, signal.SIGTERM if signals == 1 else signal.SIGKILL)
    signal.signal(signal.SIGINT, pass_on)
    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGHUP, pass_on)
    _unshare(CLONE_NEWPID)
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            code = _first_process(size, inner)
        except BaseException as error:  # process 1 must end, whatever happens: the kernel then clears the rest
            print(f"error: {error!r}", file=sys.stderr)
        os._exit(code)
    STATE.write_text(json.dumps({"pid": child, "started": _start_time(child)}))
    try:
        _, status = os.waitpid(child, 0)
    finally:
        STATE.unlink(missing_ok=True)
        if not compressed.release():
            print("warning: a zram device is left\n  try: ./dev bench --clean", file=sys.stderr)
        try:
            WORK.rmdir()
        except OSError:
            pass
    return os.waitstatus_to_exitcode(status)


def _runs(pid: int) -> bool:
    """Whether a process is a running program; its parent reaps one that has ended."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


def clear() -> None:
    """Inside the sandbox: ends every process but the harness's own two, unmounts what is below the work directory and
    empties it.

    Raises RuntimeError anywhere else: these would be others' processes.
    """
    if not _inside:
        raise RuntimeError("not in the sandbox")
    mine = {1, os.getpid()}
    for _ in range(50):
        others = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        others = [pid for pid in others if pid not in mine and _runs(pid)]
        for pid in others:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if not others:
            break
        time.sleep(0.1)
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in reversed([p for p in points if p.startswith(f"{WORK}/")]):
        subprocess.run(["umount", "-l", point], timeout=60, check=False, stdin=subprocess.DEVNULL)
    for path in WORK.iterdir():
        subprocess.run(["rm", "-rf", "--one-file-system", str(path)], timeout=600, check=False, stdin=subprocess.DEVNULL)


def clean() -> int:
    """Ends a measurement that still runs, and removes what a killed one has left."""
    if STATE.exists():
        pid, started = (json.loads(STATE.read_text()).get(k) for k in ("pid", "started"))
        if pid and _start_time(pid) == started:
            os.kill(pid, signal.SIGKILL)
            for _ in range(100):
                if _start_time(pid) != started:
                    break
                time.sleep(0.1)
        STATE.unlink(missing_ok=True)
    if not compressed.release():
        print(f"error: a zram device of {compressed.LIST} is in use", file=sys.stderr)
        return 1
    if WORK.is_dir():
        try:
            WORK.rmdir()
        except OSError as error:
            print(f"error: {WORK}: {error.strerror}", file=sys.stderr)
            return 1
    return 0
