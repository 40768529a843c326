"""The `relucid` command."""

import sys


def main() -> None:
    """Run the command line, or say which extra is missing."""
    try:
        try:
            from relucid.cli.app import start
        except ImportError as error:
            sys.exit(f"relucid's command line needs {error.name}: pip install 'relucid[studies]'")
        start()
    except KeyboardInterrupt:  # before a command has begun, or after it has ended
        print("Aborted.", file=sys.stderr)
        sys.exit(130)
