"""The adapter of old studies is imported by the guards alone."""

collect_ignore = ["adapt.py", "quantities.py"]
