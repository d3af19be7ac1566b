"""Tables, as text and as Markdown. Pure."""

from __future__ import annotations


def grid(head: list[str], body: list[list[str]]) -> str:
    """Aligned columns: the first one to the left, the others to the right."""
    widths = [max(len(line[column]) for line in [head, *body]) for column in range(len(head))]
    def one(line: list[str]) -> str:
        cells = [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))]
        return "  ".join(cells).rstrip()
    return "\n".join([one(head), "  ".join("-" * width for width in widths), *map(one, body)])


def markdown_table(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
