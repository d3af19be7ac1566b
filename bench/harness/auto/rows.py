"""The rows of auto: reads of one kind, reads whose kind flips while a file is open, and reads in sequence without a client
that reads ahead."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from .. import fio
from ..gate_rows import BYTES as DISK_BYTES
from ..gate_rows import nbd_command, parse_nfs
from ..rows import MIB, clear
from ..shell import run
from ..systems.shoal import Shoal
from .worth import SETTINGS, WANTED, Result, late_rate, parse_reads, reached_ms

GIB = 1 << 30
# Memory of the mount; a quarter of it is io-cache's, if nobody sets `io-cache.size`.
MEMORY_MIB = 256
IO_CACHE_MIB = MEMORY_MIB // 4
# What is read again: it fits into io-cache.
AGAIN_BYTES = 32 * MIB
# How long it is read before it counts: whoever caches it has to read it first.
AGAIN_FIRST_SECONDS = 1
# The wanted share of readers without a read-ahead of their own, of those with one.
AHEAD_WANTED = 0.9


@dataclass
class Effort:
    """`turns` of each setting, of `seconds` each; `flip_seconds` for each phase of a file whose reads flip. `file_bytes`
    are those of all files of a row, many times io-cache's."""

    turns: int = 3
    seconds: float = 1.5
    flip_seconds: float = 5
    file_bytes: int = 4 * GIB


class Case:
    """Rows that are measured together. `settings` are taken in turns, `ours` is judged by the best of the others.
    `files` is the number of files that are read, of a volume's; 0 if it is a disk."""

    settings: list[str] = list(SETTINGS)
    ours = "auto"
    wanted = WANTED
    files = 1
    rows: list[tuple[str, str, str]]  # name, title, unit

    def results(self) -> list[Result]:
        return [Result(*row, self.ours, self.wanted) for row in self.rows]

    def seconds(self, effort: Effort) -> float:
        """The seconds of a run."""
        return effort.seconds

    def lay(self, shoal: Shoal, effort: Effort) -> None:
        """Makes the data, in place of what there is."""
        empty(shoal)
        for path in paths(shoal, self.files):
            run([str(shoal.options.tools / "reads"), "lay", path, str(effort.file_bytes // self.files)], 600)

    def run(self, shoal: Shoal, effort: Effort, setting: str, turn: int) -> list[list[int]] | float:
        """Measures one setting: counts of each phase, or a figure. Begins with a new mount or gate, so that nothing is
        cached, and nothing known of earlier reads."""
        raise NotImplementedError

    def note(self, results: list[Result], setting: str, found) -> None:
        """Adds what `run` returned."""
        results[0].note(setting, found)

    def finish(self, results: list[Result], raw: dict[str, list]) -> None:
        """Adds what needs all runs: `raw` has what they returned, by setting."""


def paths(shoal: Shoal, files: int) -> list[str]:
    return [str(shoal.directory / f"auto.{number}") for number in range(files)]


def empty(shoal: Shoal) -> None:
    """Removes all files: the bricks have no room for those of two cases."""
    shoal.remount("files")
    clear(shoal)
    shoal.until_purged()


def load(shoal: Shoal, jobs: int, files: int, turn: int, phases: list[str], way: str = "direct") -> list[list[int]]:
    """Runs `load/reads.c`."""
    seconds = sum(float(phase.split(":")[2]) for phase in phases)
    done = run([str(shoal.options.tools / "reads"), way, str(turn + 1), str(jobs), ",".join(paths(shoal, files)), *phases],
               seconds * 2 + 60)
    return parse_reads(done.out)


# Mounts that were unmounted and whose processes have not ended.
_ending: list[subprocess.Popen] = []


def fresh(shoal: Shoal) -> None:
    """Makes a new mount. It has empty caches, and `auto` knows nothing of earlier reads, which it remembers longer than files
    are open. The process of the old one takes a second to end, which nobody waits for: there are hundreds of runs."""
    _ending[:] = [process for process in _ending if process.poll() is None]
    if shoal.door != "mount" or not shoal.mounted():
        shoal.remount("files")
        return
    run(["umount", str(shoal.mount_point)], 60)
    _ending.append(shoal.mount_process)
    shoal.mount()


def tuned(shoal: Shoal, setting: str) -> None:
    """Makes a new mount, and sets it."""
    fresh(shoal)
    shoal.tune(str(shoal.mount_point), *SETTINGS[setting].split())


class Reads(Case):
    """Reads of one kind: each job has a file of its own. With `again` all share the first bytes of one file."""

    def __init__(self, what: str, block_kib: int, jobs: int, again: bool = False):
        self.what, self.block, self.jobs, self.again = what, block_kib << 10, jobs, again
        self.files = 1 if again else jobs
        kind = {"seq": "sequential", "rand": "random"}[what]
        self.unit = "op/s" if what == "rand" and block_kib == 4 else "MiB/s"
        name = f"auto.{'again' if again else 'read'}-{what}-{block_kib}k-{jobs}j"
        where = f" of {AGAIN_BYTES // MIB} MiB again and again" if again else ""
        self.rows = [(name, f"{kind} reads of {block_kib} KiB{where}, {jobs} job{'s' * (jobs > 1)}", self.unit)]

    def seconds(self, effort: Effort) -> float:
        return effort.seconds + AGAIN_FIRST_SECONDS * self.again

    def run(self, shoal: Shoal, effort: Effort, setting: str, turn: int) -> float:
        tuned(shoal, setting)
        phases = [f"{self.what}:{self.block}:{effort.seconds}"]
        if self.again:
            phases = [f"{self.what}:{self.block}:{seconds}:{AGAIN_BYTES}" for seconds in (AGAIN_FIRST_SECONDS, effort.seconds)]
        *_, counts = load(shoal, self.jobs, self.files, turn, phases)
        rate = sum(counts) / effort.seconds
        return rate if self.unit == "op/s" else rate * self.block / MIB


class Flips(Case):
    """One open file, whose reads flip from sequence to random, back, and to random ones that come again."""

    phases = [("seq", 128 << 10, 0), ("rand", 4 << 10, 0), ("seq", 128 << 10, 0), ("rand", 4 << 10, AGAIN_BYTES)]
    flips = [("rand", "to random reads of 4 KiB"), ("seq", "back to sequential reads of 128 KiB"),
             ("again", f"to random reads of 4 KiB within {AGAIN_BYTES // MIB} MiB")]

    def __init__(self, jobs: int):
        self.jobs = jobs
        of = f", {jobs} thread{'s' * (jobs > 1)}"
        self.rows = [(f"auto.flip-{jobs}j-{name}", title + of, "op/s") for name, title in self.flips]

    def seconds(self, effort: Effort) -> float:
        return effort.flip_seconds * len(self.phases)

    def run(self, shoal: Shoal, effort: Effort, setting: str, turn: int) -> list[list[int]]:
        tuned(shoal, setting)
        words = [f"{what}:{block}:{effort.flip_seconds}" + (f":{span}" if span else "") for what, block, span in self.phases]
        return load(shoal, self.jobs, 1, turn, words)

    def note(self, results: list[Result], setting: str, found: list[list[int]]) -> None:
        for result, counts in zip(results, found[1:]):
            result.note(setting, late_rate(counts))

    def finish(self, results: list[Result], raw: dict[str, list]) -> None:
        for number, result in enumerate(results, 1):
            if result.best is not None:
                wanted = result.wanted * result.of(result.best)
                result.reached_ms = [reached_ms(found[number], wanted) for found in raw.get(self.ours, [])]


@dataclass
class Reader:
    """A way to read in sequence: requests under way, and the setting."""

    depth: int
    read_ahead: str


class Ahead(Case):
    """1 MiB after the other: a reader that waits for each, for which Shoal reads ahead, against one that has as many under way
    as a client that reads ahead, for which Shoal does not."""

    settings = ["1 at a time", "8 at a time"]
    ours = "1 at a time"
    wanted = AHEAD_WANTED
    readers = {"1 at a time": Reader(1, "on"), "8 at a time": Reader(8, "off")}
    volume = "bench"

    def start(self, shoal: Shoal, kind: str, reader: Reader) -> None:
        """Starts a gate; one that starts takes the volume's settings at once."""
        shoal.tune(self.volume, f"read-ahead={reader.read_ahead}")
        try:
            shoal.remount(kind)
        finally:
            shoal.tune(self.volume, "read-ahead=inherit")


class AheadNbd(Ahead):
    """By an NBD gate."""

    volume = "disk"
    files = 0
    rows = [("auto.ahead-nbd", "NBD: sequential reads of 1 MiB", "MiB/s")]

    def lay(self, shoal: Shoal, effort: Effort) -> None:
        empty(shoal)
        shoal.remount("nbd")
        run(nbd_command(shoal, "write", "1m", 4), 900)

    def run(self, shoal: Shoal, effort: Effort, setting: str, turn: int) -> float:
        reader = self.readers[setting]
        self.start(shoal, "nbd", reader)
        done = run(nbd_command(shoal, "read", "1m", reader.depth, f"--runtime={effort.seconds * 1000:.0f}ms"), 120)
        answer = fio.parse(done.out)
        return answer.bytes / MIB / answer.seconds


class AheadNfs(Ahead):
    """By an NFS gate."""

    rows = [("auto.ahead-nfs", "NFS: sequential reads of 1 MiB", "MiB/s")]

    def run(self, shoal: Shoal, effort: Effort, setting: str, turn: int) -> float:
        reader = self.readers[setting]
        self.start(shoal, "nfs", reader)
        file = paths(shoal, 1)[0].removeprefix(f"{shoal.mount_point}/")
        done = run([str(shoal.options.tools / "nfs"), "read", shoal.url, file, str(MIB), str(reader.depth),
                    str(min(effort.file_bytes, DISK_BYTES)), f"{effort.seconds}"], 120)
        found = parse_nfs(done.out, {})
        return found.bytes / MIB / found.seconds


class AheadMount(Case):
    """At a mount: what is read with O_DIRECT, for which Shoal reads ahead, against the kernel's own read-ahead."""

    settings = ["O_DIRECT, auto", "buffered"]
    ours = "O_DIRECT, auto"
    wanted = AHEAD_WANTED
    rows = [("auto.ahead-mount", "mount: sequential reads of 1 MiB, 1 job", "MiB/s")]

    def run(self, shoal: Shoal, effort: Effort, setting: str, turn: int) -> float:
        fresh(shoal)
        way = "direct" if setting == self.ours else "buffered"
        counts, = load(shoal, 1, 1, turn, [f"seq:{MIB}:{effort.seconds}"], way)
        return sum(counts) / effort.seconds


def cases() -> list[Case]:
    """All cases; those that read the same files follow each other."""
    def reads(jobs: int) -> list[Case]:
        return [Reads(what, block, jobs) for what in ("rand", "seq") for block in (4, 64, 128)]
    again = [Reads("rand", 4, 1, True), Reads("rand", 4, 16, True), Reads("seq", 128, 1, True)]
    return [*reads(1), *again, AheadMount(), AheadNfs(), Flips(1), Flips(4), *reads(4), *reads(16), AheadNbd()]


def chosen(pattern: str) -> list[Case]:
    """The cases with a row that a pattern of `--rows` matches."""
    return [case for case in cases() if any(re.search(pattern, name) for name, _, _ in case.rows)]


def is_auto(pattern: str) -> bool:
    """Whether a pattern of `--rows` means rows of auto: they are not measured beside others."""
    return bool(pattern) and pattern.lstrip("^(").startswith("auto")
