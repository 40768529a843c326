"""What relucid can do only with an extra: an error names the missing package and the command that installs it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from urllib.parse import unquote, urlsplit


@contextmanager
def needed(what: str, extra: str = "studies") -> Iterator[None]:
    """Turn the error of a missing package into one that says how to install it.

    >>> with needed("drawing"):
    ...     import there_is_no_such_package
    Traceback (most recent call last):
    ImportError: drawing needs there_is_no_such_package: pip install ...
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "relucid":
            raise
        raise ImportError(f"{what} needs {error.name}: {command(extra)}", name=error.name) from error


def command(extra: str) -> str:
    """The command that installs an extra, from where relucid itself was installed."""
    try:
        origin = json.loads(distribution("relucid").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        origin = {}
    url = origin.get("url")
    if url is None:
        return f"pip install 'relucid[{extra}]'"
    if origin.get("dir_info", {}).get("editable"):
        return f"pip install -e '{unquote(urlsplit(url).path)}[{extra}]'"
    version = origin.get("vcs_info")
    where = url if version is None else f"{version['vcs']}+{url}@{version['commit_id']}"
    return f"pip install 'relucid[{extra}] @ {where}'"
