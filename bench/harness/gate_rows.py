"""The rows of the gates: a disk over NBD beside a file of the mount, and a file over NFS beside another NFS server."""

from __future__ import annotations

from . import fio
from .figures import Measurement
from .rows import MIB, Case, Effort, Row, Run, run_passes
from .shell import run
from .systems import System

# Size of the file or disk that is read and overwritten. A power of two.
BYTES = 2 << 30
FILE = "gate.data"
# Writes between two flushes in the row that flushes.
FLUSH_EVERY = 32


def nbd_command(system: System, rw: str, block: str, depth: int, *options: str, connections: int = 1) -> list[str]:
    """fio's command line: `depth` requests, an equal share by each connection, or as many jobs on the mount's file. Each of
    these jobs, and each connection, has its own part of the bytes, so that nothing is read twice."""
    if system.door != "mount":
        part = BYTES // connections
        return [*fio.NBD, f"--uri={system.url}", f"--numjobs={connections}", f"--iodepth={depth // connections}",
                f"--rw={rw}", f"--bs={block}", f"--size={part}", f"--offset_increment={part}", *options]
    part = BYTES // depth
    return fio.command(system.directory, rw, block, depth, f"--filename={FILE}", "--overwrite=1", f"--size={part}",
                       f"--offset_increment={part}", *options)


class NbdFio(Case):
    """fio on the disk, or on the mount's file."""

    kind = "nbd"
    needs_data = True

    def __init__(self, row: Row, rw: str, block: str, depth: int, mount_jobs: int, *options: str, connections: int = 1):
        self.rows, self.rw, self.block, self.depth, self.mount_jobs = [row], rw, block, depth, mount_jobs
        self.options, self.connections = options, connections

    def lay(self, system: System, effort: Effort) -> None:
        end = ["--end_fsync=1"] if system.door == "mount" else []
        run(nbd_command(system, "write", "1m", 1 if system.door == "mount" else 4, *end), 900)

    def clear_data(self, system: System) -> None:
        if system.door == "mount":
            (system.directory / FILE).unlink(missing_ok=True)
        else:
            run(nbd_command(system, "trim", "8m", 1), 300)

    def run(self, run_: Run) -> dict[str, Measurement]:
        system, name = run_.system, self.rows[0].name
        depth = self.mount_jobs if system.door == "mount" else self.depth

        def one_pass(seconds: float) -> Measurement:
            # fio counts the seconds of the last flush as well
            command = nbd_command(system, self.rw, self.block, depth, f"--runtime={max(1, seconds):.0f}", *self.options,
                                  connections=self.connections)
            with run_.window(name) as window:
                done = run(command, seconds * 3 + 180)
            answer = fio.parse(done.out)
            run_.raw.append(answer.raw)
            return Measurement(0, answer.seconds, answer.bytes, answer.operations, window.cpu,
                               details={"mean_us": answer.mean_us, "p99_us": answer.p99_us})
        return {name: run_passes(run_, self, self.rows[0], BYTES, one_pass)}


class NfsLoad(Case):
    """The load of `load/nfs.c` on a file."""

    kind = "nfs"
    needs_data = True

    def __init__(self, row: Row, what: str, block: int, depth: int):
        self.rows, self.what, self.block, self.depth = [row], what, block, depth

    def lay(self, system: System, effort: Effort) -> None:
        run([str(system.options.tools / "nfs"), "write", system.url, FILE, str(MIB), "4", str(BYTES), "600"], 900)

    def clear_data(self, system: System) -> None:
        run([str(system.options.tools / "nfs"), "remove", system.url, FILE, "0", "0", "0", "0"], 120)

    def run(self, run_: Run) -> dict[str, Measurement]:
        name = self.rows[0].name

        def one_pass(seconds: float) -> Measurement:
            command = [str(run_.tools / "nfs"), self.what, run_.system.url, FILE, str(self.block), str(self.depth),
                       str(BYTES), f"{max(1, seconds):.0f}"]
            with run_.window(name) as window:
                done = run(command, seconds * 3 + 180)
            return parse_nfs(done.out, window.cpu)
        return {name: run_passes(run_, self, self.rows[0], BYTES, one_pass)}


def parse_nfs(text: str, cpu: dict[str, float]) -> Measurement:
    """The output of `load/nfs.c`: bytes, operations, seconds, the mean latency in us."""
    done, operations, seconds, mean = text.split()
    return Measurement(0, float(seconds), int(done), int(operations), cpu, details={"mean_us": float(mean)})


def nbd_cases() -> list[Case]:
    """Random reads have as many requests in progress as the mount has jobs. Sequential rows are compared with one job,
    for which the kernel reads ahead and writes behind."""
    def row(name: str, title: str, unit: str, floor: float) -> Row:
        return Row(name, title, unit, "GiB" if unit == "MiB/s" else "op", {"mount": floor}, "nbd")
    flush = f"--fsync={FLUSH_EVERY}"
    return [
        NbdFio(row("nbd-seq-write-1m-q4", "NBD: sequential write 1 MiB, 4 at a time, flushed at the end", "MiB/s", 1),
               "write", "1m", 4, 1, "--end_fsync=1"),
        NbdFio(row("nbd-seq-read-1m-q4", "NBD: sequential read 1 MiB, 4 at a time", "MiB/s", 1), "read", "1m", 4, 1),
        NbdFio(row("nbd-rand-read-4k-q1", "NBD: random read 4 KiB", "op/s", 1.5), "randread", "4k", 1, 1),
        NbdFio(row("nbd-rand-read-4k-q16", "NBD: random read 4 KiB, 16 at a time", "op/s", 1.5), "randread", "4k", 16,
               16),
        NbdFio(row("nbd-rand-read-4k-q64", "NBD: random read 4 KiB, 64 at a time", "op/s", 1.5), "randread", "4k", 64,
               64),
        NbdFio(row("nbd-rand-read-4k-c4q16", "NBD: random read 4 KiB, 16 at a time by 4 connections", "op/s", 1.5),
               "randread", "4k", 16, 16, connections=4),
        NbdFio(row("nbd-rand-write-4k-flush32", f"NBD: random write 4 KiB, a flush every {FLUSH_EVERY}", "op/s", 0.8),
               "randwrite", "4k", 1, 1, flush),
    ]


def nfs_cases() -> list[Case]:
    """The same load for both servers, over one connection."""
    def row(name: str, title: str, unit: str) -> Row:
        return Row(name, title, unit, "GiB" if unit == "MiB/s" else "op", {"ganesha": 2}, "nfs")
    return [
        NfsLoad(row("nfs-seq-write-1m-q4", "NFS: sequential write 1 MiB, 4 at a time, committed at the end", "MiB/s"),
                "write", MIB, 4),
        NfsLoad(row("nfs-seq-read-1m-q4", "NFS: sequential read 1 MiB, 4 at a time", "MiB/s"), "read", MIB, 4),
        NfsLoad(row("nfs-rand-read-4k-q1", "NFS: random read 4 KiB", "op/s"), "randread", 4096, 1),
        NfsLoad(row("nfs-rand-read-4k-q16", "NFS: random read 4 KiB, 16 at a time", "op/s"), "randread", 4096, 16),
        NfsLoad(row("nfs-commit-write-4k-q1", "NFS: write 4 KiB + commit", "op/s"), "commit", 4096, 1),
        NfsLoad(row("nfs-commit-write-4k-q16", "NFS: write 4 KiB + commit, 16 at a time", "op/s"), "commit", 4096, 16),
    ]


def gate_cases() -> list[Case]:
    """All cases of gates."""
    return nbd_cases() + nfs_cases()
