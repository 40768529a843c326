"""Results as a page: one HTML file that needs no server, no network and nothing beside it."""

from relucid.report.figure import PALETTE, Figure

__all__ = ["PALETTE", "Figure"]
