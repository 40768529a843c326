"""`python -m relucid`."""

from relucid.cli import main

if __name__ == "__main__":
    main()
