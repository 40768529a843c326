"""The page of a table: its .md file, a Jinja template in which every number and outcome comes from records."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import jinja2
import pandas as pd

from relucid.experiments._catalog import find
from relucid.experiments._caveats import caveats
from relucid.experiments._frame import Results, flat, markdown
from relucid.experiments._judge import Claim, Outcome, Verdict, judge, number, outcome
from relucid.experiments._records import Record
from relucid.experiments._study import Study, named

MINUS = " minus "
SMOKE = "Smoke test: seconds of training, to see that everything runs. The numbers mean nothing."
SHOW = """\
### {{ results.study.name }}, {{ results.scale }}

{% if table %}
{{ table }}

{% endif %}
{% for finding in findings %}
{{ finding }}

{% endfor %}
{% if doubts %}
Caveats: {{ doubts | join(" ") }}

{% endif %}
{{ cost }}
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
        if len(counts) == 1:
            return f" (all {len(self.verdicts)})" if len(self.verdicts) > 1 else ""
        return f" ({', '.join(f'{n} {word}' for word, n in counts)})"

    @property
    def stands(self) -> str:
        """The outcome, the counts and the caveats, in sentences."""
        return " ".join([f"{self.outcome.capitalize()}{self.counts}.", *self.caveats.values()])

    def __str__(self) -> str:
        return self.line()

    def line(self, again: bool = False) -> str:
        """The claim and its outcome in Markdown; of many comparisons the smallest and the largest of each outcome.

        Args:
            again: the page has already stated the same claim about another study.
        """
        says = "The same." if again else self.claim.says
        first = f"**{self.claim.where}.** {says} **{self.outcome.capitalize()}**"
        if len(self.verdicts) == 1:
            return f"{first}: {self.verdicts[0].effect}."
        groups: dict[str, list[tuple[str, Verdict]]] = {}
        for name, verdict in zip(self._sides(), self.verdicts, strict=True):
            groups.setdefault(verdict.outcome, []).append((name, verdict))
        if len(groups) == 1:
            return f"{first}{self.counts}{self.verdicts[0].confidence}: {_ends(next(iter(groups.values())))}."
        ends = [f"{outcome.capitalize()} ({len(of)}): {_ends(of)}." for outcome, of in groups.items()]
        return f"{first}. {' '.join(ends)} Intervals at {100 * (1 - self.verdicts[0].level):.3g}%."

    def _sides(self) -> list[str]:
        """What each contrast compares, without what all of them share."""
        places = [verdict.contrast.place for verdict in self.verdicts]
        firsts, columns = {row.partition(MINUS)[0] for row, _ in places}, {column for _, column in places}
        shared = len(firsts) == 1 and all(MINUS in row for row, _ in places)
        rows = [f"against {row.partition(MINUS)[2]}" if shared else row for row, _ in places]
        return [
            f"{row}, {column}" if column and len(columns) > 1 else row
            for row, (_, column) in zip(rows, places, strict=True)
        ]


def _ends(verdicts: Sequence[tuple[str, Verdict]]) -> str:
    """The smallest and the largest effect; of more than two, only the one nearer to another outcome in full."""
    ordered = sorted(verdicts, key=lambda pair: abs(pair[1].comparison.effect) if pair[1].comparison else 0.0)
    texts = [f"{verdict.effect} ({name})" for name, verdict in ordered]
    if len(texts) <= 2:
        return ", ".join(texts)
    smallest, largest = ordered[0][1], ordered[-1][1]
    if smallest.outcome in ("confirmed", "reversed"):
        return f"{texts[0]} to {_size(largest)}"
    return f"{_size(smallest)} to {texts[-1]}"


def _size(verdict: Verdict) -> str:
    """The effect of a verdict, if it is known."""
    return number(verdict.comparison.effect) if verdict.comparison else verdict.effect


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


def cost(results: Results) -> str:
    """How many runs there are, what they took, and the command that repeats them."""
    runs = results.records.values()
    states, planned = Counter(run["state"] for run in runs), len({each.run.key for each in results.plan})
    dirty = sum(str(run.get("environment", {}).get("commit")).endswith("-dirty") for run in runs)
    said = [f"{states[state]} {state}" for state in ("diverged", "failed") if states[state]]
    said += [f"{dirty} with uncommitted changes"] if dirty else []
    done = f"{len(runs)} runs" if len(runs) == planned else f"{len(runs)} of {planned} runs"
    took = timedelta(seconds=round(sum(run["seconds"] for run in runs)))
    return f"{', '.join([done, *said])}, {took}: `{command(results)}`"


def command(results: Results) -> str:
    """The command that makes the missing runs of a study."""
    return f"relucid run {results.study.name} --scale {results.scale}"


def doubts(findings: Sequence[Finding]) -> list[str]:
    """The caveats of several claims about the same results: of their cells together, a sentence each."""
    tested = [finding for finding in findings if finding.claim.kind == "experiment"]
    if not tested:
        return []
    together = Claim("", "", [contrast for finding in tested for contrast in finding.claim.contrasts])
    late: dict[str, list[str]] = {}
    for finding in tested:
        if sentence := finding.caveats.get("post hoc"):
            late.setdefault(sentence.rstrip("."), []).append(finding.claim.where)
    found = caveats(together, tested[0].results)
    names = (
        f"{sentence}: {'all' if len(of) == len(tested) > 1 else '; '.join(of)}."
        for sentence, of in late.items()
    )
    return [*found.values(), *names]


def _tries(study: Study) -> bool:
    """Whether every column is a rate that was tried."""
    return all(column.tries for column in study.columns.values())


def best_rates(results: Results) -> str:
    """The rates that were tried, and the rows, with their settings, whose lowest mean is at an end of them."""
    best: dict[str, tuple[float, float]] = {}
    tried = dict.fromkeys(column.tries[1] for column in results.study.columns.values() if column.tries)
    for row, label in results.cells:
        if (tries := results.study.columns[label].tries) and len(values := results[row, label]):
            place = ", ".join(filter(None, (row, tries[0])))
            best[place] = min(best.get(place, (math.inf, 0.0)), (float(values.mean()), tries[1]))
    rates = {rate: [place for place, (_, chosen) in best.items() if chosen == rate] for rate in sorted(tried)}
    ends = {rate: rates[rate] for rate in (min(rates), max(rates)) if rates[rate]}
    found = "; ".join(f"{rate:g} for {', '.join(places)}" for rate, places in ends.items()) or "for none"
    return f"Tried: {', '.join(f'{rate:g}' for rate in rates)}. Lowest error at an end of these: {found}."


class Archive:
    """Records, and what is computed from them, each once: results and findings of studies, and the pages of tables.

    Args:
        records: by key.
    """

    def __init__(self, records: Mapping[str, Record]) -> None:
        self.records = records
        self.studies: dict[str, Study] = {}  # of the page that is rendered
        self._results: dict[tuple[str, str], Results] = {}
        self._findings: dict[tuple[str, str], list[Finding]] = {}
        self._shown: dict[str, set[tuple[str, ...]]] = {}  # of each row: columns with the keys of their runs
        self._said: set[str] = set()  # sentences of claims

    def results(self, study: Study | str, scale: str | None = None) -> Results:
        """The results of a study, or of one by name, at a scale; by default the largest complete one."""
        if isinstance(study, str):
            study = self.studies.get(study) or find(study)
        if scale is None:
            known = [self.results(study, name) for name in study.largest_first() if name != "smoke"]
            return next((results for results in known if results.records and results.whole), known[0])
        place = study.name, scale
        if place not in self._results:
            self._results[place] = Results(study, scale, self.records)
        return self._results[place]

    def findings(self, study: Study | str, scale: str | None = None) -> list[Finding]:
        """The findings of a study at a scale."""
        results = self.results(study, scale)
        place = results.study.name, results.scale
        if place not in self._findings:
            self._findings[place] = findings(results)
        return self._findings[place]

    def show(self, name: str, scale: str | None = None, table: bool = True) -> str:
        """The table of a study and its claims, in Markdown; a long one may be left to `relucid show`.

        Rows that the page has shown are only counted, and so are those of a study without a claim, which chose settings
        for another. Of a scale that is not the largest complete one, claims that this one answers have their outcome
        only, and if it answers all of them the table is left out.
        """
        results = self.results(name, scale)
        if not results.records:
            return f"*Not run: `{command(results)}`.*"
        largest = self.results(name)
        better = [] if largest is results else self.findings(largest.study, largest.scale)
        answered = {finding.claim.where for finding in better}
        judged = self.findings(results.study, results.scale)
        new = [finding for finding in judged if finding.claim.where not in answered]
        others = [f"{each.claim.where}: {each.outcome}" for each in judged if each.claim.where in answered]
        if others and not new:
            return f"**{name}, {results.scale}.** {'; '.join(others)}. {cost(results)}"
        if self._shown and not results.study.claims and not _tries(results.study):
            rows = len({row for row, _ in results.cells})
            return f"**{name}, {results.scale}.** A table of {rows} rows that chose settings. {cost(results)}"
        shown = self._table(results) if table else f"Table: `relucid show {name}`."
        lines = []
        for finding in new:
            lines.append(finding.line(finding.claim.says in self._said))
            self._said.add(finding.claim.says)
        return environment().from_string(SHOW).render(
            results=results, table=shown, findings=lines, doubts=doubts(new), cost=cost(results),
        )  # fmt: skip

    def _table(self, results: Results) -> str:
        """The rows that the page has not shown, with the columns that claims compare.

        The page's first table has also the others in which one value is better than another.
        """
        if _tries(results.study):
            return best_rates(results)
        rows: dict[str, set[tuple[str, ...]]] = {}
        for (row, column), runs in results.cells.items():
            rows.setdefault(row, set()).add((column, *(each.run.key for each in runs)))
        known = [row for row, cells in rows.items() if cells <= self._shown.get(row, set())]
        compared = {cell.column for claim in results.study.claims for cell in claim.cells()}
        if not self._shown:
            compared |= {name for name, column in results.study.columns.items() if column.best is not None}
        for row, cells in rows.items():
            self._shown[row] = self._shown.get(row, set()) | cells
        blocks = [block for block in results.blocks(known) if len(block)]
        shown = [block[[name for name in block if name in compared] or [*block]] for block in blocks]
        parts = [markdown(block) for block in shown]
        if any(len(block.columns) < len(whole.columns) for block, whole in zip(shown, blocks, strict=True)):
            parts.append(f"More columns: `relucid show {results.study.name}`.")
        parts += [f"The other {len(known)} rows: as above."] if known else []
        parts += [f"Chosen: {chosen}."] if (chosen := results.choices()) else []
        return "\n\n".join(parts)

    def finding(self, name: str, where: str, scale: str | None = None) -> Finding:
        """What was found of a claim, by the place that it names."""
        known = {finding.claim.where: finding for finding in self.findings(name, scale)}
        finding: Finding = named(where, known, "claim that records answer", name)
        return finding

    def settings(self, name: str) -> str:
        """What the largest complete scale of a study changes of the paper's, one line per setting."""
        study, complete = self.results(name).study, self.results(name).scale
        scales = {
            scale: flat({**study.scales[scale].config, **study.scales[scale].repeat})
            for scale in dict.fromkeys([study.largest_first()[0], complete])
        }
        names = dict.fromkeys(name for at in scales.values() for name in at)
        texts = {name: [str(at.get(name, "")) for at in scales.values()] for name in names}
        changed = {name: row for name, row in texts.items() if len(set(row)) > 1}
        return markdown(pd.DataFrame.from_dict(changed, "index", columns=[*scales]))

    def render(self, table: ModuleType, text: str | None = None, **more: Any) -> str:
        """The page of a table in Markdown.

        Its text may use `show(study, scale, table)`, `results(study, scale)`, `finding(study, where, scale)`,
        `settings(study)`, `number(x)` and `here`, the table's module; without a scale, of the largest complete one.

        Args:
            table: its module, which has `STUDIES`, and an .md file beside it.
            text: another than that of the file.
            more: what the text may use besides.
        """
        self.studies = {study.name: study for study in table.STUDIES}
        self._shown, self._said = {}, set()
        if text is None:
            text = Path(str(table.__file__)).with_suffix(".md").read_text(encoding="utf-8")
        page = environment().from_string(text).render(
            show=self.show, results=self.results, finding=self.finding, settings=self.settings, number=number,
            here=table, **more,
        )  # fmt: skip
        return page.rstrip() + "\n"


def environment() -> jinja2.Environment:
    """The environment of templates in Markdown: a missing value is an error."""
    return jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
