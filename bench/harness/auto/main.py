"""Measures the rows of auto case by case, in turns by setting, and writes the report and the page's part."""

from __future__ import annotations

import json
import re
import time
import traceback
from pathlib import Path

from .. import meter, repeat, sandbox
from ..figures import number
from ..growth.main import machine
from ..shell import Failed, say
from ..systems import Options
from ..systems.shoal import Shoal
from . import report
from .rows import Case, Effort, chosen
from .worth import SETTINGS, Result, from_json, rotated

# Seconds of a run besides the load: a new mount, and its settings. For the estimate only.
OVERHEAD = 0.3


def measure(pattern: str, options: Options, effort: Effort, out: Path, facts: dict, keep: bool) -> int:
    """Inside the sandbox: measures what the pattern says and reports. The exit code: 1 if something failed, 130 if it was
    stopped. A row below what is wanted is marked only: other work on the machine can be the reason."""
    cases, results, raw, code = chosen(pattern), [], {}, 0
    facts["calibration"] = {"start": meter.calibrate()}
    began = time.monotonic()
    planned = sum((case.seconds(effort) + OVERHEAD) * len(case.settings) * effort.turns for case in cases)
    say(f"about {planned / 60:.0f} min")
    shoal = None
    try:
        shoal = Shoal(options)
        shoal.start()
        shoal.mount()
        facts["systems"] = {"shoal": {"about": shoal.about, **shoal.facts()}}
        laid = None
        for case in cases:
            found = case.results()
            results += found
            if case.files != laid:
                laid = lay(case, shoal, effort, found)
            if laid is not None:
                raw[case.rows[0][0]] = turns(case, shoal, effort, found)
    except (sandbox.Stopped, KeyboardInterrupt):
        say("stopped: what was measured so far follows")
        code = 130
    except Exception as error:  # whatever it is, the report of what was measured must be written
        say(f"error: {error}" if isinstance(error, Failed) else traceback.format_exc())
        code = 1
    facts["calibration"]["end"] = meter.calibrate()
    facts["minutes"] = round((time.monotonic() - began) / 60, 1)
    write([result for result in results if re.search(pattern, result.name)], raw, facts, out)
    return end(shoal, out, code or int(any(result.errors for result in results)), keep)


def lay(case: Case, shoal: Shoal, effort: Effort, results: list[Result]) -> int | None:
    """Makes the data that a case reads. Returns its number of files; None if that failed."""
    say("  laying out what is read")
    try:
        case.lay(shoal, effort)
        shoal.settle()
        return case.files
    except (Failed, OSError, ValueError) as error:
        failed(results, "laying out", error)
        return None


def turns(case: Case, shoal: Shoal, effort: Effort, results: list[Result]) -> dict[str, list]:
    """All turns of a case. Returns what was measured, by setting. A run that fails is noted, and the next one goes on."""
    raw: dict[str, list] = {}
    for turn in range(effort.turns):
        for setting in rotated(case.settings, turn):
            try:
                found = case.run(shoal, effort, setting, turn)
            except (Failed, OSError, ValueError) as error:
                failed(results, setting, error)
                continue
            raw.setdefault(setting, []).append(found)
            case.note(results, setting, found)
            told = " ".join(number(result.values[setting][-1]) for result in results)
            say(f"{results[0].name:24} turn {turn + 1}/{effort.turns} {setting:16} {told:>12} {results[0].unit}")
    case.finish(results, raw)
    return raw


def failed(results: list[Result], what: str, error: Exception) -> None:
    say(f"  {results[0].name}: {what}: {error}")
    for result in results:
        result.errors.append(f"{what}: {error}"[:300])


def write(results: list[Result], raw: dict, facts: dict, out: Path) -> None:
    """Writes `results.json` and `report.txt`."""
    document = {"facts": facts, "settings": SETTINGS, "auto": [result.as_json() for result in results],
                "runs": raw}
    (out / "results.json").write_text(json.dumps(document, indent=1))
    (out / "report.txt").write_text(f"{machine(facts)}\n\n{report.text(results)}")


def end(shoal: Shoal | None, out: Path, code: int, keep: bool) -> int:
    """Checks Shoal's logs, keeps them if that is wanted or something failed, and ends it. Returns the exit code."""
    if shoal is None:
        return code
    try:
        shoal.check()
    except Failed as error:
        say(f"error: {error}")
        code = code or 1
    if keep or code == 1:
        (out / "logs").mkdir(exist_ok=True)
        for log in shoal.home.glob("*.log"):
            (out / "logs" / log.name).write_bytes(log.read_bytes())
    if code == 0:
        try:
            shoal.stop()
        except (Failed, OSError) as error:
            say(f"shoal: {error}")
    return code


def page(paths: list[Path], docs: Path) -> None:
    """Writes the page's part from the JSON of measurements; of rows with one name the last counts.

    Raises Failed if the page has no place for it.
    """
    results: dict[str, Result] = {}
    machines, commands = [], []
    for document in (json.loads(path.read_text()) for path in paths):
        results.update({line["name"]: from_json(line) for line in document["auto"]})
        machines.append(machine(document["facts"]))
        commands.append(repeat.command(document["facts"]["arguments"]))
    target = docs / "PERFORMANCE.md"
    try:
        part = report.markdown(list(results.values()), " ".join(machines), "\n".join(commands))
        text = report.replaced(target.read_text(), part)
    except ValueError as error:
        raise Failed(f"{target}: {error}") from None
    target.write_text(text)
