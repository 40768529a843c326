"""Suggestions for misspelt names."""

from collections.abc import Iterable
from difflib import get_close_matches


def suggest(name: object, known: Iterable[str]) -> str:
    """The end of an error message that suggests the known names closest to ``name``; empty if none is close.

    >>> suggest("resnet65", ["resnet56", "vgg6"])
    "; did you mean 'resnet56'?"
    """
    near = get_close_matches(str(name), list(known), n=3)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
