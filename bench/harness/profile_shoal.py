"""Where Shoal's CPU goes: perf over the whole machine while a row runs, samples sorted by what they were doing.

The clock of the kernel drives it (`cpu-clock`), which virtual machines have too. A sample belongs to the innermost
frame of its stack that says what it is about: a copy inside TCP is a copy, a wake-up inside TCP is scheduling.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

from . import picture
from .install import apt
from .meter import Window
from .rows import Row
from .sandbox import WORK
from .shell import Failed, run, say
from .systems import System

FREQUENCY = 499

# In the order of the picture. "outside" is the CPU of other programs of the machine.
KINDS = ["FUSE", "copies", "network", "brick I/O", "code", "checksums", "allocation", "locks and scheduling",
         "Shoal's logic", "other kernel", "load", "outside"]

_ANYWHERE = [(kind, re.compile(pattern)) for kind, pattern in [
    ("copies", r"copy_user|copy_to_iter|copy_from_iter|_copy_(to|from)|copy_page|copy_folio|copy_mc|rep_movs|memcpy|"
               r"memmove|copy_nonoverlapping|csum_and_copy|copyout|copyin"),
    ("allocation", r"^(__libc_)?(malloc|free|calloc|realloc|cfree)$|_int_(malloc|free|realloc|memalign)|malloc_consol|"
                   r"unlink_chunk|sysmalloc|^mi_|^je_|__rust_(re)?(alloc|dealloc)|clear_page|clear_user|memset|"
                   r"get_page_from_freelist|alloc_pages|free_unref|free_pages|kmem_cache_|kmalloc|kfree|slab_|"
                   r"handle_mm_fault|exc_page_fault|do_user_addr_fault|madvise|do_mmap|do_munmap|do_brk|tlb|"
                   r"vm_munmap|unmap_"),
    ("locks and scheduling", r"futex|schedule|try_to_wake_up|ttwu_|wake_up|finish_task_switch|pick_next|pick_task|"
                             r"enqueue_task|dequeue_task|select_task_rq|raw_spin|mutex|rwsem|osq_lock|queued_spin|"
                             r"update_curr|newidle_balance|sched_|prepare_to_wait|finish_wait|switch_mm|__switch_to|"
                             r"parking_lot|ep_poll|epoll|eventfd"),
    ("FUSE", r"^fuse_|_fuse_|^request_wait_answer|fuser::"),
    ("network", r"^__?tcp_|^tcp|^inet|^ip_|^__ip_|skb|^sock_|^__sock|^sk_|netif|net_rx|napi|loopback_xmit|"
                r"dev_queue_xmit|dev_hard_start|^nf_|release_sock|lock_sock|^__sys_(send|recv)|unix_stream|"
                r"process_backlog|ipv4_|fib_|dst_"),
]]
_DISK = re.compile(r"xfs_|iomap|^loop_|^lo_|shmem|^blk_|^bio_|submit_bio|writeback|wb_|filemap|folio|generic_perform|"
                   r"^ext4_|^vfs_fsync|block_|balance_dirty|zero_user|xa[s_]|dio_")
_CODE = re.compile(r"erasure|layout::(gf|code)")
_CHECKSUM = re.compile(r"crc32|crc_|types::checksum")
_IDLE = re.compile(r"do_idle|cpuidle|default_idle|safe_halt|cpu_startup_entry")
_LOADS = ("fio", "metadata", "dbench", "postmark", "nfs")


@dataclass
class Sample:
    """A sample of one processor: the process, and its stack with the innermost frame first (symbol, file)."""

    comm: str
    pid: int
    frames: list[tuple[str, str]]


def parse(lines: Iterator[str]) -> Iterator[Sample]:
    """Reads what `perf script -F comm,pid,ip,sym,dso` prints."""
    sample = None
    for line in lines:
        if not line.strip():
            if sample:
                yield sample
            sample = None
        elif line[0] not in " \t" or sample is None:
            head = re.match(r"\s*(.*\S)\s+(-?\d+)\s*$", line)
            sample = Sample(head[1], int(head[2]), []) if head else None
        else:
            frame = re.match(r"\s*[0-9a-f]+\s+(.*?)\s+\((.*)\)\s*$", line)
            if frame:
                sample.frames.append((frame[1], frame[2]))
    if sample:
        yield sample


def classify(sample: Sample, ours: set[int]) -> str | None:
    """The kind of a sample; `ours` are the pids of Shoal's processes. None: the processor was idle."""
    if any(_IDLE.search(symbol) for symbol, _ in sample.frames):
        return None
    load, shoal = sample.comm.startswith(_LOADS) and sample.pid > 0, sample.pid in ours
    kernel_only = all(is_kernel(file) for _, file in sample.frames)
    if not load and not shoal and not (kernel_only and _serves_us(sample)):
        return "outside"
    for symbol, file in sample.frames:
        symbol, kernel = symbol.split("@")[0], is_kernel(file)
        if not kernel and not shoal:
            break
        if not kernel and _CHECKSUM.search(symbol):
            return "checksums"
        if not kernel and _CODE.search(symbol):
            return "code"
        for kind, pattern in _ANYWHERE:
            if pattern.search(symbol):
                return kind
        if kernel and _DISK.search(symbol):
            # Page cache used by the load is the mount's; page cache used by Shoal and the kernel is the bricks'
            return "FUSE" if load else "brick I/O"
        if not kernel:
            # A system call without a telling frame, or the entry to it or the exit from it
            in_kernel = is_kernel(sample.frames[0][1]) or symbol == "syscall"
            return "other kernel" if in_kernel else "Shoal's logic"
    if load:
        return "load"
    return "other kernel"


def _serves_us(sample: Sample) -> bool:
    """Whether this is a kernel thread: writeback, loop devices, workers. Other programs hardly use these."""
    return any(symbol.startswith("ret_from_fork") for symbol, _ in sample.frames)


def shown(sample: Sample) -> str:
    """The name of a process in the lists. perf cannot see threads of the kernel from within a PID namespace, and takes
    them for the idle one; idle samples have been left out before."""
    return "kernel threads" if sample.comm == "swapper" or sample.pid <= 0 and _serves_us(sample) else sample.comm


def is_kernel(file: str) -> bool:
    return file.startswith("[kernel") or file.startswith("[guest.kernel") or file.endswith((".ko", ".ko.xz"))


class Profiler:
    """Records rows; `finish` writes the results to `out`."""

    def __init__(self, out: Path):
        self.out = out / "profile"
        self.out.mkdir(parents=True, exist_ok=True)
        self.home = WORK / "perf"
        self.home.mkdir(exist_ok=True)
        self.kinds: dict[str, Counter] = {}
        self.symbols: dict[str, Counter] = {}
        self.folded: dict[str, Counter] = {}
        self.scale: dict[str, float] = {}

    def window(self, row: str, system: System) -> Window:
        return _Recorded(self, row, system)

    def take(self, row: str, data: Path, ours: set[int]) -> None:
        """Reads one recording and adds it to the row."""
        text = self.home / "script"
        with open(text, "wb") as file:
            subprocess.run(["perf", "script", "--no-inline", "-i", str(data), "-F", "comm,pid,ip,sym,dso"], stdout=file,
                           stderr=subprocess.DEVNULL, timeout=300, check=False)
        kinds = self.kinds.setdefault(row, Counter())
        symbols, folded = self.symbols.setdefault(row, Counter()), self.folded.setdefault(row, Counter())
        with open(text, errors="replace") as lines:
            for sample in parse(lines):
                kind = classify(sample, ours)
                if kind is None:
                    continue
                kinds[kind] += 1
                if kind != "outside":
                    leaf = sample.frames[0][0] if sample.frames else "?"
                    name = shown(sample)
                    symbols[(name, leaf, kind)] += 1
                    stack = [symbol.replace(";", ",") for symbol, _ in reversed(sample.frames)]
                    folded[";".join([name, *stack])] += 1
        data.unlink()
        text.unlink()

    def finish(self, rows: list[Row], amounts: dict[str, tuple[int, int]]) -> dict[str, dict]:
        """Writes JSON, the pictures, the top symbols and folded stacks; returns what the JSON says. `amounts[row]` are bytes
        and operations."""
        document = {}
        for row in rows:
            if row.name not in self.kinds or row.name not in amounts:
                continue
            size, operations = amounts[row.name]
            units = size / 2**30 if row.per == "GiB" else operations / 1e6
            if not units:
                continue
            cost = {kind: self.kinds[row.name][kind] / FREQUENCY / units for kind in KINDS
                    if self.kinds[row.name][kind]}
            unit = "CPU-s/GiB" if row.per == "GiB" else "CPU-us/op"
            document[row.name] = {"unit": unit, "samples": dict(self.kinds[row.name]), "cost": cost,
                                  "bytes": size, "operations": operations}
            total = sum(self.symbols[row.name].values())
            top = [f"{count / total:6.1%}  {comm:16} {kind:22} {symbol}"
                   for (comm, symbol, kind), count in self.symbols[row.name].most_common(25)]
            (self.out / f"{row.name}.top.txt").write_text("\n".join(top) + "\n")
            (self.out / f"{row.name}.folded").write_text(
                "\n".join(f"{stack} {count}" for stack, count in self.folded[row.name].items()) + "\n")
        (self.out / "profile.json").write_text(json.dumps(document, indent=1))
        for name, text in pictures(document).items():
            (self.out / name).write_text(text)
        return document


def pictures(document: dict[str, dict]) -> dict[str, str]:
    """Pictures of the results of `Profiler.finish`, by file name: per GiB and per operation."""
    found = {}
    for per, unit in (("GiB", "s/GiB"), ("op", "us/op")):
        bars = [(row, {kind: value for kind, value in of_row["cost"].items() if kind != "outside"})
                for row, of_row in document.items() if of_row["unit"].endswith(f"/{per}")]
        if bars:
            found[f"profile.{per}.svg"] = picture.stacks(f"Shoal: where the CPU goes, by {per}", unit, bars)
    return found


class _Recorded(Window):
    """A `Window` during which perf records."""

    def __init__(self, profiler: Profiler, row: str, system: System):
        super().__init__(system.parts())
        self.profiler, self.row = profiler, row
        self.ours = {pid for pids in self.pids.values() for pid in pids}
        self.data = profiler.home / "data"

    def __enter__(self) -> Window:
        self.perf = subprocess.Popen(["perf", "record", "-F", str(FREQUENCY), "-g", "-a", "-e", "cpu-clock", "-o",
                                      str(self.data)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)
        return super().__enter__()

    def __exit__(self, *error) -> None:
        super().__exit__(*error)
        self.perf.send_signal(signal.SIGINT)
        try:
            self.perf.wait(60)
            self.profiler.take(self.row, self.data, self.ours)
        except subprocess.TimeoutExpired:
            self.perf.kill()
            say(f"{self.row}: perf did not end; no profile")


def check() -> None:
    """Raises Failed with a reason if perf cannot record on this machine."""
    apt({"perf": "linux-perf"})
    if run(["perf", "record", "-a", "-e", "cpu-clock", "-o", "/dev/null", "true"], 20, check=False).code != 0:
        raise Failed("perf cannot record here (perf_event_paranoid, or a container without the right)")
