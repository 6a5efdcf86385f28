"""Labels, rows and headings in, aligned plain text out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

_GAP = "  "
_WIDEST = 80


def printable(text: str) -> str:
    """Write what a terminal would act on, such as escape codes and line breaks, as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _cell(text: str) -> str:
    """Make a name out of a file fit for a table: one line, not too wide."""
    text = printable(text)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def fields(pairs: Iterable[tuple[str, str]]) -> str:
    """Write labels beside their texts; a further line of a text stands below its first one."""
    pairs = list(pairs)
    width = max(len(label) for label, _ in pairs)
    lines = []
    for label, text in pairs:
        first, *others = map(printable, text.split("\n"))
        lines.append(f"{label:{width}}{_GAP}{first}")
        lines += [f"{'':{width}}{_GAP}{line}" for line in others]
    return "\n".join(lines)


def table(
    heading: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()
) -> str:
    """Write `rows` below `heading`, indented by two; the columns named in `right` hold numbers."""
    lines = [[_cell(cell) for cell in line] for line in (heading, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heading))]
    return "\n".join(
        (
            _GAP
            + _GAP.join(
                f"{cell:>{width}}" if name in right else f"{cell:{width}}"
                for name, cell, width in zip(heading, line, widths, strict=True)
            )
        ).rstrip()
        for line in lines
    )


def section(title: str, body: str) -> str:
    """Put `body` under a title, with an empty line before it."""
    return f"\n{title}\n{body}"
