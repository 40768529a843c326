"""report: the page of a study."""

from pathlib import Path
from typing import Annotated

import typer

from relucid.cli.foreign import foreign
from relucid.cli.options import Directory, Only, Overwrite, ScaleName, Seeds, StudyName
from relucid.cli.output import writing
from relucid.cli.studies import tabulated

Page = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write the page.")]


def report(
    study: StudyName,
    output: Page = Path("page.html"),
    scale: ScaleName = None,
    only: Only = None,
    seeds: Seeds = None,
    store: Directory = None,
    force: Overwrite = False,
) -> None:
    """Write the page of a study: one HTML file with findings, tables and figures."""
    from relucid import studies as engine
    from relucid.printing import counted
    from relucid.report.page import check, save
    from relucid.report.study import study_page

    check(output, force, "--force")
    with tabulated(study, scale, only, seeds, store) as (table, kept):
        if not table.runs:
            raise ValueError(f"no run of {study} is left to show")
        with foreign(f"{study} fails", engine.StoreError):
            page = study_page(table, kept, study, only=only, seeds=seeds)
    with writing(output):
        save(page, output)
    typer.echo(f"Written to {output}: {counted(len(table.runs), 'run')}", err=True)
