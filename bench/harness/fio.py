"""fio: command lines and parsing of its output."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

COMMON = ["fio", "--name=row", "--ioengine=psync", "--direct=0", "--fallocate=none", "--thread=0", "--randrepeat=1",
          "--group_reporting", "--output-format=json", "--create_on_open=1"]

# A disk that an NBD server exports, over one connection.
NBD = ["fio", "--name=row", "--ioengine=nbd", "--randrepeat=1", "--group_reporting", "--output-format=json"]


@dataclass
class Answer:
    """The result of fio: bytes, operations, the seconds of its slowest job, the mean and p99 latency (us)."""

    bytes: int
    operations: int
    seconds: float
    mean_us: float
    p99_us: float
    raw: dict


def command(directory: Path, rw: str, block: str, jobs: int, *options: str) -> list[str]:
    """The command line for `jobs` processes that do `rw` with requests of `block` in `directory`."""
    return [*COMMON, f"--directory={directory}", f"--rw={rw}", f"--bs={block}", f"--numjobs={jobs}", *options]


def parse(text: str) -> Answer:
    """Reads fio's JSON, which may have lines of warnings before and after it."""
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0:
        raise ValueError(f"fio gave no JSON: {text[-300:]}")
    raw = json.loads(text[begin:end + 1])
    job = raw["jobs"][0]
    if job.get("error"):
        raise ValueError(f"fio: error {job['error']}")
    side = max((job["read"], job["write"]), key=lambda part: part["io_bytes"])
    latency = side.get("clat_ns", {}).get("percentile", {}).get("99.000000", 0)
    return Answer(side["io_bytes"], side["total_ios"], side["runtime"] / 1000, side["lat_ns"]["mean"] / 1000,
                  latency / 1000, raw)


def tail_rate(logs: list[str], operations: int, seconds: float, tail_from: float, every_seconds: float = 1.0) -> float:
    """Operations per second of all jobs after the second `tail_from`, of `operations` in `seconds` altogether.

    `logs` are the texts of fio's `--write_iops_log` files, averaged over `every_seconds`. fio leaves out a stretch in
    which nothing was done, and often the last one; so what was logged before the tail is taken from the whole.
    """
    before = 0.0
    for text in logs:
        for second, rate in per_second(text):
            if second <= tail_from + every_seconds / 4:
                before += rate * every_seconds
    return max(0.0, operations - before) / (seconds - tail_from)


def per_second(text: str) -> list[tuple[float, float]]:
    """A log of fio as pairs of second and operations per second."""
    return [(float(a) / 1000, float(b)) for a, b in (re.split(r",\s*", line)[:2] for line in text.splitlines())]
