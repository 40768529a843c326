"""`python -m relucid.cli`: the same as the `relucid` command."""

from relucid.cli import main

if __name__ == "__main__":
    main()
