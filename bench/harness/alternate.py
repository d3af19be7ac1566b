"""Measures case by case, run by run, system by system (A B A B), so that a drift of the host affects all systems."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from .figures import Measurement, geometric_mean, number
from .rows import Case, Effort, Row, Run
from .shell import Failed, say
from .systems import System

# Seconds of a run besides the case itself: a new mount, and the wait until the system is idle. For the estimate only.
OVERHEAD = 4.0


@dataclass
class Results:
    """`runs[row][system]` are the measurements; `variants[row][system]` the settings that were chosen for them."""

    runs: dict[str, dict[str, list[Measurement]]] = field(default_factory=dict)
    variants: dict[str, dict[str, str]] = field(default_factory=dict)
    screening: dict[str, dict[str, dict[str, dict[str, float]]]] = field(default_factory=dict)


class Alternation:
    """Measures `cases` on `systems`, `runs` times each."""

    def __init__(self, systems: list[System], cases: list[tuple[Case, list[Row]]], effort: Effort, runs: int,
                 tools: Path, out: Path, profiler=None):
        self.systems, self.cases, self.effort, self.runs = systems, cases, effort, runs
        self.tools, self.out, self.profiler = tools, out, profiler
        self.results = Results()
        self.profiled: dict[str, tuple[int, int]] = {}  # bytes and operations of the rows' profiled runs
        self.laid: set[tuple[str, str]] = set()  # kinds of cases and systems
        self.started = time.monotonic()
        self.planned_done = 0.0
        self.planned_all = sum(self._planned(case) for case, _ in cases)

    def _planned(self, case: Case) -> float:
        """The seconds that a case is expected to take on all systems."""
        total = 0.0
        for system in self._of(case):
            total += self.runs * (case.expected(self.effort) + OVERHEAD)
            if len(system.variants) > 1:
                total += len(system.variants) * (case.expected(self.effort.screening()) + OVERHEAD)
        if self.profiler:
            total += 2 * case.expected(self.effort)
        return total

    def _left(self) -> str:
        """The estimate of the remaining time, at the pace so far."""
        spent = time.monotonic() - self.started
        if self.planned_done < 10:
            return f"about {self.planned_all / 60:.0f} min"
        left = (self.planned_all - self.planned_done) * spent / self.planned_done
        return f"{max(left, 0) / 60:.0f} min left"

    def all(self) -> Results:
        """Runs everything. A failed run is noted and the next one goes on with a new mount."""
        last_with_data = {case.kind: i for i, (case, _) in enumerate(self.cases) if case.needs_data}
        for index, (case, rows) in enumerate(self.cases):
            if case.needs_data:
                self._lay_everywhere(case)
            self._screen_everywhere(case)
            for number_ in range(self.runs):
                for system in self._of(case):
                    self._measure(case, rows, system, number_)
            if self.profiler:
                self._profile(case)
            if index == last_with_data.get(case.kind):
                for system in self._of(case):
                    self._guarded(system, lambda: case.clear_data(system))
        return self.results

    def _of(self, case: Case) -> list[System]:
        """The systems that take part in a case."""
        return [system for system in self.systems if case.kind in system.doors]

    def _lay_everywhere(self, case: Case) -> None:
        for system in self._of(case):
            if (case.kind, system.name) in self.laid:
                continue
            say(f"  {system.name}: laying out what is read")

            def act() -> None:
                system.remount(case.kind)
                case.lay(system, self.effort)
            if self._guarded(system, act) is None:
                self.laid.add((case.kind, system.name))
            system.settle()

    def _guarded(self, system: System, action) -> str | None:
        """Runs a step. If it fails, forces a new mount and returns the error."""
        try:
            action()
            return None
        except (Failed, OSError, ValueError) as error:
            text = str(error)
        say(f"  {system.name}: {text}")
        try:
            system.unmount()
            system.mount()
        except (Failed, OSError) as error:
            say(f"  {system.name}: cannot be mounted again: {error}")
        return text

    def _once(self, case: Case, system: System, effort: Effort, label: str, window=None) -> dict[str, Measurement]:
        """One run: makes a new mount, measures, removes the files, and waits until the system is idle."""
        run = Run(system, effort, self.tools, window=window)
        found: dict[str, Measurement] = {}

        def act() -> None:
            system.remount(case.kind)
            found.update(case.run(run))
        error = self._guarded(system, act)
        if error is not None:
            found = {row.name: found.get(row.name, Measurement(0, 0, error=error)) for row in case.rows}
        self._guarded(system, lambda: case.clear(run))
        rest = system.settle()
        for measured in found.values():
            measured.details["settled"] = rest
        if run.raw:
            raw = self.out / "raw"
            raw.mkdir(exist_ok=True)
            (raw / f"{case.rows[0].name}.{system.name}.{label}.json").write_text(json.dumps(run.raw))
        return found

    def _screen_everywhere(self, case: Case) -> None:
        for system in self._of(case):
            if len(system.variants) < 2:
                if system.variants and system.variant != system.variants[0]:
                    system.use(system.variants[0])
                self._choose(case, system, system.variant)
                continue
            scores: dict[str, dict[str, float]] = {}
            for variant in system.variants:
                self._guarded(system, lambda: system.use(variant))
                found = self._once(case, system, self.effort.screening(), f"screening-{variant}")
                scores[variant] = {row: measured.value for row, measured in found.items()}
                self.planned_done += case.expected(self.effort.screening()) + OVERHEAD
                say(f"{case.rows[0].name:20} screening {system.name:16} {variant:6} "
                    f"{' '.join(map(number, scores[variant].values())):>12}  {self._left()}")
            best = max(scores, key=lambda variant: geometric_mean(list(scores[variant].values())))
            self._guarded(system, lambda: system.use(best))
            self._choose(case, system, best)
            for row in case.rows:
                self.results.screening.setdefault(row.name, {})[system.name] = scores

    def _choose(self, case: Case, system: System, variant: str | None) -> None:
        if variant:
            for row in case.rows:
                self.results.variants.setdefault(row.name, {})[system.name] = variant

    def _measure(self, case: Case, rows: list[Row], system: System, run_number: int) -> None:
        found = self._once(case, system, self.effort, f"run{run_number + 1}")
        self.planned_done += case.expected(self.effort) + OVERHEAD
        for row in rows:
            measured = found[row.name]
            self.results.runs.setdefault(row.name, {}).setdefault(system.name, []).append(measured)
            what = measured.error and f"failed: {measured.error[:80]}" or f"{number(measured.value):>12} {row.unit}"
            say(f"{row.name:20} run {run_number + 1}/{self.runs} {system.name:16} {what:24} "
                f"{', '.join(measured.notes)}  {self._left()}")

    def _profile(self, case: Case) -> None:
        """One more run of Shoal, under the profiler; its figures do not count."""
        shoal = self.systems[0]
        effort = replace(self.effort, long_seconds=min(30, self.effort.long_seconds))
        found = self._once(case, shoal, effort, "profile", window=lambda row: self.profiler.window(row, shoal))
        self.profiled.update({row: (measured.bytes, measured.operations) for row, measured in found.items()})
        self.planned_done += 2 * case.expected(self.effort)
        say(f"{case.rows[0].name:20} profiled {shoal.name}  {self._left()}")
