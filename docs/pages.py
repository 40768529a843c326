"""Write what is generated.

From results/: docs/claims.md, docs/results.md, the pages behind it in docs/results/, their figures and README's
findings. Besides: docs/cli.md, and what ImageNet would take in docs/tutorials/cluster.md.

python docs/pages.py
"""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from evidence.calibrated import ALT, calibrated
from evidence.chapters import Chapter, ScaleResults, Section, chapters, made, short
from evidence.claims import claims_page
from evidence.forest import Forest
from evidence.front import HEAD, HOW, Front, front, summary
from evidence.highlights import HEADLINES, NOTES, highlights

from relucid.cli.forecast import Fleet
from relucid.papers import PAPERS, built_in, recorded, statements, studies
from relucid.papers.ours.findings import findings
from relucid.studies import Plan, Store, Table, plan
from relucid.studies.estimate import estimate
from relucid.studies.formats import chosen, lines, markdown, marked
from relucid.studies.ledger import Entry, entries

DOCS = Path(__file__).parent
RESULTS, README = DOCS.parent / "results", DOCS.parent / "README.md"
CLUSTER = DOCS / "tutorials" / "cluster.md"
# The command on the page: eight GPUs, each with a run of its own, at an assumed rate.
EIGHT_GPUS = Fleet(jobs=8, tflops=20)
# Typer's own reference of an app; `relucid --help` and the page say the same.
REFERENCE = [
    "-m",
    "typer",
    "relucid.cli.app",
    "utils",
    "docs",
    "--name",
    "relucid",
    "--title",
    "Command line",
]


def pages() -> dict[str, str]:
    """The text of every generated page, by its file."""
    tables = recorded(RESULTS)
    found = entries(studies(), statements(), tables)
    first = front(found, tables, HEADLINES, highlights(found), NOTES)
    written = {
        "claims.md": claims_page(found, PAPERS),
        **results_pages(found, tables, first, PAPERS),
        "cli.md": reference(),
    }
    for table in (each for each in tables if each.study.name == "calibration"):
        written["images/results-calibration.svg"] = calibrated(table)
        written["results/calibration.md"] += f"\n![{ALT}](../images/results-calibration.svg)\n"
    return written


def reference() -> str:
    """The reference of the command line."""
    written = subprocess.run([sys.executable, *REFERENCE], capture_output=True, text=True, check=True).stdout
    return written.rstrip() + "\n"


def readme(text: str) -> str:
    """README with the findings of the recorded quickstart between their marks."""
    tables = [table for table in recorded(RESULTS) if table.study.name == "quickstart"]
    return between("quickstart", "".join(f"{findings(table)}\n" for table in tables), text)


def cluster(text: str) -> str:
    """The tutorial with what the studies that count their operations would take, between its marks."""
    rows, seen = ["| study | runs | 10^18 operations | time |", "|---|---|---|---|"], set[str]()
    for study in built_in().values():
        if study.flops is not None:
            runs = plan(study, "full")
            if any(run.key not in seen for run in runs):  # studies that share their runs are listed once
                rows.append(_expected(runs))
            seen |= {run.key for run in runs}
    return between("imagenet", "\n" + "".join(f"{row}\n" for row in rows) + "\n", text)


def _expected(runs: Plan) -> str:
    found = estimate(runs.study, "full", runs.runs, Store("nowhere", create=False), EIGHT_GPUS.tflops)
    seconds = EIGHT_GPUS.seconds(found)
    operations = sum(found.seconds or ()) * (EIGHT_GPUS.tflops or 0) / 1e6
    return f"| `{runs.study.name}` | {len(runs)} | {operations:.1f} | {(seconds or 0) / 3600:.0f} h |"


def between(mark: str, content: str, text: str) -> str:
    """The text with this content between two marks."""
    begin, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
    return re.sub(f"(?<={begin}).*?(?={end})", lambda _: content, text, flags=re.DOTALL)


def results_pages(
    ledger: Sequence[Entry], tables: Sequence[Table], first: Front, papers: Mapping[str, str]
) -> dict[str, str]:
    """The pages and their figures by file name: results.md first, and behind it results/*.md.

    Args:
        ledger: every claim.
        tables: everything recorded.
        first: the front page.
        papers: titles of the papers in the ledger.
    """
    found = chapters(ledger, tables, papers)
    files = {"results.md": _front(first, found), "images/results.svg": f"{first.drawing.svg}\n"}
    for chapter in found:
        files[f"results/{chapter.paper}.md"] = _chapter(chapter)
        files[f"images/results-{chapter.paper}.svg"] = f"{chapter.drawing.svg}\n"
        files |= {f"results/{section.file}.md": _study(chapter, section) for section in chapter.sections}
    return files


def _front(first: Front, found: Sequence[Chapter]) -> str:
    table = [HEAD, *([f"[{each.texts[0]}]({_page_of(each.entry)})", *each.texts[1:]] for each in first.lines)]
    papers = ", ".join(f"[{chapter.paper}](results/{chapter.paper}.md)" for chapter in found)
    return _paragraphs(
        [
            "# Results",
            f"{first.summary} By paper: {papers}.",
            markdown(table),
            "\n".join(f"{number}. {finding}" for number, finding in enumerate(first.findings, start=1)),
            _image(first.drawing, "images/results.svg"),
            " ".join(first.notes),
            HOW.rstrip(),
        ]
    )


def _page_of(entry: Entry, folder: str = "results/") -> str:
    assert entry.study is not None
    return f"{folder}{entry.study.name.replace('/', '-')}.md"


def _chapter(chapter: Chapter) -> str:
    """The page of a paper."""
    parts = [
        f"# {chapter.paper}",
        f"{chapter.title}. {summary(chapter.entries)} [All results](../results.md).",
        _claims("Experiments", chapter.of_kind("experiment")),
        _image(chapter.drawing, f"../images/results-{chapter.paper}.svg"),
        _claims("By construction", chapter.of_kind("construction")),
        _claims("Theorems and counts", chapter.of_kind("mathematics")),
        "What tests check, and every erratum, is in the [ledger](../claims.md).",
        "## Studies",
        "\n".join(f"- [{each.study.name}]({each.file}.md): {each.study.title}." for each in chapter.sections),
    ]
    if chapter.waiting:
        runs = [
            f"- `{each.command}`: {each.cost}. {'; '.join(entry.claim.where for entry in each.entries)}."
            for each in chapter.waiting
        ]
        parts += ["## Still to be run", "\n".join(runs)]
    return _paragraphs(parts)


def _claims(title: str, found: Sequence[Entry]) -> str:
    """A table of claims, each with a link to its study."""
    if not found:
        return ""
    head = ("claim", "outcome", "but")
    rows = [
        (
            f"[{entry.claim.where}]({_page_of(entry, '')}): {entry.claim.says}",
            entry.outcome,
            ", ".join(each.word for each in entry.caveats),
        )
        for entry in found
    ]
    used = head if any(row[-1] for row in rows) else head[:-1]
    return f"## {title}\n\n{markdown([used, *(row[: len(used)] for row in rows)])}"


def _study(chapter: Chapter, section: Section) -> str:
    """The page of a study: every scale, the largest first."""
    study = section.study
    source = f" Published: {study.source}." if study.source else ""
    return _paragraphs(
        [
            f"# {study.name}",
            f"{study.title}.{source} [{chapter.paper}]({chapter.paper}.md) · [All results](../results.md)",
            *map(_scale, section.parts),
            f"## Protocol\n\n{study.protocol}" if study.protocol else "",
        ]
    )


def _scale(part: ScaleResults) -> str:
    table = part.table
    return _paragraphs(
        [
            f"## At {part.title}",
            markdown(lines(short(table))),
            "; ".join(marked(table)),
            *(_claim(entry) for entry in part.entries),
            "; ".join(chosen(table)),
            part.protocol,
            f"{made(part)} To repeat: `{part.command}`.",
        ]
    ).rstrip()


def _claim(entry: Entry) -> str:
    """A claim with its outcome, all its comparisons, its caveats and remarks."""
    doubts = "".join(f" {each.text[0].upper()}{each.text[1:]}." for each in entry.caveats)
    note = f" {entry.claim.note}" if entry.claim.note else ""
    says = f"**{entry.claim.where}.** {entry.claim.says} **{entry.outcome[0].upper()}{entry.outcome[1:]}.**"
    judged = "\n".join(f"- {each}" for each in entry.judged)
    return _paragraphs([f"{says}{doubts}{note} {entry.remark}".rstrip(), judged]).rstrip()


def _paragraphs(texts: Sequence[str]) -> str:
    return "\n\n".join(filter(None, texts)) + "\n"


def _image(figure: Forest, file: str) -> str:
    """A figure; its description, escaped for brackets in Markdown, is its title: the table says the rest."""
    return f"![{figure.title.replace('[', '(').replace(']', ')')}]({file})"


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).parent.mkdir(exist_ok=True)
        (DOCS / name).write_text(text)
    README.write_text(readme(README.read_text()))
    CLUSTER.write_text(cluster(CLUSTER.read_text()))
