"""What there is to measure: the cases of files and those of gates."""

from __future__ import annotations

import re

from .gate_rows import gate_cases
from .rows import Case, Row, file_cases


def cases() -> list[Case]:
    """All of them, in the order in which they run: kind by kind, since each kind has laid data of its own."""
    return file_cases() + gate_cases()


def chosen(pattern: str) -> list[tuple[Case, list[Row]]]:
    """Cases with a row that `pattern` matches, and those rows."""
    found = [(case, [row for row in case.rows if re.search(pattern, row.name)]) for case in cases()]
    return [(case, rows) for case, rows in found if rows]
