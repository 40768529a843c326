"""A page: one self-contained HTML file."""

import gzip
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.io.json import to_json_plotly
from plotly.offline import get_plotlyjs

from relucid import __version__
from relucid.files import replacing
from relucid.report.figure import DARK, LIGHT, Figure
from relucid.report.figure import template as look

NUMBER = re.compile(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?")


@dataclass(frozen=True)
class Grid:
    """A table of texts that readers can sort by the numbers that they begin with; its rows may be links."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    links: Sequence[str] = ()


def text_grid(caption: str, rows: Sequence[Mapping[str, str]], links: Sequence[str] = ()) -> Grid:
    """A table of texts by column."""
    return Grid(caption, [*rows[0]] if rows else [], [[*row.values()] for row in rows], links)


def number(text: str) -> float | None:
    """The number that a text begins with; None if there is none.

    >>> number("1,024 of 4,096"), number("-0.5%"), number("1e-05"), number("none")
    (1024.0, -0.5, 1e-05, None)
    """
    match = NUMBER.match(text.replace(",", ""))
    return float(match[0]) if match else None


def environment(directory: Path | None = None) -> Environment:
    """The environment of the templates, and of those in a directory: all is escaped, a missing value is an error."""
    ours = PackageLoader("relucid.report")
    return Environment(
        loader=ours if directory is None else ChoiceLoader([FileSystemLoader(directory), ours]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template: str, directory: Path | None = None, **context: Any) -> str:
    """The page that a template makes of what it is given; everything is escaped.

    Args:
        template: the name of a template of the library, or of one in the directory.
        directory: with templates of somebody else.
        context: the template's values.
    """
    pages = environment(directory)
    pages.filters |= {"plotly": plotly, "json": _script, "number": number}
    looks = {"light": look(*LIGHT).to_plotly_json(), "dark": look(*DARK).to_plotly_json()}
    return pages.get_template(template).render(**context, looks=looks, library=library(), version=__version__)


@cache
def library() -> str:
    """Plotly's script as base64 of its gzip bytes, which the page unpacks before it draws."""
    return b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def plotly(figure: Figure) -> Markup:
    """A plot as JSON for a script element; the page styles it, and plays its frames with its own slider."""
    plot = figure.plot.to_dict()
    for name in ("template", "title", *(("sliders", "updatemenus") if plot.get("frames") else ())):
        plot["layout"].pop(name, None)
    return _script(plot)


def _script(value: Any) -> Markup:
    """A value as JSON that a script element can hold: Plotly escapes what could end the element."""
    return Markup(to_json_plotly(value))


def check(path: Path, force: bool, option: str = "overwrite=True") -> None:
    """Refuse a path that cannot be written to, before anything is computed.

    Args:
        path: the file to write.
        force: whether it may exist.
        option: how the user allows that.
    """
    if not path.absolute().parent.is_dir():
        raise ValueError(f"there is no directory {path.absolute().parent}")
    _check_regular(path)
    if path.exists() and not force:
        raise ValueError(f"{path} exists: {option} overwrites it")


def save(page: str, path: Path) -> None:
    """Write a page, all of it or nothing."""
    _check_regular(path)
    with replacing(path) as new:
        new.write_text(page, encoding="utf-8")


def _check_regular(path: Path) -> None:
    """Refuse a symbolic link, a directory or a device: a page must not replace it."""
    if path.is_symlink():
        raise ValueError(f"{path} is a symbolic link, which is never replaced: name the file itself")
    if path.exists() and not path.is_file():
        raise ValueError(
            f"{path} is not a regular file and is never replaced: name a file, such as page.html"
        )
