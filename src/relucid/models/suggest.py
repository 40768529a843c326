"""Help for names that do not exist."""

from collections.abc import Iterable
from difflib import get_close_matches


def suggest(name: object, known: Iterable[str]) -> str:
    """A question with the known names nearest to ``name``, to end a message with; empty if none is near.

    >>> suggest("resnet65", ["resnet56", "vgg6"])
    ", did you mean 'resnet56'?"
    """
    near = get_close_matches(str(name), list(known), n=3)
    return f", did you mean {' or '.join(map(repr, near))}?" if near else ""
