"""Compares what one setting gives with the best of others. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from ..figures import median, ratio, verdict

# The settings of a mount by their names in tables, as `shoal tune` takes them.
SETTINGS = {"neither": "io-cache=off read-ahead=off", "io-cache": "io-cache=on read-ahead=off",
            "read-ahead": "io-cache=off read-ahead=on", "both": "io-cache=on read-ahead=on",
            "auto": "io-cache=auto read-ahead=auto"}
# The wanted share of the best fixed setting's figure.
WANTED = 0.95
# Counts of a load are of so many in a second.
SLOTS_PER_SECOND = 10
# After a flip, the seconds that do not count.
FLIP_SECONDS = 2
# A rate is reached when it was held for this long.
REACHED_SLOTS = SLOTS_PER_SECOND // 2


@dataclass
class Result:
    """The figures of a row by setting, one for each turn; more is better. `ours` is the setting that is compared with the best
    of all others. `reached_ms`: for each turn how long `ours` took to come up to that; None if it never did."""

    name: str
    title: str
    unit: str
    ours: str
    wanted: float = WANTED
    values: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    reached_ms: list[int | None] | None = None

    def note(self, setting: str, value: float) -> None:
        self.values.setdefault(setting, []).append(value)

    def of(self, setting: str) -> float | None:
        """The median of a setting."""
        return median(self.values.get(setting, []))

    @property
    def best(self) -> str | None:
        """The best other setting."""
        others = [setting for setting in self.values if setting != self.ours]
        return max(others, key=self.of, default=None)

    @property
    def ratio(self) -> float | None:
        return ratio(self.of(self.ours), self.best and self.of(self.best))

    @property
    def verdict(self) -> str:
        """`ok`, `below`, or `missing` if there is no ratio."""
        return verdict(self.ratio, self.wanted) or "missing"

    @property
    def reached(self) -> str:
        """The median of `reached_ms` for people."""
        if not self.reached_ms:
            return "-"
        ordered = sorted(self.reached_ms, key=lambda ms: float("inf") if ms is None else ms)
        middle = ordered[len(ordered) // 2]
        return "never" if middle is None else str(middle)

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "median": {setting: self.of(setting) for setting in self.values}, "best": self.best,
                "ratio": self.ratio, "verdict": self.verdict}


def from_json(document: dict) -> Result:
    """Reads what `as_json` has written."""
    return Result(**{key: document[key] for key in Result.__dataclass_fields__})


def rotated(settings: list[str], turn: int) -> list[str]:
    """The order of a turn: each setting is the first one in some turn, so that none always follows the same one."""
    first = turn % len(settings)
    return settings[first:] + settings[:first]


def late_rate(counts: list[int]) -> float:
    """The rate per second from `FLIP_SECONDS` after a flip to the end, from the counts since the flip."""
    late = counts[FLIP_SECONDS * SLOTS_PER_SECOND:]
    if not late:
        raise ValueError(f"a phase must be longer than {FLIP_SECONDS} s")
    return sum(late) * SLOTS_PER_SECOND / len(late)


def reached_ms(counts: list[int], rate: float) -> int | None:
    """The milliseconds after which `rate` per second was first reached, on the average of the next 500 ms."""
    for first in range(len(counts) - REACHED_SLOTS + 1):
        if sum(counts[first:first + REACHED_SLOTS]) * SLOTS_PER_SECOND / REACHED_SLOTS >= rate:
            return first * 1000 // SLOTS_PER_SECOND
    return None


def parse_reads(text: str) -> list[list[int]]:
    """The output of `load/reads.c`: for each phase the reads that ended in each 100 ms."""
    phases = [[int(word) for word in line.split()] for line in text.splitlines()]
    if not phases or any(len(phase) < 2 or phase[0] != sum(phase[1:]) for phase in phases):
        raise ValueError(f"these are no counts: {text[:200]}")
    return [phase[1:] for phase in phases]
