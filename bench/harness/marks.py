"""Generated parts of a page, each between two marker lines. Pure."""

from __future__ import annotations


def replaced(page: str, begin: str, end: str, part: str) -> str:
    """The page with `part` in the place of what stands from the line `begin` to the line `end`; `part` has both lines.

    Raises ValueError if the page does not have both of them, in order.
    """
    return page.replace(found(page, begin, end), part, 1)


def found(page: str, begin: str, end: str) -> str:
    """What stands from the line `begin` to the line `end`, with them.

    Raises ValueError if the page does not have both of them, in order.
    """
    start, stop = page.find(begin), page.find(end)
    if start < 0 or stop < start:
        raise ValueError(f"the page lacks the lines {begin} and {end}")
    return page[start:stop + len(end)]
