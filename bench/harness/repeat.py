"""The words of a command line, as they are given again: to the parts of a run, and to a reader who wants to repeat it.
Pure."""

from __future__ import annotations

import shlex


def without(words: list[str], switches: set[str], valued: set[str]) -> list[str]:
    """The words without some options: `switches` have no value, `valued` have one."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in valued:
            skip = True
        elif word not in switches and word.split("=", 1)[0] not in valued:
            kept.append(word)
    return kept


def command(words: list[str]) -> str:
    """The command that measures the same again, wherever its results go and without the page."""
    return shlex.join(["./dev", "bench", *without(words, {"--page"}, {"--second", "--out"})])
