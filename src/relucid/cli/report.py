"""report: the page of a study, or of all results."""

from pathlib import Path
from typing import Annotated

import typer

from relucid.cli.foreign import foreign
from relucid.cli.options import Directory, Only, Overwrite, Results, ScaleName, Seeds, complete_study
from relucid.cli.output import writing
from relucid.cli.studies import Selection, tabulated

MaybeStudyName = Annotated[
    str | None,
    typer.Argument(
        metavar="STUDY",
        help="Name of a study (see `relucid list`), or a file of your own.",
        autocompletion=complete_study,
    ),
]
All = Annotated[
    bool, typer.Option("--all", help="All recorded results instead of one study: every claim on one page.")
]
Page = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write the page.")]


def report(
    study: MaybeStudyName = None,
    output: Page = Path("page.html"),
    everything: All = False,
    results: Results = None,
    scale: ScaleName = None,
    only: Only = None,
    seeds: Seeds = None,
    store: Directory = None,
    force: Overwrite = False,
) -> None:
    """Write the page of a study, or of all results: one HTML file with findings, tables and figures."""
    from relucid.report.page import check, save

    if (study is None) != everything:
        raise ValueError("name a study, or pass --all for all recorded results")
    part: Selection = {"scale": scale, "only": only, "seeds": seeds}
    if everything and (given := [f"--{name}" for name, value in part.items() if value is not None]):
        raise ValueError(f"{given[0]} is for one study; --all shows each claim at its best scale")
    if not everything and results is not None:
        raise ValueError("--results is for --all; the page of a study shows what is in --store")
    check(output, force, "--force")
    page, what = _overview(results, store) if study is None else _study(study, part, store)
    with writing(output):
        save(page, output)
    typer.echo(f"Written to {output}: {what}", err=True)


def _study(study: str, part: Selection, store: Path | None) -> tuple[str, str]:
    """The page of a study, and how many runs are on it."""
    from relucid import studies as engine
    from relucid.printing import counted
    from relucid.report.study import study_page

    with tabulated(study, part, store) as (table, kept):
        if not table.runs:
            raise ValueError(f"no run of {study} is left to show")
        with foreign(f"{study} fails", engine.StoreError):
            page = study_page(table, kept, study, only=part["only"], seeds=part["seeds"])
    return page, counted(len(table.runs), "run")


def _overview(results: Path | None, store: Path | None) -> tuple[str, str]:
    """The page of all claims, and how many of them were run."""
    from relucid.cli.claims import ledger
    from relucid.papers import PAPERS
    from relucid.papers.highlights import HEADLINES, NOTES, highlights
    from relucid.report.front import front
    from relucid.report.overview import overview_page

    found, tables = ledger(results, store)
    run = sum(entry.table is not None for entry in found)
    if not run:
        raise ValueError(
            "--all shows recorded results, and there are none: go to relucid's repository, or name a directory of "
            "result files by --results, or a store by --store"
        )
    first = front(found, tables, HEADLINES, highlights(found), NOTES)
    return overview_page(found, tables, first, PAPERS), f"{run} claims that were run"
