#!/usr/bin/env python3
"""What a brick's cache brings for random reads of a slow disk.

bench/spikes/brick_cache.py [SHOAL]: one brick whose disk nbdkit lends, with a delay of 5 ms for each read; a file of 128 MiB,
without a cache and in one that has all of it; fio reads 4 KiB at random with O_DIRECT in 1 and 8 jobs. The cache is a file in
RAM: this shows what Shoal costs, not what an SSD costs. TURNS (3) turns of SECONDS (3); medians. Needs root, fio and nbdkit.
"""

import json
import os
import statistics
import subprocess
import sys

from one_brick import ROOM, OneBrick, until

JOBS = [1, 8]
MIB = 128
TURNS, SECONDS = int(os.environ.get("TURNS", "3")), int(os.environ.get("SECONDS", "3"))
SOCKET = str(ROOM / "nbd")


class SlowBrick(OneBrick):
    """A brick whose disk takes 5 ms for a read."""

    def before(self) -> None:
        with open(ROOM / "slow", "wb") as disk:
            disk.truncate(2 << 30)
        self.daemon("nbdkit", "nbdkit", "--foreground", "--unix", SOCKET, "--filter=delay", "--filter=limit", "file",
                    str(ROOM / "slow"), "rdelay=5ms", "limit=1")
        until("nbdkit listens", (ROOM / "nbd").exists)

    def cached(self) -> int:
        """Bytes that were added to the cache."""
        found = json.loads(self.ask("status", "--json").stdout)
        return found["bricks"][0]["cache"]["filled_bytes"]


def measure(shoal: str, cached: bool) -> dict[int, float]:
    """Reads a second by the number of jobs, with a new cluster."""
    cache = ["--cache", str(ROOM / "cache"), "--cache-size", "256M"] if cached else []
    with SlowBrick(shoal, f"nbd+unix:///?socket={SOCKET}", cache, []) as cluster:
        cluster.write(MIB)
        if cached:
            def is_filled() -> bool:
                # What the cache was too busy for is added by another reading.
                subprocess.run(["dd", f"if={cluster.file}", "of=/dev/null", "bs=1M", "iflag=direct"], check=True,
                               capture_output=True)
                return cluster.cached() >= MIB << 20
            until("all of the file is in the cache", is_filled)
        return {jobs: cluster.random_reads(jobs, SECONDS)["iops"] for jobs in JOBS}


def main() -> None:
    shoal = sys.argv[1] if len(sys.argv) > 1 else "target/release/shoal"
    found: dict[bool, list[dict[int, float]]] = {False: [], True: []}
    for _ in range(TURNS):
        for cached, turns in found.items():
            turns.append(measure(shoal, cached))
    print("| jobs | reads/s without a cache | with it | ratio |\n|---|---|---|---|")
    for jobs in JOBS:
        without, with_it = (statistics.median(turn[jobs] for turn in found[cached]) for cached in (False, True))
        print(f"| {jobs} | {without:,.0f} | {with_it:,.0f} | {with_it / without:.1f} |")


if __name__ == "__main__":
    main()
