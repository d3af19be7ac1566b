"""Turns of Shoal's tasks that took too long: during a turn, all other tasks of its thread wait."""

from __future__ import annotations

import re
from pathlib import Path

# CPU time, in milliseconds, from which a turn is an error: `world::turns::TURN_MAX_US`
MAX_MS = 500
# The log line of a turn above 200 ms: `line` in crates/world/src/turns.rs
LINE = re.compile(r"a turn of the task `[^`]+` took \d+ ms, (\d+) ms of them its thread's own work$")


def overlong(log: Path) -> list[str]:
    """The lines of a log about turns that took too long. Only the thread's own CPU time counts."""
    said = log.read_text(errors="replace").splitlines()
    found = ((LINE.search(line), line) for line in said)
    return [f"{log.name}: {line}" for match, line in found if match and int(match[1]) >= MAX_MS]
