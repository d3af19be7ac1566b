"""The cases and their rows. Systems alternate case by case; most cases give one row, the small files give three."""

from __future__ import annotations

import re
import resource
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, ContextManager

from . import fio
from .figures import Measurement
from .meter import Window
from .shell import Failed, run
from .systems import System

MIB = 1 << 20
# A row of sequential writes ends early when it has written this much: the bricks are RAM.
WRITE_BYTES = 3 << 30
LAID_FILES = 16
# The number of laid files that random writes overwrite, for any number of jobs.
WRITTEN_FILES = 10
# What rows that read again read: it fits into io-cache of a mount with its default memory. And how long it is read before
# it counts: whoever caches it has to read it first.
AGAIN_BYTES = 32 * MIB
AGAIN_FIRST_SECONDS = 1
# Descriptors that a client needs besides those of the files, and a number of files that no run reaches.
SPARE_FILES, MANY_FILES = 512, 1 << 30


@dataclass
class Row:
    """A line of the table. `floors` are the wanted ratios of Shoal to an opponent; `per` is what CPU is counted by;
    `kind` says which systems take part (`System.doors`)."""

    name: str
    title: str
    unit: str
    per: str
    floors: dict[str, float]
    kind: str = "files"


@dataclass
class Effort:
    """How long and how often to measure. `seconds` is the least time of a row, `long_seconds` that of random writes."""

    seconds: float = 10
    long_seconds: float = 120
    laid_bytes: int = 2 << 30
    files: int = 1000
    transactions: int = 5000
    passes: int = 8

    def screening(self) -> Effort:
        """A short effort, to choose between settings."""
        return Effort(min(3, self.seconds), min(10, self.long_seconds), self.laid_bytes, min(150, self.files),
                      min(500, self.transactions), 1)


@dataclass
class Run:
    """One run of one case on one system: where, how hard, and how a stretch of time is measured.

    `window(row name)` gives the meter; a profiler hooks in there. fio's raw answers go to `raw`.
    """

    system: System
    effort: Effort
    tools: Path
    raw: list[dict] = field(default_factory=list)
    window: Callable[[str], ContextManager[Window]] = None

    def __post_init__(self):
        if self.window is None:
            self.window = lambda row: Window(self.system.parts())


class Case:
    """Rows that are measured together. With `needs_data`, the case works on files that were laid before."""

    needs_data = False
    kind = "files"
    rows: list[Row]

    def run(self, run: Run) -> dict[str, Measurement]:
        """Measures once, on a system that was just mounted. Returns measurements by row name."""
        raise NotImplementedError

    def clear(self, run: Run) -> None:
        """Removes the run's files."""
        if run.system.door == "mount":
            clear(run.system, keep="*data*")

    def lay(self, system: System, effort: Effort) -> None:
        """Lays the data that all cases of the kind read and overwrite."""
        lay(system, effort)

    def clear_data(self, system: System) -> None:
        """Removes the laid data."""
        clear(system)

    def expected(self, effort: Effort) -> float:
        """The approximate seconds of a run, for the estimate of the remaining time."""
        return effort.seconds + 5


def clear(system: System, keep: str = "") -> None:
    """Removes what is in the load's directory, except files that `keep` matches."""
    but = ["!", "-name", keep] if keep else []
    run(["find", str(system.directory), "-mindepth", "1", "-maxdepth", "1", *but, "-exec", "rm", "-rf", "{}", "+"], 900)


def lay(system: System, effort: Effort) -> None:
    """Writes the files that are read and overwritten."""
    size = effort.laid_bytes // LAID_FILES
    run(fio.command(system.directory, "write", "1m", 1, f"--nrfiles={LAID_FILES}", f"--filesize={size}",
                    "--filename_format=data.$filenum", "--file_service_type=sequential", "--openfiles=1",
                    "--end_fsync=1", f"--size={effort.laid_bytes}"), 900)


def run_passes(run: Run, case: Case, row: Row, whole: int, one_pass: Callable[[float], Measurement]) -> Measurement:
    """Does passes of `whole` bytes at most, each with an empty cache, until the time is up, and adds them up.

    `one_pass` gets the seconds that are left.
    """
    effort, total, passes = run.effort, Measurement(0, 0), []
    # 80 % of the time is enough: a last pass for the rest would measure little
    while len(passes) < effort.passes and total.seconds < 0.8 * effort.seconds:
        if passes:
            case.clear(run)
            run.system.remount()
        one = one_pass(effort.seconds - total.seconds)
        if one.seconds <= 0:
            raise Failed("the load measured no time")
        total.seconds += one.seconds
        total.bytes += one.bytes
        total.operations += one.operations
        for part, value in one.cpu.items():
            total.cpu[part] = total.cpu.get(part, 0) + value
        passes.append({**one.details, "seconds": one.seconds, "bytes": one.bytes})
        if one.bytes < 0.99 * whole:
            break
    ended_early = total.seconds < 0.8 * effort.seconds
    if len(passes) > 1:
        total.notes.append(f"{len(passes)} passes")
    if ended_early:
        total.notes.append(f"all bytes done after {total.seconds:.1f} s")
    total.details = {"passes": passes, "ended_early": ended_early}
    total.value = (total.bytes / MIB if row.unit == "MiB/s" else total.operations) / total.seconds
    return total


class Fio(Case):
    """A case that is fio once, or several times with an empty cache until the time is up."""

    def __init__(self, row: Row, rw: str, block: str, jobs: int, options: Callable[[Effort, int], list[str]],
                 whole: Callable[[Effort, int], int], needs_data: bool):
        """`options` and `whole` (the bytes of a whole pass) are functions of the effort and the number of jobs."""
        self.rows, self.rw, self.block, self.jobs = [row], rw, block, jobs
        self.options, self.whole, self.needs_data = options, whole, needs_data

    def run(self, run: Run) -> dict[str, Measurement]:
        whole = self.whole(run.effort, self.jobs)
        row = self.rows[0]
        return {row.name: run_passes(run, self, row, whole, lambda seconds: self._pass(run, seconds))}

    def _pass(self, run_: Run, seconds: float) -> Measurement:
        command = fio.command(run_.system.directory, self.rw, self.block, self.jobs, f"--runtime={max(1, seconds):.0f}",
                              *self.options(run_.effort, self.jobs))
        with run_.window(self.rows[0].name) as window:
            done = run(command, seconds * 3 + 180)
        answer = fio.parse(done.out)
        run_.raw.append(answer.raw)
        return Measurement(0, answer.seconds, answer.bytes, answer.operations, window.cpu,
                           details={"mean_us": answer.mean_us, "p99_us": answer.p99_us})


class RandomWrite(Case):
    """Writes of 4 KiB over 1.25 GiB of existing data, for a long time. Only the last quarter counts, when all buffers
    are full."""

    needs_data = True

    def __init__(self, row: Row, jobs: int):
        self.rows, self.jobs = [row], jobs

    def expected(self, effort: Effort) -> float:
        return effort.long_seconds + 8

    def run(self, run_: Run) -> dict[str, Measurement]:
        system, effort = run_.system, run_.effort
        logs = system.home / "fio"
        for old in system.home.glob("fio_iops.*"):
            old.unlink()
        names = laid_names(self.jobs, WRITTEN_FILES)
        each = effort.laid_bytes // LAID_FILES * (WRITTEN_FILES if self.jobs == 1 else 1)
        command = fio.command(system.directory, "randwrite", "4k", self.jobs, "--overwrite=1", "--norandommap=1",
                              "--time_based=1", f"--runtime={effort.long_seconds:.0f}", f"--size={each}", *names,
                              f"--write_iops_log={logs}", "--log_avg_msec=1000", "--per_job_logs=1")
        with run_.window(self.rows[0].name) as window:
            done = run(command, effort.long_seconds * 3 + 180)
        answer = fio.parse(done.out)
        run_.raw.append(answer.raw)
        start = time.monotonic()
        run(["sync", *(str(system.directory / f"data.{n}") for n in range(WRITTEN_FILES))], 600)
        synced = time.monotonic() - start
        texts = [path.read_text() for path in sorted(system.home.glob("fio_iops.*"))]
        tail = effort.long_seconds / 4
        measured = Measurement(
            fio.tail_rate(texts, answer.operations, answer.seconds, round(effort.long_seconds - tail)), answer.seconds,
            answer.bytes, answer.operations, window.cpu)
        measured.details = {"whole_run_per_s": answer.operations / answer.seconds, "tail_seconds": tail,
                            "fsync_after_s": round(synced, 2), "close_s": round(done.seconds - answer.seconds, 2),
                            "mean_us": answer.mean_us, "p99_us": answer.p99_us,
                            "per_second": [fio.per_second(text) for text in texts]}
        return {self.rows[0].name: measured}


class SmallFiles(Case):
    """Four processes in one directory: create 1 KiB files, stat them after a new mount, unlink them."""

    processes = 4

    def most_files(self, system: System, open_files: int) -> int:
        """The number of files that each process may create under the limit of open files."""
        return (open_files - SPARE_FILES) // self.processes if system.descriptor_per_file else MANY_FILES

    def __init__(self, create: Row, stat: Row, unlink: Row):
        self.rows = [create, stat, unlink]

    def expected(self, effort: Effort) -> float:
        return 3 * effort.seconds + 10

    def run(self, run_: Run) -> dict[str, Measurement]:
        effort, directory = run_.effort, run_.system.directory / "small"
        run(["mkdir", str(directory)], 30)
        create, stat, unlink = (row.name for row in self.rows)
        most = self.most_files(run_.system, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        made, counts = self._load(run_, create, "create", directory, [str(effort.files), str(effort.seconds),
                                                                     str(4 * effort.seconds), str(most)])
        if made.operations >= most * self.processes:
            made.notes.append(f"stopped at {made.operations} files: no more may be open")
        result = {create: made}
        looked = Measurement(0, 0)
        for _ in range(effort.passes):
            run_.system.remount()
            once, _ = self._load(run_, stat, "stat", directory, counts)
            looked.seconds += once.seconds
            looked.operations += once.operations
            for part, value in once.cpu.items():
                looked.cpu[part] = looked.cpu.get(part, 0) + value
            if looked.seconds > 0.5 * effort.seconds:
                break
        looked.value = looked.operations / looked.seconds
        result[stat] = looked
        result[unlink], _ = self._load(run_, unlink, "unlink", directory, counts)
        for measured in result.values():
            measured.details["files"] = made.operations
        return result

    def _load(self, run_: Run, row: str, what: str, directory: Path, rest: list[str]) -> tuple[Measurement, list[str]]:
        with run_.window(row) as window:
            done = run([str(run_.tools / "metadata"), what, str(directory), str(self.processes), *rest],
                       run_.effort.seconds * 20 + 300)
        files, seconds, *counts = done.out.split()
        return (Measurement(int(files) / float(seconds), float(seconds), operations=int(files), cpu=window.cpu), counts)


class Dbench(Case):
    """dbench: the recorded load of an office's file server, four clients."""

    def __init__(self, row: Row):
        self.rows = [row]

    def run(self, run_: Run) -> dict[str, Measurement]:
        directory = run_.system.directory / "dbench"
        run(["mkdir", str(directory)], 30)
        # dbench warms up for a while first and reports nothing of a shorter run
        seconds = max(5, run_.effort.seconds)
        with run_.window(self.rows[0].name) as window:
            done = run(["dbench", "-t", f"{seconds:.0f}", "-D", str(directory), "4"], seconds * 4 + 300)
        found = re.search(r"Throughput ([\d.]+) MB/sec", done.out)
        if not found:
            raise Failed(f"dbench said no throughput: {done.out[-200:]}")
        # dbench's MB are 2^20 bytes; the bytes here are for the CPU figure and leave out its warming up
        rate = float(found[1])
        return {self.rows[0].name: Measurement(rate, window.seconds, int(rate * MIB * seconds),
                                               cpu=window.cpu)}


class Postmark(Case):
    """postmark: a mail server's load, 500 files of 4 KiB to 1 MiB."""

    def __init__(self, row: Row):
        self.rows = [row]

    def expected(self, effort: Effort) -> float:
        return 15 + effort.transactions / 100

    def run(self, run_: Run) -> dict[str, Measurement]:
        directory = run_.system.directory / "postmark"
        run(["mkdir", str(directory)], 30)
        transactions = run_.effort.transactions
        script = (f"set location {directory}\nset number 500\nset size 4096 1048576\n"
                  f"set transactions {transactions}\nrun\nquit\n")
        with run_.window(self.rows[0].name) as window:
            done = run(["postmark"], 1800, text=script)
        if "seconds of transactions" not in done.out:
            raise Failed(f"postmark did not finish: {done.out[-200:]}{done.err[-200:]}")
        return {self.rows[0].name: Measurement(transactions / done.seconds, done.seconds, operations=transactions,
                                               cpu=window.cpu, details={"output": done.out[-1200:]})}


def laid_names(jobs: int, files: int = LAID_FILES) -> list[str]:
    """fio's options for the laid files: a single job works on several of them, each of several jobs on one."""
    if jobs == 1:
        return ["--filename=" + ":".join(f"data.{n}" for n in range(files)), "--file_service_type=random"]
    return ["--filename_format=data.$jobnum"]


def _write_case(row: Row, block: str, jobs: int, fsync: bool = False) -> Fio:
    def options(_: Effort, jobs: int) -> list[str]:
        files = 12 if jobs == 1 else 1
        each = WRITE_BYTES // jobs // files // MIB * MIB
        return [f"--nrfiles={files}", f"--filesize={each}", f"--size={each * files}", "--openfiles=1",
                "--file_service_type=sequential", "--filename_format=fresh.$jobnum.$filenum",
                *(["--fsync=1"] if fsync else ["--end_fsync=1"])]
    return Fio(row, "write", block, jobs, options, lambda _, jobs: WRITE_BYTES // MIB // jobs * jobs * MIB, False)


def _read_case(row: Row, rw: str, block: str, jobs: int) -> Fio:
    def whole(effort: Effort, jobs: int) -> int:
        return effort.laid_bytes if jobs == 1 else effort.laid_bytes // LAID_FILES * jobs

    def options(effort: Effort, jobs: int) -> list[str]:
        names = laid_names(jobs)
        if rw == "read" and jobs == 1:
            names[1] = "--file_service_type=sequential"
        return [*names, f"--size={whole(effort, jobs) // jobs}", "--norandommap=0"]
    return Fio(row, rw, block, jobs, options, whole, True)


def _again_case(row: Row, jobs: int) -> Fio:
    """Random reads of 4 KiB of the same bytes again and again, past the kernel's cache: each is a request to the mount."""
    def options(_: Effort, jobs: int) -> list[str]:
        return ["--filename=data.0", f"--size={AGAIN_BYTES}", "--direct=1", "--time_based=1", "--norandommap=1",
                "--randrepeat=0", f"--ramp_time={AGAIN_FIRST_SECONDS}"]
    # no run reaches the end of such a pass: it ends by time
    return Fio(row, "randread", "4k", jobs, options, lambda *_: 1 << 60, True)


def _floors(ec: float, replica: float, passthrough: float | None = None) -> dict[str, float]:
    floors = {"gluster-ec": ec, "gluster-replica": replica}
    return floors if passthrough is None else {**floors, "passthrough": passthrough}


def file_cases() -> list[Case]:
    """The cases of files. Those that work on laid data come last, so that the RAM is free before."""
    sequential, random = 0.5, 0.35
    return [
        _write_case(Row("seq-write-1m-1j", "sequential write 1 MiB, 1 job", "MiB/s", "GiB", _floors(4, 2, sequential)),
                    "1m", 1),
        _write_case(Row("seq-write-1m-10j", "sequential write 1 MiB, 10 jobs", "MiB/s", "GiB",
                        _floors(4, 2, sequential)), "1m", 10),
        _write_case(Row("seq-write-4k-1j", "sequential write 4 KiB, 1 job", "MiB/s", "GiB",
                        _floors(3, 2.5, sequential)), "4k", 1),
        _write_case(Row("seq-write-4k-10j", "sequential write 4 KiB, 10 jobs", "MiB/s", "GiB",
                        _floors(3, 2.5, sequential)), "4k", 10),
        _write_case(Row("fsync-write-4k-1j", "write 4 KiB + fsync, 1 job", "op/s", "op", _floors(5, 2)), "4k", 1, True),
        _write_case(Row("fsync-write-4k-10j", "write 4 KiB + fsync, 10 jobs", "op/s", "op", _floors(5, 2)), "4k", 10,
                    True),
        SmallFiles(Row("create-1k", "create 1 KiB files, 4 processes", "files/s", "op", _floors(15, 5)),
                   Row("stat", "stat after a new mount, 4 processes", "files/s", "op", _floors(8, 4)),
                   Row("unlink", "unlink, 4 processes", "files/s", "op", _floors(8, 4))),
        Dbench(Row("dbench", "dbench, 4 clients", "MiB/s", "GiB", _floors(5, 4))),
        Postmark(Row("postmark", "postmark, 500 files of 4 KiB to 1 MiB", "trans/s", "op", _floors(5, 2))),
        _read_case(Row("seq-read-1m-1j", "sequential read 1 MiB, 1 job", "MiB/s", "GiB", _floors(5, 1.1, 1)),
                   "read", "1m", 1),
        _read_case(Row("seq-read-1m-10j", "sequential read 1 MiB, 10 jobs", "MiB/s", "GiB",
                       _floors(5, 1.1, sequential)), "read", "1m", 10),
        _read_case(Row("rand-read-4k-1j", "random read 4 KiB, 1 job", "op/s", "op", _floors(10, 1.5, random)),
                   "randread", "4k", 1),
        _read_case(Row("rand-read-4k-16j", "random read 4 KiB, 16 jobs", "op/s", "op", _floors(20, 2, random)),
                   "randread", "4k", 16),
        _read_case(Row("rand-read-64k-16j", "random read 64 KiB, 16 jobs", "op/s", "GiB", _floors(8, 1, random)),
                   "randread", "64k", 16),
        _again_case(Row("again-read-4k-1j", f"random read 4 KiB of {AGAIN_BYTES // MIB} MiB again, O_DIRECT, 1 job", "op/s",
                        "op", {"passthrough": 0.7}), 1),
        _again_case(Row("again-read-4k-16j", f"random read 4 KiB of {AGAIN_BYTES // MIB} MiB again, O_DIRECT, 16 jobs",
                        "op/s", "op", {"passthrough": 0.7}), 16),
        RandomWrite(Row("rand-write-4k-1j", "random write 4 KiB, 1 job, the last quarter", "op/s", "op",
                        _floors(8, 2.5)), 1),
        RandomWrite(Row("rand-write-4k-10j", "random write 4 KiB, 10 jobs, the last quarter", "op/s", "op",
                        _floors(8, 2.5)), 10),
    ]
