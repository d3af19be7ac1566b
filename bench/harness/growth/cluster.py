"""A cluster whose parts can be started and stopped one by one, and what they cost: memory, CPU, time to start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from .. import bricks, compressed, meter
from ..sandbox import WORK
from ..shell import Failed, daemon, run, until

META_PORT = 7400
META = f"127.0.0.1:{META_PORT}"
FIRST_PORT = 7500
MIB = 1 << 20
# How long a daemon may take to start or to stop before a row gives up.
PATIENCE = 600.0


@dataclass
class Tools:
    """The programs: shoal itself, meta's example `fill`, and the load."""

    shoal: Path
    fill: Path
    load: Path


@dataclass
class Wish:
    """What a row wants of its cluster. `brick_mib` is the size of each brick's file; `code` is "K+M"."""

    bricks: int = 6
    brick_mib: int = 1024
    code: str = "4+2"
    unit: str | None = None
    spare: int = 0  # bricks of no volume
    compress: bool = False  # the bricks' bytes in RAM are compressed


@dataclass
class Mount:
    """A mount of the cluster's volume; `seconds` is how long it took until it was there."""

    at: Path
    process: subprocess.Popen
    seconds: float = 0.0


@dataclass
class Cluster:
    """One metadata service, bricks as files on XFS in RAM, any number of mounts. The sandbox ends what is left."""

    name: str
    tools: Tools
    wish: Wish = field(default_factory=Wish)

    def __post_init__(self):
        self.home = WORK / f"growth.{self.name}"
        self.home.mkdir(parents=True)
        self.meta: subprocess.Popen | None = None
        self.bricks: dict[int, subprocess.Popen] = {}
        self.places: list[Path] = []
        self.mounts: list[Mount] = []

    @property
    def access(self) -> list[str]:
        return ["--meta", META, "--key-file", str(self.home / "meta" / "key")]

    def shoal(self, *words: str, timeout: float = 60) -> str:
        """What a command of the cluster says."""
        return run([str(self.tools.shoal), *words, *self.access], timeout).out

    def status(self, timeout: float = 30) -> dict:
        return json.loads(self.shoal("status", "--json", timeout=timeout))

    def log(self, name: str) -> Path:
        return self.home / f"{name}.log"

    # Starting and stopping.

    def start(self) -> None:
        """Starts everything and makes the volume `main`."""
        run([str(self.tools.shoal), "cluster", "init", "--dir", str(self.home / "meta")], 30)
        self.start_meta()
        all_bricks = self.wish.bricks + self.wish.spare
        self.places = bricks.make(f"growth.{self.name}.disks", all_bricks, self.wish.brick_mib * 5 // 4 + 256,
                                  self.wish.compress)
        for number in range(1, self.wish.bricks + 1):
            self.launch_brick(number, fresh=True)
        until("bricks up", 60, lambda: len(self.up()) == self.wish.bricks, 0.2)
        unit = ["--unit", self.wish.unit] if self.wish.unit else []
        self.shoal("volume", "create", "main", "--code", self.wish.code, "--same-node", *unit)

    def start_spare(self, number: int) -> None:
        """Starts a brick that is in no volume, and waits until it is up."""
        self.launch_brick(number, fresh=True)
        until(f"brick {number} up", 60, lambda: f"b{number}" in self.up(), 0.1)

    def up(self) -> set[str]:
        """Bricks that are up, by the metadata service and by their own answer."""
        try:
            return {brick["id"] for brick in self.status()["bricks"] if brick["state"] == "up"}
        except (Failed, ValueError):
            return set()

    def start_meta(self) -> float:
        """Starts the metadata service; the seconds until it listens."""
        return self._started(self._launch_meta, "meta")

    def _launch_meta(self) -> subprocess.Popen:
        self.meta = daemon([str(self.tools.shoal), "meta", "--dir", str(self.home / "meta"), "--listen", META,
                            "--key-file", str(self.home / "meta" / "key")], str(self.log("meta")))
        return self.meta

    def launch_brick(self, number: int, fresh: bool = False) -> subprocess.Popen:
        make = ["--format", "--id", str(number), "--size", f"{self.wish.brick_mib}M"] if fresh else []
        self.bricks[number] = daemon(
            [str(self.tools.shoal), "brick", "--disk", str(self.places[number - 1] / "brick"), *make, "--node", "1",
             "--listen", f"127.0.0.1:{FIRST_PORT + number}", *self.access], str(self.log(f"b{number}")))
        return self.bricks[number]

    def start_brick(self, number: int) -> float:
        """Starts a brick that was stopped; the seconds until it listens, which is after it has recovered."""
        return self._started(lambda: self.launch_brick(number), f"b{number}")

    def _started(self, launch, name: str) -> float:
        """Launches a daemon; the seconds until it says that it listens."""
        before = self._lines(name)
        began = time.monotonic()
        process = launch()

        def ready() -> bool:
            if process.poll() is not None:
                raise Failed(f"{name} ended: {self.log(name).read_text()[-400:]}")
            return self._lines(name) > before
        until(f"{name}: listening", PATIENCE, ready, 0.02)
        return time.monotonic() - began

    def _lines(self, name: str) -> int:
        """How often a daemon has said that it listens."""
        return self.log(name).read_text().count("listening at ") if self.log(name).exists() else 0

    def stop_meta(self, kill: bool = False) -> float:
        return stop(self.meta, kill)

    def stop_brick(self, number: int, kill: bool = False) -> float:
        return stop(self.bricks[number], kill)

    def until_level(self, seconds: float = PATIENCE) -> float:
        """Waits until all slots of all groups are live; how long that took."""
        began = time.monotonic()

        def level() -> bool:
            try:
                progress = self.status()["progress"]
            except (Failed, ValueError):
                return False
            return progress["out"] == 0
        until("all slots live", seconds, level, 0.1)
        return time.monotonic() - began

    def mount(self, name: str = "mount", volume: str = "main") -> Mount:
        """Mounts and waits until it is there."""
        at = self.home / name
        at.mkdir(exist_ok=True)
        began = time.monotonic()
        process = daemon([str(self.tools.shoal), "mount", volume, str(at), "--foreground", *self.access],
                         str(self.log(name)))

        def ready() -> bool:
            if process.poll() is not None:
                raise Failed(f"{name} ended: {self.log(name).read_text()[-400:]}")
            return is_mounted(at)
        until(f"{name}: mounted", 120, ready, 0.01)
        mount = Mount(at, process, time.monotonic() - began)
        self.mounts.append(mount)
        return mount

    def unmount(self, mount: Mount) -> float:
        """Unmounts, by force if it does not answer; the seconds that it took."""
        began = time.monotonic()
        try:
            run([str(self.tools.shoal), "umount", str(mount.at)], 120)
        except Failed:
            run(["umount", "-l", str(mount.at)], 10, check=False)
            mount.process.kill()
        mount.process.wait(60)
        self.mounts.remove(mount)
        return time.monotonic() - began

    def fill(self, directory: str, first: int, end: int, per_dir: int) -> float:
        """Makes files by asking the metadata service itself; the seconds."""
        done = run([str(self.tools.fill), META, str(self.home / "meta" / "key"), "main", directory, str(first), str(end),
                    *([str(per_dir)] if per_dir else [])], 7200)
        return float(done.out)

    def stop(self) -> None:
        """Ends everything and gives the RAM of the bricks and of the store back."""
        for mount in list(self.mounts):
            self.unmount(mount)
        for process in [self.meta, *self.bricks.values()]:
            if process is not None and process.poll() is None:
                stop(process)
        for place in self.places:
            run(["umount", str(place)], 60, check=False)
            place.rmdir()
        if not compressed.release():
            raise Failed("a device of the bricks is still in use")
        for image in WORK.glob(f"growth.{self.name}.disks.*.img"):
            image.unlink()
        keep = self.home.with_suffix(".logs")
        keep.mkdir(exist_ok=True)
        for log in self.home.glob("*.log"):
            log.rename(keep / log.name)
        run(["rm", "-rf", "--one-file-system", str(self.home)], 300, check=False)

    # What it costs.

    def pids(self) -> dict[str, list[int]]:
        return {"meta": [self.meta.pid], "bricks": [b.pid for b in self.bricks.values()],
                "mounts": [m.process.pid for m in self.mounts]}

    def meta_disk_mib(self) -> float:
        """Space that the metadata service's directory takes."""
        return sum(path.stat().st_blocks for path in (self.home / "meta").iterdir()) * 512 / MIB


def stop(process: subprocess.Popen, kill: bool = False) -> float:
    """Ends a daemon by SIGTERM or SIGKILL; the seconds until it was gone."""
    began = time.monotonic()
    process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(30)
        raise Failed(f"pid {process.pid} did not end within {PATIENCE:.0f} s") from None
    return time.monotonic() - began


def is_mounted(at: Path) -> bool:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == str(at) for line in lines)


def rss_mib(*pids: int) -> float:
    """Resident memory of processes, together."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/statm").read_text().split()
        except OSError:
            continue
        total += int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
    return total / MIB


def cpu_per_s(seconds: float, kinds: dict[str, list[int]]) -> dict[str, float]:
    """CPU that kinds of processes take now: milliseconds of each second, looked at for so long."""
    before = {kind: sum(map(meter.process_cpu, pids)) for kind, pids in kinds.items()}
    began = time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    return {kind: (sum(map(meter.process_cpu, pids)) - before[kind]) / passed * 1000 for kind, pids in kinds.items()}


class Beside:
    """A program that writes 4 KiB and syncs them, on a mount, while something else happens: `with Beside(...) as b:`, then
    `b.longest_ms` and `b.count`."""

    def __init__(self, tools: Tools, file: Path):
        self.tools, self.file = tools, file
        self.longest_ms, self.count = 0.0, 0

    def __enter__(self) -> Beside:
        self._process = subprocess.Popen([str(self.tools.load), "loop", str(self.file)], stdout=subprocess.PIPE,
                                         stdin=subprocess.DEVNULL, text=True)
        time.sleep(0.5)
        return self

    def __exit__(self, kind, *_) -> None:
        self._process.terminate()
        try:
            out, _ = self._process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            if kind is None:
                raise Failed("the write and fsync beside it has not ended for two minutes") from None
            return
        if self._process.returncode == 0:
            count, longest = out.split()
            self.count, self.longest_ms = int(count), float(longest)
        elif kind is None:
            raise Failed("the write and fsync beside it failed")
