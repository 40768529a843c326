"""Write what is generated.

From results/: docs/claims.md, docs/results.md, the pages behind it in docs/results/, their figures and README's
findings. Besides: docs/cli.md, and what ImageNet would take in docs/tutorials/cluster.md.

python docs/pages.py
"""

import re
from pathlib import Path

from relucid.cli.app import app
from relucid.cli.forecast import Fleet
from relucid.cli.reference import reference
from relucid.papers import PAPERS, built_in, recorded, statements, studies
from relucid.papers.highlights import HEADLINES, NOTES, highlights
from relucid.papers.ours import calibration
from relucid.papers.ours.findings import findings
from relucid.report.claims import claims_page
from relucid.report.front import front
from relucid.report.results import results_pages
from relucid.studies import Run, Store, Study, plan
from relucid.studies.estimate import estimate
from relucid.studies.ledger import entries

DOCS = Path(__file__).parent
RESULTS, README = DOCS.parent / "results", DOCS.parent / "README.md"
CLUSTER = DOCS / "tutorials" / "cluster.md"
# The command on the page: eight GPUs, each with a run of its own, at an assumed rate and price.
EIGHT_GPUS = Fleet(jobs=8, gpus_per_run=1, tflops=20, price=2)


def pages() -> dict[str, str]:
    """The text of every generated page, by its file."""
    tables = recorded(RESULTS)
    found = entries(studies(), statements(), tables)
    first = front(found, tables, HEADLINES, highlights(found), NOTES)
    written = {
        "claims.md": claims_page(found, PAPERS),
        **results_pages(found, tables, first, PAPERS),
        "cli.md": reference(app),
    }
    for table in (each for each in tables if each.study.name == "calibration"):
        written["images/results-calibration.svg"] = calibration.drawing(table)
        written["results/calibration.md"] += f"\n![{calibration.ALT}](../images/results-calibration.svg)\n"
    return written


def readme(text: str) -> str:
    """README with the findings of the recorded quickstart between their marks."""
    tables = [table for table in recorded(RESULTS) if table.study.name == "quickstart"]
    return between("quickstart", "".join(f"{findings(table)}\n" for table in tables), text)


def cluster(text: str) -> str:
    """The tutorial with what the studies that count their operations would take, between its marks."""
    lines, seen = ["| study | runs | 10^18 operations | time | cost |", "|---|---|---|---|---|"], set[str]()
    for study in built_in().values():
        runs = [] if study.flops is None else plan(study, "full")
        if any(run.key not in seen for run in runs):  # studies that share their runs are listed once
            lines.append(_expected(study, runs))
        seen |= {run.key for run in runs}
    return between("imagenet", "\n" + "".join(f"{line}\n" for line in lines) + "\n", text)


def _expected(study: Study, runs: list[Run]) -> str:
    found = estimate(study, "full", runs, Store("nowhere", create=False), EIGHT_GPUS.tflops)
    hours, cost = EIGHT_GPUS.seconds(found) / 3600, EIGHT_GPUS.cost(found)
    operations = sum(found.seconds) * EIGHT_GPUS.tflops / 1e6
    return f"| `{study.name}` | {len(runs)} | {operations:.1f} | {hours:.0f} h | {cost:,.0f} |"


def between(mark: str, lines: str, text: str) -> str:
    """The text with these lines between two marks."""
    begin, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
    return re.sub(f"(?<={begin}).*?(?={end})", lambda _: lines, text, flags=re.DOTALL)


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).parent.mkdir(exist_ok=True)
        (DOCS / name).write_text(text)
    README.write_text(readme(README.read_text()))
    CLUSTER.write_text(cluster(CLUSTER.read_text()))
