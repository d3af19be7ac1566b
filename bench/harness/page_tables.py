"""The generated part of docs/PERFORMANCE.md as Markdown: one table for each question. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from statistics import median

from .cases import cases
from .figures import number, ratio, verdict
from .profile_shoal import KINDS
from .report import BUDGET_KIB, cpu_unit
from .tables import markdown_table


@dataclass
class Line:
    """A row against one opponent: the figures of the runs that did not fail, and the report's ratio and verdict."""

    row: str
    what: str
    ours: list[float]
    theirs: list[float]
    floor: float | None
    cpu: tuple[float | None, float | None]
    cpu_is: str
    setting: str | None
    screened: bool
    notes: list[str]

    @property
    def ratio(self) -> float | None:
        return ratio(median(self.ours), median(self.theirs)) if self.ours and self.theirs else None


@dataclass
class Question:
    """What a table answers. `words` are those of `./dev bench` that measure it; `about` is said above the table. `least` is
    the floor of rows that have none: below it Shoal is the slower one."""

    title: str
    systems: dict[str, str]
    words: str
    about: str = ""
    least: float | None = None


@dataclass
class Found:
    """The results of one machine: lines by system and row, descriptions of the systems, memory, and the profile."""

    lines: dict[tuple[str, str], Line] = field(default_factory=dict)
    systems: dict[str, dict] = field(default_factory=dict)
    memory: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    profile: dict[str, dict] = field(default_factory=dict)

    def of(self, system: str) -> list[Line]:
        """The lines of a system, in the order in which rows run."""
        return [self.lines[system, row] for row in in_order([row for of, row in self.lines if of == system])]

    def has(self, question: Question) -> list[str]:
        """The systems of a question that were measured."""
        return [system for system in question.systems if self.of(system)]


def in_order(rows: list[str]) -> list[str]:
    """Names of rows in the order in which they run."""
    order = [row.name for case in cases() for row in case.rows]
    return sorted(rows, key=lambda row: order.index(row) if row in order else len(order))


def found(documents: list[dict]) -> Found:
    """Reads documents of one build and one machine. If several have a row, the last one counts."""
    all_ = Found()
    for document in documents:
        for line in document["summary"]:
            for system in line["against"]:
                if made := _line(document, line, system):
                    all_.lines[system, line["row"]] = made
        all_.systems.update(document["facts"].get("systems", {}))
        all_.profile.update(document.get("profile", {}))
        for system, kinds in document["memory"].items():
            for kind, peak in kinds.items():
                kept = all_.memory.setdefault(system, {}).setdefault(kind, dict(peak))
                kept.update({key: max(kept[key], value) for key, value in peak.items()})
    return all_


def _line(document: dict, line: dict, system: str) -> Line | None:
    """The line of a row; None if one of the two systems was not measured."""
    runs = document["runs"].get(line["row"], {})
    if not runs.get("shoal") or not runs.get(system):
        return None
    ours, theirs = ([run["value"] for run in runs[name] if run["error"] is None] for name in ("shoal", system))
    notes = [note for note in line["notes"] if note.startswith(("shoal: ", f"{system}: "))]
    return Line(line["row"], f"{line['title']}, {line['unit']}", ours, theirs, line["against"][system]["floor"],
                (line["cpu"]["shoal"], line["cpu"][system]), cpu_unit(line), line["settings"].get(system),
                bool(document["screening"].get(line["row"], {}).get(system)), notes)


def questions(code: str) -> list[Question]:
    """All questions that the page answers by a comparison, with the code `code` for Shoal."""
    return [
        Question(f"Against GlusterFS's dispersed {code}", {"gluster-ec": f"GlusterFS {code}"}, "--against gluster-ec"),
        Question("Against GlusterFS's three copies", {"gluster-replica": "three copies"}, "--against gluster-replica",
                 f"GlusterFS writes every byte three times, Shoal has the code {code}."),
        Question("Against {}", {"moosefs": "MooseFS, three copies", "moosefs-2": "MooseFS, two copies",
                                "seaweedfs": "SeaweedFS, two copies", "juicefs": "JuiceFS, one directory"},
                 "--against moosefs,seaweedfs,juicefs",
                 "None of them has an erasure code here, and they survive different losses. There are no floors: bold is what "
                 "Shoal does more slowly.", 1.0),
        Question("How far from a bare FUSE passthrough", {"passthrough": "passthrough"}, "--against passthrough",
                 "This is the price of FUSE: no network, no code, no checksums. Rows without a floor are here to compare."),
        Question("NBD gate against the mount", {"mount": "mount"}, "--rows nbd",
                 "As many jobs on the mount as the gate has requests under way; for sequential rows one job, for which the "
                 "kernel reads ahead and writes behind."),
        Question("NFS gate against nfs-ganesha", {"ganesha": "nfs-ganesha"}, "--rows nfs --against ganesha",
                 "The same client for both servers."),
    ]


# The page's other questions: the title, and the words of the command that measures them.
PROFILE = ("Where the time goes", "--profile")


def title(question: Question, systems: list[str]) -> str:
    """The heading of a table with these systems."""
    names = list(dict.fromkeys(question.systems[system].split(",")[0] for system in systems))
    return question.title.format(listed(names))


def listed(words: list[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def spread(values: list[float]) -> str:
    """The median, minimum and maximum of the runs."""
    if not values:
        return "failed"
    ends = f" ({number(min(values))} to {number(max(values))})" if len(values) > 1 else ""
    return number(median(values)) + ends


def judged(line: Line | None, least: float | None = None) -> str:
    """A ratio and its floor; bold if it is below."""
    if line is None or line.ratio is None:
        return "-"
    text = number(line.ratio) + (f" ({line.floor:g})" if line.floor is not None else "")
    return f"**{text}**" if is_below(line, least) else text


def is_below(line: Line | None, least: float | None = None) -> bool:
    return line is not None and verdict(line.ratio, least if line.floor is None else line.floor) == "below"


def tables(here: Found, there: Found | None, there_is: str, code: str, figures: str) -> str:
    """All tables. `there` is a second machine, whose ratios have a column headed with `there_is`; pictures are looked for
    in the directory `figures`."""
    parts = []
    for question in questions(code):
        if systems := here.has(question):
            parts.append(answer(question, systems, here, there, there_is))
    parts += [falls_short(here, there, there_is, code), memory(here)]
    if here.profile:
        parts.append(profile(here.profile, figures))
    return "\n\n".join(parts)


def answer(question: Question, systems: list[str], here: Found, there: Found | None, there_is: str) -> str:
    """The table of a question. It has a column for the second machine if that one measured any of its rows."""
    several = len(question.systems) > 1
    there = there if there and there.has(question) else None
    peer = "the other" if several else question.systems[systems[0]]
    head = [*(["system"] if several else []), "row", "what", "Shoal", peer,
            "ratio" if question.least else "ratio (floor)",
            *([there_is] if there else []), "CPU Shoal / other"]
    body, below = [], []
    for system in systems:
        lines = here.of(system)
        for line in lines:
            other = [judged(there.lines.get((system, line.row)), question.least)] if there else []
            body.append([*([question.systems[system]] if several else []), f"`{line.row}`", line.what, spread(line.ours),
                         spread(line.theirs), judged(line, question.least), *other,
                         f"{number(line.cpu[0])} / {number(line.cpu[1])} {line.cpu_is}"])
        below += [*settings(system, lines), *notes(lines)]
    about = " ".join(filter(None, [question.about, *(what(system, here.systems.get(system, {})) for system in systems)]))
    return "\n\n".join(filter(None, [f"## {title(question, systems)}", about, markdown_table(head, body), *below]))


def what(system: str, facts: dict) -> str:
    """A sentence about an opponent: its version, and how it is set up."""
    versions = [str(facts[key]).strip().splitlines()[0] for key in ("ganesha", "version") if facts.get(key)]
    # The mount is Shoal itself: its version is that of the page
    told = f" ({', '.join(versions)})" if versions and system != "mount" else ""
    return f"`{system}`{told}: {facts['about']}." if facts.get("about") else ""


def settings(system: str, lines: list[Line]) -> list[str]:
    """The settings of an opponent, if there was a choice; the most frequent ones last."""
    rows: dict[str, list[str]] = {}
    for line in lines:
        if line.setting:
            rows.setdefault(line.setting, []).append(f"`{line.row}`")
    if not rows:
        return []
    *few, most = sorted(rows, key=lambda setting: len(rows[setting]))
    said = [f"`{setting}` for {listed(rows[setting])}" for setting in few]
    said.append(f"`{most}` for {'all others' if few else 'every row'}")
    best = ", the best of a short run of each" if any(line.screened for line in lines) else ""
    return [f"Settings of `{system}`{best}: {'; '.join(said)}."]


def notes(lines: list[Line]) -> list[str]:
    """The notes on runs that failed or ended early, each kind once for a row. The number of passes is left out, because
    it does not affect a figure."""
    told = []
    for line in lines:
        sorts = {re.sub(r"[\d.]+", "0", note): note for note in reversed(line.notes)
                 if not re.search(r": \d+ passes$", note)}
        told += [f"`{line.row}`, {note.replace('|', '/')}" for note in sorts.values()]
    return ["Notes: " + "; ".join(told) + "."] if told else []


def falls_short(here: Found, there: Found | None, there_is: str, code: str) -> str:
    """Every row below its floor, on either machine."""
    head = ["row", "what", "against", "ratio", *([there_is] if there else []), "floor"]
    body, judged_rows, short = [], 0, 0
    for question in questions(code):
        for system in here.has(question):
            for line in here.of(system):
                other = there.lines.get((system, line.row)) if there else None
                floor = question.least if line.floor is None else line.floor
                judged_rows += floor is not None and line.ratio is not None
                short += is_below(line, question.least)
                if is_below(line, question.least) or is_below(other, question.least):
                    ratios = [marked(of, question.least) for of in ([line, other] if there else [line])]
                    body.append([f"`{line.row}`", line.what, question.systems[system], *ratios,
                                 "none, slower" if line.floor is None else f"{floor:g}"])
    said = f"{short} of {judged_rows} ratios are below what is wanted."
    return "\n\n".join(["## What falls short", said, *([markdown_table(head, body)] if body else [])])


def marked(line: Line | None, least: float | None) -> str:
    """A ratio without its floor; bold if it is below."""
    text = number(line.ratio if line else None)
    return f"**{text}**" if is_below(line, least) else text


def memory(here: Found) -> str:
    """The most resident memory of one process of each kind."""
    body = []
    # The mount that is compared with the NBD gate is also a process of Shoal
    ours = [("shoal", kind, peak) for system in ("shoal", "mount") for kind, peak in here.memory.get(system, {}).items()]
    kinds: dict[tuple[str, str], int] = {}
    theirs = [(system, kind, peak) for system, of in here.memory.items() if system not in ("shoal", "mount")
              for kind, peak in of.items()]
    for system, kind, peak in ours + theirs:
        kinds[system, kind] = max(kinds.get((system, kind), 0), peak["high_water_kib"])
    for (system, kind), most in kinds.items():
        budget = BUDGET_KIB.get(kind) if system == "shoal" else None
        text = f"{most / 1024:.0f}"
        body.append([f"{system} {kind}", f"**{text}**" if budget and most > budget else text,
                     f"{budget // 1024}" if budget else "-"])
    said = "The most that one process of each kind had resident in this run. Bold is above its budget."
    return "\n\n".join(["## Memory", said, markdown_table(["one process of", "MiB", "budget, MiB"], body)])


def profile(rows: dict[str, dict], figures: str) -> str:
    """CPU of the whole machine by kind of work."""
    kinds = [kind for kind in KINDS if kind != "outside" and any(kind in row["cost"] for row in rows.values())]
    body = [[f"`{name}`", row["unit"].removeprefix("CPU-"), *(number(row["cost"].get(kind, 0)) for kind in kinds)]
            for name, row in ((name, rows[name]) for name in in_order(list(rows)))]
    units = {row["unit"].rsplit("/", 1)[1] for row in rows.values()}
    shown = [f"![CPU by {per}]({figures}/profile.{per}.svg)" for per in ("GiB", "op") if per in units]
    said = ("CPU of the whole machine by what it was doing, Shoal alone, in one more run of each row under the profiler. "
            "\"Locks and scheduling\" is mostly wake-ups between processes.")
    return "\n\n".join([f"## {PROFILE[0]}", said, markdown_table(["row", "unit", *kinds], body), *shown])


def not_measured(here: Found, code: str) -> list[tuple[str, str]]:
    """Questions that these documents do not answer, and the words of the command that measures each."""
    missing = []
    for question in questions(code):
        systems = here.has(question)
        wanted = re.findall(r"--against (\S+)", question.words)
        lacking = [name for name in wanted[0].split(",") if name not in systems] if wanted else []
        if len(question.systems) > 1 and lacking:
            missing.append((title(question, lacking), f"--against {','.join(lacking)}"))
        elif not systems:
            missing.append((title(question, list(question.systems)), question.words))
    return missing if here.profile else [*missing, PROFILE]


# The rows of the page's first sentence.
IN_ONE_LINE = ("seq-write-1m-1j", "seq-write-1m-10j")


def one_line(here: Found, there: Found | None, code: str) -> str | None:
    """The sentence on how fast Shoal writes; None if that was not measured."""
    said = writes(here, code)
    if said is None:
        return None
    text = f"**In one line:** through the mount, Shoal's {code} writes {said}."
    other = writes(there, code) if there else None
    return f"{text} On the second machine it writes {other}." if other else text


def writes(from_: Found, code: str) -> str | None:
    gluster = {"gluster-replica": "GlusterFS's three copies", "gluster-ec": f"GlusterFS's dispersed {code}"}
    others = {"moosefs": "MooseFS's three copies", "moosefs-2": "MooseFS's two copies",
              "seaweedfs": "SeaweedFS's two copies", "juicefs": "JuiceFS's one directory"}
    for names in (gluster, others):
        lines = {name: [line for row in IN_ONE_LINE if (line := from_.lines.get((system, row))) and line.ratio]
                 for system, name in names.items()}
        if lines := {name: of for name, of in lines.items() if of}:
            times = listed([f"{between([line.ratio for line in of], 1)} times as fast as {name}"
                            for name, of in lines.items()])
            shares = [line.cpu[0] / line.cpu[1] for of in lines.values() for line in of if line.cpu[0] and line.cpu[1]]
            jobs = listed([f"{row.rsplit('-', 1)[1].rstrip('j')} job{'s' * (not row.endswith('-1j'))}" for row in IN_ONE_LINE
                           if any(line.row == row for of in lines.values() for line in of)])
            cost = f", with {between(shares, 2)} of their CPU for a byte" if shares else ""
            return f"{times} (1 MiB at a time, {jobs}){cost}"
    return None


def between(values: list[float], digits: int) -> str:
    """The minimum and the maximum, or one of them if both look the same."""
    return " to ".join(dict.fromkeys(f"{value:,.{digits}f}" for value in (min(values), max(values))))
