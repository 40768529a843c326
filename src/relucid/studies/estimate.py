"""How long the remaining runs of a study will take."""

import json
from collections import defaultdict
from statistics import mean

from relucid.studies.plan import Run
from relucid.studies.store import Store
from relucid.studies.study import Study


def estimate(study: Study, scale: str, runs: list[Run], store: Store) -> tuple[list[Run], float | None]:
    """The remaining runs, and the seconds that they will take one after another.

    A run takes as long as those that differ from it only in what is repeated or chosen; if none of them has
    been run, as long as the study's runs on average; where none has, what the scale says; else it is unknown.
    """
    repeated = set(study.choose) | set(study.repeat)
    repeated |= {name for column in study.columns.values() for name in column.repeat or {}}

    def kind(run: Run) -> str:
        return json.dumps({name: value for name, value in run.config.items() if name not in repeated})

    known: dict[str, list[float]] = defaultdict(list)
    missing = []
    for run in runs:
        outcome = store.get(run.key)
        if outcome is None:
            missing.append(run)
        else:
            known[kind(run)].append(outcome.seconds)
    usual = study.scales[scale].seconds
    if known:
        usual = mean(seconds for found in known.values() for seconds in found)
    times = [mean(known[kind(run)]) if kind(run) in known else usual for run in missing]
    return missing, None if None in times else sum(time for time in times if time is not None)
