"""nfs-ganesha over a dispersed GlusterFS volume: another NFS server in user space, over the same code."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ..install import apt
from ..shell import Failed, daemon, run, until
from .gluster import HOST, GlusterEc

PORT, MOUNT_PORT = 2149, 20148
# What ganesha writes to besides its log.
PRIVATE = ["/run/rpcbind", "/var/run/ganesha", "/var/lib/nfs/ganesha"]


def config(volume: str) -> str:
    """Stock settings, version 3 only. Without locks and quotas, which Shoal's gate has not either."""
    return f"""\
NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {PORT}; MNT_Port = {MOUNT_PORT}; Enable_NLM = false;
                  Enable_RQUOTA = false; }}
NFSV4 {{ Graceless = true; }}
EXPORT {{ Export_Id = 1; Path = "/{volume}"; Pseudo = "/{volume}"; Access_Type = RW; Squash = No_Root_Squash;
         SecType = "sys"; Protocols = 3; Transports = TCP; Disable_ACL = true;
         FSAL {{ Name = GLUSTER; Hostname = "{HOST}"; Volume = "{volume}"; }} }}
"""


class Ganesha(GlusterEc):
    name = "ganesha"
    about = "nfs-ganesha over a dispersed GlusterFS volume of the same code on ten bricks"
    volume = "gnfs"
    doors = {"nfs": "nfs server"}
    gate_at = PORT
    _rpcbind: subprocess.Popen | None = None

    @staticmethod
    def prepare(tools: Path) -> None:
        GlusterEc.prepare(tools)
        apt({"ganesha.nfsd": "nfs-ganesha", "/usr/lib/x86_64-linux-gnu/ganesha/libfsalgluster.so": "nfs-ganesha-gluster",
             "rpcbind": "rpcbind"})

    def start(self) -> None:
        super().start()
        for path in PRIVATE:
            Path(path).mkdir(parents=True, exist_ok=True)
            run(["mount", "-t", "tmpfs", "ganesha", path], 10)
        # It registers there or ends, though nobody asks
        self._rpcbind = daemon(["rpcbind", "-f", "-r"], self.log("rpcbind"))
        until("rpcbind", 10, lambda: run(["rpcinfo", "-p", "127.0.0.1"], 5, check=False).code == 0)
        (self.home / "ganesha.conf").write_text(config(self.volume))

    def start_mount(self) -> subprocess.Popen:
        return daemon(["ganesha.nfsd", "-F", "-f", str(self.home / "ganesha.conf"), "-p", str(self.home / "ganesha.pid"),
                       "-L", self.log(self.door), "-N", "WARN"], self.log(self.door))

    def after_mount(self) -> None:
        # It listens before its export is there
        until(f"{self.name}: export", 60, self._exports, 0.2)

    def _exports(self) -> bool:
        try:
            return run(["nfs-ls", self.url], 10, check=False).code == 0
        except Failed:
            return False

    @property
    def url(self) -> str:
        return f"nfs://127.0.0.1/{self.volume}?version=3&nfsport={PORT}&mountport={MOUNT_PORT}"

    def facts(self) -> dict[str, object]:
        return {"ganesha": run(["ganesha.nfsd", "-v"], 10).out.splitlines()[0], **super().facts()}
