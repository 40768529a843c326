from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from relucid.experiments import Results
from relucid.experiments._catalog import find
from relucid.experiments._records import packed
from relucid.inspect import pairing
from relucid_reproductions.crelu import fig1
from relucid_reproductions.crelu.measures import LAYERS


def record(run):
    """What a run of "Single" leaves, made up."""
    rng = np.random.default_rng(run.config["seed"])
    metrics = {"error": 50.0, "val_error": 50.0, "train_error": 40.0, "mean non-pair": 0.1}
    for number, layer in enumerate(LAYERS, 1):
        metrics |= {
            f"{layer} {name}": 0.1 for name in ("excess", "mu", "random mu", "pair", "learned", "random")
        }
        metrics |= {f"{layer} weights": 27.0, f"{layer} invariance": float(number)}
    arrays = {f"{layer} mu": packed(-rng.random(12)) for layer in LAYERS}
    arrays["reconstructions"] = packed(rng.random((4, 4, 3, 32, 32)).astype(np.float16))
    made = {"key": run.key, "config": run.config, "state": "finished", "metrics": metrics, "arrays": arrays}
    return made | {"history": {}, "seconds": 0.0}


@pytest.fixture(scope="module")
def drawn():
    """A function that draws the figures of a study from made-up runs."""

    def draw(name, scale="small"):
        study = find(name)
        results = Results(study, scale, {run.key: record(run) for run in study.runs(scale)})
        figures = [figure for draw in study.figures for figure in draw(results)]
        assert all(figure.title and figure.alt for figure in figures)
        return figures

    return draw


def test_histograms_show_the_filters_of_all_runs_beside_random_ones(drawn):
    figures = drawn("crelu/pairing")
    assert [figure.title.rpartition(": ")[2] for figure in figures] == ["Baseline", "CReLU"]
    bars, lines = (
        [trace for trace in figures[0].plot.data if trace.type == kind] for kind in ("histogram", "scatter")
    )
    assert [len(trace.x) for trace in bars] == [36] * 4  # 12 filters, three runs
    for line in lines:  # a density, nearly all of which is drawn
        assert np.trapezoid(line.y, line.x) == pytest.approx(1, abs=0.01)


def test_invariance_is_a_line_per_network_over_the_layers(drawn):
    (figure,) = drawn("crelu/invariance")
    assert [trace.name for trace in figure.plot.data] == list(find("crelu/invariance").rows)
    assert list(figure.plot.data[0].x) == list(LAYERS)
    assert list(figure.plot.data[0].y) == [1, 2, 3, 4, 5, 6, 7]


def test_figures_3_and_4c_are_drawn_for_imagenet(drawn):
    histograms = drawn("crelu/pairing-imagenet", "full")
    assert [figure.title.partition(": ")[2] for figure in histograms] == ["Baseline", "CReLU (conv1-4)"]
    assert all(
        len(figure.plot.data) == 8 for figure in histograms
    )  # conv1 to conv4, each beside random filters
    (over_layers,) = drawn("crelu/invariance-imagenet", "full")
    assert [trace.name for trace in over_layers.plot.data] == ["Baseline", "CReLU (conv1-7)"]


def test_images_stand_beside_what_is_reconstructed_of_them(drawn):
    (figure,) = drawn("crelu/reconstruction")
    assert [np.array(trace.z).shape for trace in figure.plot.data] == [(4 * 32, 32, 3)] * 4
    titles = [title.text for title in figure.plot.layout.annotations]
    assert titles == ["image", "from conv1", "from conv2", "from pool1"]


def test_figures_of_published_weights_are_those_of_alexnet(tmp_path, smoked):
    pairs, histograms = (fig1.of_networks(smoked(fig1.PUBLISHED, tmp_path))[first::2] for first in (0, 1))
    assert [figure.title.partition(":")[0] for figure in pairs] == list(fig1.NETWORKS)
    assert [figure.plot.data[0].type for figure in pairs] == ["image"] * 3
    for figure in histograms:
        bars = [trace for trace in figure.plot.data if trace.type == "histogram"]
        assert [len(trace.x) for trace in bars] == [16] * fig1.LAYERS


@pytest.mark.needs("deepsea")
def test_published_weights_are_read_from_their_package():
    measured = fig1.run(random=False, **fig1.ROWS["DeepSea (cells, segmentation), 1"])
    assert measured["arrays"]["filters"].shape == (64, 1, 3, 3)
    assert measured["mu"] == pytest.approx(-0.7135, abs=1e-4)


def test_figures_1_and_2_are_drawn_from_a_file_of_alexnets_weights(relucid, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fig1, "create", partial(fig1.create, width=0.125))
    made = fig1.alexnet()
    with torch.no_grad():
        made.features[0].weight[4:] = -made.features[0].weight[:4]
    torch.save(made.state_dict(), "alexnet.pth")
    network = "relucid_reproductions.crelu.fig1:alexnet"
    command = f"examine {network} --checkpoint alexnet.pth --example 1,3,95,95 -o fig1.html"
    status, shown, written = relucid(*command.split())
    assert (status, written) == (0, "Written to fig1.html\n")
    assert pairing(made.features[0].weight).share == 1
    assert "100%" in next(line for line in shown.splitlines() if line.startswith("features.0"))
    page = Path("fig1.html").read_text(encoding="utf-8")
    assert "cosine with the most opposite filter" in page
    assert '"type":"image"' in page.replace(" ", "")


@pytest.mark.parametrize("filters", [96, 64])
def test_figures_1_and_2_are_drawn_from_any_checkpoint_whatever_its_number_of_filters(tmp_path, filters):
    half = torch.randn(filters // 2, 3, 11, 11)
    state = {
        "a.bias": torch.zeros(3),
        "a.weight": torch.cat([half, -half]),
        "b.weight": torch.randn(8, filters, 3, 3),
    }
    torch.save(state, tmp_path / "weights.pth")
    pairs, cosines = fig1.of_checkpoint(tmp_path / "weights.pth")
    assert pairs.plot.data[0].type == "image"
    first, _, second, _ = cosines.plot.data
    assert [len(first.x), len(second.x)] == [filters, 8]
    assert first.x == pytest.approx(-1)


def test_a_checkpoint_without_convolutions_is_refused(tmp_path):
    torch.save({"a.weight": torch.zeros(3, 3)}, tmp_path / "weights.pth")
    with pytest.raises(ValueError, match="no convolutions"):
        fig1.of_checkpoint(tmp_path / "weights.pth")


def test_without_runs_nothing_is_drawn():
    study = find("crelu/pairing")
    assert [figure for draw in study.figures for figure in draw(Results(study, "small", {}))] == []
