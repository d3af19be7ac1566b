"""Curves: costs by how much exists, and whether they are steeper than they may be. Pure."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field

# A cost may be so much more than in proportion before it counts as steeper than linear: what such runs differ by.
SLACK = 1.25
# Rates of names may fall by a fifth from 10^5 to 10^7.
RATE_FROM, RATE_KEPT = 10 ** 5, 0.8
# A service that has 10^6 units or files starts within 10 s.
START_SIZE, START_SECONDS = 10 ** 6, 10.0
# Nobody may keep others waiting for longer, in milliseconds, whatever is done beside.
LONGEST_MS = 500.0
# What does not grow may differ by so much.
FLAT = 3.0


PREFIXES = [(1 << 60, "EiB"), (1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB")]


@dataclass
class Metric:
    """One thing that is measured at each size. `kind` says by which rule it is judged:

    `total`: the cost of all there is; not steeper than linear. `flat`: the cost of one thing whose size is only claimed; it
    does not grow. `rate`: operations per second; they may fall by a fifth.
    `start`: seconds of a start: a total with a limit at 10^6. `longest`: milliseconds; has a limit, whatever the size.
    `note`: shown, not judged. Totals below `noise` say nothing of how steep they are.
    """

    name: str
    unit: str
    kind: str = "total"
    noise: float = 0.0


@dataclass
class Curve:
    """A row: what grows (`of`, in `unit`s), and what was measured at each size. `notes` say what was left out, and why;
    an `error` says that the row could not go on."""

    name: str
    of: str
    unit: str
    metrics: list[Metric]
    points: dict[int, dict[str, float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    error: str | None = None

    def note(self, size: int, **values: float) -> None:
        """Keeps what was measured at a size."""
        known = {metric.name for metric in self.metrics}
        for name, value in values.items():
            name = name.replace("_", " ")
            assert name in known, name
            self.points.setdefault(size, {})[name] = float(value)

    def of_metric(self, name: str) -> list[tuple[int, float]]:
        """Sizes and values of a metric, by size."""
        return [(size, values[name]) for size, values in sorted(self.points.items()) if name in values]

    def shown(self, size: int) -> str:
        """A size for people: bytes with their prefix, else a count."""
        for factor, name in PREFIXES if self.unit == "byte" else []:
            if size >= factor:
                return f"{size / factor:g} {name}"
        return count(size)

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def from_json(document: dict) -> Curve:
    """The curve that `as_json` made a document of."""
    points = {int(size): values for size, values in document["points"].items()}
    return Curve(**{**document, "metrics": [Metric(**metric) for metric in document["metrics"]], "points": points})


@dataclass
class Verdict:
    """What a rule says of a metric. `ok` is None where it says nothing, for a reason in `why`."""

    curve: str
    metric: str
    ok: bool | None
    why: str


def steepest(points: list[tuple[int, float]], noise: float) -> tuple[float, int, int] | None:
    """How much more than in proportion a cost grows at worst, and between which sizes; None if there are not two sizes
    above the noise, one at least twice the other."""
    worst = None
    for at, (small, low) in enumerate(points):
        for large, high in points[at + 1:]:
            if large < 2 * small or high <= noise:
                continue
            excess = high / max(low, noise, 1e-12) / (large / small)
            if worst is None or excess > worst[0]:
                worst = (excess, small, large)
    return worst


def exponent(points: list[tuple[int, float]]) -> float | None:
    """The slope of a curve on logarithmic axes, over its last decade or what there is of it: 1 is linear."""
    good = [(size, value) for size, value in points if size > 0 and value > 0]
    if len(good) < 2:
        return None
    last = good[-1]
    first = next(((size, value) for size, value in good[:-1] if size * 10 >= last[0]), good[-2])
    return math.log(last[1] / first[1]) / math.log(last[0] / first[0])


def per_unit(points: list[tuple[int, float]]) -> float | None:
    """What one more costs: by the last two sizes."""
    if len(points) < 2:
        return None
    (small, low), (large, high) = points[-2:]
    return (high - low) / (large - small)


def judge(curve: Curve) -> list[Verdict]:
    """What the rules say of a curve."""
    found = []
    if curve.error:
        found.append(Verdict(curve.name, "", False, curve.error))
    for metric in curve.metrics:
        points = curve.of_metric(metric.name)
        if points:
            judges = {"total": [_linear], "flat": [_flat], "rate": [_kept], "start": [_linear, _starts],
                      "longest": [_short], "note": []}
            found += [Verdict(curve.name, metric.name, *rule(curve, metric, points)) for rule in judges[metric.kind]]
    return found


def _linear(curve: Curve, metric: Metric, points: list[tuple[int, float]]) -> tuple[bool | None, str]:
    worst = steepest(points, metric.noise)
    if worst is None:
        return None, "too little to tell how steep"
    excess, small, large = worst
    if excess <= SLACK:
        return True, f"not steeper than linear (at most {excess:.2g} of it)"
    return False, f"{excess:.2g} times steeper than linear from {curve.shown(small)} to {curve.shown(large)}"


def _flat(curve: Curve, metric: Metric, points: list[tuple[int, float]]) -> tuple[bool | None, str]:
    size, value = max(points, key=lambda point: point[1])
    limit = max(FLAT * points[0][1], metric.noise)
    return value <= limit, f"at most {value:.2g} {metric.unit}, at {curve.shown(size)}; {limit:.2g} is allowed"


def _kept(curve: Curve, _: Metric, points: list[tuple[int, float]]) -> tuple[bool | None, str]:
    base = next(((size, value) for size, value in points if size >= RATE_FROM), None)
    size, value = points[-1]
    if base is None or size <= base[0] or not base[1]:
        return None, f"judged beyond {count(RATE_FROM)}"
    fall = 1 - value / base[1]
    change = f"falls by {fall:.0%}" if fall > 0 else f"rises by {-fall:.0%}"
    return value >= RATE_KEPT * base[1], f"{change} from {curve.shown(base[0])} to {curve.shown(size)}"


def _starts(curve: Curve, _: Metric, points: list[tuple[int, float]]) -> tuple[bool | None, str]:
    found = [(size, value) for size, value in points if size <= START_SIZE]
    if not found or found[-1][0] < START_SIZE:
        return None, f"judged at {count(START_SIZE)}"
    return found[-1][1] <= START_SECONDS, f"{found[-1][1]:.2f} s at {count(START_SIZE)}, at most {START_SECONDS:.0f}"


def _short(curve: Curve, _: Metric, points: list[tuple[int, float]]) -> tuple[bool | None, str]:
    size, value = max(points, key=lambda point: point[1])
    return value <= LONGEST_MS, f"{value:.0f} ms at {curve.shown(size)}, at most {LONGEST_MS:.0f}"


def failed(verdicts: list[Verdict]) -> list[Verdict]:
    """Those that say no."""
    return [verdict for verdict in verdicts if verdict.ok is False]


def count(size: int) -> str:
    """A size as people write it: 10^6, 200, 4 PiB would be for the row to say."""
    power = round(math.log10(size)) if size > 0 else 0
    return f"10^{power}" if power >= 4 and size == 10 ** power else f"{size:,}"
