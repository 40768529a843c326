"""Every published figure of crelu that the studies show, against the paper's text."""

import re

import pytest

from relucid.papers.crelu import STUDIES, table1_fitted
from relucid.papers.crelu.theorem_c1 import POOLED

BY_NAME = {study.name: study for study in STUDIES}
NUMBER = re.compile(r"\d+\.\d+")


@pytest.fixture(scope="module")
def paper(paper_text):
    """The lines of the paper."""
    return paper_text("crelu").splitlines()


def rows(paper, table, columns):
    """Label and numbers of the rows of a table: lines after its caption with so many numbers, up to the next one."""
    start = next(number for number, line in enumerate(paper) if re.match(rf"(\*\*)?Table {table}\. ", line))
    found = []
    for line in paper[start + 1 :]:
        label, *cells = line.replace("–", "-").split("\t")
        numbers = [float(number) for cell in cells for number in NUMBER.findall(cell)]
        if len(numbers) == columns:
            found.append((label.strip(), numbers))
        elif found and re.match(r"Table|Figure|[A-Z0-9]+\. ", line.strip("* ")):
            break
    return found


def flat(figures):
    """Figures and their errors, in order."""
    return [number for figure in figures for number in (figure if isinstance(figure, tuple) else [figure])]


def test_table_1(paper):
    labels = {
        "Baseline": "Baseline",
        "+ (double)": "Baseline (double)",
        "AVR": "AVR",
        "CReLU": "CReLU",
        "+ (half)": "CReLU (half)",
    }
    found = rows(paper, 1, 11)
    assert [label for label, _ in found] == list(labels)
    for label, numbers in found:
        ours = [BY_NAME[name].published[labels[label]] for name in ("crelu/convpool", "crelu/convpool-100")]
        assert [*flat(ours[0].values()), *flat(ours[1].values())] == numbers[:10]
        row = {"Baseline (double)": "double", "Baseline": "baseline"}.get(labels[label], labels[label])
        assert flat(BY_NAME["crelu/parameters"].published[f"ConvPool, {row}"].values()) == numbers[10:]


def test_table_2(paper):
    found = rows(paper, 2, 4)
    studies = [BY_NAME["crelu/vgg"]] * 4 + [BY_NAME["crelu/vgg-100"]] * 4
    assert len(found) == 8
    for study, (label, numbers) in zip(studies, found, strict=True):
        assert flat(study.published[label].values()) == numbers


def test_table_4(paper):
    published = BY_NAME["crelu/imagenet"].published
    assert [(row, flat(figures.values())) for row, figures in published.items()] == rows(paper, 4, 4)


def test_table_5(paper):
    labels = {
        "AllConvB": "All-CNN-B",
        "CReLU (all)": "All-CNN-B, CReLU (all)",
        "(conv1,4,7)": "All-CNN-B, CReLU (conv1,4,7)",
        "(conv1-4)": "All-CNN-B, CReLU (conv1-4)",
    }
    found = {labels[label]: numbers[4:] for label, numbers in rows(paper, 5, 5) if label in labels}
    published = BY_NAME["crelu/parameters"].published
    assert found == {row: flat(figures.values()) for row, figures in published.items() if "All-CNN" in row}


def test_table_6(paper):
    found = rows(paper, 6, 4)
    figures = BY_NAME["crelu/phase-imagenet"].published["CReLU (conv1-7)"]
    assert [label for label, _ in found] == [f"conv{number}" for number in range(1, 8)]
    for layer, numbers in found:  # each with its deviation
        assert [figures[f"{layer} {kind}"] for kind in ("pair", "non-pair")] == numbers[::2]


def test_table_s1(paper):
    found = rows(paper, "S1", 4)
    assert [label for label, _ in found] == ["conv2", "conv5"] * 2
    studies = [BY_NAME["crelu/reconstruction"]] * 2 + [BY_NAME["crelu/reconstruction-100"]] * 2
    for study, (layer, numbers) in zip(studies, found, strict=True):
        figures = study.published["CReLU (half)"]
        assert flat(figures[f"{layer} {kind}, one region"] for kind in ("learned", "random")) == numbers
        assert flat([BY_NAME["crelu/random"].published[layer][POOLED]]) == numbers[2:]


def test_every_study_that_shows_published_figures_is_checked_here():
    checked = {
        "convpool",
        "convpool-100",
        "parameters",
        "vgg",
        "vgg-100",
        "imagenet",
        "phase-imagenet",
        "random",
    }
    checked |= {"reconstruction", "reconstruction-100"}
    fitted = [study for study in table1_fitted.STUDIES if study.published]
    for study in fitted:
        checked.add(study.name.removeprefix("crelu/"))
        for row, cells in study.published.items():
            assert cells.items() <= BY_NAME["crelu/convpool"].published[row.partition(", ")[0]].items()
    assert {study.name for study in STUDIES if study.published} == {f"crelu/{name}" for name in checked}
