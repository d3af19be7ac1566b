"""Measures the growth rows one after the other, judges them, and writes the page."""

from __future__ import annotations

import json
import time
import traceback
from pathlib import Path

from .. import meter, repeat, sandbox
from ..shell import Failed, say
from . import report, rows
from .cluster import Tools
from .curve import Curve, Verdict, failed, from_json, judge


def measure(pattern: str, most: int, tools: Tools, out: Path, facts: dict) -> int:
    """Inside the sandbox: measures what the pattern says, up to `most` files and units, and reports. The exit code: 0 if
    every rule was kept, 1 if one was broken or a row failed, 130 if it was stopped."""
    curves, code = [], 0
    facts["calibration"] = {"start": meter.calibrate()}
    began = time.monotonic()
    try:
        for row in rows.chosen(pattern):
            curve = row.curve()
            curves.append(curve)
            one(row, curve, rows.sizes_of(row, most), tools, out)
            say(f"{row.name} is done, {(time.monotonic() - began) / 60:.1f} min since the start")
    except (sandbox.Stopped, KeyboardInterrupt):
        say("stopped: what was measured so far follows")
        code = 130
    facts["calibration"]["end"] = meter.calibrate()
    facts["minutes"] = round((time.monotonic() - began) / 60, 1)
    broken = write(curves, facts, out)
    return code or int(bool(broken))


def one(row: rows.Row, curve: Curve, sizes: list[int], tools: Tools, out: Path) -> None:
    """Measures a row. Whatever fails, what was measured so far is kept, with the reason."""
    say(f"{row.name}: {', '.join(curve.shown(size) for size in sizes)}")
    try:
        row.run(tools, sizes, curve)
    except (Failed, OSError, ValueError) as error:
        curve.error = str(error)
        say(f"  {row.name}: {error}")
    except Exception:  # an error of the harness itself must not cost the other rows
        curve.error = traceback.format_exc().splitlines()[-1]
        say(traceback.format_exc())
    finally:
        clear(row.name, out, keep=curve.error is not None)


def clear(name: str, out: Path, keep: bool) -> None:
    """Ends what a row has left, so that the next one begins with nothing; keeps the logs of one that failed."""
    if keep:
        for log in sandbox.WORK.glob("growth.*/**/*.log"):
            (out / "logs").mkdir(exist_ok=True)
            (out / "logs" / f"{name}.{log.name}").write_bytes(log.read_bytes())
    sandbox.clear()


def write(curves: list[Curve], facts: dict, out: Path) -> list[Verdict]:
    """Writes `results.json`, `report.txt` and the pictures. The verdicts that say no."""
    verdicts = [verdict for curve in curves for verdict in judge(curve)]
    document = {"facts": facts, "curves": [curve.as_json() for curve in curves],
                "verdicts": [vars(verdict) for verdict in verdicts]}
    (out / "results.json").write_text(json.dumps(document, indent=1))
    (out / "report.txt").write_text(machine(facts) + "\n\n" + report.text(curves))
    for name, picture in report.pictures(curves, about(facts)).items():
        (out / f"{name}.svg").write_text(picture)
    return failed(verdicts)


def about(facts: dict) -> str:
    return f"{facts['commit']}, {facts['date'][:10]}"


def machine(facts: dict) -> str:
    """What the figures were taken on, in a sentence or two."""
    ends = facts["calibration"]
    changed = ", with changes" if facts["changed"] else ""
    return (f"Commit {facts['commit']}{changed}, {facts['date'][:10]}; {facts['cpu']}, {facts['cores']} cores, "
            f"{facts['memory_mib'] // 1024} GiB, kernel {facts['kernel']}; {facts['minutes']} minutes. memcpy "
            f"{ends['start']['memcpy_gb_per_s']} GB/s at the start, {ends['end']['memcpy_gb_per_s']} at the end; system "
            f"call {ends['start']['syscall_ns']:.0f} ns, {ends['end']['syscall_ns']:.0f} ns.")


def page(results: list[Path], docs: Path) -> None:
    """Writes the page's part and its pictures from the JSON of measurements; of rows with one name the last counts.

    Raises Failed if the page has no place for it.
    """
    curves: dict[str, Curve] = {}
    machines, commands, pictures = [], [], {}
    for document in (json.loads(path.read_text()) for path in results):
        found, facts = [from_json(curve) for curve in document["curves"]], document["facts"]
        curves.update({curve.name: curve for curve in found})
        machines.append(machine(facts))
        commands.append(repeat.command(facts["arguments"]))
        pictures.update(report.pictures(found, about(facts)))
    target = docs / "PERFORMANCE.md"
    part = report.markdown(list(curves.values()), " ".join(machines), "\n".join(commands), "figures")
    try:
        text = report.replaced(target.read_text(), part)
    except ValueError as error:
        raise Failed(f"{target}: {error}") from None
    target.write_text(text)
    for name, picture in pictures.items():
        (docs / "figures" / f"{name}.svg").write_text(picture)
