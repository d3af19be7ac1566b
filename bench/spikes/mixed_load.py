#!/usr/bin/env python3
"""What clients get from direct bricks while folds and the fill of a replaced brick use the same devices, with the queue and
without.

bench/spikes/mixed_load.py [SHOAL]: seven bricks, code 4+2 on six of them. nbdkit is the device of each: one request at a time,
1 ms and 100 MB/s, in RAM. fio reads 4 KiB at random with O_DIRECT (8 jobs) and writes 4 KiB at random (2 jobs, synced every 8),
whose stripes are folded; SECONDS (8) of each. Then a brick is killed and replaced by the seventh, which is filled meanwhile. Without the queue: a depth
of 1,024, so that devices get everything at once. TURNS (3); medians. Needs root, fio and nbdkit.
"""

import json
import os
import statistics
import subprocess
import sys
import threading
import time

from one_brick import META, ROOM, OneBrick, until

BRICKS, SPARE, MIB = 6, 7, 192
TURNS, SECONDS = int(os.environ.get("TURNS", "3")), int(os.environ.get("SECONDS", "8"))
FILL_MOST = 180
CASES = [("without", ["--depth", "1024"]), ("with, depth 4", ["--depth", "4"])]
PHASES = ["reads alone", "reads and folds", "reads, folds and fill"]


class Seven(OneBrick):
    """Six bricks of a volume and a spare one, each on a slow device."""

    def __init__(self, shoal: str, options: list[str]):
        super().__init__(shoal, "", options, [])
        self.access = ["--meta", META, "--key-file", str(ROOM / "meta" / "key")]
        self.processes: dict[int, subprocess.Popen] = {}

    def start(self) -> None:
        self.daemon("meta", self.shoal, "meta", "--dir", str(ROOM / "meta"), "--listen", META, *self.access[2:])
        until("the metadata service answers", lambda: self.ask("status").returncode == 0)
        for number in range(1, BRICKS + 1):
            self.start_brick(number)
        make = ["volume", "create", "main", "--code", "4+2", "--unit", "64K"]
        until("a volume can be made", lambda: self.ask(*make).returncode == 0)
        self.start_brick(SPARE)
        self.daemon("mount", self.shoal, "mount", "main", str(self.mount_point), "--foreground", *self.access)
        until("the volume is mounted", self.mount_point.is_mount)
        subprocess.run([self.shoal, "tune", str(self.mount_point), "io-cache=off", "read-ahead=off"], check=True,
                       capture_output=True)

    def start_brick(self, number: int) -> None:
        disk, socket = ROOM / f"disk{number}", ROOM / f"nbd{number}"
        with open(disk, "wb") as file:
            file.truncate(1 << 30)
        self.daemon(f"nbdkit{number}", "nbdkit", "--foreground", "--unix", str(socket), "--filter=noparallel",
                    "--filter=delay", "--filter=rate", "file", str(disk), "rdelay=1ms", "wdelay=1ms", "rate=800M")
        until("nbdkit listens", socket.exists)
        # Little memory: most reads reach the device
        self.processes[number] = self.daemon(
            f"brick{number}", self.shoal, "brick", "--disk", f"nbd+unix:///?socket={socket}", "--format", "--id", str(number),
            "--node", str(number), "--listen", f"127.0.0.1:{29410 + number}", "--io", "direct", "--memory", "24M",
            *self.options[0], *self.access)

    def reads(self, seconds: int) -> list[float]:
        """Requests per second, and milliseconds of the mean and of 99 in 100."""
        done = subprocess.run(
            ["fio", "--name=reads", f"--filename={self.file}", "--direct=1", "--rw=randread", "--bs=4k", "--numjobs=8",
             "--ioengine=psync", "--time_based", f"--runtime={seconds}", "--group_reporting", "--output-format=json"],
            check=True, capture_output=True, text=True)
        found = json.loads(done.stdout)["jobs"][0]["read"]
        return [found["iops"], found["clat_ns"]["mean"] / 1e6, found["clat_ns"]["percentile"]["99.000000"] / 1e6]

    def writer(self, seconds: int) -> subprocess.Popen:
        return subprocess.Popen(
            ["fio", "--name=writes", f"--filename={self.file}", "--rw=randwrite", "--bs=4k", "--numjobs=2", "--ioengine=psync",
             "--fsync=8", "--time_based", f"--runtime={seconds}", "--group_reporting", "--output-format=json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def replaced(self) -> bool:
        return self.ask("brick", "replace", "b1", f"b{SPARE}").returncode == 0

    def fill_seconds(self) -> float:
        """The time until all slots are live."""
        begun = time.monotonic()
        while not self.is_level():
            if time.monotonic() - begun > FILL_MOST:
                raise SystemExit("error: the brick is not filled")
            time.sleep(0.2)
        return time.monotonic() - begun

    def is_level(self) -> bool:
        map_ = json.loads(self.ask("volume", "info", "main", "--json").stdout)
        return all(slot["state"] == "live" for group in map_["groups"] for slot in group["slots"])


def run(shoal: str, options: list[str]) -> list[list[float]]:
    """Requests per second, mean and p99 of each phase; the last also has the seconds of the fill and written requests."""
    found = []
    with Seven(shoal, options) as cluster:
        cluster.write(MIB)
        found.append(cluster.reads(SECONDS))
        writer = cluster.writer(SECONDS + 2)
        time.sleep(2)
        found.append(cluster.reads(SECONDS))
        writer.communicate()
        cluster.processes[1].kill()
        until("the brick can be replaced", cluster.replaced)
        filled = []
        watcher = threading.Thread(target=lambda: filled.append(cluster.fill_seconds()))
        watcher.start()
        writer = cluster.writer(SECONDS)
        found.append(cluster.reads(SECONDS))
        written = json.loads(writer.communicate()[0])["jobs"][0]["write"]["iops"]
        watcher.join()
        if not filled:
            raise SystemExit("error: the brick is not filled")
        found[-1] += [filled[0], written]
    return found


def main() -> None:
    shoal = sys.argv[1] if len(sys.argv) > 1 else "target/release/shoal"
    found: dict[str, list[list[list[float]]]] = {case: [] for case, _ in CASES}
    for _ in range(TURNS):
        for case, options in CASES:
            found[case].append(run(shoal, options))
            print(f"  {case}: {found[case][-1]}", file=sys.stderr)
    print("| | queue | reads/s | mean, ms | p99, ms | writes/s | fill, s |\n|---|---|---|---|---|---|---|")
    for at, phase in enumerate(PHASES):
        for case, _ in CASES:
            columns = [statistics.median(values) for values in zip(*(turn[at] for turn in found[case]))]
            rest = [f"{columns[4]:,.0f}", f"{columns[3]:.1f}"] if len(columns) > 3 else ["", ""]
            print(f"| {phase} | {case} | {columns[0]:,.0f} | {columns[1]:.1f} | {columns[2]:.1f} | {rest[0]} | {rest[1]} |")


if __name__ == "__main__":
    main()
