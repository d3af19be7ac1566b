"""What the harness wants of a system: start, mount, unmount, its processes, its bricks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from .. import bricks, meter
from ..sandbox import WORK
from ..shell import Failed, run, until


@dataclass
class Options:
    """What the command line says about how systems are started."""

    shoal: Path
    tools: Path
    code: tuple[int, int] = (8, 2)
    unit: str | None = None
    shoal_options: list[str] = field(default_factory=list)
    brick_options: list[str] = field(default_factory=list)
    nbd_socket: bool = False
    nbd_options: list[str] = field(default_factory=list)
    nfs_options: list[str] = field(default_factory=list)
    gluster_settings: str = "best"


class System:
    """A file system under test. A new one is a subclass with `start`, `mount_command` and perhaps `prepare`."""

    name = ""
    about = ""
    brick_mib = 4096
    # The client holds a descriptor for each file that the kernel knows of, so the limit of open files is one of files
    descriptor_per_file = False
    copies = 1  # bytes on bricks for a byte of a file
    # The kinds of cases that it takes part in, and the door by which it does: a mount, or a gate of NBD or NFS
    doors: dict[str, str] = {"files": "mount"}
    # Settings that are screened before each row; the best is measured. None: there is nothing to choose.
    variants: list[str] = []

    def __init__(self, options: Options):
        self.options = options
        self.home = WORK / f"{self.name}.home"
        self.mount_point = WORK / f"{self.name}.mount"
        self.home.mkdir(parents=True)
        self.mount_point.mkdir(parents=True)
        self.bricks: list[Path] = []
        self.mount_process: subprocess.Popen | None = None
        self.door = next(iter(self.doors.values()))
        self.variant: str | None = None

    # What a subclass says.

    @classmethod
    def most_mib(cls, data_mib: int, code: tuple[int, int]) -> int:
        """RAM that the bricks can grow to with so much in files (MiB)."""
        return data_mib * cls.copies

    @staticmethod
    def prepare(tools: Path) -> None:
        """Installs and builds what is needed; runs before the sandbox, with the machine's network."""

    def start(self) -> None:
        """Starts the servers and makes an empty volume."""
        raise NotImplementedError

    def start_mount(self) -> subprocess.Popen:
        """Starts the client in the foreground: what `self.door` says."""
        raise NotImplementedError

    def servers(self) -> dict[str, list[int]]:
        """Pids of the servers by kind; kinds are called `brick` and `metadata` where that fits."""
        raise NotImplementedError

    def use(self, variant: str) -> None:
        """Switches to one of `variants`; the harness mounts anew afterwards."""

    def facts(self) -> dict[str, object]:
        """What goes into the report: version, settings."""
        return {}

    # What the harness does with it.

    @property
    def directory(self) -> Path:
        """Where the load works."""
        return self.mount_point / "load"

    def log(self, name: str) -> str:
        return str(self.home / f"{name}.log")

    def processes(self) -> dict[str, list[int]]:
        """Pids by kind, the mount included."""
        kinds = dict(self.servers())
        if self.mount_process is not None:
            kinds[self.door] = [self.mount_process.pid]
        return kinds

    def parts(self) -> dict[str, list[int]]:
        """Pids as the meter wants them: client and servers."""
        kinds = self.processes()
        return {"client": kinds.pop(self.door, []), "servers": [pid for pids in kinds.values() for pid in pids]}

    def mounted(self) -> bool:
        """Whether the mount point is one, by the kernel's list: looking at it could hang."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return any(line.split()[4] == str(self.mount_point) for line in lines)

    def mount(self, tries: int = 3) -> None:
        """Opens the door, as a rule by mounting, and waits until it answers. Again if it fails: some clients give up on a
        server that is busy."""
        try:
            self._mount_once()
        except Failed:
            if tries <= 1:
                raise
            self.unmount()
            time.sleep(3)
            self.mount(tries - 1)

    def _mount_once(self) -> None:
        self.mount_process = self.start_mount()

        def ready() -> bool:
            if self.mount_process.poll() is not None:
                raise Failed(f"{self.name}: the {self.door} ended: {Path(self.log(self.door)).read_text()[-400:]}")
            return self.mounted() if self.door == "mount" else listens(self.gate_at)
        until(f"{self.name}: {self.door}", 30, ready, 0.05)
        if self.door == "mount":
            run(["mkdir", "-p", str(self.directory)], 30)
        self.after_mount()

    def after_mount(self) -> None:
        """A place for settings of the mount."""

    def unmount(self) -> None:
        """Unmounts and waits for the client's end; by force if it does not answer."""
        process, self.mount_process = self.mount_process, None
        try:
            if self.door == "mount":
                self.unmount_politely()
            elif process is not None:
                process.terminate()
        except Failed:
            run(["umount", "-l", str(self.mount_point)], 10, check=False)
            if process is not None:
                process.kill()
        if process is not None:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
            if self.door != "mount":
                # The kernel may keep the door of a process that has ended for a moment, and lead the next client there.
                until(f"{self.name}: the {self.door} is shut", 10, lambda: not listens(self.gate_at), 0.05)

    def unmount_politely(self) -> None:
        run(["umount", str(self.mount_point)], 60)

    def remount(self, kind: str | None = None) -> None:
        """Drops everything that the client holds, the kernel's page cache of the mount included. Opens the door for
        cases of `kind`, or the one that was open."""
        self.unmount()
        if kind is not None:
            self.door = self.doors[kind]
        self.mount()

    def settle(self, idle: float = 0.1, limit: float = 40) -> dict[str, float]:
        """Waits until the system is at rest: its dirty bytes written, its processes idle (below `idle` cores).

        Returns how long that took and the CPU-seconds of its processes meanwhile, so that deferred work is not hidden.
        """
        start, before = time.monotonic(), self._cpu()
        bricks.flush(self.bricks)
        quiet = 0
        while quiet < 2 and time.monotonic() - start < limit:
            used, at = self._cpu(), time.monotonic()
            time.sleep(0.5)
            quiet = quiet + 1 if (self._cpu() - used) / (time.monotonic() - at) < idle else 0
        bricks.trim(self.bricks)
        return {"seconds": round(time.monotonic() - start, 2), "cpu": round(self._cpu() - before, 2)}

    def _cpu(self) -> float:
        return sum(meter.process_cpu(pid) for pids in self.parts().values() for pid in pids)

    def check(self) -> None:
        """Fails if the system did what it must not while it was measured."""

    def stop(self) -> None:
        """Unmounts and ends the servers. The sandbox would do it too; this is for logs that end well."""
        self.unmount()
        pids = [pid for group in self.servers().values() for pid in group]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        try:
            until(f"{self.name}: servers end", 10, lambda: not any(map(meter.alive, pids)))
        except Failed:
            for pid in filter(meter.alive, pids):
                os.kill(pid, signal.SIGKILL)

    @property
    def gate_at(self) -> int | Path:
        """Where a gate listens: a port of loopback, or a socket in the file system."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        """Where a load finds the gate."""
        raise NotImplementedError

    def until_listens(self, port: int) -> None:
        """Waits until something listens at a port of loopback."""
        until(f"{self.name}: port {port}", 60, lambda: listens(port), 0.2)

    def read_ahead(self, kib: int) -> None:
        """Sets the kernel's read-ahead of the mount."""
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            fields = line.split()
            if fields[4] == str(self.mount_point):
                Path(f"/sys/class/bdi/{fields[2]}/read_ahead_kb").write_text(str(kib))


def listens(at: int | Path) -> bool:
    """Whether something listens at a port of loopback, or at a socket in the file system."""
    path = isinstance(at, Path)
    with socket.socket(socket.AF_UNIX if path else socket.AF_INET) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(at) if path else ("127.0.0.1", at))
            return True
        except OSError:
            return False
