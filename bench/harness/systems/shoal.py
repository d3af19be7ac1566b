"""Shoal: one metadata service, ten bricks, one mount or gate; all of them the daemons that the README's cluster has."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from .. import bricks, turns
from ..shell import Failed, daemon, run, until
from .base import Options, System

META_PORT = 7400
META = f"127.0.0.1:{META_PORT}"
FIRST_PORT = 7411
# A brick's file, on an XFS that has room for it. Shoal writes to fresh space, so a brick's RAM grows up to this.
FILE_MIB = 1100
# The block volume that the NBD gate shows; a power of two, as the loads want it.
DISK_MIB = 2048
NBD_PORT, NFS_PORT = 10809, 2049


class Shoal(System):
    name = "shoal"
    about = "ten bricks (files on XFS), one metadata service, one mount"
    count = 10
    doors = {"files": "mount", "nbd": "nbd gate", "nfs": "nfs gate"}
    running: Shoal | None = None  # whose bricks `mount` uses too

    @classmethod
    def most_mib(cls, data_mib: int, code: tuple[int, int]) -> int:
        return cls.count * FILE_MIB

    def __init__(self, options: Options):
        super().__init__(options)
        self.binary = self.home / "shoal"
        # A copy: a build meanwhile must not change what is measured
        self.binary.write_bytes(options.shoal.read_bytes())
        self.binary.chmod(0o755)
        self.meta: subprocess.Popen | None = None
        self.brick_processes: list[subprocess.Popen] = []
        self.volumes: set[str] = set()

    def _shoal(self, *words: str, timeout: float = 60) -> str:
        return run([str(self.binary), *words], timeout).out

    @property
    def _access(self) -> list[str]:
        return ["--meta", META, "--key-file", str(self.home / "meta" / "key")]

    def start(self) -> None:
        self.bricks = bricks.make("shoal", self.count, 1600)
        self._shoal("cluster", "init", "--dir", str(self.home / "meta"))
        self.meta = daemon([str(self.binary), "meta", "--dir", str(self.home / "meta"), "--listen", META,
                            "--key-file", str(self.home / "meta" / "key")], self.log("meta"))
        self.until_listens(META_PORT)
        for number, mount in enumerate(self.bricks):
            self.brick_processes.append(daemon(
                [str(self.binary), "brick", "--disk", str(mount / "brick"), "--format", "--id", str(number + 1),
                 "--size", f"{FILE_MIB}M", "--node", "1", "--listen", f"127.0.0.1:{FIRST_PORT + number}", *self._access,
                 *self.options.brick_options], self.log(f"brick{number}")))
        until("shoal: ten bricks up", 30, self._all_up, 0.3)
        Shoal.running = self
        self.create("bench")

    def create(self, volume: str, *words: str) -> None:
        """Makes a volume of the code and unit that are measured, unless there is one."""
        if volume in self.volumes:
            return
        data, parity = self.options.code
        unit = ["--unit", self.options.unit] if self.options.unit else []
        self._shoal("volume", "create", volume, "--code", f"{data}+{parity}", "--same-node", *unit, *words,
                    *self._access)
        self.volumes.add(volume)

    def tune(self, target: str, *settings: str) -> None:
        """Changes the settings of a volume, or of a mount: a path."""
        self._shoal("tune", target, *settings, *self._access)

    def until_purged(self) -> None:
        """Waits until the bricks have freed what was removed."""
        def done() -> bool:
            return json.loads(self._shoal("status", "--json", *self._access))["meta"]["purges"] == 0
        until("shoal: no file to purge", 300, done, 0.3)

    def _all_up(self) -> bool:
        for process, log in [(self.meta, "meta"), *((p, f"brick{n}") for n, p in enumerate(self.brick_processes))]:
            if process.poll() is not None:
                raise Failed(f"shoal: {log} ended: {Path(self.log(log)).read_text()[-400:]}")
        try:
            status = json.loads(self._shoal("status", "--json", *self._access, timeout=10))
        except (Failed, ValueError):
            return False
        return sum(is_up(brick) for brick in status.get("bricks", [])) == self.count

    def start_mount(self) -> subprocess.Popen:
        if self.door == "nbd gate":
            self.create("disk", "--block", f"{DISK_MIB}M")
            return self.client("nbd", "disk", *self._nbd_listen, *self.options.nbd_options)
        if self.door == "nfs gate":
            return self.client("nfs", "bench", "--listen", f"127.0.0.1:{NFS_PORT}", "--no-root-squash",
                               *self.options.nfs_options)
        return self.client("mount", "bench", str(self.mount_point), *self.options.shoal_options)

    def client(self, *words: str) -> subprocess.Popen:
        """Starts a mount or a gate."""
        return daemon([str(self.binary), *words, "--foreground", *self._access], self.log(self.door))

    @property
    def gate_at(self) -> int | Path:
        if self.door == "nfs gate":
            return NFS_PORT
        return self.home / "nbd.socket" if self.options.nbd_socket else NBD_PORT

    @property
    def _nbd_listen(self) -> list[str]:
        at = self.gate_at
        return ["--socket", str(at)] if isinstance(at, Path) else ["--listen", f"127.0.0.1:{at}"]

    @property
    def url(self) -> str:
        if self.door == "nbd gate":
            at = self.gate_at
            return f"nbd+unix:///disk?socket={at}" if isinstance(at, Path) else f"nbd://127.0.0.1:{at}/disk"
        return f"nfs://127.0.0.1/bench?version=3&nfsport={NFS_PORT}&mountport={NFS_PORT}"

    def unmount_politely(self) -> None:
        # Unlike plain umount it waits for what is not stable yet
        self._shoal("umount", str(self.mount_point), timeout=90)

    def check(self) -> None:
        found = [line for log in sorted(self.home.glob("*.log")) for line in turns.overlong(log)]
        if found:
            raise Failed("shoal: a turn took too long:\n" + "\n".join(found))

    def servers(self) -> dict[str, list[int]]:
        return {"metadata": [self.meta.pid] if self.meta else [], "brick": [p.pid for p in self.brick_processes]}

    def facts(self) -> dict[str, object]:
        return {"version": self._shoal("--version").strip(), "code": "%d+%d" % self.options.code,
                "unit": self.options.unit or "default", "mount options": self.options.shoal_options,
                "brick options": self.options.brick_options,
                "NBD over": "a Unix socket" if self.options.nbd_socket else "TCP",
                "gate options": self.options.nbd_options + self.options.nfs_options}


class ShoalMount(Shoal):
    """A mount of a second volume of the same cluster, for the rows that compare the NBD gate with it."""

    name = "mount"
    about = "Shoal's own mount, on the same bricks: a file as large as the disk that the NBD gate shows"
    doors = {"nbd": "mount"}

    @classmethod
    def most_mib(cls, data_mib: int, code: tuple[int, int]) -> int:
        return 0

    def start(self) -> None:
        self.cluster = Shoal.running
        self.bricks = self.cluster.bricks
        self.cluster.create("beside")

    def start_mount(self) -> subprocess.Popen:
        return daemon([str(self.binary), "mount", "beside", str(self.mount_point), "--foreground", *self._access,
                       *self.options.shoal_options], self.log("mount"))

    @property
    def _access(self) -> list[str]:
        return self.cluster._access

    def parts(self) -> dict[str, list[int]]:
        return {**super().parts(), "servers": self.cluster.parts()["servers"]}


def is_up(brick: dict) -> bool:
    """Whether `shoal status --json` calls a brick up."""
    state = brick.get("state", brick.get("up", ""))
    return state is True or str(state).lower() == "up"
