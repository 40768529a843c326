"""The results as pages in Markdown: a front page, one page per paper, one page per study."""

from collections.abc import Mapping, Sequence

from relucid.report.chapters import Chapter, Part, Section, chapters, made, short
from relucid.report.forest import Forest
from relucid.report.front import HEAD, Front, summary
from relucid.studies import Table
from relucid.studies.formats import chosen, lines, markdown, marked
from relucid.studies.ledger import Entry

HOW = """\
Positive effects are as claimed; of several comparisons the median one is shown. Each interval is at 95%, or stricter
where a claim makes several comparisons, so that all of them are right at once. Above 0 the claim *holds*, below 0
*the opposite holds*; around 0 there is *no such effect* if the interval excludes the published effect, else the claim
is *undecided*, or *no difference* was *found* where none was published. Published effects are scaled by the error of
the reference network. Each claim is shown at its largest complete scale: *full* is the paper's, *cpu* and *small* are
smaller.
"""


def results_pages(
    entries: Sequence[Entry], tables: Sequence[Table], front: Front, papers: Mapping[str, str]
) -> dict[str, str]:
    """The pages and their figures by file name: results.md first, and behind it results/*.md.

    Args:
        entries: the ledger.
        tables: everything recorded.
        front: the front page.
        papers: titles of the papers in the ledger.
    """
    found = chapters(entries, tables, papers)
    pages = {"results.md": _front(front, found), "images/results.svg": f"{front.drawing.svg}\n"}
    for chapter in found:
        pages[f"results/{chapter.paper}.md"] = _chapter(chapter)
        pages[f"images/results-{chapter.paper}.svg"] = f"{chapter.drawing.svg}\n"
        pages |= {f"results/{section.file}.md": _study(chapter, section) for section in chapter.sections}
    return pages


def _front(front: Front, found: Sequence[Chapter]) -> str:
    table = [HEAD, *([f"[{each.texts[0]}]({_page(each.entry)})", *each.texts[1:]] for each in front.lines)]
    papers = ", ".join(f"[{chapter.paper}](results/{chapter.paper}.md)" for chapter in found)
    return _paragraphs(
        [
            "# Results",
            f"{front.summary} By paper: {papers}.",
            markdown(table),
            "\n".join(f"{number}. {finding}" for number, finding in enumerate(front.findings, start=1)),
            _image(front.drawing, "images/results.svg"),
            " ".join(front.notes),
            HOW.rstrip(),
        ]
    )


def _page(entry: Entry, folder: str = "results/") -> str:
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


def _claims(title: str, entries: Sequence[Entry]) -> str:
    """A table of claims, each with a link to its study."""
    if not entries:
        return ""
    head = ("claim", "outcome", "but")
    rows = [
        (
            f"[{entry.claim.where}]({_page(entry, '')}): {entry.claim.says}",
            entry.outcome,
            ", ".join(each.word for each in entry.caveats),
        )
        for entry in entries
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
        ]
    )


def _scale(part: Part) -> str:
    table = part.table
    return _paragraphs(
        [
            f"## At {part.title}",
            markdown(lines(short(table))),
            "; ".join(marked(table)),
            *(_claim(entry) for entry in part.entries),
            "; ".join(chosen(table)),
            table.study.protocol,
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
