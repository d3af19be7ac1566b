"""Checks that there is enough RAM for a measurement: bricks are in RAM, and all systems of a round run at once."""

from __future__ import annotations

from pathlib import Path

from .rows import MIB, WRITE_BYTES, Case, Effort
from .shell import Failed
from .systems import ALL

# RAM besides the bricks: for the processes, the loads and the kernel.
BESIDE_MIB = 1536
# The least data that a system is expected to write: small files, dbench, postmark.
LEAST_MIB = 512


def room_mib(tmpfs_mib: int) -> int:
    """MiB for all bricks together: the machine's available memory, at most the sandbox's tmpfs."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return min(int(line.split()[1]) // 1024 - BESIDE_MIB, tmpfs_mib)
    raise Failed("/proc/meminfo does not say what is available")


def data_mib(cases: list[Case], effort: Effort) -> int:
    """The most bytes in files at a time. Rows remove their files; data is laid after the rows that write new files."""
    laid = effort.laid_bytes // MIB if any(case.needs_data for case in cases) else 0
    fresh = WRITE_BYTES // MIB if any(getattr(case, "rw", "") == "write" for case in cases) else 0
    return max(laid, fresh, LEAST_MIB)


def rounds(names: list[str], needs: dict[str, int], room: int) -> list[list[str]]:
    """The systems that are measured together, Shoal in each round: all in one if they fit, else one after the other.

    `needs` and `room` are MiB. Fails if not even one fits beside Shoal.
    """
    if sum(needs[name] for name in names) <= room:
        return [names]
    others = names[1:]
    for other in others or [""]:
        pair = [names[0], other] if other else [names[0]]
        if sum(needs[name] for name in pair) > room:
            parts = " + ".join(f"{name} {needs[name]} MiB" for name in pair)
            raise Failed(f"the bricks can grow to {parts}, and there are {room} MiB of RAM for them\n"
                         "  try: fewer rows (--rows), a quick run (--quick), or a machine with more RAM")
    return [[names[0], other] for other in others]


def needs(names: list[str], data: int, code: tuple[int, int]) -> dict[str, int]:
    """MiB that the bricks of each system can grow to with `data` MiB of files."""
    return {name: ALL[name].most_mib(data, code) for name in names}
