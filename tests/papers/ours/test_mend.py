import pytest
import torch
from torch import nn

from relucid.nn import CReLU
from relucid.papers import find
from relucid.papers.ours.mend import (
    CONVERTED,
    INJECTED,
    KEPT,
    MOVED,
    NEW,
    NEW_CRELU,
    RATES,
    RENEWED,
    UNCHANGED,
    WAYS,
    WITHOUT,
    Injected,
    fitted,
    mend,
)
from relucid.papers.ours.streams import Arm, RandomLabels, begin, course, dense

STUDY = find("mend")


@pytest.fixture(scope="module")
def found(tmp_path_factory, smoke_tested):
    return smoke_tested(STUDY, tmp_path_factory.mktemp("store"))


def test_every_way_is_run_at_both_rates(found):
    assert len(found.runs) == len(WAYS) * len(RATES)


def test_only_new_networks_forget(found):
    for row in WAYS:
        for column in KEPT:
            same = found.cells[row, column].values == found.cells[UNCHANGED, column].values
            assert same == (row not in (NEW, NEW_CRELU)), row
        moved = max(found.cells[row, MOVED].values)
        assert (moved > 0.01) == (row in (NEW, NEW_CRELU)), row


def test_the_converted_network_has_the_size_of_the_new_one(found):
    size = {row: found.cells[row, "parameters"].mean for row in WAYS}
    assert size[CONVERTED] == size[WITHOUT] == size[NEW_CRELU] > size[UNCHANGED] == size[RENEWED] == size[NEW]


def test_all_ways_begin_with_the_same_networks(found):
    for rate in RATES:
        histories = [found.behind(row, fitted(rate))[0]["history"]["fitted"][:2] for row in WAYS]
        assert all(history == histories[0] for history in histories)


def test_the_figure_has_a_line_per_way_and_measure(found):
    assert [len(each.plot.data) for each in STUDY.figures(found, None)] == [2 * len(WAYS)] * len(RATES)


@pytest.fixture
def learners():
    setting = RandomLabels(digits=40, batch=20, epochs=2)
    learners = begin(Arm(), setting, (0.01,), (0, 1))
    course(learners, setting, 1)
    return learners, setting.inputs


def test_converted_networks_have_crelu_and_the_optimizers_state(learners):
    before, inputs = learners
    steps = before.stream.steps
    moments = before.stream.first["layers.1.weight"].clone()
    after = mend(before, WAYS[CONVERTED], 0.01, inputs)
    assert sum(isinstance(layer, CReLU) for layer in after.stream.networks[0].modules()) == 3
    assert after.stream.steps == steps
    kept, new = after.stream.first["layers.1.weight"].chunk(2, 2)
    torch.testing.assert_close(kept, moments)
    assert not new.any()
    assert after.draws is before.draws


def test_without_its_state_the_optimizer_starts_anew(learners):
    before, inputs = learners
    assert mend(before, WAYS[WITHOUT], 0.01, inputs).stream.steps == 0


def test_an_injected_network_changes_nothing_at_first_and_trains_its_new_part_only(learners):
    before, inputs = learners
    expected = before.stream(inputs)
    after = mend(before, WAYS[INJECTED], 0.01, inputs)
    torch.testing.assert_close(after.stream(inputs), expected, rtol=1e-5, atol=1e-6)
    assert {name.partition(".")[0] for name in after.stream.params} == {"new"}


def test_injection_adds_a_network_and_subtracts_its_frozen_copy():
    old, new = dense(Arm()), dense(Arm())
    both, x = Injected(old, new), torch.randn(3, 64)
    torch.testing.assert_close(both(x), old(x), rtol=1e-5, atol=1e-6)
    nn.init.zeros_(new.head.weight)
    nn.init.zeros_(new.head.bias)
    torch.testing.assert_close(both(x), old(x) - both.copy(x))
