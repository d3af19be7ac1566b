#!/usr/bin/env python3
"""What one slow brick of six costs readers, with hedged reads and without.

bench/spikes/slow_brick.py [SHOAL]: six bricks, code 4+2; nbdkit lends their disks, which are in RAM. fio reads a file of 256 MiB
with O_DIRECT; io-cache and read-ahead are off. The disks take USUAL (0) ms for each read, the slow one SLOW (6): without a delay
a small read takes 0.3 ms here. `USUAL=1 SLOW=20` are disks as they are, with one of a twentieth of the speed.
TURNS (3) turns of SECONDS (4); medians. Needs root, fio and nbdkit.
"""

import json
import os
import statistics
import subprocess
import sys

from one_brick import META, ROOM, OneBrick, until

BRICKS, MIB = 6, 256
ROWS = [("random, 4 KiB", "randread", "4k", 1), ("random, 4 KiB", "randread", "4k", 8),
        ("random, 64 KiB", "randread", "64k", 1), ("in sequence, 1 MiB", "read", "1m", 1)]
USUAL, SLOW = os.environ.get("USUAL", "0"), os.environ.get("SLOW", "6")
CASES = [("no brick is slow", USUAL, "auto"), ("one is slow, hedge=off", SLOW, "off"), ("one is slow", SLOW, "auto")]
TURNS, SECONDS = int(os.environ.get("TURNS", "3")), int(os.environ.get("SECONDS", "4"))


class Six(OneBrick):
    """Six bricks, of which the first has a disk with this delay for each read, in milliseconds."""

    def __init__(self, shoal: str, delay: str):
        super().__init__(shoal, "", [], [])
        self.delay = delay

    def start(self) -> None:
        access = ["--meta", META, "--key-file", str(ROOM / "meta" / "key")]
        self.daemon("meta", self.shoal, "meta", "--dir", str(ROOM / "meta"), "--listen", META, *access[2:])
        until("the metadata service answers", lambda: self.ask("status").returncode == 0)
        for number in range(1, BRICKS + 1):
            disk, socket = ROOM / f"disk{number}", ROOM / f"nbd{number}"
            with open(disk, "wb") as file:
                file.truncate(1 << 30)
            delay = self.delay if number == 1 else USUAL
            self.daemon(f"nbdkit{number}", "nbdkit", "--foreground", "--unix", str(socket), "--filter=delay", "file", str(disk),
                        f"rdelay={delay}ms")
            until("nbdkit listens", socket.exists)
            self.daemon(f"brick{number}", self.shoal, "brick", "--disk", f"nbd+unix:///?socket={socket}", "--format", "--id",
                        str(number), "--node", str(number), "--listen", f"127.0.0.1:{29410 + number}", *access)
        until("a volume can be made", lambda: self.ask("volume", "create", "main", "--code", "4+2").returncode == 0)
        self.daemon("mount", self.shoal, "mount", "main", str(self.mount_point), "--foreground", *access)
        until("the volume is mounted", self.mount_point.is_mount)

    def tune(self, *words: str) -> None:
        subprocess.run([self.shoal, "tune", str(self.mount_point), *words], check=True, capture_output=True)

    def reads(self, kind: str, block: str, jobs: int) -> list[float]:
        """Requests per second, and milliseconds that half and 99 of 100 of them take at most."""
        done = subprocess.run(
            ["fio", "--name=reads", f"--filename={self.file}", "--direct=1", f"--rw={kind}", f"--bs={block}", f"--numjobs={jobs}",
             "--ioengine=psync", "--time_based", "--ramp_time=1", f"--runtime={SECONDS}", "--group_reporting",
             "--output-format=json"], check=True, capture_output=True, text=True)
        found = json.loads(done.stdout)["jobs"][0]["read"]
        at = found["clat_ns"]["percentile"]
        return [found["iops"], at["50.000000"] / 1e6, at["99.000000"] / 1e6]

    def counters(self) -> dict[str, int]:
        lines = (line.split() for line in (self.mount_point / ".shoal" / "status").read_text().splitlines())
        return {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdigit()}


def main() -> None:
    shoal = sys.argv[1] if len(sys.argv) > 1 else "target/release/shoal"
    found: dict[tuple[str, tuple], list[list[float]]] = {(case, row): [] for row in ROWS for case, *_ in CASES}
    told = {}
    for _ in range(TURNS):
        for case, delay, hedge in CASES:
            with Six(shoal, delay) as cluster:
                cluster.tune("io-cache=off", "read-ahead=off", f"hedge={hedge}")
                cluster.write(MIB)
                for row in ROWS:
                    found[case, row].append(cluster.reads(*row[1:]))
                told[case] = cluster.counters()
    print("| reads | jobs | | requests/s | p50, ms | p99, ms | p99 / with no slow brick |\n|---|---|---|---|---|---|---|")
    for row in ROWS:
        usual = 0.0
        for case, *_ in CASES:
            rate, half, most = (statistics.median(turn[at] for turn in found[case, row]) for at in range(3))
            usual = usual or most
            print(f"| {row[0]} | {row[3]} | {case} | {rate:,.0f} | {half:.2f} | {most:.2f} | {most / usual:.2f} |")
    for case, counters in told.items():
        asked = counters["bytes_read"] / 65536
        print(f"\n{case}: of the last turn's reads, {counters['reads_hedged']} were hedged, {counters['reads_diverted']} went to the "
              f"primary alone; {counters['units_decoded']} decodes for {asked:,.0f} times 64 KiB read")


if __name__ == "__main__":
    main()
