"""How results print: as their summary, and as a table in a notebook."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from html import escape
from unicodedata import category

LONGEST = 400  # characters of a message that is not ours
Row = Mapping[str, str]  # text by heading


def printable(text: str) -> str:
    r"""Text of others on one line that cannot steer a terminal: its control characters, but for tabs, escaped.

    >>> printable("layer\x1b[2J\nforged line")
    'layer\\x1b[2J\\nforged line'
    """
    controls = (c if c == "\t" or category(c) != "Cc" else repr(c)[1:-1] for c in text)
    return text if text.isprintable() else "".join(controls)


class Summarized:
    """A result that prints as its summary."""

    def summary(self) -> str:
        """Summarize the result in words."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.summary()


class Tabular(Summarized):
    """A result that is a table with notes below it."""

    def rows(self) -> Sequence[Row]:
        """The rows, all with the same headings."""
        raise NotImplementedError

    def notes(self) -> list[str]:
        """The lines below the table."""
        return []

    def summary(self) -> str:
        """The table and its notes as plain text."""
        return "\n".join([*text_lines(self.rows()), *map(printable, self.notes())])

    def _repr_html_(self) -> str:
        """The table and its notes as HTML, for a notebook."""
        return html_table(self.rows()) + "".join(f"<p>{escape(note)}</p>" for note in self.notes() if note)


def counted(number: int, noun: str) -> str:
    """A number of things, in words.

    >>> counted(1, "layer"), counted(2, "layer")
    ('1 layer', '2 layers')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def text_lines(rows: Sequence[Row]) -> list[str]:
    r"""Format a table as lines of text with aligned columns.

    >>> print("\n".join(text_lines([{"layer": "0", "units": "16"}, {"layer": "features", "units": "8"}])))
    layer     units
    0         16
    features  8
    """
    if not rows:
        return []
    lines = [[*map(printable, cells)] for cells in (rows[0], *(row.values() for row in rows))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def html_table(rows: Sequence[Row]) -> str:
    """Format a table as HTML.

    >>> html_table([{"layer": "<b>", "units": "16"}])
    '<table><tr><th>layer</th><th>units</th></tr><tr><td>&lt;b&gt;</td><td>16</td></tr></table>'
    """
    if not rows:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = ("".join(f"<td>{escape(cell)}</td>" for cell in row.values()) for row in rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in body)}</table>"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, without the lists and traces that may follow."""
    message = (isinstance(error, OSError) and error.strerror) or str(error)
    lines = message.strip().splitlines()
    line = lines[0].strip() if lines else type(error).__name__
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


def suggest(name: object, known: Iterable[str]) -> str:
    """The end of an error message that suggests the known names closest to ``name``; empty if none is close.

    >>> suggest("resnet65", ["resnet56", "vgg6"])
    "; did you mean 'resnet56'?"
    """
    near = get_close_matches(str(name), list(known), n=3)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
