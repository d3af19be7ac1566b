#!/usr/bin/env python3
"""Runs the tests of one test program of Rust, several at a time, each in namespaces of its own. `./dev test` uses it.

    tools/run_blackbox.py --program target/release/deps/blackbox-... [NAME ...]

Each test is a process of its own, and sees a machine of its own: pid, mount, network and IPC namespaces, an empty /run, a
loopback device, and a directory for temporary files. No other test, and nothing else on the machine, can disturb it, and
nothing outlives it: the kernel ends all that is left in its pid namespace. Tests still share the processors, the disks, the
loop devices and the kernel's page cache.

The longest tests begin first, as far as their times are known (--known). Tests that make the machine busy on purpose (--alone) come
last, one at a time: the others could not keep their time limits meanwhile. The files of a test that fails are kept. The exit
code is 0 if every test passed, 1 if one failed, 2 if the program has no such test.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TextIO

# A test that takes longer has a line of its own, in seconds.
SLOW = 10.0
# At most one line about the progress in this time, in seconds.
QUIET = 10.0
# A test that takes longer is ended, in seconds: the longest takes two minutes on an idle machine.
LIMIT = 900.0

# Makes the machine of a test, then runs the command in its words. The shell stays: it is process 1 of the test's pid
# namespace, and takes the exit codes of processes whose parents have ended.
ROOM = r"""
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 room /run
mkdir -p /run/lock /run/cgroup
if mountpoint -q /sys/fs/cgroup; then mount --rbind /sys/fs/cgroup /run/cgroup; fi
mount -t sysfs sysfs /sys
if mountpoint -q /run/cgroup; then
  mount --rbind /run/cgroup /sys/fs/cgroup
  umount -l /run/cgroup
fi
rmdir /run/cgroup
ip link set lo up
set +e
"$@"
exit $?
"""


@dataclass
class Outcome:
    """How a test has ended."""

    name: str
    seconds: float
    result: str
    output: str = ""


def listed(program: Path, *options: str) -> list[str]:
    """The names of the tests of a program."""
    said = subprocess.run([program, "--list", *options], check=True, capture_output=True, text=True).stdout
    return [line.removesuffix(": test") for line in said.splitlines() if line.endswith(": test")]


def known_times(path: Path | None) -> dict[str, float]:
    """Seconds that tests took, from a file that `keep` has written."""
    rows = [line.split("\t") for line in path.read_text().splitlines()] if path and path.exists() else []
    return {row[4]: float(row[1]) for row in rows if len(row) == 5 and row[0] == "test"}


def in_order(names: list[str], times: dict[str, float]) -> list[str]:
    """The longest first. Tests whose time is unknown come before all others: they may be long."""
    return sorted(names, key=lambda name: -times.get(name, float("inf")))


def command(program: Path, name: str, shows: bool) -> list[str]:
    """What runs one test."""
    test = [str(program), "--exact", name, "--include-ignored", "--test-threads=1", *(["--nocapture"] if shows else [])]
    rooms = ["unshare", "--pid", "--mount", "--net", "--ipc", "--fork", "--kill-child", "--mount-proc"]
    return [*rooms, "sh", "-c", ROOM, "room", *test]


@dataclass
class Run:
    """Tests that run, and those that have run."""

    program: Path
    work: Path
    shows: bool
    limit: float
    waiting: SimpleQueue[str] = field(default_factory=SimpleQueue)
    ended: SimpleQueue[Outcome] = field(default_factory=SimpleQueue)
    running: dict[str, tuple[subprocess.Popen[str], float]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopped: bool = False

    def all(self, names: list[str], jobs: int, alone: str) -> None:
        """Runs tests, `jobs` at a time, then those with `alone` in their names, one at a time."""
        parts = [([name for name in names if alone not in name], jobs), ([name for name in names if alone in name], 1)]
        for part, count in parts:
            for name in part:
                self.waiting.put(name)
            workers = [threading.Thread(target=self.work_off, daemon=True) for _ in range(max(1, count))]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()

    def work_off(self) -> None:
        """Runs waiting tests, one after the other."""
        while not self.stopped:
            try:
                name = self.waiting.get_nowait()
            except Empty:
                return
            self.ended.put(self.one(name))

    def one(self, name: str) -> Outcome:
        """Runs a test to its end."""
        # A short path: addresses of Unix sockets have 107 bytes.
        place = Path(tempfile.mkdtemp(prefix="t", dir=self.work))
        place.chmod(0o1777)
        begun = time.monotonic()
        with tempfile.TemporaryFile("w+", errors="replace", dir=self.work) as output:
            with self.lock:
                if self.stopped:
                    return Outcome(name, 0.0, "not run")
                child = subprocess.Popen(command(self.program, name, self.shows), stdin=subprocess.DEVNULL,
                                         env=os.environ | {"TMPDIR": str(place)}, stdout=output, stderr=subprocess.STDOUT, text=True)
                self.running[name] = child, begun
            try:
                code: int | None = child.wait(self.limit)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                code = None
            seconds = time.monotonic() - begun
            with self.lock:
                del self.running[name]
            output.seek(0)
            said = output.read()
        if code is None:
            return Outcome(name, seconds, "FAILED", f"{said}\n{name} was ended after {self.limit:.0f} s; its files are in {place}")
        # A program that runs no test ends well, too.
        if code != 0 or "test result: ok. 1 passed" not in said:
            return Outcome(name, seconds, "FAILED", f"{said}\n{name} ended with {code}; its files are in {place}")
        shutil.rmtree(place, ignore_errors=True)
        return Outcome(name, seconds, "ok", said)

    def stop(self) -> None:
        """Ends all tests."""
        with self.lock:
            self.stopped = True
            for child, _ in self.running.values():
                child.kill()


def show(run: Run, total: int, out: TextIO) -> list[Outcome]:
    """Says how far the tests are, until they have ended."""
    outcomes: list[Outcome] = []
    begun = said = time.monotonic()
    while len(outcomes) < total:
        try:
            outcome = run.ended.get(timeout=1.0)
        except Empty:
            outcome = None
        now = time.monotonic()
        count = f"[{len(outcomes) + (outcome is not None)}/{total}]"
        if outcome:
            outcomes.append(outcome)
            if outcome.result == "FAILED" or outcome.seconds > SLOW or run.shows:
                print(f"{count} {outcome.seconds:.1f} s {outcome.result} {outcome.name}", file=out, flush=True)
                said = now
            if outcome.result == "FAILED" or run.shows:
                print(outcome.output, file=out, flush=True)
        if now - said >= QUIET:
            with run.lock:
                oldest = sorted((then, name) for name, (_, then) in run.running.items())
            names = ", ".join(f"{name} ({now - then:.0f} s)" for then, name in oldest)
            print(f"{count} after {now - begun:.0f} s; running: {names}", file=out, flush=True)
            said = now
    return outcomes


def keep(path: Path, step: str, outcomes: list[Outcome]) -> None:
    """Appends the times of tests, as test_progress.py does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for outcome in outcomes:
            file.write(f"test\t{outcome.seconds:.3f}\t{step}\t{outcome.result}\t{outcome.name}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs tests, each in namespaces of its own.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="whole names of tests (default: all that are not ignored)")
    parser.add_argument("--program", type=Path, required=True, help="the test program")
    parser.add_argument("--jobs", type=int, default=1 + (os.cpu_count() or 1), help="tests at a time (default: one more than processors)")
    parser.add_argument("--alone", default="busy_machine", metavar="WORDS", help="tests with these words in their names run alone (busy_machine)")
    parser.add_argument("--step", default="blackbox", help="what the times are called in FILE")
    parser.add_argument("--known", type=Path, metavar="FILE", help="times of an earlier run")
    parser.add_argument("--times", type=Path, metavar="FILE", help="where the times are appended")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds after which a test is ended")
    parser.add_argument("--show", action="store_true", help="show what tests print")
    args = parser.parse_args()

    every, ignored = listed(args.program), listed(args.program, "--ignored")
    if missing := [name for name in args.names if name not in every]:
        print(f"error: {args.program} has no test {missing[0]}; --list shows all", file=sys.stderr)
        return 2
    wanted = args.names or [name for name in every if name not in ignored]
    work = Path(tempfile.mkdtemp(prefix="shoal-"))
    work.chmod(0o755)
    run = Run(args.program.resolve(), work, args.show, args.limit)
    for end in (signal.SIGINT, signal.SIGTERM):
        signal.signal(end, lambda *_: (run.stop(), sys.exit(1)))
    begun = time.monotonic()
    print(f"running {len(wanted)} tests, {args.jobs} at a time", flush=True)
    order = in_order(wanted, known_times(args.known))
    threading.Thread(target=run.all, args=(order, args.jobs, args.alone), daemon=True).start()
    outcomes = show(run, len(wanted), sys.stdout)
    if args.times:
        keep(args.times, args.step, outcomes)
    failed = [outcome.name for outcome in outcomes if outcome.result != "ok"]
    for name in failed:
        print(f"    {name}")
    if not any(work.iterdir()):
        work.rmdir()
    left = 0 if args.names else len(ignored)
    print(f"test result: {'FAILED' if failed else 'ok'}. {len(outcomes) - len(failed)} passed; {len(failed)} failed; "
          f"{left} ignored; 0 measured; 0 filtered out; finished in {time.monotonic() - begun:.2f}s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
