"""The published figures in the code are those of the paper's text, read again by another way."""

import pytest

from relucid_reproductions.structure import table2, table4, table5


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
    printed = {
        (label.replace(" ", ""), f"depth {depth}"): loss  # HB is printed "HB (11)", GD "GD(7)"
        for depth, row in table(lines, "Table 2:").items()
        for label, loss in row.items()
    }
    published = table2.sigmoids.published.items()
    assert {(row.replace(" ", ""), column): loss for (row, column), loss in published} == printed
    # An output of 0 has a loss of 1, in expectation.
    assert [column for (_, column), loss in printed.items() if loss < 1] == ["depth 40"]


SIZES = {"structure/cifar": (9, 40), "structure/cifar-deeper": (18, 52)}
SIZES |= {name.replace("cifar", "cifar100"): size for name, size in SIZES.items()}


@pytest.mark.parametrize("name", SIZES)
def test_table_4(lines, name):
    printed = {label.replace("$", "").rstrip("^*"): row for label, row in table(lines, "Table 4:").items()}
    (study,) = (study for study in table4.STUDIES if study.name == name)
    n, depth = SIZES[name]
    size = {"residual": f"(n = {n})", "dense": f"(k = 12, L = {depth})"}
    rows = {row for row, _ in study.published}
    assert rows == set(table4.ROWS) - {table4.CONTROL}
    for (row, column), error in study.published.items():
        label = f"{row} {size[study.rows[row]['family']]}"
        assert error == printed[label][column.replace(" (+)", "(+)")]


def test_table_5(lines):
    printed = {
        (row, column.replace("(%)", " error %")): error
        for row, errors in table(lines, "Table 5:").items()
        for column, error in errors.items()
    }
    assert printed == table5.imagenet.published
