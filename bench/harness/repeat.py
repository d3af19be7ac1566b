"""Rebuilds command lines: for the parts of a run, and for a reader who wants to repeat it. Pure."""

from __future__ import annotations

import shlex


def without(words: list[str], switches: set[str], valued: set[str]) -> list[str]:
    """Removes options from the words: `switches` have no value, `valued` have one."""
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
    """The command that repeats the measurement: without the options for the page, and without places of this machine."""
    return shlex.join(["./dev", "bench", *without(words, {"--page"}, {"--second", "--out", "--binary", "--fill"})])
