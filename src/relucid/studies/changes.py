"""Runs made by an earlier version of a study's code: they count only if the user says so."""

import json
from collections.abc import Sequence
from typing import Literal, get_args

from relucid.studies.plan import Run
from relucid.studies.store import Store

Changed = Literal["refuse", "keep", "rerun"]


class ChangedError(ValueError):
    """The file of a study has changed since some of its runs were made."""


def outdated(runs: Sequence[Run], store: Store) -> dict[str, Run]:
    """The recorded runs that planned runs would replace, by the planned run's key.

    The two differ only in the code of the user's function. A `Runner` with an explicit version is left out: raising
    the version already says that earlier runs do not count.
    """
    own = [run for run in runs if isinstance(run.version, str)]
    recorded = [run for name in {run.runner for run in own} for run in store.runs(name)]
    former = {_what(run): run for run in recorded if store.state(run.key) != "failed"}
    return {run.key: former[_what(run)] for run in own if _what(run) in former and not store.state(run.key)}


def settle(runs: Sequence[Run], store: Store, changed: Changed = "refuse") -> None:
    """Refuse to continue if code has changed, unless `changed` names what to do with the earlier runs.

    Args:
        runs: the planned runs.
        store: the recorded runs.
        changed: "keep" counts the latest outcomes of the old code as outcomes of the new one, marked by `kept` in
            their environments; "rerun" leaves them alone. Nothing is ever deleted.
    """
    if changed not in get_args(Changed):
        raise ValueError(f"changed is {changed!r}; it must be one of {', '.join(get_args(Changed))}")
    found = {} if changed == "rerun" else outdated(runs, store)
    if found and changed == "refuse":
        raise ChangedError(
            f"{describe(found)}: --keep to count them anyway, --rerun to repeat them; "
            "with a Runner, you number the versions of your code yourself"
        )
    for run in runs:
        if run.key in found:
            store.keep(found[run.key], run)


def describe(found: dict[str, Run]) -> str:
    """Describe what has changed.

    >>> describe({"key": Run("my_study:run", {}, "source 1234")})
    'the file of my_study:run has changed since 1 run was made'
    """
    names = " and ".join(sorted({run.runner for run in found.values()}))
    count = "1 run was" if len(found) == 1 else f"{len(found)} runs were"
    return f"the file of {names} has changed since {count} made"


def _what(run: Run) -> tuple[str, str]:
    return run.runner, json.dumps(run.config, sort_keys=True)
