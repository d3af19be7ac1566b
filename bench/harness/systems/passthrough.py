"""The mark that FUSE sets: libfuse's own passthrough_ll over a local XFS in RAM. No network, no code, no checksums."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from .. import bricks
from ..install import apt
from ..shell import daemon, run
from .base import System

EXAMPLE = Path("/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c")


class Passthrough(System):
    name = "passthrough"
    descriptor_per_file = True
    about = "libfuse's passthrough_ll, 1 MiB requests and read-ahead, over one XFS in RAM whose cache stays warm"

    @staticmethod
    def prepare(tools: Path) -> None:
        apt({"pkg-config": "pkg-config", str(EXAMPLE): "libfuse3-dev"})
        source = tools / "passthrough_ll.c"
        # The largest request is asked for in the example's own hook for such things
        text, count = re.subn(r"(static void lo_init\([^{]*\{)", r"\1\n\tconn->max_write = 1 << 20;",
                              EXAMPLE.read_text(), count=1)
        assert count == 1, "the example has no lo_init"
        # O_DIRECT is for the mount: the file below is read from its cache, and the row measures FUSE, not a disk
        text, count = re.subn(r"fi->flags & ~O_NOFOLLOW", "fi->flags & ~(O_NOFOLLOW | O_DIRECT)", text)
        assert count >= 1, "the example opens files in another way"
        source.write_text(text)
        flags = run(["pkg-config", "--cflags", "--libs", "fuse3"], 20).out.split()
        run(["gcc", "-O2", "-w", str(source), f"-I{EXAMPLE.parent}", "-o", str(tools / "passthrough_ll"), *flags], 60)

    def start(self) -> None:
        self.bricks = bricks.make("passthrough", 1, 8192)

    def start_mount(self) -> subprocess.Popen:
        return daemon([str(self.options.tools / "passthrough_ll"), "-f", "-o",
                       f"source={self.bricks[0]},cache=auto", str(self.mount_point)], self.log("mount"))

    def after_mount(self) -> None:
        self.read_ahead(1024)

    def servers(self) -> dict[str, list[int]]:
        return {}
