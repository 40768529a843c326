"""Numbers that the documentation takes from results or from code."""

import re
from pathlib import Path

import pytest
import torch

from relucid.models import create
from relucid.papers import find, statements
from relucid.papers.cifar import REENCODED
from relucid.papers.crelu import theorem_c1
from relucid.papers.gmp.evolution import ADAM
from relucid.papers.ours.calibration import shares

DOCS = Path(__file__).parents[2] / "docs"


def quoted(page, pattern):
    """The number that a page states."""
    (found,) = re.findall(pattern, (DOCS / page).read_text())
    return found


@pytest.fixture(scope="module")
def by_study(recorded_tables):
    return {table.study.name: table for table in recorded_tables}


@pytest.mark.parametrize(
    "column, pattern",
    [
        (theorem_c1.POOLED, r"one pooling region loses (0\.\d+) of its input"),
        (theorem_c1.PRINTED, r"the printed D gives (0\.\d+)"),
        (theorem_c1.TRUE, r"\| (0\.\d+) for random filters \|"),
    ],
)
@pytest.mark.parametrize("layer", theorem_c1.LAYERS)
def test_what_random_filters_lose_is_what_the_study_found(by_study, column, pattern, layer):
    text = quoted("how/crelu.md", pattern)
    mean = by_study["crelu/random"].cells[layer, column].mean
    assert float(text) == pytest.approx(mean, abs=0.6 * 10.0 ** -len(text.partition(".")[2]))


@pytest.mark.parametrize("study, what", [("calibration", "trials"), ("calibration-default", "others")])
def test_the_improvements_that_were_announced_without_a_difference_are_those_of_the_study(
    by_study, study, what
):
    page = "tutorials/improve.md"
    count, of = quoted(page, rf"[Ii]n (\d+) of \[(\d+) {what}\]\(\.\./results/{study}\.md\)")
    found = shares(by_study[study])
    assert (int(count), int(of)) == (sum(value > 0 for value in found), len(found))


def test_the_fall_of_table_s1_is_divided_as_the_study_does(by_study):
    text = quoted(
        "how/crelu.md", r"Of the fall in energy, ([\d.]+ points are the second phase, [\d.]+) the selection"
    )
    second, selection = map(float, re.findall(r"[\d.]+", text))
    (claim,) = [claim for claim in find("crelu/reconstruction").claims if claim.erratum]
    assert (
        f"In energy, {second:.0f} points of that fall are the second phase, {selection:g} the selection"
        in claim.erratum
    )
    both = float(quoted("how/crelu.md", r"√\(1 - 2K/D\) is (0\.\d+) with the true D"))
    for filters, channels in theorem_c1.LAYERS.values():
        shares = [phases * filters / (25 * channels) for phases in (1, 2)]
        assert both == round((1 - shares[1]) ** 0.5, 3)
        assert second == pytest.approx(100 * (shares[1] - shares[0]))
    for layer in theorem_c1.LAYERS:
        pooled = by_study["crelu/random"].cells[layer, theorem_c1.POOLED].mean
        assert 100 * (1 - shares[1] - pooled**2) == pytest.approx(selection, abs=0.15)


def test_the_page_and_the_ledger_say_the_same_of_theorem_a5():
    (claim,) = [claim for claim in statements()["crelu"] if claim.where == "Theorem A.5"]
    shares = r"with 6 filters of 8 weights in (\d+)% of them at 4 shifts, in (\d+)% at 2"
    assert [quoted("how/crelu.md", shares)] == re.findall(shares, claim.erratum)


def test_the_counts_of_agd_net_are_those_of_the_networks():
    (claim,) = [claim for claim in statements()["structure"] if claim.where == "Eq. 21"]
    counts = re.findall(r"([\d,]{9}) (?:parameters )?at L = (\d+)", claim.note)
    assert [depth for _, depth in counts] == ["40", "52"]
    for count, depth in counts:
        with torch.device("meta"):
            network = create(f"structure/agdnet{depth}", num_classes=10)
        assert count == f"{sum(parameter.numel() for parameter in network.parameters()):,}"


def test_the_weights_of_convpool_are_those_counted(by_study):
    cells = by_study["crelu/parameters"].cells
    assert (
        quoted("how/crelu.md", r"\| ([\d,]+) as printed in Table S2")
        == f"{cells['ConvPool, baseline', 'weights'].mean:,.0f}"
    )
    millions = cells["All-CNN-B, CReLU (all)", "millions of weights"].mean
    assert quoted("how/crelu.md", r"the published (\d\.\d)M weights") == f"{millions:.1f}"


def test_the_bound_on_steps_of_adam_is_that_of_the_code():
    assert quoted("how/gmp.md", r"never exceed (\d\.\d+) learning rates") == f"{ADAM:.2f}"


def test_the_erratum_of_table_s1_has_the_simulated_figure(by_study):
    (claim,) = [claim for claim in find("crelu/reconstruction").claims if claim.erratum]
    (lost,) = re.findall(r"one region loses (0\.\d+) of its input", claim.erratum)
    for layer in theorem_c1.LAYERS:
        assert float(lost) == round(by_study["crelu/random"].cells[layer, theorem_c1.POOLED].mean, 2)


def test_wherever_cifar_10_was_used_its_encoding_is_mentioned(recorded_tables):
    used = {
        table.study.name: table.study.protocol
        for table in recorded_tables
        if any(run["config"].get("data") == "cifar10" for run in table.runs)
    }
    assert len(used) > 5
    assert [name for name, protocol in used.items() if REENCODED not in protocol] == []


def test_how_the_refitted_networks_failed_is_what_their_runs_show(by_study):
    table = by_study["crelu/convpool-refitted"]
    runs = [run for run in table.runs if run["config"]["variant"] == "half"]
    dead = [run for run in runs if run["metrics"].get("train_error", 0.0) > 80]
    learned = [run for run in dead if run["history"]["train_loss"][49] < 2]
    assert (len(runs), len(dead), len(learned)) == (10, 7, 6)
    assert [run["state"] for run in runs].count("diverged") == 1
    batch, images = runs[0]["config"]["batch_size"], runs[0]["config"]["train"]
    assert (images % batch, images * 4 // 5 % batch) == (4, 16)
    note = table.study.claims[0].note
    assert (
        "seven of ten networks with CReLU end at chance, six of them after learning for fifty epochs" in note
    )
