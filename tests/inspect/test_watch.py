import copy
import logging
import threading

import pytest
import torch
from torch import nn

from relucid.convert import to_crelu
from relucid.inspect import Watch

RELUCID = "relucid"


def network(dead=3):
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    net[0].bias.data[:dead] = -100.0
    return net


def train(net, watch, steps, batch=64, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.0)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(batch, 4)).sum().backward()
        optimizer.step()
        if watch is not None:
            watch.step()


def test_metrics_are_logged_every_so_many_steps():
    net, logged = network(), []
    train(net, Watch(net, every=5, log=lambda metrics, step: logged.append((step, metrics["dead"]))), 12)
    assert logged == [(5, 0.5), (10, 0.5)]


def test_it_warns_above_the_limit_and_names_the_remedy(caplog):
    net = network()
    train(net, Watch(net, every=2, limit=0.4), 2)
    (record,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert record.getMessage().startswith(
        "step 2: 50% of the units are dead, more than 40%: to_crelu(model, example, "
    )
    caplog.clear()
    train(net, Watch(net, every=2, limit=0.5), 2)
    assert not caplog.records


def test_without_a_function_metrics_go_to_the_logger(caplog):
    caplog.set_level(logging.INFO, RELUCID)
    net = network()
    train(net, Watch(net, every=2, limit=1.0), 2)
    assert "step 2: dead 50.0%" in caplog.text


def test_it_watches_the_latest_inputs_and_keeps_none_afterwards():
    net = network()
    watch = Watch(net, every=20)
    train(net, watch, 20, batch=100)
    assert watch.examination["0"].activity.inputs == 300  # as many batches as it takes for 256
    assert not watch._latest
    train(net, watch, 10, batch=100)
    assert not watch._latest  # far from the next examination


def test_small_batches_are_put_together():
    net = network()
    watch = Watch(net, every=10)
    train(net, watch, 10, batch=8)
    assert watch.examination["0"].activity.inputs == 64


def test_calls_in_evaluation_mode_are_not_what_is_watched(caplog):
    net = network()
    watch = Watch(net, every=1)
    net.eval()(torch.randn(1, 4))
    assert not watch._latest
    watch.step()  # nothing seen yet: nothing to examine
    assert watch.examination is None
    assert "step 1: not examined: the network was not called in training mode" in caplog.text


def test_data_of_ones_own_are_watched_instead():
    net = network()
    watch = Watch(net, every=2, data=torch.randn(77, 4))
    train(net, watch, 2)
    assert watch.examination["0"].activity.inputs == 77


def test_a_network_with_several_arguments_is_watched():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 6)

        def forward(self, x, y, *, scale=1.0):
            return scale * self.layer(x + y).relu()

    net = Sum()
    watch = Watch(net, every=1)
    net(torch.randn(40, 4), torch.randn(40, 4), scale=2.0)
    watch.step()
    assert watch.examination["layer"].activity.inputs == 40


@pytest.mark.parametrize("count", [1, 3])
def test_a_network_with_any_number_of_arguments_is_watched(count):
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 6)

        def forward(self, *inputs, **options):
            return self.layer(options.get("scale", 1.0) * sum(inputs)).relu()

    net = Sum()
    watch = Watch(net, every=1)
    net(*[torch.randn(40, 4)] * count)
    watch.step()
    assert watch.examination["layer"].activity.inputs == 40


def test_options_that_a_network_takes_by_name_reach_it():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 6)

        def forward(self, x, **options):
            return self.layer(options["scale"] * x).relu()

    net = Scaled()
    watch = Watch(net, every=1)
    net(torch.randn(40, 4), scale=2.0)
    watch.step()
    assert watch.examination["layer"].activity.inputs == 40


class Log:
    """A logger that cannot be copied, as those that write in a thread of their own."""

    def __init__(self):
        self.lock, self.steps = threading.Lock(), []

    def log(self, metrics, step):
        self.steps.append(step)


def test_a_watched_network_is_converted_and_watched_on_while_its_copies_are_not():
    net, log = network(), Log()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    watch = Watch(net, every=2, log=log.log).attach(optimizer)
    to_crelu(net, torch.randn(40, 4), inplace=True, optimizer=optimizer)
    copy.deepcopy(net)(torch.randn(40, 4))
    assert not watch._latest
    train(net, None, 2, optimizer=optimizer)
    assert log.steps == [2]
    assert watch.examination["0"].rectified.kind == "crelu"


def test_an_optimizer_that_it_is_attached_to_counts_the_steps_and_shows_its_gradients():
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    watch = Watch(net, every=3).attach(optimizer)
    train(net, None, 3, optimizer=optimizer)
    gradient = torch.cat([net[0].weight.grad.flatten(), net[0].bias.grad])
    assert watch.examination["0"].plasticity.gradient == pytest.approx(gradient.norm().item())
    watch.detach()
    watch.examination = None
    train(net, None, 3, optimizer=optimizer)
    assert watch.examination is None


def test_the_network_stays_in_its_mode():
    net = network()
    train(net, Watch(net, every=1), 1)
    assert net.training


@pytest.mark.parametrize(
    "wrong, message", [({"every": 0}, "at least 1 step; got 0"), ({"limit": 7}, "0 to 1; got 7")]
)
def test_wrong_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Watch(network(), **wrong)
