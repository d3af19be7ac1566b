"""Writes docs/PERFORMANCE.md from the JSON of measurements: what stands between its marks, never anything else.

A page has figures of one build on one machine; a second machine may be given, whose ratios stand beside.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from . import marks, page_tables, profile_shoal, repeat
from .auto import main as auto
from .auto import report as auto_report
from .growth import main as growth
from .growth import report as growth_report
from .page_tables import Found
from .shell import Failed, say
from .tables import markdown_table

PAGE = "PERFORMANCE.md"
PICTURES = ("profile.GiB.svg", "profile.op.svg")


def mark(name: str) -> tuple[str, str]:
    """The lines before and after a generated part."""
    return f"<!-- {name}: written by ./dev bench --page -->", f"<!-- {name}: end -->"


@dataclass
class Taken:
    """One `results.json`: its facts, and a document for each of its parts. Without parts, it is its own document."""

    path: Path
    facts: dict
    documents: list[dict]

    @property
    def grown(self) -> bool:
        """Whether it has growth rows, which have their own part of the page."""
        return any("curves" in document for document in self.documents)

    @property
    def of_auto(self) -> bool:
        """Whether it has rows of auto, which have their own part too."""
        return any("auto" in document for document in self.documents)

    @property
    def compared(self) -> bool:
        """Whether it has the rows of the tables."""
        return not self.grown and not self.of_auto


def load(path: Path) -> Taken:
    """Reads a `results.json`. Raises Failed if the file is not one."""
    try:
        document = json.loads(path.read_text())
        parts = list(document["against"].values()) if "against" in document else [document]
        facts = document["facts"]
    except (OSError, ValueError) as error:
        raise Failed(f"{path}: {error}") from None
    except (KeyError, TypeError, AttributeError):
        raise Failed(f"{path} is no results.json of ./dev bench") from None
    if not parts:
        raise Failed(f"{path}: nothing was measured")
    return Taken(path, facts, parts)


# The facts that must be the same in all documents of a page, by their names in messages.
BUILD = {"commit": lambda facts: facts["commit"], "uncommitted changes": lambda facts: facts["changed"],
         "binary": lambda facts: facts.get("binary")}
MACHINE = {"CPU": lambda facts: facts["cpu"], "number of cores": lambda facts: facts["cores"],
           "RAM": lambda facts: facts["memory_mib"] // 1024, "kernel": lambda facts: facts["kernel"]}


def refuse_mixtures(taken: list[Taken]) -> None:
    """Raises Failed unless all of these were measured with one build, on one machine and with one code."""
    first = taken[0]
    for other in taken[1:]:
        for name, of in {**BUILD, **MACHINE}.items():
            one, two = of(first.facts), of(other.facts)
            if one == two or None in (one, two):
                continue
            advice = ("measure both with one build" if name in BUILD else
                      "give the results of a second machine with --second")
            raise Failed(f"{first.path} and {other.path} have not the same {name}: {one or 'none'} and {two or 'none'}; a page "
                         f"has figures of one build on one machine\n  try: {advice}")
    codes = {code(document) for of in taken if of.compared for document in of.documents}
    if len(codes) > 1:
        raise Failed(f"these results are of several codes: {', '.join(sorted(codes))}\n  try: one page for one code")


def code(document: dict) -> str:
    """The code that Shoal had, K+M."""
    return document["facts"].get("systems", {}).get("shoal", {}).get("code", "8+2")


def write(results: list[Path], second: list[Path], docs: Path) -> None:
    """Writes the page in the directory `docs` from the JSON of runs: the parts that they are about. `second` are those of a
    second machine. Of a row that several have the last one counts.

    Raises Failed if they do not belong together or the page has no place for them.
    """
    taken, beside = [load(path) for path in results], [load(path) for path in second]
    rows, grown = [of for of in taken if of.compared], [of.path for of in taken if of.grown]
    of_auto = [of.path for of in taken if of.of_auto]
    try:
        refuse_mixtures(taken)
        if beside:
            refuse_second(rows, beside)
        if rows:
            write_rows(rows, beside, docs)
        if grown:
            growth.page(grown, docs)
        if of_auto:
            auto.page(of_auto, docs)
    except KeyError as error:
        raise Failed(f"the results lack {error}: they are of another version of the harness\n  try: measure again") from None
    say(f"{docs / PAGE} is written")
    for line in old_parts((docs / PAGE).read_text()):
        say(line)


def refuse_second(rows: list[Taken], beside: list[Taken]) -> None:
    """Raises Failed if the results of a second machine do not belong together, or not beside the first one's."""
    refuse_mixtures(beside)
    if not rows or not all(of.compared for of in beside):
        raise Failed("rows of growth and of auto have no second machine\n  try: without --second")
    one, two = (code(of[0].documents[0]) for of in (rows, beside))
    if one != two:
        raise Failed(f"{rows[0].path} is of the code {one}, {beside[0].path} of {two}\n  try: the same code on both")


def write_rows(rows: list[Taken], beside: list[Taken], docs: Path) -> None:
    """Writes the head, the tables and the pictures."""
    here, there = gathered(rows), gathered(beside) if beside else None
    of = code(rows[0].documents[0])
    there_is = f"ratio on {machine(beside[0].facts)}, commit {beside[0].facts['commit']}, {days(beside)}" if beside else ""
    parts = {"head": head(rows, beside, here, there, of),
             "tables": page_tables.tables(here, there, there_is, of, "figures")}
    target = docs / PAGE
    try:
        text = target.read_text()
        for name, part in parts.items():
            begin, end = mark(name)
            text = marks.replaced(text, begin, end, f"{begin}\n\n{part}\n\n{end}")
    except (OSError, ValueError) as error:
        raise Failed(f"{target}: {error}") from None
    pictures = profile_shoal.pictures(here.profile)
    target.write_text(text)
    for name in PICTURES:
        # Remove pictures of another build
        (docs / "figures" / name).unlink(missing_ok=True)
        if name in pictures:
            (docs / "figures" / name).write_text(pictures[name])


def gathered(taken: list[Taken]) -> Found:
    return page_tables.found([document for of in taken for document in of.documents])


def head(rows: list[Taken], beside: list[Taken], here: Found, there: Found | None, of_code: str) -> str:
    """The page's first lines: what was measured, on which machine, and how."""
    columns = [rows, beside] if beside else [rows]
    table = markdown_table(["", "measured", "second machine"][:len(columns) + 1],
                           [[name, *(of(column) for column in columns)] for name, of in FACTS.items()])
    commands = [repeat.command(of.facts["arguments"]) for of in rows]
    if len(commands) == 1 and not beside:
        commands[0] += " --page"
    else:
        commands += [f"{repeat.command(of.facts['arguments'])}    # on the second machine" for of in beside]
        names = [",".join(f"{letter}{n}.json" for n in range(1, len(of) + 1)) for letter, of in zip("ab", (rows, beside))]
        commands.append(f"./dev bench --page {names[0]}" + (f" --second {names[1]}" if beside else "")
                        + "    # the results.json of these")
    missing = page_tables.not_measured(here, of_code)
    told = "; ".join(f"{title} (`./dev bench {words}`)" for title, words in missing)
    return "\n\n".join([*filter(None, [page_tables.one_line(here, there, of_code)]), table,
                        "```sh\n" + "\n".join(commands) + "\n```", *([f"Not measured in this run: {told}."] if told else [])])


def machine(facts: dict) -> str:
    return f"{facts['cpu']}, {facts['cores']} cores"


def days(taken: list[Taken]) -> str:
    """The day, or the first and the last one."""
    found = sorted({moment[:10] for of in taken for facts in [of.facts, *(part["facts"] for part in of.documents)]
                    for moment in [facts["date"], *(end["time"] for end in facts.get("calibration", {}).values())]})
    return " to ".join(dict.fromkeys([found[0], found[-1]]))


def commit(taken: list[Taken]) -> str:
    facts = taken[0].facts
    return f"`{facts['commit']}`" + (", with changes that are not committed" if facts["changed"] else "")


def whole_machine(taken: list[Taken]) -> str:
    facts = taken[0].facts
    return f"{machine(facts)}, {facts['memory_mib'] / 1024:.1f} GiB of RAM, kernel {facts['kernel']}"


def effort(taken: list[Taken]) -> str:
    """The duration and number of runs of each row, once for each different effort."""
    told = dict.fromkeys(f"{of.facts['runs']} run{'s' * (of.facts['runs'] > 1)} of {of.facts['seconds']:g} s, random writes "
                         f"{of.facts['long_seconds']:g} s" for of in taken)
    return "; ".join(told)


def calibration(taken: list[Taken]) -> str:
    """The least and the greatest speed of the machine at the beginning and end of the parts."""
    ends = [end for of in taken for part in of.documents for end in part["facts"]["calibration"].values()]
    if not ends:
        return "-"
    memcpy, call = ([end[key] for end in ends] for key in ("memcpy_gb_per_s", "syscall_ns"))
    return (f"memcpy {page_tables.between(memcpy, 1)} GB/s, a system call {page_tables.between(call, 0)} ns, "
            f"least to most")


FACTS = {"date": days, "commit": commit, "machine": whole_machine, "each row": effort, "calibration": calibration}


def old_parts(page: str) -> list[str]:
    """A warning if the parts of the page are of different commits."""
    found = {}
    for name, (begin, end), pattern in (("tables", mark("head"), r"\| commit \| `(\w+)`"),
                                        ("growth", (growth_report.BEGIN, growth_report.END), r"Commit (\w+)"),
                                        ("auto", (auto_report.BEGIN, auto_report.END), r"Commit (\w+)")):
        try:
            told = re.search(pattern, marks.found(page, begin, end))
        except ValueError:
            continue
        if told:
            found[name] = told[1]
    if len(set(found.values())) < 2:
        return []
    return ["note: the page has parts of different commits: " + ", ".join(f"{k} {v}" for k, v in found.items())]
