"""The growth rows: what each measures at which sizes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from ..sandbox import WORK
from ..shell import Failed, run, say, until
from .cluster import Beside, Cluster, Mount, Tools, Wish, cpu_per_s, rss_mib, stop
from .curve import Curve, Metric, count

SAMPLE = 10_000
PROCESSES = 4
REST_SECONDS = 5.0
OPENS_OF_A_PROGRAM = 10_000
JOURNAL_MIB = 64  # what a new brick of 1 GiB writes
GIB, TIB, PIB = 1 << 30, 1 << 40, 1 << 50


@dataclass
class Row:
    """A growth row. `sizes` are all of its sizes, of which those up to the chosen limit are measured; `run` adds to the
    curve size by size, so that what was measured is kept if it fails."""

    name: str
    of: str
    unit: str
    metrics: list[Metric]
    sizes: list[int]
    run: Callable[[Tools, list[int], Curve], None]
    # The limit of `--growth-max` counts files and units; other rows are short enough to be measured whole
    limited: bool = True

    def curve(self) -> Curve:
        return Curve(self.name, self.of, self.unit, self.metrics)


def sizes_of(row: Row, most: int) -> list[int]:
    """The sizes that are measured with the limit `most`; never fewer than two, or there would be no curve. Rows that do
    not count files or units get as large a part of their sizes as files get of 10^7, so that a quick run is quick."""
    if row.limited:
        return [size for size in row.sizes if size <= most] or row.sizes[:1]
    if most >= 10 ** 6:
        return row.sizes
    return row.sizes[:max(2, len(row.sizes) // 2)]


def chosen(pattern: str) -> list[Row]:
    """The rows that a pattern of `--rows` matches."""
    return [row for row in ROWS if re.search(pattern, row.name)]


def is_growth(pattern: str) -> bool:
    """Whether a pattern of `--rows` means growth rows: they are not measured beside others."""
    return bool(pattern) and pattern.lstrip("^(").startswith("growth")


# Files, in one directory and in all.

def files(per_dir: int) -> Callable[[Tools, list[int], Curve], None]:
    """Fills the metadata service and looks at a sample through mounts. `per_dir`: files of a directory, 0 for all in one."""
    def measure(tools: Tools, sizes: list[int], curve: Curve) -> None:
        cluster = Cluster(curve.name.split(".")[1], tools)
        cluster.start()
        before = 0
        for size in sizes:
            seconds = cluster.fill("files", before, size, per_dir)
            say(f"  {curve.name} {count(size)}: filled with {(size - before) / seconds:,.0f} files/s")
            before = size
            restart_meta(cluster, size, curve)
            sample(cluster, size, per_dir, curve)
        cluster.stop()
    return measure


def restart_meta(cluster: Cluster, size: int, curve: Curve) -> None:
    """Stops and kills the metadata service, and starts it: how long that takes, and what it needs then."""
    stopped = cluster.stop_meta()
    curve.note(size, stop=stopped, start=cluster.start_meta())
    cluster.stop_meta(kill=True)
    curve.note(size, start_after_kill=cluster.start_meta())
    cluster.until_level()


def sample(cluster: Cluster, size: int, per_dir: int, curve: Curve) -> None:
    """A sample of operations, spread over all files: looks at it, unlinks it, makes it again; then lists everything.
    Three times with a new mount each; medians."""
    rates: dict[str, list[float]] = {"stat": [], "unlink": [], "create": []}
    phases = 3
    for phase in range(phases):
        mount = cluster.mount()
        for what in rates:
            done = run([str(cluster.tools.load), what, str(mount.at / "files"), str(per_dir), str(size),
                        str(min(SAMPLE, size)), str(phase * max(1, size // SAMPLE // phases)), str(PROCESSES)], 900)
            rates[what].append(min(SAMPLE, size) / float(done.out))
        if phase < phases - 1:
            cluster.unmount(mount)
    found, seconds = run([str(cluster.tools.load), "list", str(mount.at / "files")], 3600).out.split()
    directories = size // per_dir if per_dir else 0
    if int(found) != size + directories:
        raise Failed(f"{found} entries were listed, {size + directories} are there")
    curve.note(size, list=float(seconds), mount_RAM=rss_mib(mount.process.pid))
    cluster.unmount(mount)
    curve.note(size, **{what: sorted(values)[len(values) // 2] for what, values in rates.items()})
    curve.note(size, RAM=rss_mib(cluster.meta.pid), disk=cluster.meta_disk_mib())


FILES_METRICS = [Metric("create", "1/s", "rate"), Metric("stat", "1/s", "rate"), Metric("unlink", "1/s", "rate"),
                 Metric("list", "s", noise=0.5), Metric("RAM", "MiB", noise=32), Metric("mount RAM", "MiB", noise=48),
                 Metric("disk", "MiB", noise=16), Metric("start", "s", "start", noise=0.5),
                 Metric("start after kill", "s", "start", noise=0.5), Metric("stop", "s", noise=0.5)]


# Units on a brick.

def units(tools: Tools, sizes: list[int], curve: Curve) -> None:
    """Two bricks that hold the same, by units of 4 KiB, and a third that takes the place of one. Where three times the
    bytes do not fit into RAM, the bricks' disks are compressed in RAM: all bytes of the file are equal."""
    for size in sizes:
        compress = 3 * size * 4096 > 0.6 * available_bytes()
        if compress:
            curve.notes.append(f"The disks of {count(size)} units are compressed in RAM (zram).")
        # A thirty-second of a brick is for descriptors, two copies of up to 130 bytes for each unit
        wish = Wish(2, max(1024, size * max(4096 * 5 // 4, 32 * 2 * 130 * 5 // 4) >> 20), "1+1", "4K", spare=1,
                    compress=compress)
        cluster = Cluster("units", tools, wish)
        cluster.start()
        mount = cluster.mount()
        seconds = lay_units(mount.at / "long", size)
        say(f"  {curve.name} {count(size)}: laid with {size / seconds:,.0f} stripes/s")
        curve.note(size, write=seconds, RAM=rss_mib(cluster.bricks[1].pid),
                   used=used_mib(cluster, 1))
        restart_brick(cluster, size, curve)
        curve.note(size, RAM_after_start=rss_mib(cluster.bricks[1].pid))
        replace_brick(cluster, size, curve)
        purge(cluster, mount, size, curve)
        cluster.stop()


def available_bytes() -> int:
    """RAM that programs could have now."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024


def lay_units(file: Path, stripes: int) -> float:
    """Writes so many stripes of 4 KiB and waits until they are stable; the seconds."""
    began, part, left = time.monotonic(), b"u" * (1 << 20), stripes * 4096
    with open(file, "wb", buffering=0) as out:
        while left:
            left -= out.write(part[:left])
        os.fsync(out.fileno())
    return time.monotonic() - began


def until_held(cluster: Cluster, stripes: int) -> None:
    """Waits until a brick counts all units."""
    until(f"{stripes:,} units on b1", 60, lambda: units_of(cluster, 1) >= stripes, 0.5)


def units_of(cluster: Cluster, number: int) -> int:
    """Units that a brick says it holds."""
    return next(brick.get("units", 0) for brick in cluster.status()["bricks"] if brick["id"] == f"b{number}")


def used_mib(cluster: Cluster, number: int) -> float:
    brick = next(brick for brick in cluster.status()["bricks"] if brick["id"] == f"b{number}")
    return (brick["capacity"] - brick["free"]) / (1 << 20)


def restart_brick(cluster: Cluster, size: int, curve: Curve) -> None:
    """Stops and kills a brick, and starts it."""
    stopped = cluster.stop_brick(1)
    curve.note(size, stop=stopped, start=cluster.start_brick(1), level=cluster.until_level())
    cluster.stop_brick(1, kill=True)
    curve.note(size, start_after_kill=cluster.start_brick(1), level_after_kill=cluster.until_level())
    until_held(cluster, size)


def replace_brick(cluster: Cluster, size: int, curve: Curve) -> None:
    """Another brick takes the place of one that is gone."""
    cluster.stop_brick(2, kill=True)
    del cluster.bricks[2]
    cluster.start_spare(3)
    until_out(cluster, 2)
    began = time.monotonic()
    cluster.shoal("brick", "replace", "b2", "b3", "--wait", timeout=7200)
    curve.note(size, replace=time.monotonic() - began)


def until_out(cluster: Cluster, number: int) -> None:
    """Waits until a brick that was stopped is Out."""
    def out() -> bool:
        return any(b["id"] == f"b{number}" and b["state"] == "out" for b in cluster.status()["bricks"])
    until(f"b{number} out", 60, out, 0.2)


def purge(cluster: Cluster, mount: Mount, size: int, curve: Curve) -> None:
    """Removes the file while a program writes and syncs beside it; afterwards nothing of it may be counted or take space."""
    with Beside(cluster.tools, mount.at / "beside") as quiet:
        time.sleep(5)
    with Beside(cluster.tools, mount.at / "beside") as beside:
        began = time.monotonic()
        (mount.at / "long").unlink()
        curve.note(size, unlink=time.monotonic() - began)
        until_purged(cluster)
        curve.note(size, purge=time.monotonic() - began)
        time.sleep(2)
    curve.note(size, longest_fsync=beside.longest_ms, longest_fsync_at_rest=quiet.longest_ms,
               RAM_after_purge=rss_mib(cluster.bricks[1].pid), units_left=units_of(cluster, 1),
               used_after_purge=used_mib(cluster, 1))


def until_purged(cluster: Cluster, seconds: float = 900) -> None:
    """Waits until no file is left to purge."""
    def done() -> bool:
        try:
            return cluster.status()["meta"]["purges"] == 0
        except (Failed, ValueError):
            return False
    until("no file to purge", seconds, done, 0.2)


UNITS_METRICS = [Metric("write", "s", noise=1), Metric("RAM", "MiB", noise=64), Metric("RAM after start", "MiB", noise=64),
                 Metric("used", "MiB", noise=64), Metric("start", "s", "start", noise=0.5),
                 Metric("level", "s", noise=2), Metric("start after kill", "s", "start", noise=0.5),
                 Metric("level after kill", "s", noise=2), Metric("stop", "s", noise=0.5),
                 Metric("replace", "s", noise=2), Metric("unlink", "s", noise=0.5), Metric("purge", "s", noise=1),
                 Metric("longest fsync", "ms", "longest"), Metric("longest fsync at rest", "ms", "note"),
                 Metric("RAM after purge", "MiB", noise=64), Metric("units left", "units", "note"),
                 Metric("used after purge", "MiB", "note")]


# The length of one file.

def length(tools: Tools, sizes: list[int], curve: Curve) -> None:
    """Sparse files by `truncate`, one write at their end."""
    cluster = Cluster("length", tools)
    cluster.start()
    mount = cluster.mount()
    for size in sizes:
        with Beside(cluster.tools, mount.at / "beside") as beside:
            done = run([str(tools.load), "length", str(mount.at / f"sparse.{size}"), str(size), "1"], 120)
            for line in done.out.splitlines():
                step, value = line.split()
                if step != "data":
                    curve.note(size, **{step: float(value)})
                elif int(value) < size - (1 << 20):
                    curve.note(size, data_found_early=1)
            began = time.monotonic()
            until_purged(cluster)
            curve.note(size, purge=time.monotonic() - began)
        curve.note(size, longest_fsync=beside.longest_ms)
        if len(cluster.up()) < cluster.wish.bricks:
            raise Failed(f"bricks are out after a file of {size} bytes")
    cluster.stop()


LENGTH_METRICS = [*(Metric(step, "s", "flat", noise=1) for step in ("create", "write", "read", "stat", "seek", "cut", "regrow",
                                                               "unlink", "purge")),
                  Metric("longest fsync", "ms", "longest"), Metric("data found early", "", "note")]


def overwrites(tools: Tools, sizes: list[int], curve: Curve) -> None:
    """One file of 256 MiB, overwritten by 4 KiB at random places."""
    cluster = Cluster("overwrites", tools)
    cluster.start()
    mount = cluster.mount()
    file, bytes_ = mount.at / "file", 256 << 20
    run(["dd", "if=/dev/urandom", f"of={file}", "bs=1M", "count=256", "conv=fsync", "status=none"], 300)
    every = sizes[0]
    done = run([str(tools.load), "overwrite", str(file), str(bytes_), str(sizes[-1]), str(every)], 3600)
    total, last = 0.0, list(map(float, done.out.split()))
    for number, seconds in enumerate(last, 1):
        total += seconds
        if number * every in sizes:
            curve.note(number * every, time=total, rate=every / seconds)
    curve.note(sizes[-1], brick_RAM=max(rss_mib(brick.pid) for brick in cluster.bricks.values()),
               mount_RAM=rss_mib(mount.process.pid))
    cluster.stop()


OVERWRITES_METRICS = [Metric("time", "s", noise=1), Metric("rate", "1/s", "rate"), Metric("brick RAM", "MiB", "note"),
                      Metric("mount RAM", "MiB", "note")]


# Open files.

def opens(tools: Tools, sizes: list[int], curve: Curve) -> None:
    """So many files open at a time, by programs with 10,000 each: more than that a program may not have everywhere."""
    cluster = Cluster("opens", tools)
    cluster.start()
    cluster.fill("files", 0, sizes[-1], 0)
    for size in sizes:
        mount = cluster.mount()
        before = rss_mib(cluster.meta.pid), rss_mib(mount.process.pid)
        programs = []
        opened = 0.0
        for first in range(0, size, OPENS_OF_A_PROGRAM):
            program = subprocess.Popen([str(tools.load), "open", str(mount.at / "files"), str(first),
                                        str(min(OPENS_OF_A_PROGRAM, size - first))], text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            programs.append(program)
            seconds = program.stdout.readline()
            if not seconds:
                raise Failed(f"{size} files could not be opened")
            opened += float(seconds)
        after = rss_mib(cluster.meta.pid), rss_mib(mount.process.pid)
        at_rest = cpu_per_s(REST_SECONDS, cluster.pids())
        closed = sum(float(program.communicate("\n", timeout=1800)[0]) for program in programs)
        curve.note(size, open=opened, close=closed, meta_RAM=max(0, after[0] - before[0]),
                   mount_RAM=max(0, after[1] - before[1]), CPU_at_rest=at_rest["meta"] + at_rest["mounts"],
                   unmount=cluster.unmount(mount))
    cluster.stop()


OPENS_METRICS = [Metric("open", "s", noise=0.05), Metric("close", "s", noise=0.05), Metric("meta RAM", "MiB", noise=8),
                 Metric("mount RAM", "MiB", noise=8), Metric("CPU at rest", "ms/s", noise=20),
                 Metric("unmount", "s", noise=0.5)]


# Parts of a cluster.

def mounts(tools: Tools, sizes: list[int], curve: Curve) -> None:
    """So many mounts of one volume on this machine."""
    cluster = Cluster("mounts", tools)
    cluster.start()
    total, made = 0.0, 0
    for size in sizes:
        while made < size:
            made += 1
            total += cluster.mount(f"m{made}").seconds
        time.sleep(2)
        at_rest = cpu_per_s(REST_SECONDS, cluster.pids())
        curve.note(size, time=total, the_last_one=cluster.mounts[-1].seconds, RAM=rss_mib(*cluster.pids()["mounts"]),
                   meta_RAM=rss_mib(cluster.meta.pid), meta_CPU_at_rest=at_rest["meta"],
                   CPU_at_rest=sum(at_rest.values()), change_seen=change_seen(cluster))
    cluster.stop()


def change_seen(cluster: Cluster) -> float:
    """Seconds until a file that the first mount has written is seen by the last one."""
    first, last = cluster.mounts[0], cluster.mounts[-1]
    began = time.monotonic()
    (first.at / "news").write_text(str(began))
    while (last.at / "news").read_text() != str(began):
        time.sleep(0.005)
    return time.monotonic() - began


MOUNTS_METRICS = [Metric("time", "s", noise=0.5), Metric("the last one", "s", "note"), Metric("RAM", "MiB", noise=20),
                  Metric("meta RAM", "MiB", noise=32), Metric("meta CPU at rest", "ms/s", noise=10),
                  Metric("CPU at rest", "ms/s", noise=20), Metric("change seen", "s", noise=0.5)]


class Embedded:
    """A cluster made by `shoal up`."""

    def __init__(self, tools: Tools, bricks: int):
        self.tools, self.dir = tools, WORK / "growth.up"
        began = time.monotonic()
        self.shoal("up", "--bricks", str(bricks), "--size", "1G", "--code", "4+2")
        self.seconds = time.monotonic() - began

    def shoal(self, *words: str, timeout: float = 300) -> str:
        return run([str(self.tools.shoal), *words, "--dir", str(self.dir)], timeout).out

    def status(self) -> dict:
        return json.loads(self.shoal("status", "--json"))

    def pids(self) -> dict[str, list[int]]:
        status = self.status()
        return {"meta": [status["meta"]["pid"]], "bricks": [brick["pid"] for brick in status["bricks"]]}

    def down(self) -> float:
        began = time.monotonic()
        self.shoal("down")
        return time.monotonic() - began


def timed(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def warm_ram(mib: int) -> None:
    """Touches so much free memory and frees it. The host of a virtual machine may have taken back what was free for
    long; the first touch is then several times as slow, and the row would measure the host."""
    file = WORK / "warm"
    run(["dd", "if=/dev/zero", f"of={file}", "bs=1M", f"count={mib}", "status=none"], 300)
    file.unlink()


def bricks(tools: Tools, sizes: list[int], curve: Curve) -> None:
    """So many bricks in one cluster, as `shoal up` makes it."""
    for size in sizes:
        warm_ram(size * (JOURNAL_MIB + 6))
        cluster = Embedded(tools, size)
        time.sleep(2)
        pids = cluster.pids()
        at_rest = cpu_per_s(REST_SECONDS, pids)
        curve.note(size, up=cluster.seconds, status=timed(lambda: cluster.shoal("status")), map=cluster.status()["map_bytes"] / 1024,
                   RAM=rss_mib(*pids["bricks"]), meta_RAM=rss_mib(*pids["meta"]), meta_CPU_at_rest=at_rest["meta"],
                   brick_CPU_at_rest=at_rest["bricks"], down=cluster.down())
        began = time.monotonic()
        cluster.shoal("up")
        curve.note(size, up_again=time.monotonic() - began)
        cluster.down()
        run(["rm", "-rf", "--one-file-system", str(cluster.dir)], 120)


BRICKS_METRICS = [Metric("up", "s", noise=2), Metric("up again", "s", noise=2), Metric("down", "s", noise=2),
                  Metric("status", "s", noise=0.2), Metric("map", "KiB"), Metric("RAM", "MiB", noise=20),
                  Metric("meta RAM", "MiB", noise=32), Metric("meta CPU at rest", "ms/s", noise=10),
                  Metric("brick CPU at rest", "ms/s", noise=20)]


def volumes(tools: Tools, sizes: list[int], curve: Curve) -> None:
    """So many volumes in one cluster of six bricks."""
    cluster = Cluster("volumes", tools)
    cluster.start()
    mount = cluster.mount()
    total, made = 0.0, 1
    for size in sizes:
        while made < size:
            made += 1
            last = timed(lambda: cluster.shoal("volume", "create", f"v{made}", "--code", "4+2", "--same-node"))
            total += last
        time.sleep(2)
        pids = cluster.pids()
        at_rest = cpu_per_s(REST_SECONDS, pids)
        curve.note(size, create=total, the_last_one=last, status=timed(cluster.status),
                   list=timed(lambda: cluster.shoal("volume", "list")), map=cluster.status()["map_bytes"] / 1024,
                   meta_RAM=rss_mib(*pids["meta"]), RAM=rss_mib(*pids["bricks"], *pids["mounts"]),
                   meta_CPU_at_rest=at_rest["meta"], CPU_at_rest=sum(at_rest.values()))
        if len(cluster.up()) < cluster.wish.bricks or mount.process.poll() is not None:
            raise Failed(f"bricks are out, or the mount has ended, with {size} volumes")
    curve.note(size, start=restarted(cluster))
    cluster.stop()


def restarted(cluster: Cluster) -> float:
    """Seconds of a start of the metadata service."""
    stop(cluster.meta)
    return cluster.start_meta()


VOLUMES_METRICS = [Metric("create", "s", noise=1), Metric("the last one", "s", "note"), Metric("status", "s", noise=0.2),
                   Metric("list", "s", noise=0.2), Metric("map", "KiB"), Metric("meta RAM", "MiB", noise=32),
                   Metric("RAM", "MiB", noise=100), Metric("meta CPU at rest", "ms/s", noise=10),
                   Metric("CPU at rest", "ms/s", noise=30), Metric("start", "s", "note")]


POWERS = [10 ** 4, 10 ** 5, 10 ** 6, 10 ** 7]
ROWS = [
    Row("growth.directory", "files in one directory", "file", FILES_METRICS, POWERS, files(0)),
    Row("growth.tree", "files, 1,000 in each directory", "file", FILES_METRICS, POWERS, files(1000)),
    Row("growth.units", "units of one file on a brick", "unit", UNITS_METRICS, POWERS, units),
    Row("growth.length", "bytes of a sparse file", "byte", LENGTH_METRICS,
        [GIB, 32 * GIB, TIB, 32 * TIB, PIB, 4 * PIB], length, limited=False),
    Row("growth.overwrites", "overwrites of 4 KiB in one file", "write", OVERWRITES_METRICS,
        [k * 10 ** 5 for k in range(1, 11)], overwrites, limited=False),
    Row("growth.opens", "open files", "file", OPENS_METRICS, [10, 100, 1000, 10 ** 4, 10 ** 5], opens, limited=False),
    Row("growth.mounts", "mounts of a volume", "mount", MOUNTS_METRICS, [1, 10, 50, 100, 200], mounts, limited=False),
    Row("growth.bricks", "bricks of a cluster", "brick", BRICKS_METRICS, [6, 12, 25, 50, 100, 200], bricks, limited=False),
    Row("growth.volumes", "volumes of a cluster", "volume", VOLUMES_METRICS, [2, 10, 100, 300, 1000], volumes,
        limited=False),
]
