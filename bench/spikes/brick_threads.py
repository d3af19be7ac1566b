#!/usr/bin/env python3
"""How many reads a core-second gives by the threads of a brick and of a mount, and which thread of the brick is the limit.

bench/spikes/brick_threads.py [SHOAL]: one brick in RAM; fio reads 4 KiB at random with O_DIRECT in 16 jobs. TURNS (3) turns of
SECONDS (3); medians. Needs root and fio.
"""

import os
import statistics
import sys
from pathlib import Path

from one_brick import ROOM, OneBrick

CASES = [(1, 4), (2, 4), (4, 4), (1, 1), (1, 2)]  # threads of the brick, of the mount
TURNS, SECONDS = int(os.environ.get("TURNS", "3")), int(os.environ.get("SECONDS", "3"))


def cpu_us(pid: int) -> dict[str, float]:
    """CPU of the threads of a process, in microseconds: of its first thread, and of all."""
    found = {"first": 0.0, "all": 0.0}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            used = int((thread / "schedstat").read_text().split()[0]) / 1000
        except OSError:
            continue  # it has ended
        found["all"] += used
        if thread.name == str(pid):
            found["first"] = used
    return found


def measure(shoal: str, brick_threads: int, mount_threads: int) -> dict[str, float]:
    """One turn with a new cluster."""
    brick, mount = ["--size", "2G", "--threads", str(brick_threads)], ["--threads", str(mount_threads)]
    with OneBrick(shoal, str(ROOM / "brick"), brick, mount) as cluster:
        cluster.write(512)
        pids = cluster.brick.pid, cluster.mount.pid
        before = [cpu_us(pid) for pid in pids]
        reads = cluster.random_reads(16, SECONDS)
        after = [cpu_us(pid) for pid in pids]
        count = reads["total_ios"]
        used = [(then["all"] - now["all"]) / count for now, then in zip(before, after)]
        return {"reads": reads["iops"], "first": (after[0]["first"] - before[0]["first"]) / count, "brick": used[0],
                "mount": used[1], "per core-second": 1e6 / sum(used)}


def main() -> None:
    shoal = sys.argv[1] if len(sys.argv) > 1 else "target/release/shoal"
    found: dict[tuple[int, int], list[dict[str, float]]] = {case: [] for case in CASES}
    for _ in range(TURNS):
        for case in CASES:
            found[case].append(measure(shoal, *case))
    columns = ["reads", "first", "brick", "mount", "per core-second"]
    print("| threads of the brick, of the mount | reads/s | us of the brick's first thread | of all of it | of the mount "
          "| reads of a core-second |\n|---|---|---|---|---|---|")
    for (brick, mount), turns in found.items():
        values = [statistics.median(turn[column] for turn in turns) for column in columns]
        shown = [f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" for value in values]
        print(f"| {brick}, {mount} | {' | '.join(shown)} |")


if __name__ == "__main__":
    main()
