"""What studies whose directions were fixed before they were run have in common: configurations, and what pages say."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from relucid.experiments import Results
from relucid.experiments._page import findings


def settings(name: str, arm: Any) -> dict[str, Any]:
    """What an arm, a dataclass, adds to a configuration: what it does that the plain one does not."""
    values = {field.name: (getattr(arm, field.name), field.default) for field in fields(arm)}
    return {name: {field: value for field, (value, default) in values.items() if value != default}}


def finished(results: Results) -> bool:
    """Whether every planned run has finished, those of rows that nobody has begun included."""
    states = {key: record["state"] for key, record in results.records.items()}
    return all(states.get(planned.run.key) == "finished" for planned in results.plan)


def failures(*studies: Results) -> list[str]:
    """What was predicted and did not come true, of the studies that have finished; first on their page."""
    return [
        f"{results.study.name}: {verdict}"
        for results in studies
        if finished(results)
        for finding in findings(results)
        for verdict in finding.verdicts
        if verdict.outcome != "confirmed"
    ]


def near(results: Results, row: str, column: str, among: Iterable[str], within: float = 5.0) -> str:
    """Those among some rows that have more than a row, or less by at most so many points, the best first."""
    least = results[row, column].mean() - within
    means = {name: results[name, column].mean() for name in among if (name, column) in results.cells}
    close = sorted(
        (name for name, mean in means.items() if mean >= least), key=means.__getitem__, reverse=True
    )
    return ", ".join(f"{name} ({means[name]:.1f}%)" for name in close) or "none"
