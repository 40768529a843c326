"""Write what is generated.

From results/: docs/results.md, docs/claims.md, a page per table in docs/results/, and a figure.
Besides: docs/cli.md, and docs/conversions/networks.md from benchmarks.

python docs/pages.py
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import converted
from forest import effects, forest

from relucid.experiments import Record, Statement, read
from relucid.experiments._catalog import rooms, statements, studies, tables
from relucid.experiments._judge import Verdict, cell_of
from relucid.experiments._ledger import Entry, ledger
from relucid.experiments._page import Archive, Finding, environment
from relucid.experiments._study import named

DOCS = Path(__file__).parent
TEMPLATES, RESULTS = DOCS / "templates", DOCS.parent / "results"
PICTURES = {
    "recommender": "Earnings by phase; the table has the last four](../images/headline"
}  # drawn elsewhere
ORDER = ("crelu", "gmp", "structure", "ours")
# Typer's own reference of an app; `relucid --help` says the same.
REFERENCE = [
    *("-m", "typer", "relucid.cli.app", "utils", "docs"),
    *("--name", "relucid", "--title", "Command line"),
]
SHARED = 2  # an option of so many commands is explained once


class Site:
    """Everything recorded, and the pages about it."""

    def __init__(self, records: Mapping[str, Record]) -> None:
        self.archive, self.records = Archive(records), records
        self.rooms = sorted(rooms(), key=lambda room: ([*ORDER, room].index(room), room))
        self.ledger: dict[str, list[Entry]] = {
            room: ledger(studies(room), self.archive) for room in self.rooms
        }
        self.statements: dict[str, list[Statement]] = {room: statements(room) for room in self.rooms}
        self.titles = {room: str(rooms()[room].__doc__).splitlines()[0] for room in self.rooms}
        self.tables = {room: [_linked(table) for table in tables(room)] for room in self.rooms}
        self.drawn: list[tuple[str, Finding]] = []

    def pages(self) -> dict[str, str]:
        """The text of every page by its file, and the figure."""
        written: dict[str, str] = {}
        for room in self.rooms:
            for table in tables(room):
                written |= self._table(table)
        for name in ("results.md", "claims.md"):
            template = environment().from_string((TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8"))
            written[name] = (
                template.render(
                    site=self, brief=brief, effect=effect, published=published, median=median, share=share
                ).rstrip()
                + "\n"
            )
        written["images/results.svg"] = forest("The main claims", self.drawn)
        return written

    def _table(self, table: ModuleType) -> dict[str, str]:
        """The page of a table and its figure; links to other tables of its room name their files."""
        name = _file(table)
        title, _, rest = self.archive.render(table).partition("\n")
        room = table.__name__.rpartition(".")[0]
        files = {other.__name__.rpartition(".")[2]: _file(other) for other in self._beside(room)}
        linked = re.sub(r"\]\((\w+)\.md", lambda match: f"]({files.get(match[1], match[1])}.md", rest)
        rows = [(of.claim.where, of) for of in self._first(table) if effects(of)]
        question, _, rest = linked.strip().partition("\n\n")
        figure = [f"![{PICTURES[name]}.svg)"] if name in PICTURES else []
        figure += [f"![Effects with their intervals](../images/results/{name}.svg)"] if rows else []
        links = "[Results](../results.md), [claims](../claims.md)"
        paper = room.rpartition(".")[2]
        if (DOCS / "how" / f"{paper}.md").exists():
            links += f", [idea](../how/{paper}.md), [errata](../how/{paper}.md#errata)"
        text = "\n\n".join([title, links, question, *figure, rest]) + "\n"
        drawn = {f"images/results/{name}.svg": forest(title.strip("# "), rows)} if rows else {}
        return {f"results/{name}.md": text, **drawn}

    def _first(self, table: ModuleType) -> list[Finding]:
        """The findings of the first study of a table that has some."""
        return next(filter(None, map(self.archive.findings, table.STUDIES)), [])

    def _beside(self, package: str) -> list[ModuleType]:
        return [
            table for room in self.rooms for table in tables(room) if table.__name__.startswith(f"{package}.")
        ]

    def entry(self, room: str, where: str) -> Entry:
        """The entry of a claim."""
        known = {entry.claim.where: entry for entry in self.ledger[room]}
        entry: Entry = named(where, known, "claim", room)
        return entry

    def finding(self, room: str, where: str) -> Finding:
        """The finding of a claim."""
        finding = self.entry(room, where).finding
        if finding is None:
            raise ValueError(f"no record answers {where!r} of {room}")
        return finding

    def draw(self, label: str, room: str, where: str) -> str:
        """A line of a table on the front page, which is drawn in its figure as well."""
        finding = self.finding(room, where)
        self.drawn.append((label.replace("`", ""), finding))
        return f"[{label}]({self.page(finding)})"

    def page(self, finding: Finding) -> str:
        """The page of a claim's table."""
        return self.page_of(finding.results.study.name)

    def page_of(self, study: str) -> str:
        """The page of a study."""
        known = {
            of.name: _file(table) for room in self.rooms for table in tables(room) for of in table.STUDIES
        }
        return f"results/{known[study]}.md"

    def experiments(self, room: str | None = None) -> list[Entry]:
        """The claims that an experiment can test, of a room or of all."""
        chosen = self.rooms if room is None else [room]
        return [entry for name in chosen for entry in self.ledger[name] if entry.claim.kind == "experiment"]

    def outcomes(self, room: str | None = None) -> Counter[str]:
        """How many experiments have which outcome."""
        return Counter(entry.finding.outcome for entry in self.experiments(room) if entry.finding)

    def waiting(self) -> list[Entry]:
        """The experiments that have not been run."""
        return [entry for entry in self.experiments() if entry.finding is None]

    def answered(self, room: str) -> list[Entry]:
        """The claims of a room that records answer."""
        return [entry for entry in self.ledger[room] if entry.finding]

    def not_run(self, room: str) -> Counter[str]:
        """How many claims of a room have not been run, by their page."""
        return Counter(self.page_of(entry.study.name) for entry in self.ledger[room] if entry.finding is None)

    def proved(self) -> list[bool]:
        """Whether each theorem, definition and count holds, by tests or by runs."""
        counted = (entry for of in self.ledger.values() for entry in of if entry.claim.kind == "mathematics")
        by_runs = [entry.finding.outcome == "confirmed" for entry in counted if entry.finding]
        return [*by_runs, *(statement.holds for of in self.statements.values() for statement in of)]

    def commits(self) -> Counter[str]:
        """How many runs were made from which kind of code."""
        commits = (str(record.get("environment", {}).get("commit") or "") for record in self._runs())
        return Counter("dirty" if at.endswith("-dirty") else "clean" if at else "none" for at in commits)

    def runs(self) -> int:
        """How many runs there are, votes not counted."""
        return len(self._runs())

    def _runs(self) -> list[Record]:
        return [record for record in self.records.values() if record["runner"] != "vote"]


def _file(table: ModuleType) -> str:
    """The name of a table's page: that of its first study."""
    name: str = table.STUDIES[0].name
    return name.replace("/", "-")


def _linked(table: ModuleType) -> tuple[str, str]:
    """The first study of a table, and the table's page."""
    return table.STUDIES[0].name, f"results/{_file(table)}.md"


def share(finding: Finding) -> str:
    """How many comparisons have the outcome of their claim, if some have another: " (14 of 18)"."""
    count = sum(verdict.outcome == finding.outcome for verdict in finding.verdicts)
    return f" ({count} of {len(finding.verdicts)})" if 0 < count < len(finding.verdicts) else ""


def median(finding: Finding) -> Verdict:
    """The contrast in the middle by its effect; of an even number the smaller one."""
    known = [
        (_signed(verdict, verdict.comparison.effect), verdict)
        for verdict in finding.verdicts
        if verdict.comparison
    ]
    compared = [pair for pair in known if pair[1].published is not None] or known
    return sorted(compared, key=lambda pair: pair[0])[(len(compared) - 1) // 2][1]


def effect(finding: Finding, unit: str = "") -> str:
    """The effect of a claim in the claimed direction with its interval: of several contrasts the median one."""
    verdict = median(finding)
    assert verdict.comparison
    low, high = sorted(_signed(verdict, end) for end in verdict.comparison.interval(1 - verdict.level))
    size = brief(_signed(verdict, verdict.comparison.effect))
    return f"{size} [{brief(low)}, {brief(high)}]".replace(" ", "\u00a0") + (f" {unit}" if unit else "")


def published(finding: Finding) -> str:
    """The published effect in the claimed direction, and in brackets at the error here."""
    verdict = median(finding)
    a, b = (cell_of(side) for side in (verdict.contrast.a, verdict.contrast.b))
    if verdict.published is None or a is None or b is None:
        return ""
    ours, theirs = (finding.results.published(cell)[0] for cell in (a, b))
    there, here = (
        brief(_signed(verdict, (ours or 0.0) - (theirs or 0.0))),
        brief(_signed(verdict, verdict.published)),
    )
    return there if there == here else f"{there} ({here})"


def _signed(verdict: Verdict, value: float) -> float:
    return verdict.contrast.sign * value


def brief(value: float) -> str:
    """A number in two digits.

    >>> [brief(value) for value in (-2.304, 0.0156, 12.3, 0.000127)]
    ['-2.3', '0.016', '12', '0.00013']
    """
    return f"{value:.0f}" if abs(value) >= 10 else f"{float(f'{value:.2g}'):f}".rstrip("0").rstrip(".")


def reference() -> str:
    """The reference of the command line: Typer's own, with an option of several commands explained once."""
    written = subprocess.run([sys.executable, *REFERENCE], capture_output=True, text=True, check=True).stdout
    top, *commands = re.split(r"^## ", written, flags=re.M)
    explained = ([*_arguments(command), *_options(command)] for command in commands)
    count = Counter(line for lines in explained for line in dict.fromkeys(lines))
    shared = [line for line, times in count.items() if times >= SHARED]
    text = [
        top.partition("**Usage**")[0].strip(),
        "## Arguments and options of several commands",
        "\n".join(shared),
    ]
    for command in commands:
        says = command.partition("\n")[2].partition("**Usage**")[0].strip()
        (usage,) = re.findall(r"^\$ (.*)$", command, re.M)
        arguments = _arguments(command)
        own = [line for line in [*arguments, *_options(command)] if line not in shared]
        also = [re.findall(r"--[\w-]+", line)[0] for line in _options(command) if line in shared]
        text += [f"## `{usage.replace(' [OPTIONS]', '')}`", says, "\n".join(own)]
        text += [f"Also `{'`, `'.join(also)}`."] if also else []
    return "\n\n".join(filter(None, text)) + "\n"


def _arguments(command: str) -> list[str]:
    return re.findall(r"^\* `[A-Z].*$", command, re.M)


def _options(command: str) -> list[str]:
    lines: list[str] = re.findall(r"^\* `-.*$", command, re.M)
    return [line for line in lines if not line.startswith("* `--help`")]


def pages() -> dict[str, str]:
    """The text of every generated page of the site, by its file."""
    return {**Site(read(RESULTS)).pages(), "cli.md": reference(), "conversions/networks.md": converted.page()}


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).parent.mkdir(parents=True, exist_ok=True)
        (DOCS / name).write_text(text)
