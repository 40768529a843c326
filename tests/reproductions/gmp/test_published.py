"""The published figures in the code against the text of the paper, read by itself."""

import re

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from relucid.models import count_parameters
from relucid.nn import GeometricLinear
from relucid_reproductions.gmp.problems import BEST_RATES, METHODS, RATES
from relucid_reproductions.gmp.table1 import resnet50
from relucid_reproductions.gmp.table2 import vgg6
from relucid_reproductions.gmp.table3 import uci

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
    figures = {}
    for label, *cells in rows:
        matches = [FIGURE.fullmatch(cell.strip()) for cell in cells]
        if all(matches):
            figures[LABEL.search(label).group()] = [tuple(map(float, match.groups())) for match in matches]
    return figures


@pytest.mark.parametrize("study, number, rows", [(resnet50, 1, 3), (vgg6, 2, 6), (uci, 3, 4)])
def test_every_published_figure_is_that_of_the_paper(paper, study, number, rows):
    figures = figures_of(table_of(paper, number))
    assert len(figures) == rows
    printed = {
        (row, column): figure
        for row, of_row in figures.items()
        for column, figure in zip(study.columns, of_row, strict=True)
    }
    assert printed == study.published


def test_columns_are_in_the_papers_order(paper):
    assert [name.strip() for name in table_of(paper, 3)[0][1:]] == list(uci.columns)
    metric, batch = (row[1:] for row in table_of(paper, 2)[:2])
    assert [cell for cell in metric if cell] == ["Top-1 validation accuracy", "Top-5 validation accuracy"]
    full = vgg6.scales["full"].config["batch"]
    assert list(map(int, batch)) == [full * column.config["times"] for column in vgg6.columns.values()]
    assert [column.metric for column in vgg6.columns.values()] == ["top1"] * 3 + ["top5"] * 3
    assert [cell[:5] for cell in table_of(paper, 1)[0][1:]] == ["Top-1", "Top-5"]
    assert [column.metric for column in resnet50.columns.values()] == ["top1", "top5"]


def test_rates_are_those_of_appendix_c3(paper):
    section = paper[paper.index("\nC.3 UCI Regression with MLP") :]
    grid = re.search(r"from the set \$\\\{([^}]*)\\\}\$", section).group(1)
    assert tuple(map(float, grid.split(","))) == RATES
    gmp, others = re.search(
        r"learning rate is ([\d.]+) for GmP and ([\d.]+) for all the other", section
    ).groups()
    assert {method: float(gmp if method == "GmP" else others) for method in METHODS} == BEST_RATES


def test_recipes_are_those_of_appendix_c1_and_c2(paper):
    for study, section in ((resnet50, "C.1"), (vgg6, "C.2")):
        text = paper[paper.index(f"\n{section} ") :]
        text = text[: text.index("\n\nC.")]
        full = {**study.config, **study.scales["full"].config}
        assert f"number of epochs reaches {full['epochs']}." in text
        assert "does not improve for 5 epochs and stop training when it plateaus for 10 epochs" in text
        assert str(full["batch"]) in re.search(r"batch sizes? .*?for all methods", text).group()
    rates = {row: {**vgg6.config, **config}["rate"] for row, config in vgg6.rows.items()}
    gmp, others = re.search(r"learning rate is ([\d.]+) for GmP and ([\d.]+) all the other", text).groups()
    assert rates == {row: float(gmp if row.startswith("GmP") else others) for row in vgg6.rows}


@pytest.mark.parametrize("units, features", [(7, 5), (64, 100)])
def test_a_geometric_layer_has_as_many_parameters_as_a_standard_one(units, features):
    geometric, standard = GeometricLinear(features, units), nn.Linear(features, units)
    assert count_parameters(geometric) == count_parameters(standard)


class Computed(TorchDispatchMode):
    """Counter of all numbers that operations compute."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.count += sum(
            x.numel() for x in torch.utils._pytree.tree_leaves(out) if isinstance(x, torch.Tensor)
        )
        return out


def cost(units, features):
    layer = GeometricLinear(features, units)
    with Computed() as computed:
        layer.weight.sum().backward()
    return computed.count


def test_the_weights_of_a_geometric_layer_cost_as_many_numbers_as_there_are():
    once = cost(64, 128)
    assert cost(128, 128) < 2.1 * once
    assert cost(64, 256) < 2.1 * once
