"""The report: the rules of the comparison, a table for each opponent, and the JSON document with all results."""

from __future__ import annotations

from .alternate import Results
from .figures import Measurement, median, number, ratio, verdict
from .rows import Row
from .systems import ALL
from .tables import grid

# Memory that Shoal reports of itself, per process (KiB).
BUDGET_KIB = {"brick": 256 << 10, "metadata": 256 << 10, "mount": 256 << 10}

RULES = """\
All systems run at the same time on this machine, idle while another one is measured, and take turns: run by run.
Servers and clients talk TCP over loopback, in a network namespace that has nothing else. Bricks are XFS on loop
devices in RAM for everybody; Shoal's bricks are files on that XFS. One FUSE mount each. Before every run the client is
unmounted and mounted again, which drops its caches and the kernel's; a gate is ended and started. Servers and bricks
stay warm. fio does buffered psync I/O; sequential writes go to fresh files, those of gates over what is there, and the time
includes their fsync. CPU is that of the whole machine. Figures are medians. Systems differ in what they protect:"""


def values(results: Results, row: str, system: str) -> list[float]:
    """The figures of the runs that did not fail."""
    return [m.value for m in results.runs.get(row, {}).get(system, []) if m.error is None]


def costs(results: Results, row: Row, system: str) -> float | None:
    """The median CPU of a row, by the row's `per`."""
    found = [m.cost(row.per) for m in results.runs.get(row.name, {}).get(system, []) if m.error is None]
    return median([cost for cost in found if cost is not None])


def summary(results: Results, rows: list[Row], systems: list[str]) -> list[dict[str, object]]:
    """A line for each row: medians, CPU, and for each opponent ratio, floor and verdict."""
    lines = []
    for row in rows:
        medians = {system: median(values(results, row.name, system)) for system in systems}
        line: dict[str, object] = {"row": row.name, "title": row.title, "unit": row.unit, "cpu_per": row.per,
                                   "median": medians, "cpu": {s: costs(results, row, s) for s in systems},
                                   "settings": results.variants.get(row.name, {}), "against": {},
                                   "notes": sorted({f"{s}: {note}" for s in systems
                                                    for m in results.runs.get(row.name, {}).get(s, [])
                                                    for note in _notes(m)})}
        for system in systems:
            if system != "shoal" and "shoal" in systems and takes_part(system, row):
                times, floor = ratio(medians["shoal"], medians[system]), row.floors.get(system)
                line["against"][system] = {"ratio": times, "floor": floor, "verdict": verdict(times, floor)}
        lines.append(line)
    return lines


def takes_part(system: str, row: Row) -> bool:
    """Whether a row is measured on a system."""
    return system not in ALL or row.kind in ALL[system].doors


def _notes(measured: Measurement) -> list[str]:
    return [f"failed: {measured.error[:100]}"] if measured.error else measured.notes


def table(lines: list[dict], systems: list[str]) -> str:
    """The tables as text, one for each opponent, or one of Shoal alone."""
    others = [system for system in systems if system != "shoal"]
    parts = []
    if not others:
        body = [[line["row"], line["unit"], number(line["median"].get("shoal")), number(line["cpu"].get("shoal")),
                 cpu_unit(line)] for line in lines]
        parts.append(grid(["row", "unit", "shoal", "cpu", "cpu is"], body))
    for other in others:
        body = []
        for line in lines:
            against = line["against"].get(other)
            if against is None:
                continue
            body.append([line["row"], line["unit"], number(line["median"].get("shoal")), number(line["median"][other]),
                         number(against.get("ratio")), number(against.get("floor")), against.get("verdict", ""),
                         number(line["cpu"].get("shoal")), number(line["cpu"][other]), cpu_unit(line),
                         line["settings"].get(other, "")])
        parts.append(grid(["row", "unit", "shoal", other, "ratio", "floor", "", "cpu shoal", "cpu peer", "cpu is",
                           "settings"], body))
    notes = [f"  {line['row']}: {note}" for line in lines for note in line["notes"]]
    return "\n\n".join(parts) + ("\n\nnotes\n" + "\n".join(notes) if notes else "")


def cpu_unit(line: dict) -> str:
    return "s/GiB" if line["cpu_per"] == "GiB" else "us/op"


def memory_table(peaks: dict[str, dict[str, dict[str, int]]]) -> str:
    """The most memory of one process of each kind; Shoal's processes beside their budgets."""
    body = []
    for system, kinds in peaks.items():
        for kind, peak in kinds.items():
            budget = BUDGET_KIB.get(kind) if system == "shoal" else None
            body.append([f"{system} {kind}", f"{peak['rss_kib'] / 1024:.0f}", f"{peak['high_water_kib'] / 1024:.0f}",
                         f"{budget // 1024}" if budget else "-",
                         "" if not budget else "ok" if peak["high_water_kib"] <= budget else "above"])
    return grid(["one process of", "MiB seen", "MiB high water", "budget", ""], body)
