"""Runs programs, always with a time limit, and never waits for one that cannot be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass


class Failed(Exception):
    """A program failed or took too long; the message says which and why."""


@dataclass
class Done:
    """The output of a finished program; `seconds` is its wall time."""

    code: int
    out: str
    err: str
    seconds: float


def run(command: list[str], timeout: float, *, text: str | None = None, check: bool = True,
        env: dict[str, str] | None = None, cwd: str | None = None) -> Done:
    """Runs `command` for at most `timeout` seconds, with `text` as its input."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.PIPE if text is not None else subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                               env=env and {**os.environ, **env}, cwd=cwd, start_new_session=True)
    try:
        out, err = process.communicate(text, timeout=timeout)
    except subprocess.TimeoutExpired:
        kill_group(process)
        raise Failed(f"{command[0]} took longer than {timeout:.0f} s: {' '.join(command)[:200]}") from None
    except BaseException:
        kill_group(process)
        raise
    done = Done(process.returncode, out, err, time.monotonic() - start)
    if check and done.code != 0:
        raise Failed(f"{' '.join(command)[:200]}: exit code {done.code}: {(err or out).strip()[-400:]}")
    return done


def kill_group(process: subprocess.Popen) -> None:
    """Kills a program and its children. One that hangs in the kernel, under a dead mount, is left behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(5)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass


def daemon(command: list[str], log: str, env: dict[str, str] | None = None) -> subprocess.Popen:
    """Starts a program in the background; its output is appended to the file `log`."""
    with open(log, "ab") as out:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                env=env and {**os.environ, **env}, start_new_session=True)


def until(what: str, seconds: float, ready, every: float = 0.1) -> None:
    """Waits until `ready()` is true, at most `seconds`."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {seconds:.0f} s")
        time.sleep(every)


def say(text: str) -> None:
    """Prints a line of progress."""
    print(text, file=sys.stderr, flush=True)
