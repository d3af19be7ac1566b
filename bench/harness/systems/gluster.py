"""GlusterFS from the distribution: dispersed (the same code as Shoal) or three copies."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .. import bricks
from ..install import apt
from ..shell import daemon, run, until
from .base import Options, System

# Two Gluster volumes share one glusterd of the machine; lo answers to all of 127.0.0.0/8, and Gluster refuses .1
HOST = "127.0.0.2"
PRIVATE = ["/var/lib/glusterd", "/var/run/gluster", "/var/log/glusterfs"]

FOUR_THREADS = {"client.event-threads": "4", "server.event-threads": "4"}
SETTINGS: dict[str, dict[str, str]] = {
    "stock": {},
    # What is often advised for fast devices: nothing that gathers or reads ahead
    "ssd": {"performance.io-cache": "off", "performance.read-ahead": "off", "performance.write-behind": "off",
            "performance.quick-read": "off", **FOUR_THREADS},
    # What is often advised for small files: attributes cached, more gathered
    "wide": {"features.cache-invalidation": "on", "features.cache-invalidation-timeout": "600",
             "performance.stat-prefetch": "on", "performance.cache-invalidation": "on",
             "performance.md-cache-timeout": "600", "network.inode-lru-limit": "50000",
             "performance.write-behind-window-size": "8MB", **FOUR_THREADS},
}


def changes(now: dict[str, str], wanted: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """What to reset and what to set to come from the settings `now` to `wanted`."""
    return ([key for key in now if key not in wanted],
            {key: value for key, value in wanted.items() if now.get(key) != value})


class Gluster(System):
    volume = ""
    count = 10
    _daemon: subprocess.Popen | None = None  # one glusterd serves all volumes

    def __init__(self, options: Options):
        super().__init__(options)
        wanted = options.gluster_settings
        self.variants = list(SETTINGS) if wanted == "best" else [wanted]
        self.variant = "stock"

    @staticmethod
    def prepare(tools: Path) -> None:
        apt({"glusterd": "glusterfs-server", "glusterfs": "glusterfs-client"})

    def _gluster(self, *words: str, check: bool = True) -> str:
        return run(["gluster", "--mode=script", *words], 120, check=check).out

    def layout(self) -> list[str]:
        """The words of `volume create` that say how bytes are protected."""
        raise NotImplementedError

    def start(self) -> None:
        if Gluster._daemon is None:
            for path in PRIVATE:
                Path(path).mkdir(parents=True, exist_ok=True)
                run(["mount", "-t", "tmpfs", "gluster", path], 10)
            Gluster._daemon = daemon(["glusterd", "-N", "-l", self.log("glusterd"), "-L", "WARNING"],
                                     self.log("glusterd"))
            until("glusterd", 30, lambda: run(["gluster", "--mode=script", "volume", "info"], 30, check=False).code == 0)
        self.bricks = bricks.make(self.volume, self.count, self.brick_mib)
        for mount in self.bricks:
            (mount / "brick").mkdir()
        self._gluster("volume", "create", self.volume, *self.layout(), "transport", "tcp",
                      *(f"{HOST}:{mount}/brick" for mount in self.bricks), "force")
        self._gluster("volume", "start", self.volume)
        # Nothing is broken here: the healer would only look around
        self._gluster("volume", "heal", self.volume, "disable", check=False)

    def start_mount(self) -> subprocess.Popen:
        return daemon(["glusterfs", "-N", f"--volfile-server={HOST}", f"--volfile-id={self.volume}",
                       "--process-name", "fuse", "-l", self.log("mount"), str(self.mount_point)], self.log("mount"))

    def after_mount(self) -> None:
        # The kernel's mount is there before the bricks are connected
        until(f"{self.name}: bricks connected", 30,
              lambda: run(["stat", "-f", str(self.mount_point)], 20, check=False).code == 0)

    def use(self, variant: str) -> None:
        reset, put = changes(SETTINGS[self.variant], SETTINGS[variant])
        for key in reset:
            self._gluster("volume", "reset", self.volume, key)
        if put:
            self._gluster("volume", "set", self.volume, *(word for pair in put.items() for word in pair))
        self.variant = variant

    def servers(self) -> dict[str, list[int]]:
        pids = []
        for file in Path(f"/var/run/gluster/vols/{self.volume}").glob("*.pid"):
            try:
                pids.append(int(file.read_text()))
            except (OSError, ValueError):
                pass
        return {"brick": pids, "metadata": [Gluster._daemon.pid] if Gluster._daemon else []}

    def facts(self) -> dict[str, object]:
        return {"version": run(["glusterd", "--version"], 10).out.splitlines()[0], "volume": " ".join(self.layout()),
                "settings": {name: SETTINGS[name] for name in self.variants}}


class GlusterEc(Gluster):
    name = "gluster-ec"
    about = "a dispersed volume of the same code on ten bricks"
    volume = "gec"

    @classmethod
    def most_mib(cls, data_mib: int, code: tuple[int, int]) -> int:
        return data_mib * sum(code) // code[0]

    def __init__(self, options: Options):
        super().__init__(options)
        self.count = sum(options.code)

    def layout(self) -> list[str]:
        return ["disperse-data", str(self.options.code[0]), "redundancy", str(self.options.code[1])]


class GlusterReplica(Gluster):
    name = "gluster-replica"
    about = "three copies of every file on nine bricks"
    volume = "grep"
    count = 9
    copies = 3

    def layout(self) -> list[str]:
        return ["replica", "3"]
