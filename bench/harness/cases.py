"""All cases: those of files and those of gates."""

from __future__ import annotations

import re

from .gate_rows import gate_cases
from .rows import Case, Row, file_cases


def cases() -> list[Case]:
    """All cases in the order in which they run: kind by kind, because each kind has its own laid data."""
    return file_cases() + gate_cases()


def chosen(pattern: str) -> list[tuple[Case, list[Row]]]:
    """The cases with a row that matches `pattern`, and these rows."""
    found = [(case, [row for row in case.rows if re.search(pattern, row.name)]) for case in cases()]
    return [(case, rows) for case, rows in found if rows]
