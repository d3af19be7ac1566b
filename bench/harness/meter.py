"""What a run costs: CPU of the machine and of known processes, memory of known processes, the machine's own speed.

Only processes that the harness started are looked at, by their pid.
"""

from __future__ import annotations

import os
import platform
import resource
import statistics
import threading
import time
from pathlib import Path

TICK = 1 / os.sysconf("SC_CLK_TCK")


def machine_cpu() -> tuple[float, float]:
    """CPU-seconds since boot of the whole machine: busy, stolen by the host."""
    fields = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq) * TICK, steal * TICK


def process_cpu(pid: int) -> float:
    """CPU-seconds of a process so far; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) * TICK


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def children_cpu() -> float:
    """CPU-seconds of the harness's children that have ended, that is, of the load."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Window:
    """A stretch of time: `with Window(pids) as w:`, then `w.seconds` and `w.cpu` (CPU-seconds by part).

    `pids` maps a part ("client", "servers") to its processes. The part "rest" is what the machine did beyond them and
    the load: kernel workers, writeback, and whatever else runs on the machine.
    """

    def __init__(self, pids: dict[str, list[int]]):
        self.pids = pids
        self.seconds = 0.0
        self.cpu: dict[str, float] = {}

    def _now(self) -> dict[str, float]:
        busy, steal = machine_cpu()
        parts = {part: sum(map(process_cpu, pids)) for part, pids in self.pids.items()}
        return {"machine": busy, "steal": steal, "load": children_cpu(), **parts}

    def __enter__(self) -> Window:
        self._before, self._start = self._now(), time.monotonic()
        return self

    def __exit__(self, *_) -> None:
        self.seconds = time.monotonic() - self._start
        after = self._now()
        self.cpu = {part: after[part] - self._before[part] for part in after}
        known = sum(value for part, value in self.cpu.items() if part not in ("machine", "steal"))
        self.cpu["rest"] = self.cpu["machine"] - known


class MemorySampler(threading.Thread):
    """Keeps the most memory (KiB) that each kind of process of each system had, looking every 0.5 s.

    `bricks_mib` is the most that the tmpfs `bricks` with everybody's bricks held.
    """

    def __init__(self, systems, bricks: Path):
        super().__init__(daemon=True)
        self.systems, self.bricks, self.bricks_mib = systems, bricks, 0
        self.peaks: dict[str, dict[str, dict[str, int]]] = {}
        self._stop_asked = threading.Event()

    def run(self) -> None:
        while not self._stop_asked.wait(0.5):
            self.sample()

    def sample(self) -> None:
        """Looks once at every process."""
        tmpfs = os.statvfs(self.bricks)
        self.bricks_mib = max(self.bricks_mib, (tmpfs.f_blocks - tmpfs.f_bfree) * tmpfs.f_frsize >> 20)
        for system in self.systems:
            for kind, pids in system.processes().items():
                for pid in pids:
                    self._note(system.name, kind, pid)

    def _note(self, system: str, kind: str, pid: int) -> None:
        try:
            text = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return
        values = dict(line.split(":", 1) for line in text.splitlines() if line.startswith(("VmRSS", "VmHWM")))
        peak = self.peaks.setdefault(system, {}).setdefault(kind, {"rss_kib": 0, "high_water_kib": 0})
        for key, field in (("rss_kib", "VmRSS"), ("high_water_kib", "VmHWM")):
            peak[key] = max(peak[key], int(values.get(field, "0 kB").split()[0]))

    def stop(self) -> None:
        """Ends the thread."""
        self._stop_asked.set()
        self.join(2)


def calibrate() -> dict[str, float | str]:
    """Measures how fast the machine is now: hosts of virtual machines drift, and without this a figure says little."""
    source, target, rates = bytearray(64 << 20), bytearray(64 << 20), []
    for _ in range(9):
        start = time.perf_counter()
        target[:] = source
        rates.append(len(source) / (time.perf_counter() - start) / 1e9)
    calls = 200_000
    start = time.perf_counter()
    for _ in range(calls):
        os.getppid()
    nanoseconds = (time.perf_counter() - start) / calls * 1e9
    return {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "memcpy_gb_per_s": round(statistics.median(rates), 2),
            "syscall_ns": round(nanoseconds, 1)}


def machine_facts() -> dict[str, object]:
    """Describes the machine on which the figures were measured."""
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.machine())
    memory = int(Path("/proc/meminfo").read_text().split()[1])
    return {"kernel": platform.release(), "cpu": model, "cores": os.cpu_count(), "memory_mib": memory // 1024,
            "date": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
