"""The page of a table: its .md file, a Jinja template in which every number and outcome comes from records."""

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
from relucid.experiments._judge import Claim, Outcome, Verdict, judge, number, outcome
from relucid.experiments._records import Record
from relucid.experiments._study import Study, named

SMOKE = "Smoke test: seconds of training, to see that everything runs. The numbers mean nothing."
SHOW = """\
### {{ results.study.name }} at {{ results.scale }} scale

{{ results }}

{% for finding in findings %}
{{ finding }}

{% if finding.verdicts | length > 3 %}
<details markdown="1">
<summary>{{ finding.verdicts | length }} comparisons</summary>

{% endif %}
{% for verdict in finding.verdicts %}
- {{ verdict }}
{% endfor %}
{% if finding.verdicts | length > 3 %}

</details>
{% endif %}

{% endfor %}
{{ cost }} To repeat: `relucid run {{ results.study.name }} --scale {{ results.scale }}`.
"""


@dataclass(frozen=True)
class Finding:
    """A claim, the outcomes of its contrasts, and the caveats: computed when somebody looks, never stored."""

    claim: Claim
    results: Results
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

    @property
    def stands(self) -> str:
        """The outcome, the counts and the caveats, in sentences."""
        return " ".join([f"{self.outcome.capitalize()}{self.counts}.", *self.caveats.values()])

    def __str__(self) -> str:
        doubts = "".join(f" {sentence}" for sentence in self.caveats.values())
        outcome = f"{self.outcome.capitalize()}{self.counts}"
        return f"**{self.claim.where}.** {self.claim.says} **{outcome}.**{doubts}"


def findings(results: Results) -> list[Finding]:
    """Every claim of a study that its records can answer; none at smoke scale.

    A claim is answered when every cell behind it has a value, or all its runs and none.
    """
    answered = []
    for claim in results.study.claims if results.scale != "smoke" else []:
        here = claim.within(results.labels)
        asked = not claim.scales or results.scale in claim.scales
        if asked and here.contrasts and all(results.begun(*cell[:2]) for cell in here.cells()):
            doubts = caveats(here, results) if claim.kind == "experiment" else {}
            answered.append(Finding(here, results, judge(results, here), doubts))
    return answered


class Archive:
    """Records, and the results and findings of studies by them, each computed once."""

    def __init__(self, records: Mapping[str, Record]) -> None:
        self.records = records
        self._results: dict[tuple[str, str], Results] = {}
        self._findings: dict[tuple[str, str], list[Finding]] = {}

    def results(self, study: Study, scale: str) -> Results:
        """The results of a study at a scale."""
        place = study.name, scale
        if place not in self._results:
            self._results[place] = Results(study, scale, self.records)
        return self._results[place]

    def findings(self, study: Study, scale: str) -> list[Finding]:
        """The findings of a study at a scale."""
        place = study.name, scale
        if place not in self._findings:
            self._findings[place] = findings(self.results(study, scale))
        return self._findings[place]


def cost(results: Results) -> str:
    """How many runs there are, what they took, and what they were made with."""
    runs = results.records.values()
    states, planned = Counter(run["state"] for run in runs), len({each.run.key for each in results.plan})
    troubles = "".join(f", {states[state]} {state}" for state in ("diverged", "failed") if states[state])
    done = f"{len(runs)} runs" if len(runs) == planned else f"{len(runs)} of {planned} runs"
    took = timedelta(seconds=round(sum(run["seconds"] for run in runs)))
    known = [run["environment"] for run in runs if run.get("environment")]  # none where a process died
    machines = sorted({f"torch {each['versions']['torch']} on {each['device']}" for each in known})
    trained = sorted({way for each in known for way in each.get("trained", ())})
    dirty = sum(str(each.get("commit")).endswith("-dirty") for each in known)
    code = [f"{dirty} with uncommitted changes"] if dirty else []
    return f"{done}{troubles}, {took} of computing, {'; '.join([*machines, *trained, *code])}."


class Page:
    """The page of a table's file.

    Its .md may use `show(study, scale)`, `results(study, scale)`, `finding(study, where, scale)`, `settings(study)`,
    `number(x)` and `here`, the table's module. Without a scale, the largest complete one is meant.

    Args:
        module: of the table: it has `STUDIES`, and an .md file beside it.
        records: by key, or an archive of them.
    """

    def __init__(self, module: ModuleType, records: Mapping[str, Record] | Archive) -> None:
        self.module = module
        self.archive = records if isinstance(records, Archive) else Archive(records)
        self.studies: dict[str, Study] = {study.name: study for study in module.STUDIES}

    def at(self, name: str, scale: str) -> Results:
        """The results of a study at a scale."""
        return self.archive.results(named(name, self.studies, "study", str(self.module.__name__)), scale)

    def results(self, name: str, scale: str | None = None) -> Results:
        """The results of a study at a scale, by default the largest complete one."""
        if scale is not None:
            return self.at(name, scale)
        study: Study = named(name, self.studies, "study", str(self.module.__name__))
        known = [self.at(name, scale) for scale in study.largest_first() if scale != "smoke"]
        return next((results for results in known if results.records and results.whole), known[0])

    def show(self, name: str, scale: str | None = None) -> str:
        """The table of a study and its claims, in Markdown."""
        results = self.results(name, scale)
        if not results.records:
            return f"*{name} has not been run: `relucid run {name} --scale {results.scale}`.*"
        template = environment().from_string(SHOW)
        judged = self.archive.findings(results.study, results.scale)
        return template.render(results=results, findings=judged, cost=cost(results))

    def finding(self, name: str, where: str, scale: str | None = None) -> Finding:
        """What was found of a claim, by the place that it names."""
        results = self.results(name, scale)
        found = {
            finding.claim.where: finding for finding in self.archive.findings(results.study, results.scale)
        }
        finding: Finding = named(where, found, "claim that records answer", name)
        return finding

    def settings(self, name: str) -> str:
        """What the scales of a study change, one line per setting."""
        scales = {
            scale: flat({**at.config, **at.repeat})
            for scale, at in self.studies[name].scales.items()
            if scale != "smoke"
        }
        names = dict.fromkeys(name for at in scales.values() for name in at)
        changed = [name for name in names if len({str(at.get(name)) for at in scales.values()}) > 1]
        lines = [["", *scales], ["---"] * (1 + len(scales))]
        lines += [[name, *(str(at.get(name, "")) for at in scales.values())] for name in changed]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def render(self, text: str | None = None, **more: Any) -> str:
        """The page in Markdown, of its own text or another."""
        prose = Path(str(self.module.__file__)).with_suffix(".md").read_text() if text is None else text
        context: dict[str, Any] = {
            "show": self.show,
            "results": self.results,
            "finding": self.finding,
            "settings": self.settings,
            "number": number,
            "here": self.module,
        }
        return environment().from_string(prose).render({**context, **more}).rstrip() + "\n"


def environment() -> jinja2.Environment:
    """The environment of templates in Markdown: a missing value is an error."""
    return jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)


if __name__ == "__main__":  # python -m relucid.experiments._page MODULE RECORDS
    import importlib
    import sys

    from relucid.experiments._records import read

    print(Page(importlib.import_module(sys.argv[1]), read(sys.argv[2])).render())
