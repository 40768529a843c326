"""The page of a table: its .md file, a Jinja template in which every number comes from the records."""

import importlib
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import jinja2

from relucid.experiments._caveats import caveats
from relucid.experiments._frame import Results, flat
from relucid.experiments._records import Record, read
from relucid.experiments._judge import Claim, Outcome, Verdict, judge, number, outcome
from relucid.experiments._study import SCALES, Study

TEMPLATES = {
    "results": """\
### {{ study.name }} at {{ results.scale }} scale

{{ results }}

{% for each in findings %}
**{{ each.claim.where }}.** {{ each.claim.says }} **{{ each.outcome | capitalize }}{{ each.counts }}.**
{%- for sentence in each.caveats.values() %} {{ sentence[0] | upper }}{{ sentence[1:] }}.{% endfor %}

{% for verdict in each.verdicts %}
- {{ verdict }}
{% endfor %}

{% endfor %}
{{ cost }} To repeat: `relucid run {{ study.name }} --scale {{ results.scale }}`.
"""
}


@dataclass(frozen=True)
class Finding:
    """A claim, the outcomes of its contrasts, and the caveats: computed when somebody looks, never stored."""

    claim: Claim
    verdicts: Sequence[Verdict]
    caveats: Mapping[str, str]

    @cached_property
    def outcome(self) -> Outcome:
        """One of five words."""
        return outcome(self.claim, self.verdicts)

    @property
    def counts(self) -> str:
        """How many of several contrasts have which outcome."""
        counts = Counter(verdict.outcome for verdict in self.verdicts).most_common()
        return f" ({', '.join(f'{n} {word}' for word, n in counts)})" if len(self.verdicts) > 1 else ""


def findings(results: Results) -> list[Finding]:
    """Every claim of a study that its records can answer; none at smoke scale."""
    found = []
    for claim in results.study.claims if results.scale != "smoke" else []:
        here = claim.within(results.labels)
        cells = [cell[:2] for contrast in here.contrasts for cell in contrast.cells()]
        if (
            (not claim.scales or results.scale in claim.scales)
            and cells
            and all(results.begun(*cell) for cell in cells)
        ):
            doubts = caveats(here, results) if claim.kind == "experiment" else {}
            found.append(Finding(here, judge(results, here), doubts))
    return found


class Page:
    """The studies of a table's file, and all records."""

    def __init__(self, module: ModuleType, records: Mapping[str, Record]) -> None:
        self.module, self.records = module, records
        self.studies: dict[str, Study] = {study.name: study for study in module.STUDIES}
        self.jinja = jinja2.Environment(
            loader=jinja2.DictLoader(TEMPLATES),
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )

    def results(self, name: str, scale: str | None = None) -> Results:
        """The results of a study at a scale, by default the largest complete one."""
        study = self.studies[name]
        known = [
            Results(study, each, self.records)
            for each in ([scale] if scale else largest_first(study))
            if each != "smoke"
        ]
        return next((each for each in known if each.records and each.whole), known[0])

    def show(self, name: str, scale: str | None = None) -> str:
        """The table of a study and its claims, in Markdown."""
        results = self.results(name, scale)
        if not results.records:
            return f"*{name} has not been run: `relucid run {name}`.*"
        return self.jinja.get_template("results").render(
            study=results.study, results=results, findings=findings(results), cost=_cost(results)
        )

    def finding(self, name: str, where: str, scale: str | None = None) -> Finding:
        """What was found of a claim, by the place that it names."""
        known = {finding.claim.where: finding for finding in findings(self.results(name, scale))}
        if where not in known:
            raise ValueError(
                f"{name} has no claim {where!r} that its records answer; it has {', '.join(known)}"
            )
        return known[where]

    def settings(self, name: str) -> str:
        """What the scales of a study change, one line per setting."""
        scales = {
            scale: flat({**of.config, **of.repeat})
            for scale, of in self.studies[name].scales.items()
            if scale != "smoke"
        }
        names = dict.fromkeys(name for of in scales.values() for name in of)
        changed = [name for name in names if len({str(of.get(name)) for of in scales.values()}) > 1]
        lines = [
            ["", *scales],
            ["---"] * (1 + len(scales)),
            *([name, *(str(of.get(name, "")) for of in scales.values())] for name in changed),
        ]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def render(self) -> str:
        """The page."""
        prose = Path(str(self.module.__file__)).with_suffix(".md").read_text()
        context: dict[str, Any] = {
            "show": self.show,
            "results": self.results,
            "settings": self.settings,
            "finding": self.finding,
            "number": number,
            "here": self.module,
        }
        return self.jinja.from_string(prose).render(context).rstrip() + "\n"


def largest_first(study: Study) -> list[str]:
    """The scales of a study, the paper's first; "cpu-four" counts as "cpu", other names as "small"."""
    rank = {name: place for place, name in enumerate(SCALES)}
    return sorted(study.scales, key=lambda name: rank.get(name.partition("-")[0], rank["small"]))


def _cost(results: Results) -> str:
    runs = results.records.values()
    states = Counter(run["state"] for run in runs)
    troubles = "".join(f", {states[state]} {state}" for state in ("diverged", "failed") if states[state])
    took = timedelta(seconds=round(sum(run["seconds"] for run in runs)))
    machines = sorted(
        {
            f"torch {run['environment']['versions']['torch']} on {run['environment']['device']}"
            for run in runs
            if run.get("environment")
        }
    )
    return f"{len(runs)} runs{troubles}, {took} of computing, {'; '.join(machines)}."


if __name__ == "__main__":  # python -m relucid.experiments._page MODULE RECORDS
    print(Page(importlib.import_module(sys.argv[1]), read(sys.argv[2])).render())
