"""The page of a study: what is claimed, what was found, its table, figures and runs, and how to repeat it."""

import json
import math
import shlex
from collections import Counter
from datetime import timedelta
from statistics import mean
from typing import Any

from relucid.experiments import Results
from relucid.experiments._frame import cell_text
from relucid.experiments._page import SMOKE, findings
from relucid.printing import printable
from relucid.report.page import CellStyle, Grid, GridCell, render
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
        grids=[grid(results, list(block.index), list(block.columns)) for block in results.blocks()],
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


def grid(results: Results, rows: list[str], columns: list[str]) -> Grid:
    """A table of these rows and columns, with the published values beside ours."""
    table = results.table().to_dict("index")
    none = {"mean": math.nan, "error": math.nan, "n": 0, "published": math.nan, "published_error": math.nan}
    theirs = [
        of for of in columns if any(not math.isnan(table.get((row, of), none)["published"]) for row in rows)
    ]
    head = [("", "")]
    for label in columns:
        head += [(label, "ours"), (label, "published")] if label in theirs else [(label, "")]
    lines = []
    for row in rows:
        line = [GridCell(row)]
        for label in columns:
            digits, stat = results.study.columns[label].digits, table.get((row, label), none)
            ours = stat | {"published": math.nan}
            text = cell_text(ours, digits, results.note(row, label)) if (row, label) in table else ""
            line.append(GridCell(text, None if math.isnan(stat["mean"]) else stat["mean"]))
            if label in theirs:
                line.append(_published(stat["published"], stat["published_error"], digits))
        lines.append(line)
    caption = "Means and their standard errors" + (", beside what was published" if theirs else "")
    return Grid(caption, head, lines)


def _published(value: float, error: float, digits: int) -> GridCell:
    if math.isnan(value):
        return GridCell("", None, "dim")
    text = f"{value:.{digits}f}" + ("" if math.isnan(error) else f"±{error:.{digits}f}")
    return GridCell(text, value, "dim")


def grid_of_runs(results: Results) -> Grid:
    """A table of all runs: settings, outcome and metrics."""
    records = list(results.records.values())
    configs = [{name: json.dumps(value) for name, value in record["config"].items()} for record in records]
    names = dict.fromkeys(name for config in configs for name in config)
    varied = [name for name in names if len({config.get(name) for config in configs}) > 1]
    metrics = list(dict.fromkeys(name for record in records for name in record["metrics"]))
    rows = []
    for record, config in zip(records, configs, strict=True):
        line = [GridCell(record["key"][:8]), *(GridCell(config.get(name, "")) for name in varied)]
        style: CellStyle = "" if record["state"] == "finished" else "bad"
        line += [
            GridCell(record["state"], style=style),
            GridCell(f"{record['seconds']:.1f}", record["seconds"]),
        ]
        rows.append(line + [_measured(record["metrics"].get(name)) for name in metrics])
    head = [(name, "") for name in ("run", *varied, "state", "seconds", *metrics)]
    return Grid(f"{len(rows)} runs", head, rows)


def _measured(value: Any) -> GridCell:
    """A number, or the mean of several."""
    number = mean(value) if isinstance(value, list) and value else value
    return GridCell(f"{number:.4g}", number) if isinstance(number, int | float) else GridCell("")


def grid_of_environments(results: Results) -> Grid:
    """A table of the runs' environments, one column per machine."""
    counts = Counter(json.dumps(record.get("environment", {})) for record in results.records.values())
    machines = []
    for text in counts:
        environment = json.loads(text)
        environment["trained"] = "; ".join(map(str, environment.get("trained", ())))
        machines.append({**environment.pop("versions", {}), **environment})
    names = dict.fromkeys(name for machine in machines for name, value in machine.items() if value)
    rows = [
        [GridCell(name), *(GridCell(str(machine.get(name) or "")) for machine in machines)] for name in names
    ]
    head = [("", ""), *((f"{count} runs", "") for count in counts.values())]
    return Grid("What the runs ran on", head, rows)
