"""What is shown of the rows of auto: tables as text and as Markdown. Pure."""

from __future__ import annotations

from typing import Callable

from .. import marks
from ..figures import number
from ..tables import grid, markdown_table
from .worth import SETTINGS, Result

BEGIN, END = "<!-- auto: written by ./dev bench --rows auto --page -->", "<!-- auto: end -->"


def table(results: list[Result], mark: Callable[[str], str] = str) -> tuple[list[str], list[list[str]]]:
    """The head and the lines of a table of rows with the same settings. `mark` is applied to ratios that are too low."""
    settings = list(dict.fromkeys(setting for result in results for setting in known(result)))
    timed = any(result.reached_ms is not None for result in results)
    head = ["row", "what", "unit", *settings, "best other", f"{results[0].ours} / best", "wanted", "verdict",
            *(["ms to wanted"] if timed else [])]
    body = []
    for result in results:
        told = number(result.ratio)
        body.append([result.name, result.title, result.unit, *(number(result.of(setting)) for setting in settings),
                     result.best or "-", told if result.verdict == "ok" else mark(told), f"{result.wanted:g}",
                     result.verdict.upper() if result.verdict != "ok" else "ok", *([result.reached] if timed else [])])
    return head, body


def known(result: Result) -> list[str]:
    """The settings of a row, in the order of the tables."""
    order = list(SETTINGS)
    return sorted(result.values, key=lambda setting: order.index(setting) if setting in order else len(order))


def tables(results: list[Result]) -> list[list[Result]]:
    """The rows of each table: those of the same kind, which is the name up to the first `-`."""
    kinds: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        kinds.setdefault((result.name.split("-")[0], result.ours), []).append(result)
    return list(kinds.values())


def summary(results: list[Result]) -> str:
    """How many rows are as wanted."""
    bad = [result for result in results if result.verdict != "ok"]
    return f"{len(results) - len(bad)} of {len(results)} rows have what is wanted" + (
        ": all but " + ", ".join(result.name for result in bad) if bad else "") + "."


def text(results: list[Result]) -> str:
    """The whole report for a terminal."""
    meaning = "\n".join(f"  {name}: {words}" for name, words in SETTINGS.items())
    errors = [f"  {result.name}: {error}" for result in results for error in result.errors]
    return "\n\n".join([f"settings\n{meaning}", *(grid(*table(of)) for of in tables(results)),
                        *(["failed\n" + "\n".join(errors)] if errors else []), summary(results)]) + "\n"


def markdown(results: list[Result], machine: str, command: str) -> str:
    """The page's part between the markers."""
    return "\n\n".join([BEGIN, f"```sh\n{command}\n```", machine, summary(results),
                        *(markdown_table(*table(of, "**{}**".format)) for of in tables(results)), END])


def replaced(page: str, part: str) -> str:
    """The page with a new part between the markers.

    Raises ValueError if the page does not have both of them, in order.
    """
    return marks.replaced(page, BEGIN, END, part)
