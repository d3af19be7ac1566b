"""MooseFS from the distribution: one master, ten chunk servers, three copies or two (its free edition has no codes)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .. import bricks
from ..install import LOAD, apt
from ..shell import Failed, daemon, run, until
from .base import Options, System

# What the daemons believe to be the machine's address; see load/loopback_shim.c
PRETENDED = "198.18.0.1"


class MooseFs(System):
    name = "moosefs"
    copies = 3
    about = "three copies of every chunk on ten chunk servers"
    count = 10

    def __init__(self, options: Options):
        super().__init__(options)
        self.master: subprocess.Popen | None = None
        self.chunk_servers: list[subprocess.Popen] = []
        self.env = {"LD_PRELOAD": str(options.tools / "loopback_shim.so")}
        self.policy_is_set = False

    @staticmethod
    def prepare(tools: Path) -> None:
        apt({"mfsmaster": "moosefs-master", "mfschunkserver": "moosefs-chunkserver", "mfsmount": "moosefs-client"})
        run(["gcc", "-O2", "-shared", "-fPIC", str(LOAD / "loopback_shim.c"), "-o", str(tools / "loopback_shim.so"),
             "-ldl"], 60)

    def _config(self, name: str, values: dict[str, object]) -> str:
        path = self.home / name
        path.write_text("".join(f"{key} = {value}\n" for key, value in values.items()))
        return str(path)

    def start(self) -> None:
        self.bricks = bricks.make(self.name, self.count, self.brick_mib)
        data = self.home / "master"
        data.mkdir()
        (data / "metadata.mfs").write_bytes(Path("/var/lib/mfs/metadata.mfs.empty").read_bytes())
        (self.home / "exports").write_text("* / rw,alldirs,admin,maproot=0:0\n")
        (self.home / "topology").write_text("")
        user = {"WORKING_USER": "root", "WORKING_GROUP": "root"}
        # Deleted chunks go quickly: they are RAM here. Everything else is stock.
        config = self._config("master.cfg", {
            **user, "DATA_PATH": data, "EXPORTS_FILENAME": self.home / "exports",
            "TOPOLOGY_FILENAME": self.home / "topology", "MATOML_LISTEN_HOST": "127.0.0.1",
            "MATOCS_LISTEN_HOST": "127.0.0.1", "MATOCL_LISTEN_HOST": "127.0.0.1", "CHUNKS_LOOP_MIN_TIME": 2,
            "CHUNKS_LOOP_MAX_CPS": 100000, "CHUNKS_SOFT_DEL_LIMIT": 200, "CHUNKS_HARD_DEL_LIMIT": 400,
            "REPLICATIONS_DELAY_INIT": 0})
        self.master = daemon(["mfsmaster", "-f", "-c", config, "start"], self.log("master"), self.env)
        for number, mount in enumerate(self.bricks):
            own = self.home / f"chunks{number}"
            own.mkdir()
            (self.home / f"disks{number}").write_text(f"{mount}\n")
            config = self._config(f"chunks{number}.cfg", {
                **user, "DATA_PATH": own, "HDD_CONF_FILENAME": self.home / f"disks{number}",
                "HDD_LEAVE_SPACE_DEFAULT": "64MiB", "MASTER_HOST": PRETENDED, "BIND_HOST": "127.0.0.1",
                "CSSERV_LISTEN_HOST": PRETENDED, "CSSERV_LISTEN_PORT": 9500 + number})
            self.chunk_servers.append(daemon(["mfschunkserver", "-f", "-c", config, "start"],
                                             self.log(f"chunks{number}"), self.env))
        self.until_listens(9421)

    def start_mount(self) -> subprocess.Popen:
        return daemon(["mfsmount", str(self.mount_point), "-f", "-H", "127.0.0.1", "-P", "9421", "-o",
                       "mfssubfolder=/"], self.log("mount"), self.env)

    def after_mount(self) -> None:
        if self.policy_is_set:
            return
        # Files are kept for a day after their deletion otherwise
        run(["mfssetgoal", str(self.copies), str(self.directory)], 30)
        run(["mfssettrashtime", "0", str(self.directory)], 30)
        self.policy_is_set = True
        until(f"{self.name}: chunk servers take files", 60, self._writable, 1)

    def _writable(self) -> bool:
        try:
            run(["dd", "if=/dev/zero", f"of={self.directory}/probe", "bs=64k", "count=1", "conv=fsync"], 10)
            return True
        except Failed:
            return False
        finally:
            run(["rm", "-f", f"{self.directory}/probe"], 10, check=False)

    def servers(self) -> dict[str, list[int]]:
        return {"metadata": [self.master.pid] if self.master else [], "brick": [p.pid for p in self.chunk_servers]}

    def facts(self) -> dict[str, object]:
        done = run(["mfsmaster", "-v"], 10, check=False)
        return {"version": (done.out + done.err).strip(), "copies": self.copies}


class MooseFsTwo(MooseFs):
    """Its usual goal."""

    name = "moosefs-2"
    copies = 2
    about = "two copies of every chunk on ten chunk servers"
