"""What conversions raise."""


class ConversionError(Exception):
    """A network cannot be converted, or its converted form would differ; the message says why."""


class UnclearError(ConversionError):
    """No example can tell whether a converted network is the same."""


class UnchangedWarning(UserWarning):
    """A conversion has changed no layer."""


class ArgumentError(ValueError):
    """An argument of a conversion is wrong; the network is not to blame."""
