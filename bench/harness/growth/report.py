"""What is shown of curves: tables as text and as Markdown, and pictures. Pure."""

from __future__ import annotations

from .. import marks, picture
from ..figures import number
from ..tables import grid, markdown_table
from .curve import Curve, Verdict, exponent, judge, per_unit

BEGIN, END = "<!-- growth: written by ./dev bench --rows growth --page -->", "<!-- growth: end -->"


def each(curve: Curve, metric: str, unit: str) -> str:
    """What one more costs, in a prefix that fits; nothing for rates and the like."""
    kind = next(m.kind for m in curve.metrics if m.name == metric)
    cost = per_unit(curve.of_metric(metric))
    if kind not in ("total", "start", "flat") or cost is None or cost <= 0:
        return "-"
    of, grown = curve.unit, cost
    if curve.unit == "byte":
        of, grown = "TiB", cost * (1 << 40)
    for base, steps in (("s", ["s", "ms", "us", "ns"]), ("MiB", ["MiB", "KiB", "B"])):
        if unit == base:
            step = 1000 if base == "s" else 1024
            while grown < 1 and len(steps) > 1:
                grown, steps = grown * step, steps[1:]
            return f"{number(grown)} {steps[0]} per {of}"
    return f"{number(grown)} {unit} per {of}"


def table_rows(curve: Curve) -> tuple[list[str], list[list[str]]]:
    """The head and the lines of a curve's table: a line for each metric, a column for each size."""
    sizes = sorted(curve.points)
    head = [curve.of, *(curve.shown(size) for size in sizes), "one more", "exponent"]
    body = []
    for metric in curve.metrics:
        points = dict(curve.of_metric(metric.name))
        if points:
            slope = exponent(curve.of_metric(metric.name)) if metric.kind in ("total", "start", "flat", "rate") else None
            body.append([f"{metric.name}, {metric.unit}", *(number(points.get(size)) for size in sizes),
                         each(curve, metric.name, metric.unit), "-" if slope is None else f"{slope:.2f}"])
    return head, body


def verdict_rows(verdicts: list[Verdict]) -> list[list[str]]:
    word = {True: "ok", False: "FAILS", None: "-"}
    return [[v.curve, v.metric, word[v.ok], v.why] for v in verdicts]


def text(curves: list[Curve]) -> str:
    """The whole report for a terminal."""
    parts = []
    for curve in curves:
        if curve.points:
            parts.append(f"{curve.name}\n" + grid(*table_rows(curve)))
        parts += [f"  {note}" for note in curve.notes]
    verdicts = [verdict for curve in curves for verdict in judge(curve)]
    parts.append(grid(["row", "what", "verdict", "why"], verdict_rows(verdicts)))
    return "\n\n".join(parts) + "\n"


def markdown(curves: list[Curve], machine: str, command: str, figures: str) -> str:
    """The page's part between the markers; pictures are looked for in the directory `figures`."""
    parts = [BEGIN, f"```sh\n{command}\n```", machine]
    verdicts = [verdict for curve in curves for verdict in judge(curve)]
    bad = [verdict for verdict in verdicts if verdict.ok is False]
    kept = sum(verdict.ok is True for verdict in verdicts)
    parts.append(f"{kept} rules kept, {len(bad)} broken" + (":" if bad else "."))
    if bad:
        parts.append(markdown_table(["row", "what", "why"], [[v.curve, v.metric, v.why] for v in bad]))
    for curve in curves:
        if not curve.points:
            continue
        parts.append(f"**{curve.name}: {curve.of}**")
        parts.append(markdown_table(*table_rows(curve)))
        parts += curve.notes
        parts.append(f"![{curve.of}]({figures}/{curve.name}.svg)")
    parts.append(END)
    return "\n\n".join(parts)


def replaced(page: str, part: str) -> str:
    """The page with a new part between the markers.

    Raises ValueError if the page does not have both of them, in order.
    """
    return marks.replaced(page, BEGIN, END, part)


def pictures(curves: list[Curve], about: str) -> dict[str, str]:
    """A picture of each curve by its name: every metric relative to its first size, so that all fit one pair of axes."""
    found = {}
    for curve in curves:
        lines = []
        for metric in curve.metrics:
            points = [(size, value) for size, value in curve.of_metric(metric.name) if size > 0 and value > 0]
            if len(points) > 1 and metric.kind != "note":
                lines.append((f"{metric.name} ({number(points[0][1])} {metric.unit} at "
                              f"{curve.shown(points[0][0])})",
                              [(size, value / points[0][1]) for size, value in points]))
        if lines:
            found[curve.name] = picture.curves(f"{curve.name}: {curve.of}, each as a multiple of its first value ({about})",
                                               lines, curve.shown)
    return found
