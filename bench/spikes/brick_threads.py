#!/usr/bin/env python3
"""How many reads a core-second gives by the threads of a brick and of a mount, and which thread of the brick is the limit.

bench/spikes/brick_threads.py [SHOAL]: one brick of code 1+0 in /dev/shm, one mount, io-cache and read-ahead off; fio reads
4 KiB at random with O_DIRECT in 16 jobs. TURNS (3) turns of SECONDS (3); medians. Needs root and fio.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOM = Path("/dev/shm/shoal-brick-threads")
META = "127.0.0.1:29400"
ACCESS = ["--meta", META, "--key-file", str(ROOM / "meta" / "key")]
CASES = [(1, 4), (2, 4), (4, 4), (1, 1), (1, 2)]  # threads of the brick, of the mount
TURNS, SECONDS = int(os.environ.get("TURNS", "3")), int(os.environ.get("SECONDS", "3"))
PATIENCE = 30.0


def cpu_us(pid: int) -> dict[str, float]:
    """CPU of the threads of a process by their name, in microseconds: "first" for the one that has its name."""
    found: dict[str, float] = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            name, used = (thread / "comm").read_text().strip(), (thread / "schedstat").read_text().split()[0]
        except OSError:
            continue  # it has ended
        name = "first" if thread.name == str(pid) else name
        found[name] = found.get(name, 0) + int(used) / 1000
    return found


def until(what: str, is_so) -> None:
    end = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(f"error: not so after {PATIENCE:.0f} s: {what}")
        time.sleep(0.1)


def measure(shoal: str, brick_threads: int, mount_threads: int) -> dict[str, float]:
    """One turn with a new cluster."""
    running: list[subprocess.Popen] = []

    def daemon(name: str, *words: str) -> subprocess.Popen:
        with open(ROOM / f"{name}.log", "w") as log:
            running.append(subprocess.Popen([shoal, *words], stdout=log, stderr=log))
        return running[-1]

    def ask(*words: str) -> subprocess.CompletedProcess:
        return subprocess.run([shoal, *words, *ACCESS], capture_output=True, text=True)

    shutil.rmtree(ROOM, ignore_errors=True)
    mount_point = ROOM / "mount"
    mount_point.mkdir(parents=True)
    subprocess.run([shoal, "cluster", "init", "--dir", str(ROOM / "meta")], check=True, capture_output=True)
    try:
        daemon("meta", "meta", "--dir", str(ROOM / "meta"), "--listen", META, *ACCESS[2:])
        until("the metadata service answers", lambda: ask("status").returncode == 0)
        brick = daemon("brick", "brick", "--disk", str(ROOM / "brick"), "--format", "--id", "1", "--size", "2G", "--node",
                       "1", "--listen", "127.0.0.1:29411", "--threads", str(brick_threads), *ACCESS)
        until("a volume can be made", lambda: ask("volume", "create", "main", "--code", "1+0").returncode == 0)
        mount = daemon("mount", "mount", "main", str(mount_point), "--foreground", "--threads", str(mount_threads), *ACCESS)
        until("the volume is mounted", mount_point.is_mount)
        subprocess.run([shoal, "tune", str(mount_point), "io-cache=off", "read-ahead=off"], check=True, capture_output=True)
        subprocess.run(["dd", "if=/dev/urandom", f"of={mount_point}/file", "bs=1M", "count=512", "conv=fsync"], check=True,
                       capture_output=True)
        before = cpu_us(brick.pid), cpu_us(mount.pid)
        done = subprocess.run(
            ["fio", "--name=reads", f"--filename={mount_point}/file", "--direct=1", "--rw=randread", "--bs=4k", "--size=512M",
             "--numjobs=16", "--ioengine=psync", "--time_based", f"--runtime={SECONDS}", "--group_reporting",
             "--output-format=json"], check=True, capture_output=True, text=True)
        after = cpu_us(brick.pid), cpu_us(mount.pid)
        reads = json.loads(done.stdout)["jobs"][0]["read"]
        used = [sum(then.values()) - sum(now.values()) for now, then in zip(before, after)]
        first = after[0]["first"] - before[0]["first"]
        count = reads["total_ios"]
        return {"reads": reads["iops"], "first": first / count, "brick": used[0] / count, "mount": used[1] / count,
                "per core-second": 1e6 * count / sum(used)}
    finally:
        subprocess.run(["umount", "-l", str(mount_point)], capture_output=True)
        for process in reversed(running):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(ROOM, ignore_errors=True)


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
