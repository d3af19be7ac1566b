"""Turns of Shoal's tasks that took too long: for so long everything else of their processes waited."""

from __future__ import annotations

import re
from pathlib import Path

# CPU time of a turn that is a fault, in milliseconds: `world::turns::TURN_MAX_US`
MAX_MS = 500
# What a log says of a turn above 200 ms: `line` in crates/world/src/turns.rs
LINE = re.compile(r"a turn of the task `[^`]+` took \d+ ms, (\d+) ms of them its thread's own work$")


def overlong(log: Path) -> list[str]:
    """Lines of a log about turns that took too long. Time that the machine gave to others does not count."""
    said = log.read_text(errors="replace").splitlines()
    found = ((LINE.search(line), line) for line in said)
    return [f"{log.name}: {line}" for match, line in found if match and int(match[1]) >= MAX_MS]
