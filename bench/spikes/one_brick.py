"""One brick of code 1+0 and one mount, for spikes: `with OneBrick(shoal, disk, brick_options, mount_options) as cluster:`."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

ROOM = Path("/dev/shm/shoal-one-brick")
META = "127.0.0.1:29400"
ACCESS = ["--meta", META, "--key-file", str(ROOM / "meta" / "key")]
PATIENCE = 60.0


def until(what: str, is_so) -> None:
    """Waits until something is so, and gives up after a minute."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(f"error: not so after {PATIENCE:.0f} s: {what}")
        time.sleep(0.1)


def end(running: list[subprocess.Popen]) -> None:
    """Ends programs, the last first."""
    for process in reversed(running):
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class OneBrick:
    """A new cluster in `ROOM`. The client keeps no bytes: io-cache and read-ahead are off."""

    def __init__(self, shoal: str, disk: str, brick: list[str], mount: list[str]):
        self.shoal, self.disk, self.options = shoal, disk, (brick, mount)
        self.mount_point, self.file = ROOM / "mount", ROOM / "mount" / "file"
        self.running: list[subprocess.Popen] = []

    def daemon(self, name: str, *words: str) -> subprocess.Popen:
        """Starts a program that ends with the cluster."""
        with open(ROOM / f"{name}.log", "w") as log:
            self.running.append(subprocess.Popen(words, stdout=log, stderr=log))
        return self.running[-1]

    def ask(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([self.shoal, *words, *ACCESS], capture_output=True, text=True)

    def before(self) -> None:
        """What must run before the brick starts."""

    def __enter__(self) -> OneBrick:
        shutil.rmtree(ROOM, ignore_errors=True)
        self.mount_point.mkdir(parents=True)
        subprocess.run([self.shoal, "cluster", "init", "--dir", str(ROOM / "meta")], check=True, capture_output=True)
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self) -> None:
        self.daemon("meta", self.shoal, "meta", "--dir", str(ROOM / "meta"), "--listen", META, *ACCESS[2:])
        until("the metadata service answers", lambda: self.ask("status").returncode == 0)
        self.before()
        brick, mount = self.options
        self.brick = self.daemon("brick", self.shoal, "brick", "--disk", self.disk, "--format", "--id", "1", "--node", "1",
                                 "--listen", "127.0.0.1:29411", *brick, *ACCESS)
        until("a volume can be made", lambda: self.ask("volume", "create", "main", "--code", "1+0").returncode == 0)
        self.mount = self.daemon("mount", self.shoal, "mount", "main", str(self.mount_point), "--foreground", *mount, *ACCESS)
        until("the volume is mounted", self.mount_point.is_mount)
        subprocess.run([self.shoal, "tune", str(self.mount_point), "io-cache=off", "read-ahead=off"], check=True,
                       capture_output=True)

    def write(self, mib: int) -> None:
        """Makes the file, of bytes that look random."""
        subprocess.run(["dd", "if=/dev/urandom", f"of={self.file}", "bs=1M", f"count={mib}", "conv=fsync"], check=True,
                       capture_output=True)

    def random_reads(self, jobs: int, seconds: int) -> dict:
        """Reads 4 KiB at random with O_DIRECT; what fio says of it."""
        done = subprocess.run(
            ["fio", "--name=reads", f"--filename={self.file}", "--direct=1", "--rw=randread", "--bs=4k",
             f"--numjobs={jobs}", "--ioengine=psync", "--time_based", f"--runtime={seconds}", "--group_reporting",
             "--output-format=json"], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)["jobs"][0]["read"]

    def __exit__(self, *_) -> None:
        subprocess.run(["umount", "-l", str(self.mount_point)], capture_output=True)
        end(self.running)
        shutil.rmtree(ROOM, ignore_errors=True)
