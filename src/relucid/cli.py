"""The `relucid` command."""

import sys


def main() -> None:
    """Run the command line, or say which extra it needs."""
    from relucid import __version__

    sys.stdout.write(f"relucid {__version__}\n")
