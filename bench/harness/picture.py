"""Pictures as plain SVG. Pure: numbers in, text out."""

from __future__ import annotations

import math
from html import escape

INK, FAINT, GOOD, BAD, NEUTRAL = "#222", "#ddd", "#3a7d44", "#b3402e", "#5b7a99"
PALETTE = ["#4e79a7", "#f28e2b", "#76b7b2", "#e15759", "#59a14f", "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#bab0ac",
           "#333333", "#86bcb6"]
ROW_HEIGHT, LEFT, WIDTH = 22, 170, 560


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12, color: str = INK) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{color}">{escape(text)}</text>'


def _document(width: float, height: float, parts: list[str]) -> str:
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif">'
            f'<rect width="100%" height="100%" fill="white"/>' + "".join(parts) + "</svg>\n")


def ratios(title: str, bars: list[tuple[str, float | None, float | None]]) -> str:
    """Bars of ratios on a logarithmic axis; `bars` are (row, ratio, floor). The floor is a black mark."""
    shown = [x for _, value, floor in bars for x in (value, floor) if x]
    low = math.floor(math.log10(min([0.5, *shown])))
    high = math.ceil(math.log10(max([10, *shown])))

    def at(value: float) -> float:
        return LEFT + (math.log10(value) - low) / (high - low) * WIDTH
    bottom = 40 + len(bars) * ROW_HEIGHT
    parts = [_text(10, 22, title, size=14)]
    for power in range(low, high + 1):
        x = at(10 ** power)
        parts.append(f'<line x1="{x:.1f}" y1="34" x2="{x:.1f}" y2="{bottom}" stroke="{FAINT}"/>')
        parts.append(_text(x, bottom + 16, f"{10.0 ** power:g}x", "middle", 11))
    for number, (row, value, floor) in enumerate(bars):
        y = 40 + number * ROW_HEIGHT
        parts.append(_text(LEFT - 8, y + 14, row, "end"))
        if value:
            color = NEUTRAL if floor is None else GOOD if value >= floor else BAD
            start, end = sorted((at(1), at(value)))
            parts.append(f'<rect x="{start:.1f}" y="{y + 3}" width="{max(end - start, 1):.1f}" height="14" '
                         f'fill="{color}"/>')
            parts.append(_text(LEFT + WIDTH + 50, y + 14, f"{value:.2f}", "end"))
        if floor:
            parts.append(f'<line x1="{at(floor):.1f}" y1="{y + 1}" x2="{at(floor):.1f}" y2="{y + 19}" '
                         f'stroke="black" stroke-width="2.5"/>')
    x = at(1)
    parts.append(f'<line x1="{x:.1f}" y1="34" x2="{x:.1f}" y2="{bottom}" stroke="{INK}"/>')
    return _document(LEFT + WIDTH + 70, bottom + 28, parts)


def stacks(title: str, unit: str, bars: list[tuple[str, dict[str, float]]]) -> str:
    """Stacked bars of the full width: the shares of a row's CPU, with its total in `unit` at the end."""
    kinds = list(dict.fromkeys(kind for _, parts in bars for kind in parts))
    color = {kind: PALETTE[n % len(PALETTE)] for n, kind in enumerate(kinds)}
    bottom = 40 + len(bars) * ROW_HEIGHT
    out = [_text(10, 22, title, size=14)]
    for number, (row, parts) in enumerate(bars):
        y, x, total = 40 + number * ROW_HEIGHT, float(LEFT), sum(parts.values())
        out.append(_text(LEFT - 8, y + 14, row, "end"))
        for kind, value in parts.items():
            wide = value / total * WIDTH if total else 0
            out.append(f'<rect x="{x:.1f}" y="{y + 2}" width="{wide:.1f}" height="17" fill="{color[kind]}">'
                       f'<title>{escape(kind)}: {value:.3g} {escape(unit)} ({value / total:.0%})</title></rect>'
                       if total else "")
            if wide > 30:
                out.append(_text(x + wide / 2, y + 14, f"{value / total:.0%}", "middle", 10, "white"))
            x += wide
        out.append(_text(LEFT + WIDTH + 8, y + 14, f"{total:,.3g} {unit}"))
    for number, kind in enumerate(kinds):
        x, y = LEFT + (number % 4) * 150, bottom + 14 + number // 4 * 18
        out.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{color[kind]}"/>')
        out.append(_text(x + 17, y, kind, size=11))
    return _document(LEFT + WIDTH + 130, bottom + 24 + (len(kinds) + 3) // 4 * 18, out)


def curves(title: str, lines: list[tuple[str, list[tuple[float, float]]]], label) -> str:
    """Lines on logarithmic axes, a dashed one for what is linear; `lines` are (name, points), `label` writes an x."""
    xs = sorted({x for _, points in lines for x, _ in points})
    ys = [y for _, points in lines for _, y in points]
    first, last = math.log10(xs[0]), math.log10(xs[-1])
    low, high = math.floor(math.log10(min([*ys, 0.5]))), math.ceil(math.log10(max([*ys, 10])))
    left, top, wide, tall = 60, 40, 620, 300

    def at(x: float, y: float) -> tuple[float, float]:
        return (left + (math.log10(x) - first) / ((last - first) or 1) * wide,
                top + (high - math.log10(y)) / (high - low) * tall)
    parts = [_text(10, 22, title, size=13)]
    for power in range(low, high + 1):
        _, y = at(xs[0], 10.0 ** power)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + wide}" y2="{y:.1f}" stroke="{FAINT}"/>')
        parts.append(_text(left - 6, y + 4, f"{10.0 ** power:g}x", "end", 11))
    for x in xs:
        across, _ = at(x, 1)
        parts.append(f'<line x1="{across:.1f}" y1="{top}" x2="{across:.1f}" y2="{top + tall}" stroke="{FAINT}"/>')
        parts.append(_text(across, top + tall + 16, label(x), "middle", 11))
    end = min(last, first + high)
    ends = [at(xs[0], 1), at(10 ** end, 10 ** (end - first))]
    parts.append(f'<line x1="{ends[0][0]:.1f}" y1="{ends[0][1]:.1f}" x2="{ends[1][0]:.1f}" y2="{ends[1][1]:.1f}" '
                 f'stroke="{INK}" stroke-dasharray="5 4"/>')
    for number, (name, points) in enumerate(lines):
        color = PALETTE[number % len(PALETTE)]
        places = [at(x, y) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in places]
        below = top + tall + 36 + number * 18
        parts.append(f'<rect x="{left}" y="{below - 10}" width="12" height="12" fill="{color}"/>')
        parts.append(_text(left + 17, below, name, size=11))
    below = top + tall + 36 + len(lines) * 18
    parts.append(_text(left, below, "dashed: linear", size=11))
    return _document(left + wide + 40, below + 16, parts)
