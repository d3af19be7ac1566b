"""Bricks in RAM: XFS on loop devices whose files lie in the sandbox's tmpfs, the same for every system; or on devices whose
pages are compressed."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from . import compressed
from .sandbox import WORK
from .shell import run

_libc = ctypes.CDLL(None, use_errno=True)


def make(name: str, count: int, mib: int, compress: bool = False) -> list[Path]:
    """Makes and mounts `count` empty file systems of `mib` MiB; they take RAM only for what is written."""
    return [_make(name, number, mib, compress) for number in range(count)]


def _make(name: str, number: int, mib: int, compress: bool) -> Path:
    mount = WORK / name / str(number)
    mount.mkdir(parents=True)
    if compress:
        device, options = compressed.make(mib), "noatime"
    else:
        device, options = WORK / f"{name}.{number}.img", "loop,noatime"
        with open(device, "wb") as file:
            file.truncate(mib << 20)
    run(["mkfs.xfs", "-q", "-f", str(device)], 60)
    # `loop` makes a device that is removed at the unmount
    run(["mount", "-o", options, str(device), str(mount)], 30)
    return mount


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
