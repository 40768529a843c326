"""What conversions raise."""

from collections.abc import Mapping


class ConversionError(ValueError):
    """A network cannot be converted, its converted form would differ, or an argument is wrong; the message says why.

    Args:
        message: One sentence.
        layers: What is wrong with each layer of a converted network that fails or returns something else.
    """

    def __init__(self, message: str, layers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.layers = dict(layers or {})


class UnchangedWarning(UserWarning):
    """A conversion has changed no layer."""
