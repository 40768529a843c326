from dataclasses import replace
from statistics import fmean

import pytest
import torch
from torch import nn

from relucid_reproductions.ours import streams
from relucid_reproductions.ours.drawing import smoothed
from relucid_reproductions.ours.plasticity import (
    ARMS,
    CRELU,
    DIGITS,
    GEOMETRIC,
    HALF,
    IMAGES,
    REDRAWN,
    RELU,
    SIZES,
    STUDIES,
    chosen,
    column,
    tasks,
)
from relucid_reproductions.ours.streams import (
    SETTINGS,
    Arm,
    Permuted,
    RandomLabels,
    begin,
    course,
    dense,
    renew,
)

DENSE, DENSE_RATES, CONVOLUTIONS, CONVOLUTION_RATES = STUDIES


@pytest.fixture(scope="module", params=[(DENSE, DIGITS), (CONVOLUTIONS, IMAGES)], ids=["digits", "pairs"])
def smoke(request, tmp_path_factory, smoked):
    study, settings = request.param
    return smoked(study, tmp_path_factory.mktemp("store")), settings


def test_every_network_learns_every_stream_at_the_best_rate_of_other_seeds(smoke):
    results, settings = smoke
    assert len(results.records) == len(ARMS) * len(settings)
    for record in results.records.values():
        metrics, size = record["metrics"], record["config"]["sizes"][record["config"]["setting"]]
        scores = {rate: fmean(metrics[f"last at {rate:g}"]) for rate in size["rates"]}
        assert scores[metrics["rate"]] == max(scores.values())
        assert len(metrics["last"]) == len(size["seeds"])
    rows = [row for rows in chosen(results, settings[0]).values() for row in rows]
    assert sorted(rows) == sorted(ARMS)


@pytest.mark.parametrize("study, rates", [(DENSE, DENSE_RATES), (CONVOLUTIONS, CONVOLUTION_RATES)])
def test_the_table_of_rates_is_of_the_same_runs(study, rates):
    assert {run.key for run in study.runs("cpu")} == {run.key for run in rates.runs("cpu")}


def test_seeds_that_choose_are_not_those_that_are_reported():
    for size in SIZES.values():
        assert not set(size["choosing"]) & set(size["seeds"])


def test_half_the_units_make_as_many_channels_of_half_the_parameters(smoke):
    results, settings = smoke
    size = {row: results[row, column(settings[0], "parameters")].mean() for row in (RELU, HALF, CRELU)}
    assert 0.45 < size[HALF] / size[RELU] < 0.55
    assert size[CRELU] > 1.5 * size[RELU]


def test_the_figure_has_a_line_per_network_setting_and_measure(smoke):
    results, settings = smoke
    (figure,) = tasks(results)
    assert len(figure.plot.data) == 2 * len(ARMS) * len(settings)


def seen(arm, setting, rates=(0.01,)):
    """What a stream shows its networks."""
    learners, given = begin(arm, setting, rates, (0, 1)), []
    learn = learners.stream.learn

    def note(inputs, targets, loss):
        given.append((inputs.clone(), targets.clone()))
        return learn(inputs, targets, loss)

    learners.stream.learn = note
    course(learners, setting, 2, arm.renew)
    return given


@pytest.mark.parametrize(
    "name, size",
    [
        ("permuted", {"digits": 20, "batch": 10}),
        ("labels", {"digits": 20, "batch": 10, "epochs": 2}),
        ("pairs", {"source": "digits", "images": 8, "tested": 4, "batch": 4, "epochs": 1}),
    ],
)
def test_all_networks_of_a_seed_see_the_same_data(name, size):
    first, *others = (seen(ARMS[row], SETTINGS[name](**size)) for row in (RELU, CRELU, GEOMETRIC, REDRAWN))
    for other in others:
        assert all(
            torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(first, other, strict=True)
        )
    inputs, targets = seen(ARMS[RELU], SETTINGS[name](**size), rates=(0.01, 0.1))[-1]
    assert torch.equal(inputs[:2], inputs[2:])
    assert torch.equal(targets[:2], targets[2:])
    assert not torch.equal(inputs[0], inputs[1])


def test_a_task_permutes_the_pixels_of_digits_and_the_next_one_otherwise():
    (first, labels), _, (second, _), _ = seen(Arm(), Permuted(digits=20, batch=10))
    digits = streams.all_digits()
    for image, label in zip(first[0], labels[0], strict=True):
        same = (digits.inputs.sort(1).values == image.sort().values).all(1)
        assert label in digits.targets[same]
    assert not torch.equal(first, second)


def test_the_accuracy_while_learning_is_that_before_each_step():
    setting = Permuted(digits=30, batch=30)  # one step: what a new network gets right
    learners = begin(Arm(), setting, (0.1,), (0,))
    given = []
    outputs = learners.stream.learn
    learners.stream.learn = lambda x, y, loss: given.append((x, y, outputs(x, y, loss))) or given[-1][2]
    score, _ = setting.task(learners)
    torch.manual_seed(0)
    x, y, _ = given[0]
    assert score.item() == pytest.approx(100 * (dense(Arm())(x[0]).argmax(1) == y[0]).double().mean().item())


def test_labels_are_fitted_by_a_network_that_can():
    setting = RandomLabels(digits=20, batch=20, epochs=200)
    assert course(begin(Arm(), setting, (0.01,), (0,)), setting, 1).scores.item() == 100


def dying(arm):
    setting = Permuted(digits=20, batch=10)
    learners = begin(arm, setting, (0.001,), (0, 1))
    learners.stream.params["layers.1.bias"].data[:, :3] = -100.0
    return learners, setting


def test_dead_units_are_those_that_never_change():
    learners, _ = dying(Arm())
    _, second, _ = learners.constant(torch.randn(2, 300, 64))
    assert second[:, :3].all()
    assert second.sum() < 10


def test_no_unit_of_crelu_is_dead():
    learners, _ = dying(Arm("crelu", 0.5))
    assert not torch.cat(learners.constant(torch.randn(2, 300, 64)), 1).any()


def test_dead_units_are_redrawn_and_the_outputs_stay():
    learners, setting = dying(Arm())
    setting.task(learners)  # Adam has moments now
    inputs = torch.randn(2, 300, 64)
    before, dead = learners.stream(inputs), learners.constant(inputs)
    renew(learners.stream, dead, torch.Generator().manual_seed(0))
    torch.testing.assert_close(learners.stream(inputs), before)
    assert not learners.constant(inputs)[1][:, :3].any()
    assert not learners.stream.first["layers.2.weight"][0, :, :3].any()
    assert learners.stream.first["layers.2.weight"][0, :, 3:].any()


def test_a_new_output_layer_is_drawn_for_every_pair():
    setting = SETTINGS["pairs"](source="digits", images=8, tested=4, batch=4, epochs=1)
    learners = begin(Arm(), setting, (0.01,), (0, 1))
    before = learners.stream.params["head.weight"].clone()
    streams.reset_head(learners)
    after = learners.stream.params["head.weight"]
    assert not torch.equal(before, after)
    assert after.abs().max() <= 64**-0.5
    assert not torch.equal(after[0], after[1])


def test_layer_norm_and_geometric_weights_are_where_they_are_asked_for():
    assert any(isinstance(module, nn.LayerNorm) for module in dense(Arm(norm=True)).modules())
    assert "layers.0.latitudes" in dict(dense(replace(Arm(), geometric=True)).named_parameters())


def test_running_means_look_back_over_a_tenth():
    assert smoothed([float(value) for value in range(20)])[:3] == [0.0, 0.5, 1.5]
