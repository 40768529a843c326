"""The published figures in the code are those of the paper's text, read again by another way."""

import pytest

from relucid.papers.structure import STUDIES, table4

NAMED = {study.name: study for study in STUDIES}


@pytest.fixture(scope="module")
def lines(paper_text):
    return paper_text("structure").splitlines()


def table(lines, caption):
    """The table above a caption: label of a row -> label of a column -> number."""
    end = next(number for number, line in enumerate(lines) if line.startswith(caption)) - 1
    begin = end
    while not lines[end].strip():
        end, begin = end - 1, end - 1
    while lines[begin].strip():
        begin -= 1
    head, *rows = [line.split("\t") for line in lines[begin + 1 : end + 1]]
    return {row[0]: dict(zip(head[1:], map(float, row[1:]), strict=True)) for row in rows}


def test_table_2(lines):
    printed = table(lines, "Table 2:")
    study = NAMED["structure/depth"]
    # HB is printed "HB (11)", GD "GD(7)"
    ours = {
        depth.removeprefix("depth "): {
            row.replace(" ", ""): figures[depth] for row, figures in study.published.items()
        }
        for depth in study.columns
    }
    theirs = {
        depth: {label.replace(" ", ""): mse for label, mse in row.items()} for depth, row in printed.items()
    }
    assert ours == theirs
    # an output of 0 has a loss of 1, in expectation
    assert [depth for depth, row in theirs.items() if min(row.values()) < 1] == ["40"]
    assert sum(mse < 1 for row in theirs.values() for mse in row.values()) == 1


@pytest.mark.parametrize(
    "name, data, n, depth",
    [
        ("structure/cifar", "CIFAR-10", 9, 40),
        ("structure/cifar-deeper", "CIFAR-10", 18, 52),
        ("structure/cifar100", "CIFAR-100", 9, 40),
        ("structure/cifar100-deeper", "CIFAR-100", 18, 52),
    ],
)
def test_table_4(lines, name, data, n, depth):
    printed = {label.replace("$", "").rstrip("^*"): row for label, row in table(lines, "Table 4:").items()}
    sizes = {"residual": f"(n = {n})", "dense": f"(k = 12, L = {depth})"}
    study = NAMED[name]
    assert study.published.keys() == set(table4.ROWS) - {table4.CONTROL}
    for row, figures in study.published.items():
        theirs = printed[f"{row} {sizes[study.rows[row]['family']]}"]
        assert figures == {data: theirs[data], f"{data} (+)": theirs[f"{data}(+)"]}


def test_table_5(lines):
    study = NAMED["structure/imagenet"]
    printed = table(lines, "Table 5:")
    ours = {
        row: {column.replace(" error %", "(%)"): figure for column, figure in figures.items()}
        for row, figures in study.published.items()
    }
    assert ours == printed
