"""Doctests on the site as code: without a fence Markdown takes `>>>` for a quotation."""

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^>>> .*(?:\n.*\S.*)*", re.MULTILINE)  # up to the next empty line


class Doctests(griffe.Extension):
    """Puts the doctests of every docstring into a fence."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of a module, class or function, if it has one."""
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
