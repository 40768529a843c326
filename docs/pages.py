"""Write the pages that are generated: docs/claims.md and docs/results.md from results/, docs/cli.md from the commands.

python docs/pages.py
"""

from pathlib import Path

from relucid.cli.app import app
from relucid.cli.reference import reference
from relucid.papers import PAPERS, recorded, statements, studies
from relucid.report.claims import claims_page
from relucid.report.results import results_page
from relucid.studies.ledger import entries

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "results"


def pages() -> dict[str, str]:
    """The text of every generated page, by its file."""
    tables = recorded(RESULTS)
    found = entries(studies(), statements(), tables)
    return {
        "claims.md": claims_page(found, PAPERS),
        "results.md": results_page(tables),
        "cli.md": reference(app),
    }


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text)
