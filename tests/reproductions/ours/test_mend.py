import pytest
import torch
from torch import nn

from relucid.nn import CReLU
from relucid_reproductions.ours.mend import (
    CONVERTED,
    FITTED,
    INJECTED,
    KEPT,
    MOVED,
    NEW,
    NEW_CRELU,
    RATES,
    REDRAWN,
    STUDIES,
    UNCHANGED,
    WAYS,
    WITHOUT,
    Injected,
    repair,
)
from relucid_reproductions.ours.streams import Arm, RandomLabels, begin, course, dense

(STUDY,) = STUDIES


@pytest.fixture(scope="module")
def results(tmp_path_factory, smoked):
    return smoked(STUDY, tmp_path_factory.mktemp("store"))


def test_every_way_is_run_at_both_rates(results):
    assert len(results.records) == len(WAYS) * len(RATES)


def test_only_new_networks_forget(results):
    for row in WAYS:
        for column in KEPT:
            same = list(results[row, column]) == list(results[UNCHANGED, column])
            assert same == (row not in (NEW, NEW_CRELU)), row
        assert (results[row, MOVED].max() > 0.01) == (row in (NEW, NEW_CRELU)), row


def test_the_converted_network_has_the_size_of_the_new_one(results):
    size = {row: results[row, "parameters"].mean() for row in WAYS}
    assert size[CONVERTED] == size[WITHOUT] == size[NEW_CRELU] > size[UNCHANGED] == size[REDRAWN] == size[NEW]


def test_all_ways_begin_with_the_same_networks(results):
    for column in FITTED:
        first, *others = (results.behind(row, column)[0]["history"]["fitted"][:2] for row in WAYS)
        assert all(other == first for other in others)


def test_the_figure_has_a_line_per_way_and_measure(results):
    (draw,) = STUDY.figures
    assert [len(figure.plot.data) for figure in draw(results)] == [2 * len(WAYS)] * len(RATES)


@pytest.fixture
def learners():
    setting = RandomLabels(digits=40, batch=20, epochs=2)
    learners = begin(Arm(), setting, (0.01,), (0, 1))
    course(learners, setting, 1)
    return learners, setting.inputs


def test_converted_networks_have_crelu_and_the_optimizers_state(learners):
    before, inputs = learners
    steps, moments = before.stream.steps, before.stream.first["layers.1.weight"].clone()
    after = repair(before, WAYS[CONVERTED], 0.01, inputs)
    assert sum(isinstance(layer, CReLU) for layer in after.stream.networks[0].modules()) == 3
    assert after.stream.steps == steps
    kept, new = after.stream.first["layers.1.weight"].chunk(2, 2)
    torch.testing.assert_close(kept, moments)
    assert not new.any()
    assert after.draws is before.draws


@pytest.mark.parametrize("way, kept", [(WITHOUT, False), (REDRAWN, True)])
def test_redrawn_units_keep_the_step_counter_that_a_new_optimizer_starts_again(learners, way, kept):
    before, inputs = learners
    assert bool(repair(before, WAYS[way], 0.01, inputs).stream.steps) == kept


def test_an_injected_network_changes_nothing_at_first_and_trains_its_new_part_only(learners):
    before, inputs = learners
    expected = before.stream(inputs)
    after = repair(before, WAYS[INJECTED], 0.01, inputs)
    torch.testing.assert_close(after.stream(inputs), expected, rtol=1e-5, atol=1e-6)
    assert {name.partition(".")[0] for name in after.stream.params} == {"new"}


def test_injection_adds_a_network_and_subtracts_its_frozen_copy():
    old, new = dense(Arm()), dense(Arm())
    both, x = Injected(old, new), torch.randn(3, 64)
    torch.testing.assert_close(both(x), old(x), rtol=1e-5, atol=1e-6)
    nn.init.zeros_(new.head.weight)
    nn.init.zeros_(new.head.bias)
    torch.testing.assert_close(both(x), old(x) - both.copy(x))
