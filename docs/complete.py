"""Check that every public name is on its API page: a submodule of the same name hides a function, for one."""

import ast
import logging
import re
from pathlib import Path
from typing import Any

log = logging.getLogger("mkdocs.hooks.complete")  # a warning fails the strict build


def public(package: Path) -> list[str]:
    """The names in a package's ``__all__``."""
    statements = ast.parse((package / "__init__.py").read_text(encoding="utf-8")).body
    return next(
        ast.literal_eval(each.value)
        for each in statements
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "__all__"
    )


def missing(package: Path, html: str) -> list[str]:
    """The public names of a package that have no entry on its page, under its address or a module's."""
    entries = re.findall(rf'id="relucid\.{package.name}\.(?:[a-z_]+\.)?(\w+)"', html)
    return [name for name in public(package) if name not in entries]


def on_page_content(html: str, page: Any, **_: Any) -> None:
    """Warn of names that are missing on a page of the API."""
    path = Path(page.file.src_uri)
    if path.parent.name == "api" and path.stem != "index":
        for name in missing(Path("src/relucid") / path.stem, html):
            log.warning("relucid.%s.%s is public but not on %s", path.stem, name, path)
