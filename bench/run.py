#!/usr/bin/env python3
"""Measures Shoal, alone or side by side with other systems. `./dev bench --help`; bench/README.md says how."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

from harness import install, memory_plan, meter, page, picture, profile_shoal, repeat, report, sandbox
from harness.alternate import Alternation, Results
from harness.auto import main as auto
from harness.auto import rows as auto_rows
from harness.cases import chosen
from harness.growth import main as growth
from harness.growth import rows as growth_rows
from harness.growth.cluster import Tools
from harness.rows import Effort
from harness.shell import Failed, say
from harness.systems import ALL, Options, System
from harness.systems.gluster import SETTINGS
from harness.tables import grid

ROOT = Path(__file__).resolve().parent.parent
# The opponents for which there are wanted ratios
FLOORS = ("gluster-ec", "gluster-replica", "passthrough", "mount", "ganesha")
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--against", default="", metavar="SYSTEMS", help="comma list: " + ", ".join(list(ALL)[1:]))
    parser.add_argument("--rows", default="", metavar="REGEX", help="only rows whose name matches")
    parser.add_argument("--runs", type=int, metavar="N", help="runs of each row, turns of each setting (3)")
    parser.add_argument("--seconds", type=float, metavar="S", help="least time of a timed row (10; of auto 1.5)")
    parser.add_argument("--long-seconds", type=float, metavar="S", help="time of random writes (120)")
    parser.add_argument("--quick", action="store_true", help="1 run, 3 s, random writes 10 s: figures say little")
    parser.add_argument("--code", metavar="K+M", help="code of Shoal and of gluster-ec (8+2; of auto 4+2)")
    parser.add_argument("--unit", metavar="SIZE", help="unit of Shoal's volume")
    parser.add_argument("--settings", default="best", choices=[*SETTINGS, "best"], help="Gluster's; best: screened")
    parser.add_argument("--shoal-options", default="", metavar="WORDS", help="more arguments for `shoal mount`")
    parser.add_argument("--brick-options", default="", metavar="WORDS", help="more arguments for `shoal brick`")
    parser.add_argument("--nbd-socket", action="store_true", help="NBD over a Unix socket, not over TCP")
    parser.add_argument("--nbd-options", default="", metavar="WORDS", help="more arguments for `shoal nbd`")
    parser.add_argument("--nfs-options", default="", metavar="WORDS", help="more arguments for `shoal nfs`")
    parser.add_argument("--binary", type=Path, default=TARGET / "dist" / "shoal", help="the shoal to measure")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where results go (target/bench/TIME)")
    parser.add_argument("--json", action="store_true", help="the JSON document on standard output, not the table")
    parser.add_argument("--list", action="store_true", help="shows the rows and their floors")
    parser.add_argument("--keep", action="store_true", help="keeps the systems' logs")
    parser.add_argument("--profile", action="store_true", help="runs Shoal once more per row, under perf")
    parser.add_argument("--growth-max", type=lambda text: int(float(text)), default=10 ** 6, metavar="N",
                        help="most files and units of the growth rows: 1e5 to 1e7 (1e6)")
    parser.add_argument("--fill", type=Path, help="meta's example `fill` for the growth rows (beside the binary)")
    parser.add_argument("--page", nargs="?", const="", metavar="RESULTS.JSON",
                        help="writes docs/PERFORMANCE.md: from this run, or, measuring nothing, from the JSON of runs of one "
                             "build on one machine, a comma list")
    parser.add_argument("--second", default="", metavar="RESULTS.JSON",
                        help="with --page: results of a second machine, whose ratios stand beside; a comma list")
    parser.add_argument("--clean", action="store_true", help="ends a measurement that still runs, removes its leavings")
    given = parser.parse_args()
    of_auto = auto_rows.is_auto(given.rows)
    given.code = given.code or ("4+2" if of_auto else "8+2")
    seconds = (1.5, 1.0) if of_auto else (10.0, 3.0)
    for name, usual, quick in (("runs", 3, 1), ("seconds", *seconds), ("long_seconds", 120.0, 10.0)):
        if getattr(given, name) is None:
            setattr(given, name, quick if given.quick else usual)
    if given.second and given.page is None:
        parser.error("--second goes with --page")
    unknown = [name for name in names(given) if name not in ALL]
    if unknown:
        parser.error(f"unknown system {unknown[0]}; there are {', '.join(ALL)}")
    return given


def names(given: argparse.Namespace) -> list[str]:
    """The systems to measure, Shoal first. Shoal's mount is beside its NBD gate always."""
    others = [name for name in given.against.split(",") if name and name != "shoal"]
    if any(case.kind == "nbd" for case, _ in chosen(given.rows)):
        others.insert(0, "mount")
    return ["shoal", *dict.fromkeys(others)]


def effort(given: argparse.Namespace) -> Effort:
    """How hard to try."""
    if given.quick:
        return Effort(given.seconds, given.long_seconds, 1 << 30, 250, 1000, 1)
    return Effort(given.seconds, given.long_seconds)


def git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, timeout=20)
    return done.stdout.strip()


def machine_facts(given: argparse.Namespace) -> dict[str, object]:
    """What is measured, how, and on what."""
    return {**meter.machine_facts(), "commit": git("rev-parse", "--short=12", "HEAD"),
            "changed": git("status", "--porcelain", "--", "crates", "vendor").splitlines(), "arguments": sys.argv[1:],
            "binary": hashlib.sha256(given.binary.read_bytes()).hexdigest()[:16],
            **{name: getattr(given, name) for name in ("runs", "seconds", "long_seconds")}}


def planned_rounds(given: argparse.Namespace) -> list[list[str]]:
    """The systems that are measured together: those whose bricks fit into RAM at the same time."""
    data = memory_plan.data_mib([case for case, _ in chosen(given.rows)], effort(given))
    code = tuple(map(int, given.code.split("+")))
    return memory_plan.rounds(names(given), memory_plan.needs(names(given), data, code),
                              memory_plan.room_mib(sandbox.TMPFS_MIB))


def parts(given: argparse.Namespace, others: list[str]) -> list[tuple[str, str, bool]]:
    """What is measured when opponents come one after the other: each one, a pattern for the rows in which it takes part, and
    whether Shoal has not been measured in rows of this kind before. Rows in which nobody takes part come with the first."""
    cases = chosen(given.rows)
    kinds = {case.kind for case, _ in cases}
    alone = kinds - {kind for other in others for kind in ALL[other].doors}
    found, seen = [], set()
    for other in others:
        own = kinds & ALL[other].doors.keys() | (set() if found else alone)
        if own:
            rows = [row.name for case, of_case in cases if case.kind in own for row in of_case]
            found.append((other, f"^({'|'.join(rows)})$", not own <= seen))
            seen |= own
    return found


def one_after_the_other(given: argparse.Namespace, others: list[str], out: Path, facts: dict) -> int:
    """Measures each of `others` against Shoal in a run of its own and joins the reports: they do not fit into RAM
    together. Shoal's figures beside an opponent are those that were taken by turns with it. Shoal is profiled once."""
    texts, documents, worst, child = [], {}, 0, None

    def stop(*_):
        nonlocal worst
        worst = 130
        if child:
            child.terminate()
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)
    binary = out / "programs" / given.binary.name
    binary.parent.mkdir(exist_ok=True)
    # A copy: a build meanwhile must not change what is measured
    shutil.copy(given.binary, binary)
    words = repeat.without(sys.argv[1:], {"--page", "--profile"}, {"--second"})
    planned = parts(given, others)
    for number, (other, rows, first) in enumerate(planned):
        say(f"{other}, {number + 1} of {len(planned)}: they do not fit into RAM together")
        here = out / f"against.{other}"
        # What comes later on the command line wins. A session of its own, so that Ctrl-C reaches it once, by `stop`
        child = subprocess.Popen([sys.executable, __file__, *words, "--against", other, "--rows", rows, "--out", str(here),
                                  "--binary", str(binary), *(["--profile"] if given.profile and first else [])],
                                 stdout=subprocess.DEVNULL, start_new_session=True)
        code = child.wait()
        worst = worst or code
        if (here / "report.txt").exists():
            texts.append(f"== {other}\n\n{(here / 'report.txt').read_text()}")
            documents[other] = json.loads((here / "results.json").read_text())
        if worst == 130:
            break
    shutil.rmtree(binary.parent)
    document = {"facts": facts, "against": documents}
    (out / "report.txt").write_text("\n".join(texts))
    (out / "results.json").write_text(json.dumps(document, indent=1))
    print(json.dumps(document) if given.json else "\n".join(texts), flush=True)
    say(f"results are in {out}")
    return worst


def list_rows() -> None:
    """Prints the rows."""
    body = [[row.name, row.title, row.unit, *(f"{row.floors[o]:g}" if o in row.floors else "-"
                                              for o in FLOORS)]
            for _, rows in chosen("") for row in rows]
    print(grid(["row", "what", "unit", "floor: gluster-ec", *FLOORS[1:]], body))
    grown = [[row.name, row.of, ", ".join(row.curve().shown(size) for size in row.sizes)]
             for row in growth_rows.ROWS]
    print("\n" + grid(["row of growth", "what grows", "to"], grown))
    autos = [[result.name, result.title, result.unit, f"{result.wanted:g}"]
             for case in auto_rows.cases() for result in case.results()]
    print("\n" + grid(["row of auto", "what", "unit", "wanted"], autos))


def measure_growth(given: argparse.Namespace, out: Path) -> int:
    """The growth rows: a cluster of their own for each."""
    fill = given.fill or given.binary.parent / "examples" / "fill"
    for program, make in ((given.binary, "-p cli"), (fill, "-p meta --example fill")):
        if not program.exists():
            print(f"error: {program} is missing\n  try: cargo build --profile dist --locked {make}", file=sys.stderr)
            return 1
    load = TARGET / "bench" / "tools"
    install.growth_load(load)
    out.mkdir(parents=True, exist_ok=True)
    programs = out / "programs"
    # Copies: a build meanwhile must not change what is measured
    programs.mkdir(exist_ok=True)
    tools = Tools(*(Path(shutil.copy(program, programs / name)) for program, name in (
        (given.binary, "shoal"), (fill, "fill"), (load / "growth", "growth"))))
    code = sandbox.run(lambda: growth.measure(given.rows, given.growth_max, tools, out, machine_facts(given)))
    shutil.rmtree(programs)
    results = out / "results.json"
    if results.exists():
        print(results.read_text() if given.json else (out / "report.txt").read_text(), flush=True)
        say(f"results are in {out}")
    return code


def measure_auto(given: argparse.Namespace, out: Path) -> int:
    """The rows of auto: Shoal alone, by turns in several settings."""
    if not given.binary.exists():
        print(f"error: {given.binary} is missing\n  try: cargo build --profile dist --locked -p cli", file=sys.stderr)
        return 1
    if not auto_rows.chosen(given.rows):
        raise Failed(f"no row of auto matches `{given.rows}`\n  try: ./dev bench --list")
    hard = auto_effort(given)
    options = options_of(given)
    if "--memory" not in given.shoal_options:
        options.shoal_options += ["--memory", f"{auto_rows.MEMORY_MIB}M"]
    need = memory_plan.needs(["shoal"], hard.file_bytes >> 20, options.code)
    memory_plan.rounds(["shoal"], need, memory_plan.room_mib(sandbox.TMPFS_MIB))
    install.auto_loads(options.tools)
    out.mkdir(parents=True, exist_ok=True)
    code = sandbox.run(lambda: auto.measure(given.rows, options, hard, out, machine_facts(given), given.keep))
    results = out / "results.json"
    if results.exists():
        print(results.read_text() if given.json else (out / "report.txt").read_text(), flush=True)
        say(f"results are in {out}")
    return code


def auto_effort(given: argparse.Namespace) -> auto_rows.Effort:
    """How hard to try in the rows of auto."""
    if given.quick:
        return auto_rows.Effort(given.runs, given.seconds, 3, 1 << 30)
    return auto_rows.Effort(given.runs, given.seconds)


def options_of(given: argparse.Namespace) -> Options:
    """How systems are started."""
    data, parity = map(int, given.code.split("+"))
    return Options(given.binary.resolve(), TARGET / "bench" / "tools", (data, parity), given.unit,
                   shlex.split(given.shoal_options), shlex.split(given.brick_options), given.nbd_socket,
                   shlex.split(given.nbd_options), shlex.split(given.nfs_options), given.settings)


def measure(given: argparse.Namespace, options: Options, out: Path, facts: dict) -> int:
    """Inside the sandbox: starts everything, measures, reports. A stopped measurement reports what it has."""
    cases = chosen(given.rows)
    rows = [row for _, of_case in cases for row in of_case]
    systems: list[System] = []
    facts["calibration"] = {"start": meter.calibrate()}
    results, profile, code, sampler = Results(), {}, 0, None
    try:
        for name in names(given):
            say(f"starting {name}")
            system = ALL[name](options)
            systems.append(system)
            system.start()
            system.mount()
        facts["systems"] = {system.name: {"about": system.about, **system.facts()} for system in systems}
        sampler = meter.MemorySampler(systems, sandbox.WORK)
        sampler.start()
        profiler = profile_shoal.Profiler(out) if given.profile else None
        alternation = Alternation(systems, cases, effort(given), given.runs, options.tools, out, profiler)
        results = alternation.results
        alternation.all()
        if profiler:
            profile = profiler.finish(rows, alternation.profiled)
    except (sandbox.Stopped, KeyboardInterrupt):
        say("stopped: what was measured so far follows")
        code = 130
    except Exception as error:  # whatever it is, the report of what was measured must be written
        say(f"error: {error}" if isinstance(error, Failed) else traceback.format_exc())
        code = 1
    if sampler:
        sampler.stop()
        facts["most_mib_of_all_bricks"] = sampler.bricks_mib
    facts["calibration"]["end"] = meter.calibrate()
    write_report(given, results, rows, systems, facts, sampler.peaks if sampler else {}, profile, out)
    for system in systems:
        try:
            system.check()
        except Failed as error:
            say(f"error: {error}")
            code = code or 1
    if given.keep or code == 1:
        keep_logs(systems, out)
    if code == 0:
        for system in systems:
            try:
                system.stop()
            except (Failed, OSError) as error:
                say(f"{system.name}: {error}")
    return code


def write_report(given, results: Results, rows, systems: list[System], facts: dict, peaks: dict, profile: dict,
                 out: Path) -> None:
    """Writes `results.json` and `report.txt`, and prints one of them."""
    measured = [system.name for system in systems]
    lines = report.summary(results, rows, measured)
    per = {row.name: row.per for row in rows}
    document = {"facts": facts, "summary": lines, "memory": peaks, "screening": results.screening,
                "profile": profile,
                "runs": {row: {system: [m.as_json(per[row]) for m in found] for system, found in of_row.items()}
                         for row, of_row in results.runs.items()}}
    (out / "results.json").write_text(json.dumps(document, indent=1))
    about = "\n".join(f"  {system.name}: {system.about}" for system in systems)
    ends = facts["calibration"]
    machine = (f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_mib'] // 1024} GiB, kernel {facts['kernel']}, "
               f"commit {facts['commit']}, {facts['date']}\n"
               f"memcpy {ends['start']['memcpy_gb_per_s']} GB/s at the start, {ends['end']['memcpy_gb_per_s']} at the "
               f"end; system call {ends['start']['syscall_ns']} ns, {ends['end']['syscall_ns']} ns")
    text = "\n\n".join([report.RULES + "\n" + about, machine, report.table(lines, measured),
                        report.memory_table(peaks)]) + "\n"
    (out / "report.txt").write_text(text)
    for other in measured[1:]:
        bars = [(line["row"], line["against"][other]["ratio"], line["against"][other]["floor"]) for line in lines
                if other in line["against"]]
        title = f"Shoal / {other}, higher is better; black: the floor ({facts['commit']}, {facts['date'][:10]})"
        (out / f"ratio.{other}.svg").write_text(picture.ratios(title, bars))
    print(json.dumps(document) if given.json else text, flush=True)
    say(f"results are in {out}")


def keep_logs(systems: list[System], out: Path) -> None:
    """Copies the systems' logs out of the sandbox."""
    for system in systems:
        for log in system.home.glob("*.log"):
            (out / "logs").mkdir(exist_ok=True)
            (out / "logs" / f"{system.name}.{log.name}").write_bytes(log.read_bytes())


def write_page(results: list[Path], given: argparse.Namespace) -> int:
    """Writes docs/PERFORMANCE.md."""
    second = [Path(name) for name in given.second.split(",") if name]
    try:
        page.write(results, second, ROOT / "docs")
        return 0
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def main() -> int:
    given = arguments()
    if given.list:
        list_rows()
        return 0
    if given.page:
        return write_page([Path(name) for name in given.page.split(",") if name], given)
    if given.clean:
        return sandbox.clean()
    if os.geteuid() != 0:
        print("error: measuring mounts and needs root\n  try: sudo ./dev bench", file=sys.stderr)
        return 1
    out = (given.out or TARGET / "bench" / time.strftime("%Y-%m-%d.%H-%M-%S")).resolve()
    group = (measure_growth if growth_rows.is_growth(given.rows) else measure_auto if auto_rows.is_auto(given.rows)
             else measure_rows)
    try:
        code = group(given, out)
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    results = out / "results.json"
    # What was stopped stays away from the page, unless somebody names its JSON
    if given.page is not None and code != 130 and results.exists():
        return write_page([results], given) or code
    return code


def measure_rows(given: argparse.Namespace, out: Path) -> int:
    """All other rows: beside opponents, or Shoal alone."""
    if not given.binary.exists():
        print(f"error: {given.binary} is missing\n  try: cargo build --profile dist --locked -p cli", file=sys.stderr)
        return 1
    rounds = planned_rounds(given)
    out.mkdir(parents=True, exist_ok=True)
    facts = machine_facts(given)
    if given.profile:
        profile_shoal.check()
    if len(rounds) > 1:
        return one_after_the_other(given, [name for round_ in rounds for name in round_[1:]], out, facts)
    options = options_of(given)
    install.loads(options.tools)
    for name in names(given):
        ALL[name].prepare(options.tools)
    return sandbox.run(lambda: measure(given, options, out, facts))


if __name__ == "__main__":
    sys.exit(main())
