#!/usr/bin/env python3
"""What a second network to the bricks brings, and what a cut one costs.

bench/spikes/rails.py [SHOAL]: three bricks in RAM (code 2+1) in a network namespace behind two cables of MBIT (200) Mbit/s each way;
the mount is outside. fio reads and writes a file of 64 MiB with O_DIRECT; io-cache and read-ahead are off. By one cable, by both, and
by both of which one is cut after half of the time. TURNS (3) turns of SECONDS (5); medians. Needs root, iproute2 and fio.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from one_brick import end, until

ROOM, SPACE = Path("/dev/shm/shoal-rails"), "shoal-rails"
MBIT, TURNS, SECONDS = (int(os.environ.get(name, usual)) for name, usual in (("MBIT", "200"), ("TURNS", "3"), ("SECONDS", "5")))
ROWS = [("write", "1m", 1), ("read", "1m", 1), ("read", "1m", 4), ("randread", "64k", 1), ("randread", "64k", 8), ("randread", "4k", 1)]
CASES = ["one", "both", "both, one cut"]


def run(line: str) -> None:
    subprocess.run(line.split(), check=True, capture_output=True)


def outside(rail: int) -> str:
    return f"shoal-rail{rail}"


class Rails:
    """The cluster and its mount; gone when the block ends."""

    def __init__(self, shoal: str, rails: int):
        self.shoal, self.rails, self.running = shoal, rails, []
        self.mount_point = ROOM / "mount"

    def daemon(self, name: str, *words: str) -> None:
        with open(ROOM / f"{name}.log", "w") as log:
            self.running.append(subprocess.Popen(words, stdout=log, stderr=log))

    def ask(self, *words: str) -> bool:
        return subprocess.run([self.shoal, *words, *self.access], capture_output=True).returncode == 0

    def __enter__(self) -> "Rails":
        self.clear()
        self.mount_point.mkdir(parents=True)
        run(f"ip netns add {SPACE}")
        run(f"ip -n {SPACE} link set lo up")
        for rail in (1, 2):
            run(f"ip link add {outside(rail)} type veth peer name in{rail} netns {SPACE}")
            run(f"ip address add 198.18.{rail}.1/30 dev {outside(rail)}")
            run(f"ip -n {SPACE} address add 198.18.{rail}.2/30 dev in{rail}")
            run(f"ip link set {outside(rail)} up")
            run(f"ip -n {SPACE} link set in{rail} up")
            for where, device in ((["tc"], outside(rail)), (["tc", "-n", SPACE], f"in{rail}")):
                run(" ".join(where) + f" qdisc add dev {device} root tbf rate {MBIT}mbit burst 32k limit 1m")
        run(f"{self.shoal} cluster init --dir {ROOM / 'meta'}")
        key, inside = str(ROOM / "meta" / "key"), ["ip", "netns", "exec", SPACE, self.shoal]
        self.access = ["--meta", "198.18.1.2:7400,198.18.2.2:7400", "--key-file", key]
        self.daemon("meta", *inside, "meta", "--dir", str(ROOM / "meta"), "--listen", "0.0.0.0:7400", "--key-file", key)
        until("the metadata service answers", lambda: self.ask("status"))
        for number in (1, 2, 3):
            addresses = ",".join(f"198.18.{rail}.2:{7400 + number}" for rail in range(1, self.rails + 1))
            self.daemon(f"brick{number}", *inside, "brick", "--disk", str(ROOM / f"disk{number}"), "--format", "--size", "512M",
                        "--id", str(number), "--node", str(number), "--listen", f"0.0.0.0:{7400 + number}", "--advertise", addresses,
                        "--meta", "127.0.0.1:7400", "--key-file", key)
        until("a volume can be made", lambda: self.ask("volume", "create", "main", "--code", "2+1"))
        self.daemon("mount", self.shoal, "mount", "main", str(self.mount_point), "--foreground", *self.access)
        until("the volume is mounted", self.mount_point.is_mount)
        run(f"{self.shoal} tune {self.mount_point} io-cache=off read-ahead=off")
        run(f"dd if=/dev/urandom of={self.mount_point / 'file'} bs=1M count=64 conv=fsync")
        return self

    def work(self, kind: str, block: str, jobs: int) -> tuple[float, float]:
        """MB/s, and seconds that the longest request took."""
        done = subprocess.run(
            ["fio", "--name=work", f"--filename={self.mount_point / 'file'}", "--direct=1", f"--rw={kind}", f"--bs={block}",
             f"--numjobs={jobs}", "--ioengine=psync", "--time_based", "--size=64M", f"--runtime={SECONDS}", "--group_reporting",
             "--output-format=json"], check=True, capture_output=True, text=True)
        found = json.loads(done.stdout)["jobs"][0]["write" if kind == "write" else "read"]
        return found["bw_bytes"] / 1e6, found["clat_ns"]["max"] / 1e9

    @staticmethod
    def cut(is_cut: bool) -> None:
        run(f"ip -n {SPACE} link set in2 {'down' if is_cut else 'up'}")

    def clear(self) -> None:
        for rail in (1, 2):
            subprocess.run(["ip", "link", "del", outside(rail)], capture_output=True)
        subprocess.run(["ip", "netns", "del", SPACE], capture_output=True)
        shutil.rmtree(ROOM, ignore_errors=True)

    def __exit__(self, *_) -> None:
        subprocess.run(["umount", "-l", str(self.mount_point)], capture_output=True)
        end(self.running)
        self.clear()


def main() -> None:
    shoal = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/shoal")
    found: dict[tuple, list[tuple[float, float]]] = {}
    for _ in range(TURNS):
        for case in CASES:
            with Rails(shoal, 1 if case == "one" else 2) as rails:
                for row in ROWS:
                    timer = threading.Timer(SECONDS / 2, rails.cut, [True])
                    if case == CASES[2]:
                        timer.start()
                    found.setdefault((case, row), []).append(rails.work(*row))
                    if case == CASES[2]:
                        timer.join()
                        rails.cut(False)
                        # What is mended is tried again soon: it has been cut for seconds only.
                        time.sleep(5)
                        run(f"dd if={rails.mount_point / 'file'} of=/dev/null bs=1M iflag=direct")
                        time.sleep(1)
    print("| | block | jobs | one, MB/s | both, MB/s | both / one | one cut after half of the time, MB/s | longest request then, s |")
    print("|---|---|---|---|---|---|---|---|")
    for row in ROWS:
        one, both, cut = (statistics.median(rate for rate, _ in found[case, row]) for case in CASES)
        longest = max(longest for _, longest in found[CASES[2], row])
        print(f"| {row[0]} | {row[1]} | {row[2]} | {one:.1f} | {both:.1f} | {both / one:.2f} | {cut:.1f} | {longest:.1f} |")


if __name__ == "__main__":
    main()
