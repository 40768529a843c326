import numpy as np
import pytest

from relucid.papers import find
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


def drawn(name, tmp_path, made):
    study = find(name)
    store = Store(tmp_path)
    for run in plan(study, "small"):
        store.put(run, made(run.config))
    found = study.figures(table(study, "small", store=tmp_path), store)
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


def test_without_runs_nothing_is_drawn(tmp_path):
    assert drawn("crelu/pairing", tmp_path, lambda config: Outcome("failed", error="no")) == []
