"""Block devices in RAM whose pages are compressed (zram, see the kernel's admin-guide/blockdev/zram.rst). A page of equal words
takes a few bytes, so bricks may have more of them than there is RAM."""

from __future__ import annotations

from pathlib import Path

from .shell import Failed

CONTROL = Path("/sys/class/zram-control")
# Numbers of the devices that a measurement has made. Outside the sandbox, whose end does not remove them.
LIST = Path("/run/shoal-bench.zram")


def make(mib: int) -> Path:
    """Makes a device of `mib` MiB."""
    if not CONTROL.exists():
        raise Failed("this kernel has no zram: try `modprobe zram`")
    number = int((CONTROL / "hot_add").read_text())
    with open(LIST, "a") as made:
        made.write(f"{number}\n")
    Path(f"/sys/block/zram{number}/disksize").write_text(f"{mib}M")
    return Path(f"/dev/zram{number}")


def release() -> bool:
    """Removes all devices that were made and are not in use. False if one is left."""
    if not LIST.exists():
        return True
    left = [number for number in LIST.read_text().split() if not _removed(number)]
    if left:
        LIST.write_text("".join(f"{number}\n" for number in left))
    else:
        LIST.unlink()
    return not left


def _removed(number: str) -> bool:
    device = Path(f"/sys/block/zram{number}")
    if not device.exists():
        return True
    try:
        (device / "reset").write_text("1")
        (CONTROL / "hot_remove").write_text(number)
    except OSError:
        return False
    return True
