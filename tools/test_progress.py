#!/usr/bin/env python3
"""Says how far a run of `cargo test` is, and which of its tests are slow. `./dev test` uses it.

    cargo test ... 2>&1 | tools/test_progress.py --step unit --times FILE
    tools/test_progress.py --report FILE --title "./dev test" --to target/test-times.txt

The first form reads what libtest prints, and cargo around it. A line of one test is counted; it is shown if the test
failed or was slow. Every other line goes through unchanged: failures, warnings, what tests print with `--nocapture`, and
the lines `test result: ...`. The exit code is cargo's: use `set -o pipefail`. The times go to the end of FILE. The second
form makes a list of the slowest tests from FILE.

libtest does not say how long a test took. Where one test runs at a time (--one-at-a-time, for a run with --test-threads=1),
the time between two results is known, and it is the time of the second test. Where tests run in parallel only the time of
all tests of one program is known. run_blackbox.py runs each test by itself, and writes into FILE how long it took.
"""

from __future__ import annotations

import argparse
import os
import re
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

# A test that takes longer has a line of its own, in seconds.
SLOW = 1.0
# Where the output is no terminal: at most one line about the progress in so many seconds.
QUIET = 10.0
# A test that runs for so many seconds is named while it runs.
LONG = 60.0
# So many tests are listed.
SLOWEST = 20

PROGRAM = re.compile(r"^ +(?:Running .*\((?P<path>.+)\)|Doc-tests (?P<doc>\S+))$")
BEGIN = re.compile(r"^running (\d+) tests?$")
START = re.compile(r"^test (?P<name>.+?) \.\.\. ")
RESULT = re.compile(r"^test (?P<name>.+?) \.\.\. (?P<result>ok|FAILED|ignored)(?:, .*)?$")
# The result of a test that has printed something after its name.
LATE_RESULT = re.compile(r"^(?P<result>ok|FAILED|ignored)(?:, .*)?$")
END = re.compile(r"^test result: .*?(?:; finished in (?P<seconds>[0-9.]+)s)?$")
# The rest of a program's output, up to its `test result`, is about failures.
FAILURES = "failures:"


def program(match: re.Match[str]) -> str:
    """The name of a test program, without the hash that cargo gives it."""
    if match["doc"]:
        return f"{match['doc']} (examples in the documentation)"
    return re.sub(r"-[0-9a-f]{16}$", "", match["path"].rsplit("/", 1)[-1])


class Progress:
    """Reads lines, and writes what somebody who waits wants to know."""

    def __init__(self, write: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic,
                 one_at_a_time: bool = False, terminal: bool = False):
        self.write, self.clock = write, clock
        self.one_at_a_time, self.terminal = one_at_a_time, terminal
        # (seconds, result, program, test) of each test whose time is known.
        self.tests: list[tuple[float, str, str, str]] = []
        # (seconds, tests, program) of each program whose tests ran in parallel.
        self.programs: list[tuple[float, int, str]] = []
        self.program = "?"
        self.total = self.done = 0
        # The test that runs, as far as that is known.
        self.running = ""
        self.in_failures = False
        self.begun = self.last_result = self.last_said = clock()
        # The status line, which only a terminal has.
        self.shown = ""
        self.named_long = False

    def line(self, line: str) -> None:
        """A whole line, without its end."""
        if match := PROGRAM.match(line):
            self.program, self.in_failures, self.total, self.running = program(match), False, 0, ""
        elif (match := BEGIN.match(line)) and not self.in_failures and not self.running:
            self.total, self.done = int(match[1]), 0
            self.begun = self.last_result = self.last_said = self.clock()
            self.named_long = False
        elif self.total and not self.in_failures and self.test_line(line):
            return
        elif line == FAILURES and self.done == self.total:
            self.in_failures = True
        elif (match := END.match(line)) and (self.in_failures or not self.running):
            self.end(match["seconds"])
        self.through(line)

    def test_line(self, line: str) -> bool:
        """True if the line was about one test and need not be shown."""
        if match := RESULT.match(line):
            self.result(match["name"], match["result"])
            return True
        if match := START.match(line):
            # A test that prints, with --nocapture: its result comes in a line of its own.
            self.start(match["name"])
        elif self.running and (match := LATE_RESULT.match(line)):
            self.result(self.running, match["result"])
            return True
        return False

    def part(self, text: str) -> None:
        """The beginning of a line whose end has not come yet."""
        if self.total and not self.in_failures and not self.running and (match := START.match(text)):
            self.start(match["name"])

    def start(self, name: str) -> None:
        if self.running and self.running != name:
            # Its result was lost in what it printed.
            self.done += 1
            self.last_result = self.clock()
        if self.running != name:
            self.running, self.named_long = name, False
        self.tick()

    def result(self, name: str, result: str) -> None:
        now = self.clock()
        seconds, self.last_result = now - self.last_result, now
        self.done += 1
        self.running, self.named_long = "", False
        count = f"[{self.done}/{self.total}]"
        known = self.one_at_a_time and result != "ignored"
        if known:
            self.tests.append((seconds, result, self.program, name))
        if known and (seconds > SLOW or result == "FAILED"):
            self.say(f"{count} {seconds:.1f} s {result} {name}")
        elif result == "FAILED":
            self.say(f"{count} {result} {name}")
        elif self.terminal:
            self.tick()
        elif now - self.last_said >= QUIET:
            self.say(f"{count} after {now - self.begun:.0f} s")

    def tick(self) -> None:
        """To be called now and then: says what runs."""
        if not self.total or self.done >= self.total:
            return
        now = self.clock()
        waited = now - self.last_result
        name = self.running or self.program
        if self.terminal:
            self.status(f"[{self.done}/{self.total}] {waited:.0f} s {name}")
        elif self.running and waited >= LONG and not self.named_long:
            self.named_long = True
            self.say(f"[{self.done}/{self.total}] after {waited:.0f} s still running: {name}")

    def end(self, seconds: str | None) -> None:
        if not self.one_at_a_time and self.total and seconds:
            self.programs.append((float(seconds), self.total, self.program))
        self.total, self.running, self.in_failures = 0, "", False

    def say(self, line: str) -> None:
        self.last_said = self.clock()
        self.through(line)

    def through(self, line: str) -> None:
        self.status("")
        self.write(f"{line}\n")

    def status(self, text: str) -> None:
        """Replaces the line at which a terminal's cursor is. Nothing of it is ever written elsewhere."""
        if not self.terminal or text == self.shown:
            return
        self.write(f"\r\x1b[K{text[:shutil.get_terminal_size().columns - 1]}")
        self.shown = text


def follow(source: BinaryIO, progress: Progress) -> None:
    """Feeds a stream to its end."""
    rest = b""
    while True:
        ready, _, _ = select.select([source], [], [], 1.0)
        if not ready:
            progress.tick()
            continue
        read = os.read(source.fileno(), 1 << 16)
        if not read:
            break
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            progress.line(line.decode(errors="surrogateescape"))
        progress.part(rest.decode(errors="surrogateescape"))
    if rest:
        progress.line(rest.decode(errors="surrogateescape"))
    progress.status("")


def keep(path: Path, step: str, progress: Progress) -> None:
    """Appends what is known of the times."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for seconds, result, _, test in progress.tests:
            file.write(f"test\t{seconds:.3f}\t{step}\t{result}\t{test}\n")
        for seconds, tests, name in progress.programs:
            file.write(f"program\t{seconds:.3f}\t{step}\t{tests}\t{name}\n")


def report(lines: list[str], title: str) -> str:
    """The slowest tests of a run, from what `keep` has kept of it."""
    rows = [line.split("\t") for line in lines if line.count("\t") == 4]
    tests = sorted(((float(row[1]), *row[2:]) for row in rows if row[0] == "test"), reverse=True)
    programs = sorted(((float(row[1]), *row[2:]) for row in rows if row[0] == "program"), reverse=True)
    text = []
    if tests:
        slowest = tests[:SLOWEST]
        text += [f"The {len(slowest)} slowest of the {len(tests)} tests of {title} whose time is known, "
                 f"which took {sum(test[0] for test in tests):.0f} s together:"]
        text += [f"{seconds:8.1f} s  {step:<10} {name}{'' if result == 'ok' else f'  {result}'}"
                 for seconds, step, result, name in slowest]
    if programs:
        text += ["The tests of these programs ran in parallel. Only the time of all tests of a program is known:"]
        text += [f"{seconds:8.1f} s  {step:<10} {name}: {count} test{'s' * (count != '1')}"
                 for seconds, step, count, name in programs]
    return "".join(f"{line}\n" for line in text or [f"No times of {title} are known."])


def main() -> None:
    parser = argparse.ArgumentParser(description="How far a run of cargo test is.")
    parser.add_argument("--one-at-a-time", action="store_true", help="the tests run with --test-threads=1")
    parser.add_argument("--step", default="tests", help="what the times are called in FILE")
    parser.add_argument("--times", type=Path, metavar="FILE", help="where the times are appended")
    parser.add_argument("--report", type=Path, metavar="FILE", help="print the slowest tests that FILE has")
    parser.add_argument("--title", default="this run", help="what the report calls the run")
    parser.add_argument("--to", type=Path, metavar="PATH", help="where the report is written as well")
    args = parser.parse_args()
    if args.report:
        text = report(args.report.read_text().splitlines() if args.report.exists() else [], args.title)
        if args.to:
            args.to.write_text(text)
        print(text, end="")
        return
    # Ctrl-C ends cargo, and with it the input: what cargo says last is still shown.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def write(text: str) -> None:
        sys.stdout.buffer.write(text.encode(errors="surrogateescape"))
        sys.stdout.buffer.flush()

    progress = Progress(write, one_at_a_time=args.one_at_a_time, terminal=sys.stdout.isatty())
    try:
        follow(sys.stdin.buffer, progress)
    finally:
        if args.times:
            keep(args.times, args.step, progress)


if __name__ == "__main__":
    main()
