"""The `relucid` command."""

import sys

from relucid.extras import needed


def main() -> None:
    """Run the command line, or say which extra is missing."""
    try:
        try:
            with needed("relucid's command line"):
                from relucid.cli.app import start
        except ImportError as error:
            sys.exit(str(error))
        start()
    except KeyboardInterrupt:  # before a command has begun, or after it has ended
        print("Aborted.", file=sys.stderr)
        sys.exit(130)
