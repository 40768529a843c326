"""Changes of modules keep objects, take optimizers along and can all be undone."""

import signal
import subprocess
import sys

import pytest
import torch
from torch import nn

from relucid.convert import ConversionError
from relucid.convert._edits import Edits, uninterrupted
from relucid.convert._steps import Double, Read, step_of
from relucid.convert.geometric import Geometric
from relucid.convert.layout import Layout

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1),
    "SGD with momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "fused SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True),
    "Adam": torch.optim.Adam,
    "fused Adam": lambda p: torch.optim.Adam(p, fused=True),
    "AdamW, amsgrad": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "Adafactor": torch.optim.Adafactor,
    "RMSprop": torch.optim.RMSprop,
}


def doubled(size):
    scale = torch.cat((torch.ones(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)))
    return Layout(1, torch.arange(size).repeat(2), scale)


STEPS = {
    "crelu": [Double("1", -1), Read("2", doubled(6)), Double("3", -1), Read("4", doubled(5))],
    "signs": [Double("0", -1, replace=False), Read("2", doubled(6))],
    "geometric": [Geometric("0", "1"), Geometric("2", "3")],
}
STEPS["both"] = [*STEPS["crelu"], Geometric("2")]


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))


@pytest.fixture
def x():
    return torch.randn(7, 4)


def step(net, x, *optimizers):
    for optimizer in optimizers:
        optimizer.zero_grad()
    net(x).square().sum().backward()
    for optimizer in optimizers:
        optimizer.step()


def change(net, steps, *arguments, **options):
    with Edits(net, *arguments, **options) as edits:
        for each in steps:
            each.apply(edits)


def image(net, *optimizers):
    """Everything that undoing must bring back, by identity and by value."""
    parts = [
        (
            id(m),
            type(m),
            {k: id(v) for k, v in vars(m).items()},
            [(k, id(p)) for k, p in m._parameters.items()],
        )
        for m in net.modules()
    ]
    values = [
        (p.shape, p.detach().clone().tolist(), None if p.grad is None else p.grad.tolist())
        for p in net.parameters()
    ]
    states = [
        [
            ([id(p) for p in g["params"]], {k: v for k, v in g.items() if k != "params"})
            for g in optimizer.param_groups
        ]
        + [(id(p), {k: str(v) for k, v in s.items()}) for p, s in optimizer.state.items()]
        for optimizer in optimizers
    ]
    return parts, values, states


@pytest.mark.filterwarnings("ignore:Adafactor has no state per entry")
@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_that_was_given_trains_on(net, x, kind, name):
    optimizer = OPTIMIZERS[name](net.parameters())
    step(net, x, optimizer)
    captured = list(net.parameters())
    before = net(x)
    change(net, STEPS[kind], [optimizer], others=True)
    torch.testing.assert_close(net(x), before)
    if kind in ("crelu", "signs"):
        assert all(a is b for a, b in zip(captured, net.parameters(), strict=True))
    values = [p.detach().clone() for p in net.parameters()]
    step(net, x, optimizer)
    assert all(not torch.equal(a, b) for a, b in zip(values, net.parameters(), strict=True))


@pytest.mark.parametrize("name", ["Adam", "fused Adam", "SGD with momentum"])
def test_a_parameter_that_another_optimizer_has_stepped_is_a_new_object(net, x, name):
    other = OPTIMIZERS[name](net.parameters())
    step(net, x, other)
    old = net[2].weight
    with pytest.warns(UserWarning, match=r"has trained 2.weight and 1 more"):
        change(net, STEPS["crelu"], others=True)
    assert net[2].weight is not old
    assert net[0].weight is other.param_groups[0]["params"][0]
    step(net, x, other)  # no state of another shape


def test_a_parameter_that_no_optimizer_has_stepped_stays_the_same_object(net, x):
    optimizer = torch.optim.Adam(net.parameters(), fused=True)
    old = net[2].weight
    change(net, STEPS["crelu"], others=True)
    assert net[2].weight is old
    step(net, x, optimizer)
    assert optimizer.state[old]["exp_avg"].shape == old.shape == (5, 12)


def test_two_optimizers(net, x):
    body = torch.optim.SGD([*net[0].parameters(), *net[2].parameters()], 0.1, momentum=0.9)
    head = torch.optim.Adam(net[4].parameters())
    step(net, x, body, head)
    change(net, STEPS["geometric"], [body, head], others=True)
    values = [p.detach().clone() for p in net.parameters()]
    step(net, x, body, head)
    assert all(not torch.equal(a, b) for a, b in zip(values, net.parameters(), strict=True))


def test_hooks_and_a_graph_that_is_still_alive(net, x):
    seen = []
    net[2].weight.register_hook(lambda g: seen.append(g.shape))
    loss = net(x).sum()
    loss.backward()
    change(net, STEPS["crelu"])
    net(x).sum().backward()
    assert seen == [(5, 6), (5, 12)]
    assert loss.grad_fn is not None


def test_muon_takes_no_vectors(net, x):
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("this torch has no Muon")
    optimizer = torch.optim.Muon([net[0].weight, net[2].weight])
    before = image(net, optimizer)
    with pytest.raises(ConversionError, match="Muon trains matrices"):
        change(net, STEPS["geometric"], [optimizer])
    assert image(net, optimizer) == before


class Stop(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, Stop])
@pytest.mark.parametrize("kind", STEPS)
def test_whatever_stops_a_change_undoes_it(monkeypatch, net, x, kind, error):
    optimizer = torch.optim.Adam(net.parameters())
    step(net, x, optimizer)
    before, count = image(net, optimizer), 0
    for name in ("set", "touch", "parameter", "_rewrite", "follow"):
        method = getattr(Edits, name)

        def stopping(self, *args, _method=method, **kwargs):
            nonlocal left
            left -= 1
            if left == 0:
                raise error
            return _method(self, *args, **kwargs)

        monkeypatch.setattr(Edits, name, stopping)
    while True:
        left = count + 1
        try:
            change(net, STEPS[kind], [optimizer])
            break
        except error:
            assert image(net, optimizer) == before
            count += 1
    assert count > 3


def test_ctrl_c_waits_until_a_change_is_whole():
    done = []

    def change():
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            change()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, former)
    assert done


def test_an_error_of_a_change_is_raised():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="no"), uninterrupted():
        raise ValueError("no")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("kind", STEPS)
def test_steps_survive_as_plain_values(net, kind):
    import json

    for each in STEPS[kind]:
        again = step_of(json.loads(json.dumps(each.to_dict())))
        assert again.to_dict() == each.to_dict()


@pytest.mark.parametrize(
    "values", [{"step": "Edits", "name": "x"}, {"step": "Read", "name": "2", "code": 1}, {}]
)
def test_what_is_no_step_is_refused(values):
    with pytest.raises(ConversionError, match="no step"):
        step_of(values)


def test_steps_of_every_conversion_are_known_to_a_process_that_only_restores():
    code = """
import relucid.convert
from relucid.convert._steps import step_of
step_of({"step": "Draw", "name": "0", "half": True})
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
