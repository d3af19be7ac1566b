#!/usr/bin/env python3
"""What a shallow switch buffer does to reads: ten servers with a brick each send to one client through a port whose queue has
few bytes. docs/PERFORMANCE.md, "Behind a shallow buffer".

    bench/spikes/shallow_buffer.py target/release/shoal

Settings, from the environment:

    BUFFERS=16,32,64,128,256,1024  bytes of the port's queue, in KiB
    MBIT=1000                      rate of the port; servers have ten times as much
    CONTROL=cubic                  congestion control of the servers
    WINDOWS=off,auto               receive windows of the mount
    SECONDS=4                      of each measurement
    MIB=256                        bytes of the file

One row for each buffer, receive window and way to read: MB/s, their share of the rate, the 99th percentile of a read, packets
that the port dropped, timeouts of TCP (RTO), the window at the end in KiB and how often it was cut. Each pair of buffer and
window has a new mount. Everything is in namespaces of this process, which end with it; bricks are in RAM.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

from one_brick import PATIENCE, until

ROOM = Path("/run/shallow")
SERVERS = 10
# Addresses of links: 198.18.N.1 is the router, 198.18.N.2 the node. N is 0 for the client.
CLIENT = 0
CODE = "8+2"
MTU_SHARE = 1448 / 1514  # payload of a full frame
SETTINGS = [("1 reader, 1 MiB", 1, "off"), ("1 reader, read-ahead", 1, "on"), ("8 readers, 1 MiB", 8, "off")]


def within(space: str) -> list[str]:
    """Words before a command that runs in a namespace. `ip netns exec` would hide its mounts from everybody else."""
    return ["nsenter", f"--net=/run/netns/{space}"]


def run(*words: str, space: str | None = None) -> str:
    """Runs a program, in a namespace; what it says."""
    words = (*within(space), *words) if space else words
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode:
        raise SystemExit(f"error: {' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def name(node: int) -> str:
    return "cl" if node == CLIENT else f"s{node}"


def address(node: int) -> str:
    return f"198.18.{node}.2"


def build(mbit: int, control: str) -> None:
    """A router and a link to each node. A router and not a bridge: in a bridge the sender's socket counts the bytes that wait
    in the port's queue, and slows down before anything is dropped. Without bundles (GSO), which would be queued as one."""
    run("ip", "netns", "add", "rt")
    run("sysctl", "-qw", "net.ipv4.ip_forward=1", space="rt")
    for node in range(SERVERS + 1):
        space = name(node)
        run("ip", "netns", "add", space)
        run("ip", "-n", "rt", "link", "add", space, "type", "veth", "peer", "name", "eth0", "netns", space)
        for where, port, host in [("rt", space, 1), (space, "eth0", 2)]:
            run("ip", "-n", where, "address", "add", f"198.18.{node}.{host}/24", "dev", port)
            run("ip", "-n", where, "link", "set", port, "gso_max_segs", "1", "up")
        run("ip", "-n", space, "link", "set", "lo", "up")
        # By the route, because a namespace may not set what the machine has not allowed
        run("ip", "-n", space, "route", "add", "default", "via", f"198.18.{node}.1", "congctl", control)
        if node != CLIENT:
            run("tc", "-n", space, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{mbit * 10}mbit",
                "burst", "64kb", "limit", "4mb")


def shape(mbit: int, kib: int) -> None:
    """The port towards the client."""
    run("tc", "-n", "rt", "qdisc", "replace", "dev", name(CLIENT), "root", "tbf", "rate", f"{mbit}mbit", "burst", "15kb",
        "limit", f"{kib}kb")


def dropped() -> int:
    queues = json.loads(run("tc", "-n", "rt", "-s", "-j", "qdisc", "show", "dev", name(CLIENT)))
    return sum(queue["drops"] for queue in queues if queue["kind"] == "tbf")


def timeouts() -> int:
    """Retransmission timeouts of all servers."""
    total = 0
    for node in range(1, SERVERS + 1):
        lines = run("cat", "/proc/net/netstat", space=name(node)).splitlines()
        names, values = (line.split() for line in lines if line.startswith("TcpExt:"))
        total += int(values[names.index("TCPTimeouts")])
    return total


class Cluster:
    """A metadata service on the first server, a brick on each, and a mount on the client."""

    def __init__(self, shoal: str):
        self.shoal = shoal
        self.meta = ["--meta", f"{address(1)}:7400", "--key-file", str(ROOM / "meta" / "key")]
        self.mount_point = ROOM / "mount"
        self.mount_point.mkdir(parents=True)
        run(shoal, "cluster", "init", "--dir", str(ROOM / "meta"))

    def daemon(self, space: str, what: str, *words: str) -> None:
        with open(ROOM / f"{what}.log", "w") as log:
            subprocess.Popen([*within(space), self.shoal, *words], stdout=log, stderr=log)

    def ask(self, *words: str) -> bool:
        done = subprocess.run([*within(name(CLIENT)), self.shoal, *words, *self.meta], capture_output=True)
        return done.returncode == 0

    def start(self, mib: int) -> None:
        self.daemon("s1", "meta", "meta", "--dir", str(ROOM / "meta"), "--listen", f"{address(1)}:7400", *self.meta[2:])
        until("the metadata service answers", lambda: self.ask("status"))
        for node in range(1, SERVERS + 1):
            self.daemon(name(node), f"brick{node}", "brick", "--disk", str(ROOM / f"disk{node}"), "--format", "--id",
                        str(node), "--node", str(node), "--size", "256M", "--listen", f"{address(node)}:7411", *self.meta)
        until("a volume can be made", lambda: self.ask("volume", "create", "main", "--code", CODE))
        self.mount("auto")
        run("dd", "if=/dev/urandom", f"of={self.mount_point}/file", "bs=1M", f"count={mib}", "conv=fsync")

    def mount(self, window: str) -> None:
        """Mounts the volume with this receive window, once more if it is mounted."""
        if self.mount_point.is_mount():
            run("umount", str(self.mount_point))
        self.daemon(name(CLIENT), "mount", "mount", "main", str(self.mount_point), "--foreground", "--receive-window",
                    window, *self.meta)
        until("the volume is mounted", self.mount_point.is_mount)

    def window(self) -> str:
        """The receive window now, in KiB, and how often it was cut."""
        lines = [line.split() for line in (self.mount_point / ".shoal/status").read_text().splitlines()]
        status = {line[0]: line[1] for line in lines}
        return f"{int(status['receive_window_bytes']) >> 10:>7} {status['receive_window_cuts']:>4}"

    def read(self, jobs: int, read_ahead: str, mib: int, seconds: int) -> dict:
        """Reads 1 MiB after the other with O_DIRECT, each job its own part of the file; what fio says of it."""
        run(self.shoal, "tune", str(self.mount_point), "io-cache=off", f"read-ahead={read_ahead}", space=name(CLIENT))
        part = mib // jobs
        said = run("fio", "--name=reads", f"--filename={self.mount_point}/file", "--direct=1", "--rw=read", "--bs=1m",
                   f"--size={part}m", f"--offset_increment={part}m", f"--numjobs={jobs}", "--ioengine=psync", "--time_based",
                   f"--runtime={seconds}", "--group_reporting", "--output-format=json")
        return json.loads(said)["jobs"][0]["read"]


def main() -> None:
    env = os.environ
    buffers = [int(word) for word in env.get("BUFFERS", "16,32,64,128,256,1024").split(",")]
    mbit, mib, seconds = (int(env.get(key, usual)) for key, usual in [("MBIT", 1000), ("MIB", 256), ("SECONDS", 4)])
    run("mount", "-t", "tmpfs", "-o", "size=4g", "shallow", "/run")
    ROOM.mkdir()
    build(mbit, env.get("CONTROL", "cubic"))
    shape(mbit, 4096)
    cluster = Cluster(str(Path(sys.argv[1]).resolve()))
    cluster.start(mib)
    full = mbit / 8 * MTU_SHARE
    print(f"{'buffer':>9}  {'window':<7} {'way':<20} {'MB/s':>7} {'share':>6} {'p99 ms':>8} {'dropped':>8} {'timeouts':>8} "
          f"{'KiB':>7} {'cuts':>4}")
    for kib, window in itertools.product(buffers, env.get("WINDOWS", "off,auto").split(",")):
        shape(mbit, kib)
        cluster.mount(window)
        for title, jobs, read_ahead in SETTINGS:
            before, lost = timeouts(), dropped()
            read = cluster.read(jobs, read_ahead, mib, seconds)
            rate = read["bw_bytes"] / 1e6
            late = read["clat_ns"]["percentile"]["99.000000"] / 1e6
            bytes_now = cluster.window() if window != "off" else f"{'-':>7} {'-':>4}"
            print(f"{kib:>5} KiB  {window:<7} {title:<20} {rate:>7.1f} {rate / full:>6.2f} {late:>8.1f} "
                  f"{dropped() - lost:>8} {timeouts() - before:>8} {bytes_now}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    if os.environ.get("SHALLOW"):
        main()
    else:
        os.environ["SHALLOW"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
                              "--propagation", "private", sys.executable, *sys.argv])
