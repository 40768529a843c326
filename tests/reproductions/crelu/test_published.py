"""Every published figure of crelu that the studies show, against the paper's text."""

import re
from itertools import chain

import pytest

from relucid.experiments._catalog import studies
from relucid_reproductions.crelu import table1_fitted, table2, table4
from relucid_reproductions.crelu.statements import STATEMENTS
from relucid_reproductions.crelu.table5 import MILLIONS
from relucid_reproductions.crelu.theorem_c1 import POOLED

BY_NAME = {study.name.removeprefix("crelu/"): study for study in studies("crelu")}
NUMBER = re.compile(r"\d+\.\d+")


@pytest.fixture(scope="module")
def paper(paper_text):
    """The lines of the paper."""
    return paper_text("crelu").splitlines()


def rows(paper, table, columns):
    """Label and numbers of the rows of a table: lines after its caption with so many numbers, up to the next one."""
    start = next(number for number, line in enumerate(paper) if re.match(rf"(\*\*)?Table {table}\. ", line))
    printed = []
    for line in paper[start + 1 :]:
        label, *cells = line.replace("–", "-").split("\t")
        numbers = [float(number) for cell in cells for number in NUMBER.findall(cell)]
        if len(numbers) == columns:
            printed.append((label.strip(), numbers))
        elif printed and re.match(r"Table|Figure|[A-Z0-9]+\. ", line.strip("* ")):
            break
    return printed


def published(study, row):
    """What a study has as published for a row: figures and their errors, in order."""
    figures = [value for cell, value in BY_NAME[study].published.items() if cell[0] == row]
    return [*chain.from_iterable(value if isinstance(value, tuple) else [value] for value in figures)]


def test_table_1(paper):
    labels = {
        "Baseline": ("Baseline", "baseline"),
        "+ (double)": ("Baseline (double)", "double"),
        "AVR": ("AVR", "AVR"),
        "CReLU": ("CReLU", "CReLU"),
        "+ (half)": ("CReLU (half)", "CReLU (half)"),
    }
    printed = rows(paper, 1, 11)
    assert [label for label, _ in printed] == list(labels)
    for label, numbers in printed:
        row, counted = labels[label]
        ours = published("convpool", row) + published("convpool-100", row)
        assert [*ours, BY_NAME["parameters"].published[f"ConvPool, {counted}", MILLIONS]] == numbers


def test_table_2(paper):
    printed = rows(paper, 2, 4)
    names = ["vgg"] * 4 + ["vgg-100"] * 4
    assert [
        (label, published(name, label)) for name, (label, _) in zip(names, printed, strict=True)
    ] == printed


def test_table_3(paper):
    printed = rows(paper, 3, 2)
    assert {label.strip("()"): numbers for label, numbers in printed[:5]} == table2.OTHERS
    for name, (of, best) in {"vgg": (0, "(conv1,3)"), "vgg-100": (1, "(conv1,3,5)")}.items():
        ours = [published(name, row)[-1] for row in ("VGG", best)]
        assert ours == [numbers[of] for _, numbers in printed[5:]]


def test_table_4(paper):
    printed = rows(paper, 4, 4)
    assert printed == [(row, published("imagenet", row)) for row in table4.ROWS]


def test_table_5_has_methods_of_others(paper):
    lines = [line.replace("_", "").split("\t") for line in paper if line.startswith((*table4.OTHERS,))]
    printed = {name: [float(cell.rstrip(" M")) if cell else None for cell in cells] for name, *cells in lines}
    assert printed == table4.OTHERS
    assert f"{table4.SPRINGENBERG}% top-1 error rate with center crop only" in "\n".join(paper)


def test_table_5(paper):
    labels = {"AllConvB": "", "CReLU (all)": ", CReLU (all)", "(conv1,4,7)": ", CReLU (conv1,4,7)"}
    labels |= {"(conv1-4)": ", CReLU (conv1-4)"}
    printed = {label: numbers[4:] for label, numbers in rows(paper, 5, 5) if label in labels}
    assert printed == {label: published("parameters", f"All-CNN-B{row}") for label, row in labels.items()}


def test_table_6(paper):
    printed = [numbers for _, numbers in rows(paper, 6, 4)]  # each with its deviation
    assert [*chain.from_iterable(row[::2] for row in printed)] == published("phase-imagenet", table4.SEVEN)


def test_table_s1(paper):
    printed = rows(paper, "S1", 4)
    assert [label for label, _ in printed] == ["conv2", "conv5"] * 2
    for name, (of_conv2, of_conv5) in {
        "reconstruction": printed[:2],
        "reconstruction-100": printed[2:],
    }.items():
        assert published(name, "CReLU (half)") == of_conv2[1] + of_conv5[1]
    for layer, numbers in printed:
        assert list(BY_NAME["random"].published[layer, POOLED]) == numbers[2:]


def test_every_study_that_shows_published_figures_is_checked_here():
    checked = {
        "convpool",
        "convpool-100",
        "parameters",
        "parameters-printed",
        "vgg",
        "vgg-100",
        "imagenet",
        "phase-imagenet",
        "random",
    }
    checked |= {"reconstruction", "reconstruction-100"}
    for study in table1_fitted.STUDIES:
        for (row, column), value in study.published.items():
            checked.add(study.name.removeprefix("crelu/"))
            assert value == BY_NAME["convpool"].published[row.partition(", ")[0], column]
    assert {name for name, study in BY_NAME.items() if study.published} == checked


def test_every_numbered_statement_table_and_figure_is_listed(paper):
    kinds = "Theorem|Lemma|Proposition|Corollary|Definition|Algorithm|Table|Figure"
    numbered = set(
        re.findall(rf"^\**({kinds}) ((?:[A-Z]\.?)?\d+(?:\.\d+)?)\b", "\n".join(paper), re.MULTILINE)
    )
    places = [
        claim.where for claim in (*STATEMENTS, *chain.from_iterable(s.claims for s in BY_NAME.values()))
    ]
    listed = {
        (kind.removesuffix("s").replace("Fig.", "Figure"), number)
        for place in places
        for kind, numbers in re.findall(r"([A-Z][a-z]+\.?) ((?:[A-Z]?\.?\d+(?:\.\d+)?(?:, )?)+)", place)
        for number in numbers.rstrip(", ").split(", ")
    }
    assert len(numbered) > 10
    assert numbered <= listed
