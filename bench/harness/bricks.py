"""Bricks in RAM: XFS on loop devices whose files lie in the sandbox's tmpfs. The same for every system."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from .sandbox import WORK
from .shell import run

_libc = ctypes.CDLL(None, use_errno=True)


def make(name: str, count: int, mib: int) -> list[Path]:
    """Makes and mounts `count` empty file systems of `mib` MiB; they take RAM only for what is written."""
    mounts = []
    for number in range(count):
        image, mount = WORK / f"{name}.{number}.img", WORK / name / str(number)
        mount.mkdir(parents=True)
        with open(image, "wb") as file:
            file.truncate(mib << 20)
        run(["mkfs.xfs", "-q", "-f", str(image)], 30)
        # `loop` makes a device that is removed at the unmount
        run(["mount", "-o", "loop,noatime", str(image), str(mount)], 30)
        mounts.append(mount)
    return mounts


def flush(mounts: list[Path]) -> None:
    """Writes dirty pages, so that one system's writeback does not run while another one is measured."""
    for mount in mounts:
        handle = os.open(mount, os.O_RDONLY)
        try:
            _libc.syncfs(handle)
        finally:
            os.close(handle)


def trim(mounts: list[Path]) -> None:
    """Frees the RAM of deleted files."""
    for mount in mounts:
        run(["fstrim", str(mount)], 60, check=False)
