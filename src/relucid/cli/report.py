"""report: the page of a study."""

from pathlib import Path
from typing import Annotated

import typer

from relucid.cli.foreign import foreign
from relucid.cli.options import Directory, Only, Overwrite, ScaleName, Seeds, StudyName
from relucid.cli.output import writing
from relucid.cli.studies import resulting

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
    from relucid.experiments import StoreError
    from relucid.printing import counted
    from relucid.report.page import check, save
    from relucid.report.study import study_page

    check(output, force, "--force")
    with resulting(study, scale, only, seeds, store) as results, foreign(f"{study} fails", StoreError):
        page = study_page(results, study, only=only, seeds=seeds)
    with writing(output):
        save(page, output)
    typer.echo(f"Written to {output}: {counted(len(results.records), 'run')}", err=True)
