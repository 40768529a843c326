from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from relucid.inspect import pairing
from relucid.papers import find
from relucid.papers.crelu import fig1
from relucid.papers.crelu.measures import LAYERS
from relucid.papers.ours.merge import SHARES
from relucid.studies import Outcome, Store, plan, table


def outcome(config):
    """What a run of "Single" leaves behind, made up."""
    rng = np.random.default_rng(config["seed"])
    metrics = {"error": 50.0, "val_error": 50.0, "train_error": 40.0}
    for number, layer in enumerate(LAYERS, 1):
        metrics |= {
            f"{layer} {name}": 0.1 for name in ("excess", "mu", "random mu", "pair", "learned", "random")
        }
        metrics |= {f"{layer} weights": 27.0, f"{layer} invariance": float(number)}
    arrays = {f"{layer} mu": -rng.random(12) for layer in LAYERS}
    arrays["reconstructions"] = rng.random((4, 4, 3, 32, 32)).astype(np.float16)
    return Outcome("finished", metrics | {"mean non-pair": 0.1}, arrays=arrays)


def drawn(name, tmp_path, made, scale="small"):
    study = find(name)
    store = Store(tmp_path)
    for each in plan(study, scale):
        store.put(each, made(each.config))
    found = study.figures(table(study, scale, store=tmp_path), store)
    store.close()
    assert all(figure.title and figure.alt for figure in found)
    return found


def test_histograms_show_the_filters_of_all_runs_beside_random_ones(tmp_path):
    found = drawn("crelu/pairing", tmp_path, outcome)
    assert [figure.title.rpartition(": ")[2] for figure in found] == ["Baseline", "CReLU"]
    bars, lines = (
        [trace for trace in found[0].plot.data if trace.type == kind] for kind in ("histogram", "scatter")
    )
    assert [len(trace.x) for trace in bars] == [36] * 4  # 12 filters, three runs
    for line in lines:  # a density, nearly all of which is drawn
        assert np.trapezoid(line.y, line.x) == pytest.approx(1, abs=0.01)


def test_invariance_is_a_line_a_network_over_the_layers(tmp_path):
    (found,) = drawn("crelu/invariance", tmp_path, outcome)
    assert [trace.name for trace in found.plot.data] == list(find("crelu/invariance").rows)
    assert list(found.plot.data[0].x) == list(LAYERS)
    assert list(found.plot.data[0].y) == [1, 2, 3, 4, 5, 6, 7]


def test_figures_3_and_4c_are_drawn_for_imagenet(tmp_path):
    histograms = drawn("crelu/pairing-imagenet", tmp_path / "pairing", outcome, "full")
    assert [figure.title.partition(": ")[2] for figure in histograms] == ["Baseline", "CReLU (conv1-4)"]
    # conv1 to conv4, each beside random filters
    assert all(len(figure.plot.data) == 8 for figure in histograms)
    (over_layers,) = drawn("crelu/invariance-imagenet", tmp_path / "invariance", outcome, "full")
    assert [trace.name for trace in over_layers.plot.data] == ["Baseline", "CReLU (conv1-7)"]


def test_images_stand_beside_what_is_reconstructed_of_them(tmp_path):
    (found,) = drawn("crelu/reconstruction", tmp_path, outcome)
    assert [np.array(trace.z).shape for trace in found.plot.data] == [(4 * 32, 32, 3)] * 4
    assert [title.text for title in found.plot.layout.annotations] == [
        "image",
        "from conv1",
        "from conv2",
        "from pool1",
    ]


def test_merging_is_drawn_against_the_parameters_that_are_left(tmp_path):
    def made(config):
        metrics = {f"error at {share}": 10 + share for share in SHARES}
        return Outcome("finished", metrics | {f"parameters at {share}": 100 - share for share in SHARES})

    (found,) = drawn("merge", tmp_path, made)
    assert list(found.plot.data[0].x) == [100 - share for share in SHARES]
    assert list(found.plot.data[0].y) == [10 + share for share in SHARES]


def test_figures_of_published_weights_are_those_of_alexnet(tmp_path, smoke_tested):
    study = find("crelu/pairing-published")
    found, store = smoke_tested(study, tmp_path), Store(tmp_path)
    over_layers, *others = study.figures(found, store)
    store.close()
    assert len(over_layers.plot.data) == 2 * len(fig1.NETWORKS)
    pairs, histograms = others[::2], others[1::2]
    assert [figure.title.partition(":")[0] for figure in pairs] == list(fig1.NETWORKS)
    assert [figure.plot.data[0].type for figure in pairs] == ["image"] * 3
    for figure in histograms:
        bars = [trace for trace in figure.plot.data if trace.type == "histogram"]
        assert [len(trace.x) for trace in bars] == [16] * fig1.LAYERS


@pytest.mark.needs("deepsea")
def test_published_weights_are_read_from_their_package():
    found = fig1.run({"random": False, **fig1.ROWS["DeepSea (cells, segmentation), 1"]})
    assert found.arrays["filters"].shape == (64, 1, 3, 3)
    assert found.metrics["mu"] == pytest.approx(-0.7135, abs=1e-4)


def test_figures_1_and_2_are_drawn_from_a_file_of_alexnets_weights(relucid, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fig1, "create", partial(fig1.create, width=0.125))
    made = fig1.alexnet()
    with torch.no_grad():
        made.features[0].weight[4:] = -made.features[0].weight[:4]
    torch.save(made.state_dict(), "alexnet.pth")
    command = (
        "examine relucid.papers.crelu.fig1:alexnet --checkpoint alexnet.pth --example 1,3,95,95 -o fig1.html"
    )
    status, shown, written = relucid(*command.split())
    assert (status, written) == (0, "Written to fig1.html\n")
    assert pairing(made.features[0].weight).share == 1
    first = next(line for line in shown.splitlines() if line.startswith("features.0"))
    assert "100%" in first
    page = Path("fig1.html").read_text()
    assert "cosine with the most opposite filter" in page
    assert '"type":"image"' in page.replace(" ", "")


def test_without_runs_nothing_is_drawn(tmp_path):
    assert drawn("crelu/pairing", tmp_path, lambda config: Outcome("failed", error="no")) == []
