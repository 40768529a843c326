"""The page of a study: what is claimed, what was found, its table, figures and runs, and how to repeat it."""

import json
import shlex
from collections import Counter
from datetime import timedelta
from statistics import mean
from typing import Any

import pandas as pd

from relucid.experiments import Results
from relucid.experiments._page import SMOKE, findings
from relucid.printing import printable
from relucid.report.page import Grid, render
from relucid.report.plots import points, recorded


def study_page(results: Results, name: str, *, only: str | None = None, seeds: int | None = None) -> str:
    """Render the page of a study from its results.

    Args:
        results: of the study.
        name: the identifier that the user passed.
        only: the row that the results are confined to.
        seeds: the number of seeds that they are confined to.
    """
    study, states = results.study, Counter(record["state"] for record in results.records.values())
    if study.page is not None:
        return study.page(results)
    part = {"--scale": results.scale, "--only": only, "--seeds": seeds}
    options = [text for option, value in part.items() if value is not None for text in (option, str(value))]
    figures = [figure for draw in study.figures if states["finished"] for figure in draw(results)]
    if not study.figures:
        figures += recorded(results)
    if study.published or not study.figures:
        figures += points(results)
    return render(
        "study.html",
        study=study,
        **facts(results),
        findings=findings(results),
        states=states,
        missing=len({planned.run.key for planned in results.plan} - results.records.keys()),
        grids=[grid(results, block) for block in results.blocks()],
        chosen=results.choices(),
        figures=figures,
        commands=commands(name, *options),
    )


def facts(results: Results) -> dict[str, Any]:
    """What the page of any study says of its runs."""
    return {
        "scale": results.scale,
        "banner": SMOKE if results.scale == "smoke" else "",
        "time": timedelta(seconds=round(sum(record["seconds"] for record in results.records.values()))),
        "runs": grid_of_runs(results),
        "environments": grid_of_environments(results),
    }


def commands(name: str, *options: str) -> list[str]:
    """The commands that repeat a study and its page."""
    study = printable(shlex.join([name, *options]))
    return [f"relucid run {study}", f"relucid report {study} -o page.html"]


def grid(results: Results, table: pd.DataFrame) -> Grid:
    """A table of texts, or a part of it, for a page."""
    published = "; in brackets what was published" if results.study.published else ""
    rows = [[str(row), *texts] for row, texts in zip(table.index, table.to_numpy(), strict=True)]
    return Grid(f"Means and their standard errors{published}", ["", *table.columns], rows)


def grid_of_runs(results: Results) -> Grid:
    """A table of all runs: settings, outcome and metrics."""
    records = list(results.records.values())
    configs = [{name: json.dumps(value) for name, value in record["config"].items()} for record in records]
    names = dict.fromkeys(name for config in configs for name in config)
    varied = [name for name in names if len({config.get(name) for config in configs}) > 1]
    metrics = list(dict.fromkeys(name for record in records for name in record["metrics"]))
    rows = [
        [
            record["key"][:8],
            *(config.get(name, "") for name in varied),
            record["state"],
            f"{record['seconds']:.1f}",
            *(_measured(record["metrics"].get(name)) for name in metrics),
        ]
        for record, config in zip(records, configs, strict=True)
    ]
    return Grid(f"{len(rows)} runs", ["run", *varied, "state", "seconds", *metrics], rows)


def _measured(value: Any) -> str:
    """A number, or the mean of several."""
    number = mean(value) if isinstance(value, list) and value else value
    return f"{number:.4g}" if isinstance(number, int | float) else ""


def grid_of_environments(results: Results) -> Grid:
    """A table of the runs' environments, one column per machine."""
    counts = Counter(json.dumps(record.get("environment", {})) for record in results.records.values())
    machines = []
    for text in counts:
        environment = json.loads(text)
        environment["trained"] = "; ".join(map(str, environment.get("trained", ())))
        machines.append({**environment.pop("versions", {}), **environment})
    names = dict.fromkeys(name for machine in machines for name, value in machine.items() if value)
    rows = [[name, *(str(machine.get(name) or "") for machine in machines)] for name in names]
    return Grid("What the runs ran on", ["", *(f"{count} runs" for count in counts.values())], rows)
