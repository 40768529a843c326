"""The published figures in the code against the text of the paper, read by itself."""

import re

import pytest

from relucid.papers.gmp.problems import BEST_RATES, METHODS, RATES
from relucid.papers.gmp.table1 import STUDY as RESNET50
from relucid.papers.gmp.table2 import STUDY as VGG6
from relucid.papers.gmp.table3 import UCI

FIGURE = re.compile(r"([\d.]+) ± ([\d.]+)")
LABEL = re.compile(r"WN\+MBN|GmP\+IMN|GmP|SP|WN|BN")


@pytest.fixture(scope="module")
def paper(paper_text):
    return paper_text("gmp")


def table_of(paper, number):
    """The lines with tabs right above a table's caption, split."""
    above = paper[: paper.index(f"\nTable {number}:")].rstrip().split("\n")
    rows = []
    while "\t" in above[-1]:
        rows.insert(0, above.pop().split("\t"))
    return rows


def figures_of(rows):
    """label -> [(figure, standard error), ...], of the rows that have figures."""
    found = {}
    for label, *cells in rows:
        matches = [FIGURE.fullmatch(cell.strip()) for cell in cells]
        if all(matches):
            found[LABEL.search(label).group()] = [tuple(map(float, match.groups())) for match in matches]
    return found


@pytest.mark.parametrize(
    "study, number, rows", [(RESNET50, 1, 3), (VGG6, 2, 6), (UCI, 3, 4)], ids=lambda value: str(value)[:20]
)
def test_every_published_figure_is_that_of_the_paper(paper, study, number, rows):
    assert study.source == f"gmp Table {number}"
    found = figures_of(table_of(paper, number))
    assert len(found) == rows
    assert found == {
        row: [figures[column] for column in study.columns] for row, figures in study.published.items()
    }


def test_columns_are_in_the_papers_order(paper):
    assert [name.strip() for name in table_of(paper, 3)[0][1:]] == list(UCI.columns)
    metric, batch = (row[1:] for row in table_of(paper, 2)[:2])
    assert [cell for cell in metric if cell] == ["Top-1 validation accuracy", "Top-5 validation accuracy"]
    full = VGG6.scales["full"].config["batch"]
    assert list(map(int, batch)) == [full * column.config["times"] for column in VGG6.columns.values()]
    assert [column.metric for column in VGG6.columns.values()] == ["top1"] * 3 + ["top5"] * 3
    assert [cell[:5] for cell in table_of(paper, 1)[0][1:]] == ["Top-1", "Top-5"]
    assert [column.metric for column in RESNET50.columns.values()] == ["top1", "top5"]


def test_rates_are_those_of_appendix_c3(paper):
    section = paper[paper.index("\nC.3 UCI Regression with MLP") :]
    grid = re.search(r"from the set \$\\\{([^}]*)\\\}\$", section).group(1)
    assert tuple(map(float, grid.split(","))) == RATES
    gmp, others = re.search(
        r"learning rate is ([\d.]+) for GmP and ([\d.]+) for all the other", section
    ).groups()
    assert {method: float(gmp if method == "GmP" else others) for method in METHODS} == BEST_RATES


def test_recipes_are_those_of_appendix_c1_and_c2(paper):
    for study, section in ((RESNET50, "C.1"), (VGG6, "C.2")):
        text = paper[paper.index(f"\n{section} ") :]
        text = text[: text.index("\n\nC.")]
        full = {**study.config, **study.scales["full"].config}
        assert f"number of epochs reaches {full['epochs']}." in text
        assert "does not improve for 5 epochs and stop training when it plateaus for 10 epochs" in text
        assert str(full["batch"]) in re.search(r"batch sizes? .*?for all methods", text).group()
    rates = {row: {**VGG6.config, **config}["rate"] for row, config in VGG6.rows.items()}
    gmp, others = re.search(r"learning rate is ([\d.]+) for GmP and ([\d.]+) all the other", text).groups()
    assert rates == {row: float(gmp if row.startswith("GmP") else others) for row in VGG6.rows}
