"""Figures: one run's measurement, medians, ratios and verdicts. Pure."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass, field

GIB = 1 << 30


@dataclass
class Measurement:
    """One run of one row on one system.

    `value` is in the row's unit, higher is better; `seconds` is the time it was taken over; `bytes` and `operations`
    are what was done in it; `cpu` has CPU-seconds by part (machine, client, servers, load, rest, steal).
    """

    value: float
    seconds: float
    bytes: int = 0
    operations: int = 0
    cpu: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    details: dict[str, object] = field(default_factory=dict)
    error: str | None = None

    def cost(self, per: str) -> float | None:
        """CPU of the whole machine: CPU-seconds per GiB, or microseconds per operation (`per` is "GiB" or "op")."""
        busy = self.cpu.get("machine", 0.0)
        if per == "GiB":
            return busy / (self.bytes / GIB) if self.bytes else None
        return busy / self.operations * 1e6 if self.operations else None

    def as_json(self, per: str) -> dict[str, object]:
        document = asdict(self)
        document["cpu_per_" + per] = self.cost(per)
        return document


def median(values: list[float]) -> float | None:
    """The median; None if there are no values."""
    return statistics.median(values) if values else None


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """The ratio of two figures; None if either is missing or zero."""
    return ours / theirs if ours and theirs else None


def verdict(value: float | None, floor: float | None) -> str:
    """`ok` or `below`; empty if there is no floor or no figure."""
    if value is None or floor is None:
        return ""
    return "ok" if value >= floor else "below"


def geometric_mean(values: list[float]) -> float:
    """The geometric mean; zero if any is not positive."""
    if not values or min(values) <= 0:
        return 0.0
    return math.exp(sum(map(math.log, values)) / len(values))


def number(value: float | None) -> str:
    """Three significant digits, no exponent; a dash for None."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"
