"""Names that have moved to `relucid.inspect.batches`, for conversions that import them from here."""

from relucid.inspect.batches import batches_for, inputs_in

__all__ = ["batches_for", "inputs_in"]
