"""Write what is generated: docs/claims.md, docs/results.md, figures and README's findings from results/, docs/cli.md.

python docs/pages.py
"""

import re
from pathlib import Path

from relucid.cli.app import app
from relucid.cli.reference import reference
from relucid.papers import PAPERS, recorded, statements, studies
from relucid.papers.highlights import highlights
from relucid.papers.ours.findings import findings
from relucid.report.claims import claims_page
from relucid.report.results import results_page
from relucid.studies.ledger import entries

DOCS = Path(__file__).parent
RESULTS, README = DOCS.parent / "results", DOCS.parent / "README.md"


def pages() -> dict[str, str]:
    """The text of every generated page, by its file."""
    found = entries(studies(), statements(), recorded(RESULTS))
    return {
        "claims.md": claims_page(found, PAPERS),
        **results_page(found, highlights(found), PAPERS),
        "cli.md": reference(app),
    }


def readme(text: str) -> str:
    """README with the findings of the recorded quickstart between their marks."""
    tables = [table for table in recorded(RESULTS) if table.study.name == "quickstart"]
    listed = "".join(f"{findings(table)}\n" for table in tables)
    begin, end = "<!-- quickstart -->\n", "<!-- /quickstart -->"
    return re.sub(f"(?<={begin}).*?(?={end})", lambda _: listed, text, flags=re.DOTALL)


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text)
    README.write_text(readme(README.read_text()))
